<?php

declare(strict_types=1);

// Real worker processes, with a daemon by hand on the other side.

const MIB = 1 << 20;

/** @param list<int> $concurrencies */
$each = static function (array $concurrencies, Closure $what): void {
    foreach ($concurrencies as $concurrency) {
        Peer::of([$concurrency], $what);
    }
};

return [
    'hello names the library and how much it takes' => static function () {
        Peer::of([7], static function (Peer $peer) {
            same(['sdk' => 'ganger-php', 'version' => '0.1.0', 'concurrency' => '7'], $peer->hello[2]);
            same(['', 100, [0, 1, 2]], [$peer->hello[0], $peer->hello[1], array_keys($peer->hello)]);
        });
    },

    'outcomes' => static fn () => $each([1, 2], static function (Peer $peer) {
        $answers = [
            '' => ['', 200],
            'done' => ['', 200],
            'echo Grüße 漢 🦀' => ['Grüße 漢 🦀', 201],
            'reject' => ['never', 400],
            'requeue' => ['', 300],
        ];
        foreach ($answers as $body => [$message, $status]) {
            same([0 => $message, 1 => $status, 4 => 9], $peer->ask($body, 9));
        }
        same([0 => 'later', 1 => 429, 4 => 9, 5 => 1500], $peer->ask('retry', 9));
    }),

    'all of a message and of a reply' => static fn () => $each([1, 2], static function (Peer $peer) {
        $answer = $peer->ask('headers answers', 0, ['headers' => ['a' => 'ä', 'b' => '']]);
        same('{"a":"\u00e4","b":""}', $answer[0]);
        same([['n' => 7, 'ü' => 'é'], 'answers', 0], [$answer[2], $answer[3], $answer[4]]);
        $last = '18446744073709551615';
        $properties = ['row_id' => 4, 'key' => "\xff"];
        $answer = $peer->ask('about', $last, ['correlation_id' => 'c', 'attempt' => 3, 'left' => 5000, 'properties' => $properties]);
        same(var_export(['c', 'q', $last, 3, 5000, $properties], true), $answer[0]);
        same($last, $answer[4]);
    }),

    'a handler that throws answers 500 and goes on' => static fn () => $each([1, 2], static function (Peer $peer) {
        $answer = $peer->ask('raise x');
        same([500, 1], [$answer[1], $answer[4]]);
        same('InvalidArgumentException: no good: ' . "\u{fffd} x", strtok($answer[0], "\n"));
        contains('modes.php', $answer[0]);
        $reasons = ['wrong' => 'must return an Outcome', 'deep' => 'DivisionByZeroError', 'unspeakable' => 'must be UTF-8'];
        foreach ($reasons as $body => $reason) {
            $answer = $peer->ask($body);
            same(500, $answer[1], $body);
            contains($reason, $answer[0]);
        }
        same('x', $peer->ask('echo x')[0]);
    }),

    'a reply that the daemon would refuse is a failure' => static function () {
        Peer::of([1, 4096], static function (Peer $peer) {
            $answer = $peer->ask('large 5000');
            same(500, $answer[1]);
            contains('at most 4096 bytes: 50', $answer[0]);
            same(4000, strlen($peer->ask('large 4000')[0]));
        });
    },

    'large, empty and binary bodies' => static fn () => $each([1, 2], static function (Peer $peer) {
        $large = str_repeat('ü', 5 * MIB);
        same(true, $peer->ask("echo {$large}")[0] === $large);
        $binary = str_repeat(implode('', array_map(chr(...), range(0, 255))), 10 * MIB >> 8);
        same(true, $peer->ask($binary)[0] === $binary);
        same('', $peer->ask('echo ')[0]);
    }),

    'frames in dribbles and heaps' => static fn () => $each([1, 100], static function (Peer $peer) {
        foreach (str_split(Peer::input('echo slow', 1)) as $byte) {
            $peer->write($byte);
        }
        same('slow', $peer->receive()[0]);
        $heap = implode('', array_map(static fn ($n) => Peer::input("echo {$n}", $n), range(0, 99)));
        $peer->write(substr($heap, 0, -5));
        $peer->write(substr($heap, -5));
        foreach (range(0, 99) as $n) {
            same([0 => (string) $n, 1 => 201, 4 => $n], $peer->receive());
        }
    }),

    'many at once' => static fn () => $each([8], static function (Peer $peer) {
        $heap = implode('', array_map(static fn ($n) => Peer::input('together', $n), range(0, 7)));
        $peer->write($heap);
        $seen = array_map(static fn () => $peer->receive()[4], range(0, 7));
        sort($seen);
        same(range(0, 7), $seen);
    }),

    'a slow one holds up no other' => static fn () => $each([2], static function (Peer $peer) {
        $peer->begin('stuck', 1);
        foreach (range(2, 199) as $n) {
            same($n, $peer->ask('echo x', $n)[4]);
        }
        $peer->tell('__cancel__ 1');
        same([0 => 'gave up', 1 => 429, 4 => 1], $peer->receive());
    }),

    'an answer does not wait for a handler that blocks' => static fn () => $each([3], static function (Peer $peer) {
        $peer->write(Peer::input('block 0.01', 1) . Peer::input('block 1', 2));
        $began = microtime(true);
        same(1, $peer->receive()[4]);
        same(true, microtime(true) - $began < 0.9);
        same(2, $peer->receive()[4]);
    }),

    'a handler waits for streams' => static fn () => $each([1, 2], static function (Peer $peer) {
        same('[false,true,true]', $peer->ask('stream')[0]);
    }),

    'a fiber that is suspended by itself is told' => static fn () => $each([2], static function (Peer $peer) {
        contains('must wait by $task->wait()', $peer->ask('suspend')[0]);
        same('on', $peer->ask('echo on')[0]);
    }),

    'notes go out before the answer' => static fn () => $each([1, 2], static function (Peer $peer) {
        $peer->send('emit 300', 5);
        foreach (range(0, 299) as $n) {
            same([0 => "part {$n}", 1 => 103, 2 => ['n' => $n], 3 => 'parts', 4 => 5], $peer->receive());
        }
        same(200, $peer->receive()[1]);
        $notes = [
            'progress' => [0 => '1 of 2', 1 => 102, 4 => 1],
            'log' => [0 => 'noted', 1 => 101, 2 => ['level' => 'debug', 'target' => 'tests', 'n' => 1, 'many' => '[1,2]'], 4 => 1],
            'logger' => [0 => 'hot stuff', 1 => 101, 2 => ['level' => 'warn', 'target' => 'shop', 'degrees' => 90], 4 => 1],
        ];
        foreach ($notes as $body => $note) {
            same($note, $peer->ask($body));
            same(200, $peer->receive()[1]);
        }
    }),

    'cancel' => static fn () => $each([1, 2], static function (Peer $peer) {
        foreach (['stuck' => 'gave up', 'uncaught' => 'cancelled', 'busy' => 'cancelled'] as $body => $reason) {
            $peer->begin($body, 3);
            $peer->tell("__cancel__ 77\n__cancel__ \n__cancel__ x\n__cancel__ 3");
            $answer = $peer->receive();
            // What was thrown brings its stack along.
            same([$reason, 429, 3], [strtok($answer[0], "\n"), $answer[1], $answer[4]]);
            same($reason === 'cancelled', str_contains($answer[0], 'modes.php'));
        }
        // One that overtakes its message: stdin and the pipe have no common order.
        $peer->tell('__cancel__ 4');
        $peer->begin('stuck', 4);
        same(429, $peer->receive()[1]);
        same('on', $peer->ask('echo on', 5)[0]);
    }),

    'quit when idle' => static fn () => $each([1, 3], static function (Peer $peer) {
        $peer->ask('echo x');
        $peer->tell('__quit__');
        same(0, $peer->ended());
    }),

    'quit when busy' => static fn () => $each([2], static function (Peer $peer) {
        $peer->begin('stuck', 1);
        $peer->send('sleep 0.2', 2);
        $peer->tell('__quit__');
        same([0 => '', 1 => 200, 4 => 2], $peer->receive());
        $peer->tell('__cancel__ 1');
        same(429, $peer->receive()[1]);
        same(0, $peer->ended());
    }),

    'the end of the pipe' => static fn () => $each([1, 2], static function (Peer $peer) {
        $peer->send('sleep 0.1');
        stream_socket_shutdown($peer->pipe, STREAM_SHUT_WR);
        same(200, $peer->receive()[1]);
        same(0, $peer->ended());
    }),

    'the end of stdin' => static fn () => $each([1, 2], static function (Peer $peer) {
        $peer->send('sleep 0.1');
        $peer->closeStdin();
        same(200, $peer->receive()[1]);
        same(0, $peer->ended());
    }),

    'a daemon that is gone is no error' => static fn () => $each([1, 2], static function (Peer $peer) {
        $peer->send('sleep 0.1');
        fclose($peer->pipe);
        same([0, ''], [$peer->exitCode(), $peer->stderr()]);
    }),

    'what a worker does not know it ignores' => static fn () => $each([1], static function (Peer $peer) {
        $peer->tell("__context_switch__\n\n__unheard__ of");
        $more = ['8' => "\x81\xa3new\x91\x01", 'more' => "\xc4\x01\xff"];
        same('x', $peer->ask('echo x', 1, ['more' => $more])[0]);
    }),

    'a hostile input ends the connection' => static fn () => $each([1, 2], static function (Peer $peer) {
        $peer->write("\x00\x00\x00\x05\x81\xa10\xa1m");
        same(255, $peer->ended());
        contains('no "1"', $peer->stderr());
    }),

    'a hostile length ends the connection' => static fn () => $each([1, 2], static function (Peer $peer) {
        $peer->write("\x7f\xff\xff\xff");
        same(255, $peer->ended());
        contains('at most 67108864 bytes', $peer->stderr());
    }),

    'a handler that exits answers first' => static fn () => $each([1, 2], static function (Peer $peer) {
        $answer = $peer->ask('exit');
        same([500, 'the handler has called exit'], [$answer[1], $answer[0]]);
        same(3, $peer->ended());
    }),

    'what PHP dies of is a crash' => static fn () => $each([1, 2], static function (Peer $peer) {
        $peer->send('exhaust');
        same(255, $peer->ended());
        contains('Allowed memory size', $peer->stderr());
    }),

    'child processes can not read the control lines' => static fn () => $each([1], static function (Peer $peer) {
        same('', $peer->ask('child')[0]);
        $peer->tell('__quit__');
        same(0, $peer->ended());
    }),

    'version 1' => static function () {
        Peer::of([8], static function (Peer $peer) {
            // Ahead of the answers, as `pipeline` does it; the answers are in order.
            $heap = implode('', array_map(static fn ($n) => Peer::input("echo {$n}", $n, [], 5), range(0, 199)));
            $peer->write($heap);
            foreach (range(0, 199) as $n) {
                same([0 => (string) $n, 1 => 201], $peer->receive());
            }
            same([0 => '1 of 2', 1 => -1], $peer->ask('progress'));
            foreach ([$peer->receive(), $peer->ask('log'), $peer->ask('logger')] as $answer) {
                same([0 => '', 1 => 200], $answer);
            }
            $answer = $peer->ask('emit 1');
            same(500, $answer[1]);
            contains('version 2', $answer[0]);
            $peer->tell('__quit__');
            same(0, $peer->ended());
            contains('debug: noted target=tests n=1', $peer->stderr());
            contains('warning shop: hot stuff', $peer->stderr());
        }, version: 1);
    },

    'version 1 gives up by itself, and yields when told' => static function () {
        Peer::of([1], static function (Peer $peer) {
            foreach (['stuck' => 'gave up', 'busy' => 'cancelled'] as $body => $reason) {
                $began = microtime(true);
                $peer->begin($body, 1, ['headers' => ['TimeoutMilliseconds' => '100']]);
                $answer = $peer->receive();
                same([$reason, 429], [strtok($answer[0], "\n"), $answer[1]]);
                same(true, microtime(true) - $began > 0.09);
            }
            foreach (['-1', 'soon', '99999999999999999999'] as $timeout) {
                same('x', $peer->ask('echo x', 1, ['headers' => ['TimeoutMilliseconds' => $timeout]])[0]);
            }
            $peer->begin('stuck');
            $peer->tell('__context_switch__');
            same('gave up', $peer->receive()[0]);
        }, version: 1);
    },
];
