<?php

declare(strict_types=1);

namespace Ganger\Testing;

/** What the handler is given. */
final readonly class Message
{
    /**
     * @param array<string, string> $headers
     * @param array<string, mixed> $properties
     * @param float|null $cancelAfter asks the handler to abandon it, so many seconds after it was handed out
     */
    public function __construct(
        public string $body = '',
        public string $correlationId = '',
        public string $queue = 'test',
        public array $headers = [],
        public int $attempt = 1,
        public ?int $millisecondsLeft = null,
        public array $properties = [],
        public ?float $cancelAfter = null,
    ) {
    }
}
