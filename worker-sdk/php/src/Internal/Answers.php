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
    private const FAILURE_BYTES_MAX = 1 << 20;

    public function __construct(private readonly int $frameBytesMax)
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
            return $this->frame(
                $outcome->message,
                $outcome->status,
                $outcome->headers,
                $outcome->queue,
                $id,
                $outcome->afterMs,
            );
        } catch (\Throwable $error) {
            return $this->failure($error, $id);
        }
    }

    /** 500, with the error in its first line and the stack below. */
    public function failure(\Throwable $error, int|string|null $id): string
    {
        if ($error instanceof Cancelled) {
            return $this->frame('cancelled', Status::RETRY, id: $id);
        }
        $first = substr($error::class . ": {$error->getMessage()}", 0, self::STACK_BYTES_MAX);
        $stack = (string) $error;
        if (strlen($stack) > self::STACK_BYTES_MAX) {
            $stack = '…' . substr($stack, -self::STACK_BYTES_MAX);
        }
        return $this->reason("{$first}\n{$stack}", $id);
    }

    public function reason(string $reason, int|string|null $id): string
    {
        $data = Encoder::output(self::readable($reason), Status::UNKNOWN_ERROR, id: $id);
        return Encoder::framed($data, max($this->frameBytesMax, self::FAILURE_BYTES_MAX));
    }

    /** @param array<mixed>|null $headers */
    public function frame(
        string $message,
        int $status,
        ?array $headers = null,
        ?string $queue = null,
        int|string|null $id = null,
        ?int $afterMs = null,
    ): string {
        $data = Encoder::output($message, $status, $headers, $queue, $id, $afterMs);
        return Encoder::framed($data, $this->frameBytesMax);
    }

    /** With U+FFFD for what is not UTF-8. */
    public static function readable(string $text): string
    {
        if (Encoder::isText($text)) {
            return $text;
        }
        return htmlspecialchars_decode(htmlspecialchars($text, ENT_QUOTES | ENT_SUBSTITUTE, 'UTF-8'), ENT_QUOTES);
    }
}
