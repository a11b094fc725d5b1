<?php

declare(strict_types=1);

namespace Ganger\Testing;

/** What became of one message, and what its handler sent meanwhile. */
final class Result
{
    public int $status = 0;
    public string $message = '';
    /** @var array<string, mixed>|null */
    public ?array $headers = null;
    public ?string $queue = null;
    public ?int $retryAfterMs = null;
    /** @var list<Note> */
    public array $emits = [];
    /** @var list<Note> */
    public array $logs = [];
    /** @var list<string> */
    public array $progress = [];
}
