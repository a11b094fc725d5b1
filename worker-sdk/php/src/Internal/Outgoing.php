<?php

declare(strict_types=1);

namespace Ganger\Internal;

use Ganger\Outcome;
use Ganger\Status;

/**
 * What may be sent. Bodies and headers that programs read go exactly as they are or not at all; reasons,
 * progress and log records, which people read, are made text whatever they hold.
 *
 * @internal
 */
final class Outgoing
{
    private const HEADERS_MAX = 10_000;
    private const FRAME_OVERHEAD_BYTES = 64;
    private const REASONS = [Status::REQUEUE, Status::REJECT, Status::RETRY, Status::UNKNOWN_ERROR, 503];
    private const JSON = JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_PRESERVE_ZERO_FRACTION;
    private const LENIENT_JSON = self::JSON | JSON_INVALID_UTF8_SUBSTITUTE | JSON_PARTIAL_OUTPUT_ON_ERROR;

    public function __construct(private readonly int $frameBytesMax)
    {
    }

    /** An answer; throws for one that the daemon would refuse. */
    public function outcome(Outcome $outcome, int|string|null $id): string
    {
        $status = $outcome->status;
        if ($status === Status::IGNORE_MESSAGE || ($status >= 100 && $status < 200)) {
            throw new \ValueError("an answer's status must be one that ends the message: {$status}");
        }
        if ($outcome->afterMs !== null && $outcome->afterMs < 0) {
            throw new \ValueError("afterMs must be a whole number from 0: {$outcome->afterMs}");
        }
        [$message, $headers] = in_array($status, self::REASONS, true)
            ? [$this->readable($outcome->message), $outcome->headers]
            : self::body($outcome->message, $outcome->headers);
        return $this->frame($message, $status, self::headers($headers), $outcome->queue, $id, $outcome->afterMs);
    }

    /**
     * An emit, a log record or a progress note.
     *
     * @param array<mixed>|null $headers
     */
    public function note(int $status, mixed $message, ?array $headers, ?string $queue, int|string|null $id): string
    {
        if ($status === Status::EMIT) {
            [$message, $headers] = self::body($message, $headers);
            $headers = self::headers($headers);
        } else {
            $message = $this->readable($message);
            $headers = $headers === null ? null : array_map($this->field(...), $headers);
        }
        return $this->frame($message, $status, $headers, $queue, $id);
    }

    /** @param array<mixed>|null $headers */
    public function frame(
        string $message,
        int $status,
        ?array $headers = null,
        ?string $queue = null,
        int|string|null $id = null,
        ?int $afterMs = null,
    ): string {
        $data = Encoder::output($message, $status, $headers, $queue, $id, $afterMs);
        return Encoder::framed($data, $this->frameBytesMax);
    }

    /** For people: never an error, never longer than a frame, with U+FFFD for what is not UTF-8. */
    public function readable(mixed $value): string
    {
        $text = match (true) {
            is_string($value) => $value,
            is_bool($value) => $value ? 'true' : 'false',
            $value instanceof \DateTimeInterface => $value->format(\DateTimeInterface::RFC3339_EXTENDED),
            is_scalar($value) || $value === null => (string) $value,
            $value instanceof \Throwable => $value::class . ": {$value->getMessage()}",
            $value instanceof \Stringable => self::textOf($value),
            default => json_encode($value, self::LENIENT_JSON) ?: get_debug_type($value),
        };
        $text = substr($text, 0, intdiv($this->frameBytesMax, 2) - self::FRAME_OVERHEAD_BYTES);
        if (Encoder::isText($text)) {
            return $text;
        }
        return htmlspecialchars_decode(htmlspecialchars($text, ENT_QUOTES | ENT_SUBSTITUTE, 'UTF-8'), ENT_QUOTES);
    }

    private static function textOf(\Stringable $value): string
    {
        try {
            return (string) $value;
        } catch (\Throwable $error) {
            return $value::class . ', whose text throws ' . $error::class;
        }
    }

    /** A log record's field: a number stays one. */
    private function field(mixed $value): mixed
    {
        return $value === null || is_bool($value) || is_int($value) || is_float($value) ? $value : $this->readable($value);
    }

    /**
     * A string as it is; JSON, with its content type, of anything else that JSON has.
     *
     * @param array<mixed>|null $headers
     * @return array{string, array<mixed>|null}
     */
    private static function body(mixed $message, ?array $headers): array
    {
        if ($message === null || is_string($message)) {
            return [(string) $message, $headers];
        }
        if ($message instanceof \Stringable && !$message instanceof \JsonSerializable) {
            return [(string) $message, $headers];
        }
        $text = self::json($message, 'a message');
        $names = array_map(static fn ($name) => strtolower((string) $name), array_keys($headers ?? []));
        return [$text, in_array('content-type', $names, true)
            ? $headers
            : ($headers ?? []) + ['content-type' => 'application/json']];
    }

    /**
     * The daemon reads each value in its text form; what MessagePack lacks goes as JSON.
     *
     * @param array<mixed>|null $headers
     * @return array<mixed>|null
     */
    private static function headers(?array $headers): ?array
    {
        if ($headers === null) {
            return null;
        }
        if (count($headers) > self::HEADERS_MAX) {
            throw new \LengthException('a message must have at most ' . self::HEADERS_MAX . ' headers: ' . count($headers));
        }
        foreach ($headers as $name => $value) {
            $headers[$name] = match (true) {
                $value === null || is_scalar($value) => $value,
                $value instanceof \DateTimeInterface => $value->format(\DateTimeInterface::RFC3339_EXTENDED),
                $value instanceof \Stringable => (string) $value,
                default => self::json($value, "the header '{$name}'"),
            };
        }
        return $headers;
    }

    private static function json(mixed $value, string $what): string
    {
        if (is_resource($value) || $value instanceof \Closure) {
            throw new \TypeError("{$what} must be text, bytes or what JSON has: " . get_debug_type($value));
        }
        try {
            return json_encode($value, self::JSON | JSON_THROW_ON_ERROR);
        } catch (\JsonException $error) {
            throw new \TypeError("{$what} must be text, bytes or what JSON has: {$error->getMessage()}", 0, $error);
        }
    }
}
