<?php

declare(strict_types=1);

namespace Ganger;

use Ganger\Internal\Connection;
use Ganger\Internal\Start;

/**
 * A worker is a handler and a call of {@see Worker::run()}:
 *
 *     Worker::run(fn (Task $task) => Outcome::reply(strtoupper($task->message)));
 *
 * The handler returns an {@see Outcome}; null is the same as `Outcome::done()`. One that throws has failed:
 * the message is tried again by the pool's rules, and the worker goes on. {@see Testing\Harness} runs a
 * handler without a daemon.
 */
final class Worker
{
    public const VERSION = '0.1.0';
    public const FRAME_BYTES_MAX = 64 << 20;

    /**
     * Connects to the daemon that has started this process, works until it asks to leave, and returns when
     * all that is in hand is answered.
     *
     * @param callable(Task): ?Outcome $handler
     * @param int $concurrency how many messages are in hand at once. PHP runs one at a time: with more than
     *     1, each has a Fiber of its own, and another goes on while one waits by {@see Task::wait()},
     *     {@see Task::waitReadable()} or {@see Task::waitWritable()}
     * @param int|null $frameBytesMax lower than the pool's own `frame_bytes_max`, which the daemon tells
     * @param ?callable(): mixed $warmUp is called before this process takes messages: what it loads counts
     *     against no message's timeout, but against the pool's `start_timeout`
     *
     * @throws ProtocolError if what the daemon sends is refused
     */
    public static function run(
        callable $handler,
        int $concurrency = 1,
        ?int $frameBytesMax = null,
        ?callable $warmUp = null,
    ): void {
        if ($concurrency < 1) {
            throw new \ValueError("concurrency must be a whole number from 1: {$concurrency}");
        }
        [$name, $control] = Start::take();
        $warmUp === null || $warmUp();
        $pipe = Start::connect($name, $control);
        $frameBytesMax = Start::frameBytesMax($frameBytesMax);
        $version = (int) getenv('GANGER_PROTOCOL') >= 2 ? 2 : 1;
        $connection = new Connection($handler(...), $pipe, $version, $concurrency, $frameBytesMax);
        register_shutdown_function($connection->lastWords(...));
        $connection->run();
    }
}
