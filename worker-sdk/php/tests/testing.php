<?php

declare(strict_types=1);

// The harness, by which handlers are tested without a daemon, and what is seen best through it.

use Ganger\Testing\{Harness, Message, Note};
use Ganger\{Logger, Outcome, ProtocolError, Task, Worker};

$shout = static function (Task $task): Outcome {
    $task->emit('heard', $task->message);
    $task->progress('half way');
    $task->log('info', 'shouting', ['volume' => 11]);
    return Outcome::reply(strtoupper($task->message), ['loud' => true], 'answers');
};

return [
    'results in the order of the messages' => static function () use ($shout) {
        $bodies = array_map(static fn ($n) => "message {$n}", range(0, 499));
        foreach ([1, 16] as $concurrency) {
            $results = Harness::work($shout, $bodies, concurrency: $concurrency);
            same(array_map(strtoupper(...), $bodies), array_map(static fn ($result) => $result->message, $results));
        }
        $last = end($results);
        same([201, ['loud' => true], 'answers'], [$last->status, $last->headers, $last->queue]);
        same(true, [new Note('message 499', [], 'heard')] == $last->emits);
        same(['half way'], $last->progress);
        same(true, [new Note('shouting', ['level' => 'info', 'volume' => 11])] == $last->logs);
    },

    'everything of a message reaches the handler' => static function () {
        $sent = new Message("\xff", 'c', 'q', ['a' => 'b'], 3, 100, ['row_id' => 7]);
        $seen = null;
        [$result] = Harness::work(static function (Task $task) use (&$seen) {
            $seen = $task;
            return null;
        }, [$sent]);
        same(200, $result->status);
        same(["\xff", true, 'c', 'q'], [$seen->message, $seen->isBinary, $seen->correlationId, $seen->queue]);
        same([['a' => 'b'], 0, 3], [$seen->headers, $seen->id, $seen->attempt]);
        same([100, ['row_id' => 7]], [$seen->millisecondsLeft, $seen->properties()]);
    },

    'more than the socket holds' => static function () {
        $large = str_repeat('x', 5 << 20);
        [$result] = Harness::work(static function (Task $task) {
            $task->emit('parts', $task->message);
            return Outcome::reply($task->message);
        }, [$large]);
        same([true, true], [$result->message === $large, $result->emits[0]->message === $large]);
    },

    'cancellation' => static function () {
        foreach ([1, 2] as $concurrency) {
            $message = new Message(cancelAfter: 0.01);
            [$waited, $second] = Harness::work(
                static fn (Task $task) => $task->wait(30) ? Outcome::retry('gave up', after: 60) : null,
                [$message, $message],
                $concurrency,
            );
            same(['gave up', 60_000, 'gave up'], [$waited->message, $waited->retryAfterMs, $second->message]);
            [$result] = Harness::work(static function (Task $task) {
                while (true) {
                    $task->throwIfCancelled();
                }
            }, [$message], $concurrency);
            same([429, 'cancelled'], [$result->status, strtok($result->message, "\n")]);
        }
    },

    'waiting has an end' => static function () {
        [$result] = Harness::work(static fn (Task $task) => Outcome::reply(var_export($task->wait(0.01), true)), ['x']);
        same('false', $result->message);
    },

    'handlers take turns where they wait' => static function () {
        $seen = [];
        Harness::work(static function (Task $task) use (&$seen) {
            foreach ([1, 2] as $step) {
                $seen[] = "{$task->message}{$step}" . (Task::current() === $task ? '' : '?');
                $task->wait(0);
            }
        }, ['a', 'b'], concurrency: 2);
        same(['a1', 'b1', 'a2', 'b2'], $seen);
        same(null, Task::current());
    },

    'version 1' => static function () {
        $results = Harness::work(static fn (Task $task) => Outcome::reply($task->message), ['a', 'b'], 4, 1);
        same(['a', 'b'], array_map(static fn ($result) => $result->message, $results));
    },

    'what the worker throws is thrown' => static function () use ($shout) {
        throws(ProtocolError::class, 'texts to texts', static fn () => Harness::work($shout, [new Message(headers: ['a' => 5])]));
    },

    'the logger is one of PSR-3' => static function () {
        require_once 'Psr/Log/autoload.php';
        [$result] = Harness::work(static function () {
            $logger = new Logger('shop');
            $logger->debug('plain');
            $logger->notice('{who} is {how}', ['who' => 'Zoë', 'how' => true, 'more' => 1]);
            $logger->critical('no {place}', ['exception' => new RuntimeException('worse')]);
            (new Logger())->log('unheard of', new class () {
                public function __toString(): string
                {
                    return 'an object';
                }
            });
        }, ['x']);
        same(['plain', 'Zoë is true', 'no {place}', 'an object'], array_map(static fn ($log) => $log->message, $result->logs));
        same(['level' => 'debug', 'target' => 'shop'], $result->logs[0]->headers);
        same(['level' => 'info', 'target' => 'shop', 'more' => 1], $result->logs[1]->headers);
        contains('RuntimeException: worse', $result->logs[2]->headers['exception']);
        same(['level' => 'info'], $result->logs[3]->headers);
    },

    'a handler runs in the context of its message' => static function () {
        require_once __DIR__ . '/opentelemetry.php';
        $trace = '0af7651916cd43dd8448eb211c80319c';
        $traced = new Message(headers: ['traceparent' => "00-{$trace}-b7ad6b7169203331-01"]);
        $handler = static fn () => Outcome::reply((string) \OpenTelemetry\API\Globals::$active);
        $results = Harness::work($handler, [$traced, '', $traced, '']);
        same([$trace, '', $trace, ''], array_map(static fn ($result) => $result->message, $results));
    },

    'bad arguments are told' => static function () use ($shout) {
        throws(ValueError::class, 'concurrency must be a whole number from 1: 0', static fn () => Worker::run($shout, 0));
        foreach ([-1, NAN, INF] as $after) {
            throws(ValueError::class, '0 or more seconds', static fn () => Outcome::retry(after: $after));
        }
        [$result] = Harness::work(static fn (Task $task) => $task->emit('', 'x'), ['a']);
        contains('emit needs the name of a queue', $result->message);
    },
];
