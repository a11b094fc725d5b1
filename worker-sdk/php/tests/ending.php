<?php

declare(strict_types=1);

// Beginnings and ends that the daemon has not asked for: warm-up, stdin, forks, exits, late notes.

return [
    'a forked child answers nothing and takes nothing' => static function () {
        foreach ([1, 2] as $concurrency) {
            Peer::of([$concurrency], static function (Peer $peer) {
                foreach (['exit' => 7, 'return' => 0, 'raise' => 1, 'note' => 1] as $how => $code) {
                    // Were one to answer, this would not be all.
                    same("the child has ended: {$code}", $peer->ask("fork {$how}")[0]);
                    same([0 => '', 1 => 200, 4 => 1], $peer->receive());
                }
                $peer->tell('__quit__');
                same(0, $peer->ended());
                same(4, substr_count($peer->stderr(), 'info: said by a child'));
                contains('LogicException: in a child', $peer->stderr());
                contains("has forked can't emit", $peer->stderr());
            });
        }
    },

    'an exit harms no neighbour' => static function () {
        Peer::of([3], static function (Peer $peer) {
            $peer->begin('stuck', 1);
            // One is in the pipe yet when the handler exits, as the peer writes both at once.
            $peer->write(Peer::input('exit', 2) . Peer::input('echo x', 3));
            $answers = [];
            for ($n = 0; $n < 3; $n++) {
                $answer = $peer->receive();
                $answers[$answer[4]] = $answer[1];
            }
            ksort($answers);
            same([1 => 300, 2 => 500, 3 => 300], $answers);
            same(3, $peer->exitCode());
        });
    },

    'warm-up comes before the pipe' => static function () {
        Peer::of([1], static function (Peer $peer) {
            same('warm, stdin held 0 bytes', $peer->ask('warmth')[0]);
        });
        $name = 'warm-' . getmypid();
        $listener = stream_socket_server("unix:///tmp/CoreFxPipe_{$name}");
        $env = ['WARM_UP' => 'exit'] + getenv();
        $process = proc_open([PHP_BINARY, __DIR__ . '/modes.php', '1'], [['pipe', 'r']], $pipes, null, $env);
        fwrite($pipes[0], "{$name}\n");
        same(9, proc_close($process));
        same(false, @stream_socket_accept($listener, 0));
        unlink("/tmp/CoreFxPipe_{$name}");
    },

    'stdin is empty, and no control line is read by another' => static function () {
        foreach (['ffi.enable=true', 'ffi.enable=false'] as $setting) {
            Peer::of([1], static function (Peer $peer) use ($setting) {
                same('', $peer->ask('child')[0]);
                $answer = $peer->ask('stdin');
                // Without FFI it is closed, which is the message's failure.
                $setting === 'ffi.enable=true' && extension_loaded('ffi')
                    ? same(['[false,true]', 201], [$answer[0], $answer[1]])
                    : same(500, $answer[1]);
                $peer->tell('__quit__');
                same(0, $peer->ended());
            }, setting: $setting);
        }
    },

    'what is said after the answer goes to stderr' => static function () {
        Peer::of([1], static function (Peer $peer) {
            $peer->ask('done', 1);
            same([0 => '', 1 => 200, 4 => 2], $peer->ask('late', 2));
            contains('warn: said late n=1', $peer->stderr());
            contains("refused: emit must come before the handler's answer", $peer->stderr());
        });
    },
];
