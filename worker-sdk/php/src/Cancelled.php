<?php

declare(strict_types=1);

namespace Ganger;

/** Thrown by {@see Task::throwIfCancelled()}. One that comes out of the handler answers 429. */
final class Cancelled extends \RuntimeException
{
    public function __construct(string $message = 'cancelled')
    {
        parent::__construct($message);
    }
}
