<?php

declare(strict_types=1);

// The published vectors: proto-spec/vectors.

use Ganger\Internal\{Connection, Decoder, Encoder, Pipe, Splitter};
use Ganger\{ProtocolError, Worker};

$vectors = static function (string ...$names): array {
    $all = [];
    foreach ($names as $name) {
        $file = json_decode(file_get_contents(__DIR__ . "/../../../proto-spec/vectors/{$name}.json"), true, flags: JSON_THROW_ON_ERROR);
        same(1, $file['format']);
        $all = [...$all, ...$file['vectors']];
    }
    return $all;
};

$decode = static function (string $hex): array {
    [$pipe, $control] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    $connection = new Connection(static fn () => null, new Pipe($pipe, $control), 2, 1);
    $task = (new Decoder())->decode(hex2bin($hex), $connection);
    return [
        $task->message,
        $task->isBinary,
        $task->correlationId,
        $task->queue,
        $task->headers,
        $task->id,
        $task->attempt,
        $task->millisecondsLeft,
        $task->properties(),
    ];
};

$body = static fn (array $meaning): string => $meaning['text'] ?? hex2bin($meaning['hex']);

$refused = static function (string $hex, string $name) use ($decode): void {
    throws(ProtocolError::class, 'input', static fn () => $decode($hex), $name);
};

$id = static fn (?string $id): int|string|null => $id === null || (string) (int) $id !== $id ? $id : (int) $id;

return [
    'inputs mean what they should' => static function () use ($vectors, $decode, $body, $id) {
        foreach ($vectors('input-v1', 'input-v2') as $vector) {
            $meaning = $vector['meaning'];
            $properties = [];
            foreach ($meaning['properties'] as [$name, $value]) {
                $properties[$name] = isset($value['integer']) ? (int) $value['integer'] : $value['boolean'] ?? $body($value);
            }
            $wanted = [
                $body($meaning['message']),
                isset($meaning['message']['hex']),
                $meaning['correlation_id'],
                $meaning['queue'],
                array_column($meaning['headers'], 1, 0),
                $id($meaning['id']),
                $meaning['attempt'],
                $meaning['milliseconds_left'],
                $properties,
            ];
            same($wanted, $decode($vector['bytes']), $vector['name']);
        }
    },

    'hostile inputs are refused' => static function () use ($vectors, $refused) {
        foreach ($vectors('input-hostile') as $vector) {
            $refused($vector['bytes'], $vector['name']);
        }
    },

    'what the vectors lack is refused too' => static function () use ($refused) {
        $start = '85a130a16da131a0a132a171a133';
        $usual = '88a130a16da131a0a132a171a13380a13401a13501a136';
        $all = [
            'empty' => '',
            'bin for a key' => '85c40130a16da131a0a132a171a13380a13401',
            'a key that is not UTF-8' => '86a130a16da131a0a132a171a13380a13401a1ffc0',
            'a queue that is not UTF-8' => '88a130a16da131a0a132a1ffa13380a13401a13501a136c0a13780',
            'two halves of a character' => '88a130a16da131a1c3a132a1bca13380a13401a13501a136c0a13780',
            'header of a number' => "{$start}81a16101a13401",
            'header of bytes' => "{$start}81a161c40161a13401",
            'headers in a list' => "{$start}90a13401",
            'true for an id' => "{$start}80a134c3",
            'attempt 0' => '88a130a16da131a0a132a171a13380a13401a13500a136c0a13780',
            'properties in a list' => "{$usual}c0a13790",
            'bytes after the usual' => "{$usual}c0a1378000",
            'cut off in the usual' => "{$usual}c0a137",
            'a property that is cut off' => "{$usual}c0a13781a161a5",
            '0xc1' => "{$start}80a134c1",
            '0xc1 in an unknown key' => '86a130a16da131a0a132a171a13380a13401a178c1',
            'nested too deep' => '86a130a16da131a0a132a171a13380a13401a178' . str_repeat('91', 64) . 'c0',
            'nested much too deep' => '86a130a16da131a0a132a171a13380a13401a178' . str_repeat('91', 100_000) . 'c0',
            'an id twice in a wide map' => 'de0006a130a16da131a0a132a171a13380a13401a13402',
            'claims 4 GiB' => "{$start}80a178c6ffffffff",
            'claims 4 G values' => "{$start}80a178ddffffffff",
            'claims 4 G entries' => 'dfffffffff',
        ];
        foreach ($all as $name => $hex) {
            $refused($hex, $name);
        }
    },

    'unknown keys may hold anything' => static function () use ($decode) {
        $start = '86a130a16da131a0a132a171a13380a13401a178';
        $all = [
            "{$start}820102c0c3",
            "{$start}82910102c0cb3ff0000000000000",
            "{$start}c70305616263",
            "{$start}d60561626364",
            "{$start}" . str_repeat('91', 63) . 'c0',
            '87a130a16da131a0a132a171a13380a13401a178c0a178c0',
            'de0005a130a16da131a0a132a171a13380a13401',
        ];
        foreach ($all as $hex) {
            same(1, $decode($hex)[5], $hex);
        }
    },

    'a body that claims to be text is bytes' => static function () use ($decode) {
        foreach (['85a130a1ffa131a0a132a171a13380a13401', '88a130a1ffa131a0a132a171a13380a13401a13501a136c0a13780'] as $hex) {
            same(["\xff", true], array_slice($decode($hex), 0, 2));
        }
    },

    'the two ways to read say the same' => static function () use ($decode) {
        // The same map, with a length of its own that only the long way reads.
        $same = static function (string $hex) use ($decode): void {
            same($decode('de0008' . substr($hex, 2)), $decode($hex), $hex);
        };
        foreach ([0, 1, 31, 32, 33, 36, 255, 256] as $size) {
            $text = Encoder::text(str_repeat('x', $size));
            foreach ([0, 127, 128, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32, PHP_INT_MAX] as $number) {
                $packed = Encoder::integer($number);
                $left = $number === 0 ? "\xc0" : $packed;
                $attempt = Encoder::integer(max(1, $number));
                $properties = Encoder::map(['ü' => $number, 'a' => "\xff", 'b' => null, 'c' => 1.5, 'd' => -$number]);
                $same(bin2hex("\x88\xa10{$text}\xa11{$text}\xa12{$text}\xa13\x80\xa14{$packed}\xa15{$attempt}\xa16{$left}\xa17{$properties}"));
            }
        }
    },

    'outputs are written byte for byte' => static function () use ($vectors, $body, $id) {
        $written = 0;
        foreach ($vectors('output-v1', 'output-v2') as $vector) {
            $meaning = $vector['meaning'];
            $headers = $meaning['headers'] ?? null;
            if ($vector['form'] !== 'canonical') {
                continue;
            }
            $data = Encoder::output(
                $body($meaning['message']),
                $meaning['status'],
                $headers === null ? null : array_column($headers, 1, 0),
                $meaning['reply_queue'],
                $id($meaning['id']),
                $meaning['retry_after_ms'],
            );
            same($vector['bytes'], bin2hex($data), $vector['name']);
            $written++;
        }
        same(true, $written > 20);
    },

    'values of each kind' => static function () {
        $values = [
            -1, -32, -33, -128, -129, -32_768, -32_769, -(1 << 31), -(1 << 31) - 1, PHP_INT_MIN, PHP_INT_MAX,
            0, 127, 128, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32, 1.5, true, false, null,
            str_repeat('x', 31), str_repeat('x', 32), str_repeat('x', 255), str_repeat('x', 256), str_repeat('x', 65_536),
            "\xff" . str_repeat('x', 255), "\xff" . str_repeat('x', 65_536),
        ];
        same($values, (new Decoder())->map(Encoder::map($values)));
        $headers = ['at' => new DateTimeImmutable('@0'), 'many' => [1, 'ü'], 'any' => new ArrayObject()];
        same(
            ['at' => '1970-01-01T00:00:00.000+00:00', 'many' => '[1,"ü"]', 'any' => '{}'],
            (new Decoder())->map(Encoder::map($headers)),
        );
        throws(ValueError::class, 'must be UTF-8', static fn () => Encoder::output('', 201, queue: "\xff"));
    },

    'the short way to the usual answer writes the same' => static function () {
        foreach ([null, 0, 127, 128, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32, PHP_INT_MAX, '9223372036854775808', '18446744073709551615'] as $id) {
            same(Encoder::framed(Encoder::output('', 200, id: $id), 100), Encoder::done($id), (string) $id);
        }
    },

    'framing, however the stream is cut' => static function () use ($vectors) {
        foreach ($vectors('framing') as $vector) {
            foreach ([1, 2, 3, 5, 7, 10_000] as $size) {
                $splitter = new Splitter($vector['frame_bytes_max']);
                $frames = [];
                $isBroken = false;
                try {
                    foreach ($vector['stream'] === '' ? [] : str_split(hex2bin($vector['stream']), $size) as $part) {
                        $sole = $splitter->sole($part);
                        if ($sole !== null) {
                            $frames[] = bin2hex($sole);
                            continue;
                        }
                        $splitter->feed($part);
                        while (($frame = $splitter->shift()) !== null) {
                            $frames[] = bin2hex($frame);
                        }
                    }
                } catch (ProtocolError) {
                    $isBroken = true;
                }
                same($vector['frames'], $frames, $vector['name']);
                same($vector['error'] !== null, $isBroken, $vector['name']);
                $isBroken || same($vector['rest'], bin2hex($splitter->rest()), $vector['name']);
            }
        }
    },
];
