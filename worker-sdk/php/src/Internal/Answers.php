<?php

declare(strict_types=1);

namespace Ganger\Internal;

use Ganger\Cancelled;
use Ganger\Outcome;
use Ganger\Status;

/**
 * From what a handler returned or threw to a frame.
 *
 * @internal
 */
final class Answers
{
    /** Of a stack; a dead letter keeps no more either. */
    private const STACK_BYTES_MAX = 8000;

    public function __construct(private readonly Outgoing $outgoing)
    {
    }

    /** What can't be sent is a failure that says so. */
    public function outcome(mixed $outcome, int|string|null $id): string
    {
        try {
            if (!$outcome instanceof Outcome) {
                throw new \TypeError('a handler must return an Outcome, such as Outcome::done(), or null: '
                    . get_debug_type($outcome));
            }
            return $this->outgoing->outcome($outcome, $id);
        } catch (\Throwable $error) {
            return $this->failure($error, $id);
        }
    }

    /** 500, or 429 for what was cancelled, with the error in its first line and the stack below. */
    public function failure(\Throwable $error, int|string|null $id): string
    {
        $isCancelled = $error instanceof Cancelled;
        $first = $isCancelled ? 'cancelled' : $error::class . ": {$error->getMessage()}";
        $stack = (string) $error;
        if (strlen($stack) > self::STACK_BYTES_MAX) {
            $stack = '…' . substr($stack, -self::STACK_BYTES_MAX);
        }
        $status = $isCancelled ? Status::RETRY : Status::UNKNOWN_ERROR;
        return $this->reason(substr($first, 0, self::STACK_BYTES_MAX) . "\n{$stack}", $id, $status);
    }

    public function reason(string $reason, int|string|null $id, int $status = Status::UNKNOWN_ERROR): string
    {
        return $this->outgoing->outcome(new Outcome($status, $reason), $id);
    }
}
