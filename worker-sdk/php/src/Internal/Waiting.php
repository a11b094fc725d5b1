<?php

declare(strict_types=1);

namespace Ganger\Internal;

use Ganger\Task;

/**
 * A task whose handler waits, in a Fiber.
 *
 * @internal
 */
final class Waiting
{
    /**
     * @param int|null $until in nanoseconds
     * @param resource|null $read
     * @param resource|null $write
     */
    public function __construct(
        public readonly \Fiber $fiber,
        public readonly Task $task,
        public readonly ?int $until,
        public readonly mixed $read,
        public readonly mixed $write,
    ) {
    }
}
