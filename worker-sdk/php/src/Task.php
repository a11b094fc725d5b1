<?php

declare(strict_types=1);

namespace Ganger;

use Ganger\Internal\Connection;
use Ganger\Internal\Decoder;

/** A message as its handler sees it. */
final class Task
{
    /** @internal */
    public static ?self $now = null;

    /** @internal */
    public bool $isCancelled = false;

    /** @internal what it says from now on is about no message in flight */
    public bool $isAnswered = false;

    /** @internal in nanoseconds */
    public ?int $deadline = null;

    /** @internal that its handler runs in */
    public ?\Fiber $fiber = null;

    /** @var array<string, mixed>|null */
    private ?array $properties = null;

    /**
     * @internal
     *
     * @param string $message the body
     * @param bool $isBinary whether the body is bytes: it is no UTF-8, or was sent as bytes
     * @param string $correlationId empty if the message has none
     * @param string $queue the queue or topic that it was read from
     * @param array<string, string> $headers
     * @param int|string|null $id the daemon's number for it on this connection; in decimal from 2^63 on
     * @param int|null $attempt which try this is, from 1
     * @param int|null $millisecondsLeft how long from its arrival until this process is killed for taking
     *     too long; null for never
     * @param string $packedProperties in MessagePack
     */
    public function __construct(
        private readonly Connection $connection,
        public readonly string $message,
        public readonly bool $isBinary,
        public readonly string $correlationId,
        public readonly string $queue,
        public readonly array $headers,
        public readonly int|string|null $id,
        public readonly ?int $attempt,
        public readonly ?int $millisecondsLeft,
        private readonly string $packedProperties,
    ) {
    }

    /** The task that is being worked on; null outside of a handler. */
    public static function current(): ?self
    {
        return self::$now;
    }

    /**
     * What the source knows of it: message id, content type, topic, partition, offset and so on. Numbers
     * from 2^63 on are in decimal.
     *
     * @return array<string, mixed>
     */
    public function properties(): array
    {
        return $this->properties ??= (new Decoder())->map($this->packedProperties);
    }

    /** Whether the daemon has asked to abandon it: it took too long, or the daemon stops. */
    public function cancelled(): bool
    {
        $this->isCancelled || $this->connection->heed($this);
        return $this->isCancelled;
    }

    /** @throws Cancelled if the daemon has asked to abandon it */
    public function throwIfCancelled(): void
    {
        if ($this->cancelled()) {
            throw new Cancelled();
        }
    }

    /**
     * Waits so many seconds, or until the daemon asks to abandon this; other messages are worked on
     * meanwhile, with a concurrency above 1. Returns whether it is cancelled.
     */
    public function wait(int|float $seconds): bool
    {
        $this->connection->wait($this, $seconds);
        return $this->isCancelled;
    }

    /**
     * The same until a stream can be read; returns whether it can.
     *
     * @param resource $stream
     */
    public function waitReadable($stream, int|float|null $seconds = null): bool
    {
        return $this->connection->wait($this, $seconds, read: $stream);
    }

    /**
     * The same until a stream can be written.
     *
     * @param resource $stream
     */
    public function waitWritable($stream, int|float|null $seconds = null): bool
    {
        return $this->connection->wait($this, $seconds, write: $stream);
    }

    /** @internal whether what it logs still reaches the daemon by the pipe */
    public function canNote(): bool
    {
        return $this->connection->canNote($this);
    }

    /** Shows how far it is; it also proves that the worker is alive (`stall_timeout`). */
    public function progress(mixed $message): void
    {
        $this->connection->note($this, Status::PROGRESS, $message);
    }

    /**
     * Publishes a message while the work goes on. This task is not done before it is stored; when it is
     * tried again, it emits again, with the same header `ganger-emit-id`.
     *
     * @param mixed $message a string is text if it is UTF-8, else bytes; anything else goes as JSON
     * @param array<string, mixed>|null $headers
     */
    public function emit(string $queue, mixed $message, ?array $headers = null): void
    {
        if ($queue === '') {
            throw new \ValueError("emit needs the name of a queue: ''");
        }
        $this->connection->note($this, Status::EMIT, $message, $headers, $queue);
    }

    /**
     * Writes a record of this message to the daemon's log; {@see Logger} comes here by itself. Once the
     * message is answered, in a forked child and with a daemon of version 1 it goes to stderr.
     *
     * @param string $level trace, debug, info, warn or error
     * @param array<string, mixed> $fields further fields of the record; `target` is what it comes from
     */
    public function log(string $level, mixed $message, array $fields = []): void
    {
        $this->connection->note($this, Status::LOG, $message, ['level' => $level] + $fields);
    }
}
