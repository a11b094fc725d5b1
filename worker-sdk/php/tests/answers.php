<?php

declare(strict_types=1);

// What a handler may say, and what is its message's failure instead of the whole worker's.

use Ganger\Testing\{Harness, Message};
use Ganger\{Outcome, Task};

require __DIR__ . '/unusual.php';

return [
    'in life' => static function () {
        same(array_keys(unusual()), array_keys(sent() + refused()));
        foreach ([1, 2] as $concurrency) {
            Peer::of([$concurrency], static function (Peer $peer) {
                foreach (sent() as $name => $answer) {
                    same($answer + [4 => 1], $peer->ask("unusual {$name}"));
                }
                foreach (refused() as $name => $why) {
                    $answer = $peer->ask("unusual {$name}");
                    same(500, $answer[1], $name);
                    contains($why, $answer[0]);
                }
                $emit = [0 => '{"a":1}', 1 => 103, 2 => ['content-type' => 'application/json'], 3 => 'parts', 4 => 1];
                same($emit, $peer->ask('publish object'));
                same(200, $peer->receive()[1]);
                same([0 => '5', 1 => 102, 4 => 1], $peer->ask('count'));
                same(200, $peer->receive()[1]);
                same(500, $peer->ask('publish queue')[1]);
                same(500, $peer->ask('publish nan')[1]);
                same('on', $peer->ask('echo on')[0]);
            });
        }
    },

    'in the harness' => static function () {
        $names = array_keys(unusual());
        $results = Harness::work(static fn (Task $task) => unusual()[$task->message](), $names);
        foreach (array_combine($names, $results) as $name => $result) {
            if (isset(sent()[$name])) {
                $answer = sent()[$name];
                same([$answer[0], $answer[1], $answer[2] ?? null], [$result->message, $result->status, $result->headers]);
            } else {
                same(500, $result->status, $name);
                contains(refused()[$name], $result->message);
            }
        }
    },

    "the daemon's limit is obeyed" => static function () {
        foreach ([[1], [1, 4096]] as $arguments) {
            Peer::of($arguments, static function (Peer $peer) {
                $answer = $peer->ask('large 1020');
                same(500, $answer[1]);
                contains('at most 1024 bytes: 10', $answer[0]);
                // So is it by what a failure, a reason and a note have to say.
                $answer = $peer->ask('raise ' . str_repeat('x', 900));
                same(500, $answer[1]);
                contains('InvalidArgumentException: no good', $answer[0]);
                same(102, $peer->ask('progress ' . str_repeat('ü', 400))[1]);
                same(200, $peer->receive()[1]);
            }, variables: ['GANGER_FRAME_BYTES_MAX' => '1024']);
        }
        Peer::of([1, 1000], static function (Peer $peer) {
            same(500, $peer->ask('large 990')[1]);
        }, variables: ['GANGER_FRAME_BYTES_MAX' => '1024']);
    },

    "a header's name may be anybody's built-in" => static function () {
        $headers = array_fill_keys(['constructor', '__proto__', '__construct', 'length', 'level', ''], 'v');
        [$result] = Harness::work(
            static function (Task $task) {
                $task->log('info', 'said', $task->headers);
                return Outcome::reply('', $task->headers);
            },
            [new Message(headers: $headers)],
        );
        same($headers, $result->headers);
        Peer::of([1], static function (Peer $peer) use ($headers) {
            same(json_encode($headers), $peer->ask('headers x', 1, ['headers' => $headers])[0]);
        });
    },
];
