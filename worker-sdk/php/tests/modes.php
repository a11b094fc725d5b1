<?php

declare(strict_types=1);

// The worker under test: a body's first word says what to do with it. Arguments: the concurrency, and
// frameBytesMax if it is not the usual one.

use Ganger\{Logger, Outcome, Task, Worker};

require __DIR__ . '/autoload.php';
require 'Psr/Log/autoload.php';

$concurrency = (int) $argv[1];
$together = 0;

function fail_somehow(string $verb, string $rest): void
{
    match ($verb) {
        'raise' => throw new InvalidArgumentException("no good: \xff {$rest}"),
        'deep' => intdiv(1, 0),
        'exit' => exit(3),
        'exhaust' => str_repeat('x', 1 << 30),
        default => null,
    };
}

function note(Task $task, string $verb, string $rest): void
{
    if ($verb === 'emit') {
        for ($n = 0; $n < (int) $rest; $n++) {
            $task->emit('parts', "part {$n}", ['n' => $n]);
        }
    }
    match ($verb) {
        'progress' => $task->progress('1 of 2'),
        'log' => $task->log('debug', 'noted', ['target' => 'tests', 'n' => 1, 'many' => [1, 2]]),
        'logger' => (new Logger('shop'))->warning('hot {what}', ['what' => 'stuff', 'degrees' => 90]),
        default => null,
    };
}

function wait(Task $task, string $verb, string $rest): ?Outcome
{
    global $concurrency, $together;
    switch ($verb) {
        case 'together':
            $together++;
            while ($together < $concurrency) {
                $task->wait(0.001);
            }
            return null;
        case 'sleep':
            $task->wait((float) $rest);
            return null;
        case 'block':
            usleep((int) ($rest * 1e6));
            return null;
        case 'stuck':
            $task->progress('begun');
            return $task->wait(30) ? Outcome::retry('gave up') : Outcome::reject('not cancelled');
        case 'uncaught':
            $task->progress('begun');
            $task->wait(30);
            $task->throwIfCancelled();
            return null;
        case 'busy':
            $task->progress('begun');
            for ($until = microtime(true) + 30; microtime(true) < $until;) {
                $task->throwIfCancelled();
            }
            return null;
        case 'suspend':
            Fiber::suspend();
            return null;
        case 'stream':
            [$here, $there] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
            $late = $task->waitReadable($here, 0.001);
            $writable = $task->waitWritable($there);
            fwrite($there, 'x');
            return Outcome::reply(json_encode([$late, $writable, $task->waitReadable($here, 30)]));
        default:
            return null;
    }
}

function answer(Task $task, string $verb, string $rest): mixed
{
    return match ($verb) {
        'echo' => Outcome::reply($rest),
        'headers' => Outcome::reply(json_encode($task->headers), ['n' => 7, 'ü' => 'é'], $rest),
        'about' => Outcome::reply(var_export([
            $task->correlationId,
            $task->queue,
            $task->id,
            $task->attempt,
            $task->millisecondsLeft,
            $task->properties(),
        ], true)),
        'retry' => Outcome::retry('later', after: 1.5),
        'reject' => Outcome::reject('never'),
        'requeue' => Outcome::requeue(),
        'done' => Outcome::done(),
        'wrong' => 5,
        'unspeakable' => Outcome::reply('', queue: "\xff"),
        'large' => Outcome::reply(str_repeat('x', (int) $rest)),
        'child' => Outcome::reply((string) shell_exec('cat')),
        default => null,
    };
}

Worker::run(function (Task $task) {
    if ($task->isBinary) {
        return Outcome::reply($task->message);
    }
    [$verb, $rest] = explode(' ', $task->message, 2) + ['', ''];
    fail_somehow($verb, $rest);
    note($task, $verb, $rest);
    return wait($task, $verb, $rest) ?? answer($task, $verb, $rest);
}, $concurrency, (int) ($argv[2] ?? Worker::FRAME_BYTES_MAX));
