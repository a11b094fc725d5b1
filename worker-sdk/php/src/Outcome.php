<?php

declare(strict_types=1);

namespace Ganger;

/**
 * What became of a message. Make one by {@see Outcome::done()}, {@see Outcome::reply()} and so on; by its
 * constructor, to answer a status that the pool's configuration gives a meaning (`[pools.statuses]`).
 */
final readonly class Outcome
{
    /**
     * @param int $status one of {@see Status}, or of the pool's own
     * @param mixed $message the reply, or the reason of a failure; a reply that is no string is sent as JSON
     * @param array<string, mixed>|null $headers of the reply
     * @param string|null $queue where the reply goes, if not to the message's own reply-to
     * @param int|null $afterMs after how many milliseconds to try again, if not after the pool's own wait
     */
    public function __construct(
        public int $status,
        public mixed $message = '',
        public ?array $headers = null,
        public ?string $queue = null,
        public ?int $afterMs = null,
    ) {
    }

    /** The work is done: the message leaves its queue. */
    public static function done(): self
    {
        return new self(Status::DONE);
    }

    /**
     * The work is done, and this is its result: published to the message's reply-to or to `$queue`, before
     * the message leaves its own. With `queue: $task->queue` a long task hands on what is left.
     *
     * @param mixed $message a string is text if it is UTF-8, else bytes; anything else goes as JSON, with the
     *     header `content-type: application/json` unless there is one. What JSON lacks is this message's failure
     * @param array<string, mixed>|null $headers
     */
    public static function reply(mixed $message = '', ?array $headers = null, ?string $queue = null): self
    {
        return new self(Status::DONE_WITH_REPLY, $message, $headers, $queue);
    }

    /**
     * It failed for now: try again after so many seconds, or after the pool's own wait. An attempt is
     * charged; after the last one the message is a dead letter with this reason.
     */
    public static function retry(mixed $reason = '', int|float|null $after = null): self
    {
        if ($after === null) {
            return new self(Status::RETRY, $reason);
        }
        if (!($after >= 0 && $after <= 1e12)) {
            throw new \ValueError("after must be 0 or more seconds: {$after}");
        }
        return new self(Status::RETRY, $reason, afterMs: (int) round($after * 1000));
    }

    /** It can never work: the message becomes a dead letter with this reason, now. */
    public static function reject(mixed $reason = ''): self
    {
        return new self(Status::REJECT, $reason);
    }

    /** Not here, not now: hand it out again after a short wait. No attempt is charged. */
    public static function requeue(mixed $reason = ''): self
    {
        return new self(Status::REQUEUE, $reason);
    }
}
