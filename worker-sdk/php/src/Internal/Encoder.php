<?php

declare(strict_types=1);

namespace Ganger\Internal;

/**
 * Writes outputs as MessagePack. PHP's own extension can't: it makes the number 0 of a key "0", since PHP's
 * arrays do, and has no bytes.
 *
 * @internal
 */
final class Encoder
{
    private const DONE = "\x83\xa10\xa0\xa11\xcc\xc8\xa14";
    /** With its length, before an id of 16 bits or of 32. */
    private const DONE_SHORT = "\x00\x00\x00\x0d" . self::DONE . "\xcd";
    private const DONE_LONG = "\x00\x00\x00\x0f" . self::DONE . "\xce";
    private const DONE_V1 = "\x00\x00\x00\x08\x82\xa10\xa0\xa11\xcc\xc8";

    /**
     * An output as a map, without its length.
     *
     * @param array<mixed>|null $headers
     */
    public static function output(
        string $message,
        int $status,
        ?array $headers = null,
        ?string $queue = null,
        int|string|null $id = null,
        ?int $afterMs = null,
    ): string {
        $keys = 2;
        $rest = '';
        if ($headers !== null) {
            $keys++;
            $rest .= "\xa12" . self::map($headers);
        }
        if ($queue !== null) {
            if (!self::isText($queue)) {
                throw new \ValueError("a queue's name must be UTF-8");
            }
            $keys++;
            $rest .= "\xa13" . self::text($queue);
        }
        if ($id !== null) {
            $keys++;
            $rest .= "\xa14" . self::id($id);
        }
        if ($afterMs !== null) {
            $keys++;
            $rest .= "\xa15" . self::integer($afterMs);
        }
        return chr(0x80 | $keys) . "\xa10" . self::body($message) . "\xa11" . self::integer($status) . $rest;
    }

    /** With its length in front; throws if the daemon would refuse it. */
    public static function framed(string $data, int $frameBytesMax): string
    {
        $size = strlen($data);
        if ($size > $frameBytesMax) {
            throw new \LengthException("an answer must have at most {$frameBytesMax} bytes: {$size}");
        }
        return pack('N', $size) . $data;
    }

    /** The frame of the answer that most tasks have, without the way through `output`. */
    public static function done(int|string|null $id): string
    {
        if ($id === null) {
            return self::DONE_V1;
        }
        if (is_int($id) && $id > 0xff && $id <= 0xffff_ffff) {
            return $id > 0xffff ? self::DONE_LONG . pack('N', $id) : self::DONE_SHORT . pack('n', $id);
        }
        $id = self::id($id);
        return pack('N', 10 + strlen($id)) . self::DONE . $id;
    }

    /** In decimal if PHP's integers do not reach: 2^63 and more. */
    private static function id(int|string $id): string
    {
        if (is_int($id)) {
            return self::integer($id);
        }
        $high = $low = 0;
        foreach (str_split($id) as $digit) {
            $low = $low * 10 + (int) $digit;
            $high = $high * 10 + ($low >> 32);
            $low &= 0xffff_ffff;
        }
        return pack('CNN', 0xcf, $high, $low);
    }

    public static function isText(string $value): bool
    {
        return preg_match('//u', $value) === 1;
    }

    /** Text if it is UTF-8, else bytes. */
    public static function body(string $value): string
    {
        return self::isText($value) ? self::text($value) : self::bytes($value);
    }

    /** @param array<mixed> $entries */
    public static function map(array $entries): string
    {
        $count = count($entries);
        $data = match (true) {
            $count < 16 => chr(0x80 | $count),
            $count < 0x10000 => pack('Cn', 0xde, $count),
            default => pack('CN', 0xdf, $count),
        };
        foreach ($entries as $name => $value) {
            $data .= self::body((string) $name) . self::value($value);
        }
        return $data;
    }

    /** What MessagePack has not is JSON, or its text. */
    private static function value(mixed $value): string
    {
        return match (true) {
            $value === null => "\xc0",
            is_bool($value) => $value ? "\xc3" : "\xc2",
            is_int($value) => self::integer($value),
            is_float($value) => "\xcb" . pack('E', $value),
            is_string($value) => self::body($value),
            $value instanceof \Stringable => self::body((string) $value),
            $value instanceof \DateTimeInterface => self::text($value->format(\DateTimeInterface::RFC3339_EXTENDED)),
            default => self::body(json_encode($value, self::JSON) ?: get_debug_type($value)),
        };
    }

    private const JSON = JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_INVALID_UTF8_SUBSTITUTE
        | JSON_PARTIAL_OUTPUT_ON_ERROR;

    public static function text(string $value): string
    {
        $size = strlen($value);
        return match (true) {
            $size < 32 => chr(0xa0 | $size),
            $size < 0x100 => "\xd9" . chr($size),
            $size < 0x10000 => pack('Cn', 0xda, $size),
            default => pack('CN', 0xdb, $size),
        } . $value;
    }

    private static function bytes(string $value): string
    {
        $size = strlen($value);
        return match (true) {
            $size < 0x100 => "\xc4" . chr($size),
            $size < 0x10000 => pack('Cn', 0xc5, $size),
            default => pack('CN', 0xc6, $size),
        } . $value;
    }

    public static function integer(int $value): string
    {
        return match (true) {
            $value >= 0 => match (true) {
                $value < 0x80 => chr($value),
                $value < 0x100 => "\xcc" . chr($value),
                $value < 0x10000 => pack('Cn', 0xcd, $value),
                $value < 0x1_0000_0000 => pack('CN', 0xce, $value),
                default => pack('CJ', 0xcf, $value),
            },
            $value >= -0x20 => chr($value & 0xff),
            $value >= -0x80 => "\xd0" . chr($value & 0xff),
            $value >= -0x8000 => pack('Cn', 0xd1, $value & 0xffff),
            $value >= -0x8000_0000 => pack('CN', 0xd2, $value & 0xffff_ffff),
            default => pack('CJ', 0xd3, $value),
        };
    }
}
