<?php

declare(strict_types=1);

namespace Ganger\Internal;

use Ganger\ProtocolError;
use Ganger\Task;

/**
 * Reads inputs, and checks them. PHP's own extension for MessagePack loses what they say: it does not tell
 * text from bytes, makes numbers of the keys, and makes objects of what asks for it.
 *
 * @internal
 */
final class Decoder
{
    private const DEPTH_MAX = 64;

    /** What follows the message in nearly every input: no headers, short texts, flat properties. */
    private static ?string $usual = null;

    private string $data = '';
    private int $at = 0;
    private int $size = 0;
    private ?string $queue = null;

    public function decode(string $frame, Connection $connection): Task
    {
        $this->data = $frame;
        $this->at = 0;
        $this->size = strlen($frame);
        return $this->usual($connection) ?? new Task($connection, ...$this->fields());
    }

    /**
     * Any map, unchecked but for its form. PHP makes numbers of keys such as those of outputs.
     *
     * @return array<mixed>
     */
    public function map(string $data): array
    {
        $this->data = $data;
        $this->at = 0;
        $this->size = strlen($data);
        return $this->entries($this->mapSize() ?? throw new ProtocolError('a map must begin as one'), 1);
    }

    /** In a fifth of the time, for the regular expression does it in C; null if the input is another. */
    private function usual(Connection $connection): ?Task
    {
        if (!str_starts_with($this->data, "\x88\xa10")) {
            return null;
        }
        $this->at = 3;
        $message = $this->rawText();
        if ($message === null || preg_match(self::$usual ??= self::pattern(), $this->data, $found, 0, $this->at) !== 1) {
            $this->at = 0;
            return null;
        }
        [, $correlationId, $queue, $id, $attempt, $left, $properties] = $found;
        // The queue is the same, time after time.
        if (($correlationId !== '' || $queue !== $this->queue) && preg_match('//u', "{$correlationId}\n{$queue}") !== 1) {
            throw new ProtocolError("an input's texts must be UTF-8");
        }
        $this->queue = $queue;
        return new Task(
            $connection,
            $message,
            preg_match('//u', $message) !== 1,
            $correlationId,
            $queue,
            [],
            self::unsigned($id),
            ord($attempt),
            $left === "\xc0" ? null : self::unsigned($left),
            $properties,
        );
    }

    private static function pattern(): string
    {
        $sized = static fn (int $size) => sprintf('\x%02x(.{%d})', 0xa0 | $size, $size);
        $text = '(?|' . implode('|', array_map($sized, range(0, 31))) . '|\xd9\x20(.{32})|\xd9\x24(.{36}))';
        $number = '[\x00-\x7f]|\xcc.|\xcd..|\xce.{4}';
        $texts = str_replace(['(', ')'], '', substr($text, 3));
        $simple = "(?:{$texts}|{$number}|[\xe0-\xff]|[\xc0\xc2\xc3]|[\xcf\xd3].{8})";
        $entries = static fn (int $count) => sprintf('\x%02x(?:(?:%s)%s){%d}', 0x80 | $count, $texts, $simple, $count);
        $properties = implode('|', array_map($entries, range(0, 8)));
        return "/\\G\xa11{$text}\xa12{$text}\xa13\x80\xa14({$number})\xa15([\x01-\x7f])\xa16(\xc0|{$number})\xa17({$properties})$/sD";
    }

    private static function unsigned(string $packed): int
    {
        return match (strlen($packed)) {
            1 => ord($packed),
            2 => ord($packed[1]),
            3 => unpack('n', $packed, 1)[1],
            5 => unpack('N', $packed, 1)[1],
        };
    }

    /** @return array{string, bool, string, string, array<string>, int|string|null, ?int, ?int, string} */
    private function fields(): array
    {
        $fields = ['', false, '', '', [], null, null, null, "\x80"];
        $seen = 0;
        for ($left = $this->mapSize() ?? throw new ProtocolError('an input must be a map'); $left > 0; $left--) {
            $key = $this->text() ?? throw new ProtocolError("an input's keys must be texts");
            if (preg_match('/^[0-7]$/D', $key) !== 1) {
                $this->value(2);
                continue;
            }
            if ($seen & 1 << (int) $key) {
                throw new ProtocolError("an input must have each key once: \"{$key}\" is there twice");
            }
            $seen |= 1 << (int) $key;
            match ($key) {
                '0' => [$fields[0], $fields[1]] = $this->message(),
                '1' => $fields[2] = $this->text() ?? $this->nil($key, 'a text') ?? '',
                '2' => $fields[3] = $this->text() ?? $this->nil($key, 'a text') ?? '',
                '3' => $fields[4] = $this->headers() ?? $this->nil($key, 'a map of texts to texts') ?? [],
                '4' => $fields[5] = $this->number(0) ?? $this->nil($key, 'a number from 0'),
                '5' => $fields[6] = self::limited($this->number(1) ?? $this->nil($key, 'a number from 1')),
                '6' => $fields[7] = self::limited($this->number(0) ?? $this->nil($key, 'a number from 0')),
                '7' => $fields[8] = $this->properties() ?? $this->nil($key, 'a map') ?? "\x80",
            };
        }
        $missing = strspn(strrev(decbin($seen | 1 << 8)), '1');
        if ($missing < 4) {
            throw new ProtocolError("an input must have the keys \"0\" to \"3\": no \"{$missing}\"");
        }
        if ($this->at !== $this->size) {
            throw new ProtocolError('an input must be one map: there are bytes after it');
        }
        return $fields;
    }

    // -- the fields; null is another type --

    /**
     * A text that is not UTF-8 counts as bytes.
     *
     * @return array{string, bool}
     */
    private function message(): array
    {
        $text = $this->rawText();
        if ($text !== null) {
            return [$text, !Encoder::isText($text)];
        }
        $bytes = $this->bytes();
        return [$bytes ?? $this->nil('0', 'a text or bytes') ?? '', $bytes !== null];
    }

    private function text(): ?string
    {
        $text = $this->rawText();
        if ($text !== null && preg_match('//u', $text) !== 1) {
            throw new ProtocolError("an input's texts must be UTF-8");
        }
        return $text;
    }

    private function number(int $least): int|string|null
    {
        $start = $this->at;
        $number = $this->integer();
        if ($number !== null && is_int($number) && $number < $least) {
            $this->at = $start;
            return null;
        }
        return $number;
    }

    /** @return array<string>|null */
    private function headers(): ?array
    {
        $left = $this->mapSize();
        if ($left === null) {
            return null;
        }
        $headers = [];
        for (; $left > 0; $left--) {
            $name = $this->text();
            $value = $name === null ? null : $this->text();
            $headers[$name] = $value ?? throw $this->wrong('3', 'a map of texts to texts');
        }
        return $headers;
    }

    /** As they came, once they are known to be right. */
    private function properties(): ?string
    {
        $start = $this->at;
        $left = $this->mapSize();
        if ($left === null) {
            return null;
        }
        $this->entries($left, 2);
        return substr($this->data, $start, $this->at - $start);
    }

    private static function limited(int|string|null $number): ?int
    {
        return is_string($number) ? PHP_INT_MAX : $number;
    }

    private function nil(string $key, string $wanted): null
    {
        if ($this->peek() !== 0xc0) {
            throw $this->wrong($key, $wanted);
        }
        $this->at++;
        return null;
    }

    private function wrong(string $key, string $wanted): ProtocolError
    {
        return new ProtocolError(
            "an input's key \"{$key}\" must hold {$wanted}: " . bin2hex(substr($this->data, $this->at, 8)),
        );
    }

    // -- MessagePack; null is another type, and nothing is taken then --

    private function peek(): int
    {
        return ord($this->data[$this->at] ?? throw $this->cutOff());
    }

    private function cutOff(): ProtocolError
    {
        return new ProtocolError('an input must be one MessagePack map: it is cut off');
    }

    private function take(int $size): string
    {
        $start = $this->at;
        $this->at += $size;
        if ($this->at > $this->size) {
            throw $this->cutOff();
        }
        return substr($this->data, $start, $size);
    }

    /** The big-endian number of so many bytes behind the first one; 2^63 and more are negative. */
    private function behind(int $size): int
    {
        $this->at++;
        return match ($size) {
            1 => ord($this->take(1)),
            2 => unpack('n', $this->take(2))[1],
            4 => unpack('N', $this->take(4))[1],
            8 => unpack('J', $this->take(8))[1],
        };
    }

    private function mapSize(): ?int
    {
        $byte = $this->peek();
        if (($byte & 0xf0) === 0x80) {
            $this->at++;
            return $byte & 0x0f;
        }
        return match ($byte) {
            0xde => $this->behind(2),
            0xdf => $this->behind(4),
            default => null,
        };
    }

    private function rawText(): ?string
    {
        $byte = ord($this->data[$this->at] ?? throw $this->cutOff());
        if (($byte & 0xe0) === 0xa0) {
            $start = $this->at + 1;
            $this->at = $start + ($byte & 0x1f);
            return $this->at <= $this->size ? substr($this->data, $start, $byte & 0x1f) : throw $this->cutOff();
        }
        return match ($byte) {
            0xd9 => $this->take($this->behind(1)),
            0xda => $this->take($this->behind(2)),
            0xdb => $this->take($this->behind(4)),
            default => null,
        };
    }

    private function bytes(): ?string
    {
        return match ($this->peek()) {
            0xc4 => $this->take($this->behind(1)),
            0xc5 => $this->take($this->behind(2)),
            0xc6 => $this->take($this->behind(4)),
            default => null,
        };
    }

    /** In decimal if PHP's integers do not reach. */
    private function integer(): int|string|null
    {
        $byte = $this->peek();
        if ($byte < 0x80 || $byte >= 0xe0) {
            $this->at++;
            return $byte < 0x80 ? $byte : $byte - 0x100;
        }
        return match ($byte) {
            0xcc => $this->behind(1),
            0xcd => $this->behind(2),
            0xce => $this->behind(4),
            0xcf => ($number = $this->behind(8)) < 0 ? sprintf('%u', $number) : $number,
            0xd0 => $this->behind(1) << 56 >> 56,
            0xd1 => $this->behind(2) << 48 >> 48,
            0xd2 => $this->behind(4) << 32 >> 32,
            0xd3 => $this->behind(8),
            default => null,
        };
    }

    private function listSize(): ?int
    {
        $byte = $this->peek();
        if (($byte & 0xf0) === 0x90) {
            $this->at++;
            return $byte & 0x0f;
        }
        return match ($byte) {
            0xdc => $this->behind(2),
            0xdd => $this->behind(4),
            default => null,
        };
    }

    private function extensionSize(): ?int
    {
        $byte = $this->peek();
        if ($byte >= 0xd4 && $byte <= 0xd8) {
            $this->at++;
            return 1 << $byte - 0xd4;
        }
        return match ($byte) {
            0xc7 => $this->behind(1),
            0xc8 => $this->behind(2),
            0xc9 => $this->behind(4),
            default => null,
        };
    }

    private function simple(): float|bool|null
    {
        return match (ord($this->take(1))) {
            0xc0 => null,
            0xc2 => false,
            0xc3 => true,
            0xca => unpack('G', $this->take(4))[1],
            0xcb => unpack('E', $this->take(8))[1],
            default => throw new ProtocolError('an input must be MessagePack, which never has 0xc1'),
        };
    }

    /** Anything. The frame's own map is the first level; an extension counts as its data. */
    private function value(int $level): mixed
    {
        $scalar = $this->rawText() ?? $this->bytes() ?? $this->integer();
        if ($scalar !== null) {
            return $scalar;
        }
        $size = $this->mapSize();
        if ($size !== null) {
            return $this->entries($size, $level);
        }
        $size = $this->listSize();
        if ($size !== null) {
            return $this->items($size, $level);
        }
        $size = $this->extensionSize();
        return $size === null ? $this->simple() : substr($this->take($size + 1), 1);
    }

    /** @return array<mixed> */
    private function entries(int $left, int $level): array
    {
        $this->checkLevel($level);
        $entries = [];
        for (; $left > 0; $left--) {
            $name = $this->value($level + 1);
            $entries[is_scalar($name) ? (string) $name : get_debug_type($name)] = $this->value($level + 1);
        }
        return $entries;
    }

    /** @return list<mixed> */
    private function items(int $left, int $level): array
    {
        $this->checkLevel($level);
        $items = [];
        for (; $left > 0; $left--) {
            $items[] = $this->value($level + 1);
        }
        return $items;
    }

    private function checkLevel(int $level): void
    {
        if ($level > self::DEPTH_MAX) {
            throw new ProtocolError('an input must be nested at most ' . self::DEPTH_MAX . ' deep');
        }
    }
}
