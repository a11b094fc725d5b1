<?php

declare(strict_types=1);

namespace Ganger\Testing;

/** An emit or a log record. */
final readonly class Note
{
    /** @param array<string, mixed> $headers */
    public function __construct(public string $message, public array $headers = [], public ?string $queue = null)
    {
    }
}
