<?php

declare(strict_types=1);

namespace Ganger\Testing;

use Ganger\Internal\Connection;
use Ganger\Internal\Pipe;
use Ganger\Task;

/**
 * Runs a handler on messages, without a daemon: what is tested is the handler in the real worker, on a real
 * socket, in this process.
 *
 *     [$result] = Harness::work($handler, ['ten', new Message('eleven', headers: ['tenant' => 'a'])]);
 */
final class Harness
{
    /**
     * The results, in the order of the messages; what the worker itself throws is thrown here.
     *
     * @param callable(Task): ?\Ganger\Outcome $handler
     * @param iterable<Message|string> $messages
     * @return list<Result>
     */
    public static function work(
        callable $handler,
        iterable $messages,
        int $concurrency = 1,
        int $protocol = 2,
    ): array {
        [$theirs, $ours] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        [$heard, $control] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $peer = new Peer($ours, $control, $messages, $protocol === 1 ? 1 : $concurrency);
        $outside = Task::$now;
        try {
            $pipe = new Pipe($theirs, $heard, $peer->step(...));
            (new Connection($handler(...), $pipe, $protocol, $concurrency))->run();
            return $peer->results();
        } finally {
            Task::$now = $outside;
        }
    }
}
