<?php

declare(strict_types=1);

namespace Ganger\Testing;

use Ganger\Internal\Decoder;
use Ganger\Internal\Encoder;
use Ganger\Internal\Splitter;
use Ganger\Status;
use Ganger\Worker;

/**
 * The daemon's side, which does what it can whenever the worker is about to wait.
 *
 * @internal
 */
final class Peer
{
    private readonly Splitter $splitter;
    /** @var list<Message> */
    private readonly array $messages;
    /** @var list<Result> */
    private readonly array $results;
    /** @var array<int, int> the ids in flight */
    private array $flight = [];
    /** @var array<int, float> when which is to be cancelled */
    private array $cancellations = [];
    private int $next = 0;
    private string $out = '';

    /**
     * @param resource $pipe
     * @param resource $control
     * @param iterable<Message|string> $messages
     */
    public function __construct(
        private readonly mixed $pipe,
        private readonly mixed $control,
        iterable $messages,
        private readonly int $room,
    ) {
        $this->splitter = new Splitter(Worker::FRAME_BYTES_MAX);
        stream_set_blocking($pipe, false);
        $wanted = $results = [];
        foreach ($messages as $each) {
            $wanted[] = $each instanceof Message ? $each : new Message($each);
            $results[] = new Result();
        }
        $this->messages = $wanted;
        $this->results = $results;
    }

    /** @return list<Result> */
    public function results(): array
    {
        return $this->results;
    }

    /** How many seconds the worker may wait until this has something to do. */
    public function step(): ?float
    {
        while (($data = (string) fread($this->pipe, 1 << 16)) !== '') {
            $this->splitter->feed($data);
        }
        while (($frame = $this->splitter->shift()) !== null) {
            $this->take((new Decoder())->map($frame));
        }
        while ($this->next < count($this->messages) && count($this->flight) < $this->room) {
            $this->send($this->next++);
        }
        $this->out = substr($this->out, (int) fwrite($this->pipe, $this->out));
        foreach ($this->cancellations as $id => $due) {
            if ($due <= microtime(true)) {
                fwrite($this->control, "__cancel__ {$id}\n");
                unset($this->cancellations[$id]);
            }
        }
        if ($this->next === count($this->messages) && $this->flight === []) {
            stream_socket_shutdown($this->pipe, STREAM_SHUT_WR);
        }
        if ($this->out !== '') {
            return 0.0;
        }
        return $this->cancellations === [] ? null : max(0.0, min($this->cancellations) - microtime(true));
    }

    private function send(int $id): void
    {
        $message = $this->messages[$id];
        $input = "\x88"
            . "\xa10" . Encoder::body($message->body)
            . "\xa11" . Encoder::text($message->correlationId)
            . "\xa12" . Encoder::text($message->queue)
            . "\xa13" . Encoder::map($message->headers)
            . "\xa14" . Encoder::integer($id)
            . "\xa15" . Encoder::integer($message->attempt)
            . "\xa16" . ($message->millisecondsLeft === null ? "\xc0" : Encoder::integer($message->millisecondsLeft))
            . "\xa17" . Encoder::map($message->properties);
        $this->out .= Encoder::framed($input, Worker::FRAME_BYTES_MAX);
        $this->flight[$id] = $id;
        if ($message->cancelAfter !== null) {
            $this->cancellations[$id] = microtime(true) + $message->cancelAfter;
        }
    }

    /** @param array<mixed> $output */
    private function take(array $output): void
    {
        [$message, $status] = $output;
        if ($status === Status::HELLO) {
            return;
        }
        $id = $output[4] ?? array_key_first($this->flight);
        $result = $this->results[$id];
        $note = new Note($message, $output[2] ?? [], $output[3] ?? null);
        if ($status === Status::PROGRESS || $status === Status::IGNORE_MESSAGE) {
            $result->progress[] = $message;
        } elseif ($status === Status::LOG) {
            $result->logs[] = $note;
        } elseif ($status === Status::EMIT) {
            $result->emits[] = $note;
        } else {
            unset($this->flight[$id]);
            [$result->status, $result->message] = [$status, $message];
            [$result->headers, $result->queue] = [$output[2] ?? null, $output[3] ?? null];
            $result->retryAfterMs = $output[5] ?? null;
        }
    }
}
