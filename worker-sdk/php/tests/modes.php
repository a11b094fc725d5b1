<?php

declare(strict_types=1);

// The worker under test: a body's first word says what to do with it. Arguments: the concurrency, and
// frameBytesMax if it is to be lower than the pool's.

use Ganger\{Logger, Outcome, Task, Worker};

require __DIR__ . '/autoload.php';
require 'Psr/Log/autoload.php';
require __DIR__ . '/unusual.php';

$concurrency = (int) $argv[1];
$together = 0;
$warmth = 'cold';
$last = null;

/** The child leaves the handler, too; the parent goes on when it is over. */
function forked(Task $task, string $how): void
{
    $child = pcntl_fork();
    if ($child === 0) {
        $task->log('info', 'said by a child');
        match ($how) {
            'exit' => exit(7),
            'raise' => throw new LogicException('in a child'),
            'note' => $task->progress('no'),
            default => null,
        };
        return;
    }
    pcntl_waitpid($child, $status);
    $task->log('info', 'the child has ended: ' . pcntl_wexitstatus($status));
}

/** Says something about the message before, which is answered. */
function late(): void
{
    global $last;
    $last->log('warn', 'said late', ['n' => 1]);
    $last->progress('late');
    try {
        $last->emit('parts', 'late');
    } catch (LogicException $error) {
        $last->log('info', "refused: {$error->getMessage()}");
    }
}

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
        'progress' => $task->progress($rest === '' ? '1 of 2' : $rest),
        'log' => $task->log('debug', 'noted', ['target' => 'tests', 'n' => 1, 'many' => [1, 2]]),
        'count' => $task->progress(5),
        'publish' => $task->emit(...published($rest)),
        'fork' => forked($task, $rest),
        'late' => late(),
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
        'unusual' => unusual()[$rest](),
        'warmth' => Outcome::reply($GLOBALS['warmth']),
        'stdin' => Outcome::reply(json_encode([fgets(STDIN), feof(STDIN)])),
        'large' => Outcome::reply(str_repeat('x', (int) $rest)),
        'child' => Outcome::reply((string) shell_exec('cat')),
        default => null,
    };
}

$warmUp = static function () use (&$warmth): void {
    getenv('WARM_UP') === 'exit' && exit(9);
    $warmth = 'warm, stdin held ' . strlen((string) shell_exec('cat')) . ' bytes';
};

Worker::run(function (Task $task) use (&$last) {
    if ($task->isBinary) {
        return Outcome::reply($task->message);
    }
    [$verb, $rest] = explode(' ', $task->message, 2) + ['', ''];
    fail_somehow($verb, $rest);
    note($task, $verb, $rest);
    $last = $task;
    return wait($task, $verb, $rest) ?? answer($task, $verb, $rest);
}, $concurrency, isset($argv[2]) ? (int) $argv[2] : null, $warmUp);
