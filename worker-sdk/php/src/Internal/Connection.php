<?php

declare(strict_types=1);

namespace Ganger\Internal;

use Ganger\ProtocolError;
use Ganger\Status;
use Ganger\Task;
use Ganger\Worker;

/**
 * One connection, worked off to its end by `run`.
 *
 * @internal
 */
final class Connection
{
    private const EARLY_MAX = 1000;
    private const SECOND = 1_000_000_000;
    /** Answers that are so old do not wait for others to go out with. */
    private const BATCH_NANOSECONDS = 1_000_000;
    /** How often a handler that asks all the time is told the news. */
    private const HEED_NANOSECONDS = 1_000_000;

    private readonly Splitter $splitter;
    private readonly Decoder $decoder;
    private readonly Outgoing $outgoing;
    private readonly Answers $answers;
    /** Of the process that opened the pipe: what it forks answers nothing. */
    private readonly int $pid;
    /** @var array<Task> those in hand, by their ids */
    private array $flight = [];
    /** @var array<true> cancelled before they came: stdin and the pipe have no common order */
    private array $early = [];
    /** @var list<\Fiber> those that have nothing to do */
    private array $idle = [];
    /** @var array<int, Waiting> */
    private array $waiting = [];
    private bool $isSettled = true;
    private int $flushed = 0;
    private int $heeded = 0;
    private ?ProtocolError $fatal = null;
    /** Whether handlers are called one by one, without Fibers. */
    private readonly bool $isSerial;
    private readonly bool $isAlone;

    /** @param \Closure(Task): mixed $handler */
    public function __construct(
        private readonly \Closure $handler,
        private readonly Pipe $pipe,
        private readonly int $version,
        private readonly int $concurrency,
        int $frameBytesMax = Worker::FRAME_BYTES_MAX,
    ) {
        $this->splitter = new Splitter($frameBytesMax);
        $this->decoder = new Decoder();
        $this->outgoing = new Outgoing($frameBytesMax);
        $this->answers = new Answers($this->outgoing);
        $this->pid = (int) getmypid();
        $this->isSerial = $version === 1 || $concurrency === 1;
        $this->isAlone = $this->isSerial && $pipe->waitAlone();
    }

    /** Until the daemon has asked to leave and all that is in hand is answered. */
    public function run(): void
    {
        if ($this->version > 1) {
            $about = ['sdk' => 'ganger-php', 'version' => Worker::VERSION, 'concurrency' => (string) $this->concurrency];
            $this->pipe->put($this->outgoing->frame('', Status::HELLO, $about));
            $this->pipe->flush();
        }
        while ($this->pipe->isOpen || $this->waiting !== []) {
            $this->isAlone ? $this->turnAlone() : $this->turn();
        }
        $this->pipe->close();
        if ($this->fatal !== null) {
            throw $this->fatal;
        }
    }

    /**
     * What a handler that calls `exit` still has to say; the other messages in hand go back. What PHP dies of is a
     * crash, and the daemon's to tell.
     */
    public function lastWords(): void
    {
        $fatal = E_ERROR | E_CORE_ERROR | E_COMPILE_ERROR | E_USER_ERROR | E_PARSE | E_RECOVERABLE_ERROR;
        if ($this->isChild()) {
            return;
        }
        if (Task::$now !== null && ((error_get_last()['type'] ?? 0) & $fatal) === 0) {
            $this->answer(Task::$now, $this->answers->reason('the handler has called exit', $this->id(Task::$now)));
            $this->pipe->shutReading();
            $this->returnRest();
        }
        $this->pipe->flush();
    }

    private function returnRest(): void
    {
        $rest = $this->flight;
        try {
            do {
                $data = $this->pipe->read();
                $this->splitter->feed($data);
                while (($frame = $this->splitter->shift()) !== null) {
                    $rest[] = $this->decoder->decode($frame, $this);
                }
            } while ($data !== '');
        } catch (ProtocolError) {
            // What comes after it can't be understood.
        }
        foreach ($rest as $task) {
            $reason = $this->answers->reason('the worker has ended', $this->id($task), Status::REQUEUE);
            $this->answer($task, $reason);
        }
    }

    private function answer(Task $task, string $frame): void
    {
        unset($this->flight[$task->id]);
        $task->isAnswered = true;
        $this->pipe->put($frame);
    }

    private function isChild(): bool
    {
        return getmypid() !== $this->pid;
    }

    // -- what tasks call --

    /** @param array<string, mixed>|null $headers */
    public function note(Task $task, int $status, mixed $message, ?array $headers = null, ?string $queue = null): void
    {
        if ($status === Status::LOG && !$this->canNote($task)) {
            $this->complain($this->outgoing->readable($message), $headers ?? []);
            return;
        }
        if ($this->isChild()) {
            throw new \LogicException("a process that the handler has forked can't emit or show progress");
        }
        if ($this->version === 1 && $status === Status::EMIT) {
            throw new ProtocolError('emit needs version 2 of the protocol, which this daemon lacks');
        }
        if ($task->isAnswered) {
            $status !== Status::EMIT || throw new \LogicException("emit must come before the handler's answer");
            return;
        }
        $status = $this->version === 1 ? Status::IGNORE_MESSAGE : $status;
        $this->pipe->put($this->outgoing->note($status, $message, $headers, $queue, $this->id($task)));
        $this->pipe->flush();
    }

    public function canNote(Task $task): bool
    {
        return $this->version > 1 && !$task->isAnswered && !$this->isChild();
    }

    /** Control lines that have come by now. */
    public function heed(Task $task): void
    {
        $now = hrtime(true);
        if ($now - $this->heeded > self::HEED_NANOSECONDS) {
            $this->lookAtControl($now);
        }
        $this->checkDeadline($task, $now);
    }

    /**
     * Until the stream is ready, the seconds are over or the task is cancelled; whether the first.
     *
     * @param resource|null $read
     * @param resource|null $write
     */
    public function wait(Task $task, int|float|null $seconds, mixed $read = null, mixed $write = null): bool
    {
        $until = $seconds === null ? null : hrtime(true) + (int) ($seconds * self::SECOND);
        if ($task->deadline !== null) {
            $until = min($until ?? PHP_INT_MAX, $task->deadline);
        }
        $fiber = \Fiber::getCurrent();
        if ($fiber !== null && $fiber === $task->fiber) {
            $this->waiting[] = new Waiting($fiber, $task, $until, $read, $write);
            $this->isSettled = true;
            $isReady = \Fiber::suspend();
        } else {
            $isReady = $this->waitAlone($task, $until, array_filter([$read]), array_filter([$write]));
        }
        $this->checkDeadline($task, hrtime(true));
        return $isReady;
    }

    /**
     * @param array<resource> $read
     * @param array<resource> $write
     */
    private function waitAlone(Task $task, ?int $until, array $read, array $write): bool
    {
        $this->pipe->flush();
        do {
            $left = $until === null ? null : max(0, $until - hrtime(true));
            $left = $task->isCancelled ? 0 : $left;
            [$readable, $writable] = $this->pipe->select(false, $read, $write, self::seconds($left));
            isset($readable['control']) && $this->hear();
            unset($readable['control']);
            if ($readable !== [] || $writable !== []) {
                return true;
            }
        } while (!$task->isCancelled && $left !== 0);
        return false;
    }

    // -- the loop --

    /**
     * With one message at a time the pipe alone is waited for, and stdin is looked at every second: the
     * daemon ends both when it tells one to quit, and a handler looks when it asks whether it is cancelled.
     */
    private function turnAlone(): void
    {
        $this->read();
        $now = hrtime(true);
        if ($now - $this->heeded > self::SECOND) {
            $this->lookAtControl($now);
        }
    }

    private function lookAtControl(int $now): void
    {
        $this->heeded = $now;
        [$ready] = $this->pipe->select(false, [], [], 0.0);
        isset($ready['control']) && $this->hear();
    }

    private function turn(): void
    {
        $read = $write = [];
        $until = null;
        foreach ($this->waiting as $key => $each) {
            $each->read === null || $read[$key] = $each->read;
            $each->write === null || $write[$key] = $each->write;
            $due = $each->task->isCancelled ? 0 : $each->until;
            $until = $due === null ? $until : min($until ?? $due, $due);
        }
        $left = $until === null ? null : max(0, $until - hrtime(true));
        [$read, $write] = $this->pipe->select(true, $read, $write, self::seconds($left));
        $this->flushed = hrtime(true);
        isset($read['control']) && $this->hear();
        if ($this->waiting !== []) {
            $this->wake($read, $write);
        }
        isset($read['pipe']) && $this->read();
        $this->pipe->flush();
    }

    private static function seconds(?int $nanoseconds): ?float
    {
        return $nanoseconds === null ? null : $nanoseconds / self::SECOND;
    }

    /**
     * @param array<resource> $read
     * @param array<resource> $write
     */
    private function wake(array $read, array $write): void
    {
        $now = hrtime(true);
        foreach ($this->waiting as $key => $each) {
            $isReady = isset($read[$key]) || isset($write[$key]);
            if ($isReady || $each->task->isCancelled || ($each->until !== null && $each->until <= $now)) {
                unset($this->waiting[$key]);
                $this->go($each->task, $each->fiber, $isReady);
            }
        }
    }

    private function read(): void
    {
        $data = $this->pipe->read();
        try {
            $sole = $this->splitter->sole($data);
            if ($sole !== null) {
                $this->begin($this->decoder->decode($sole, $this));
                return;
            }
            $this->splitter->feed($data);
            while (($frame = $this->splitter->shift()) !== null) {
                $this->begin($this->decoder->decode($frame, $this));
            }
        } catch (ProtocolError $error) {
            $this->fatal = $error;
            $this->pipe->isOpen = false;
        }
    }

    private function hear(): void
    {
        foreach ($this->pipe->lines() as $line) {
            if ($line === null || $line === '__quit__') {
                $this->pipe->shutReading();
            } elseif ($line === '__context_switch__' && $this->version === 1) {
                array_walk($this->flight, static fn (Task $task) => $task->isCancelled = true);
            } elseif ($this->version > 1 && preg_match('/^__cancel__ (\d+)$/D', $line, $found) === 1) {
                $this->cancel($found[1]);
            }
        }
    }

    private function cancel(string $id): void
    {
        if (isset($this->flight[$id])) {
            $this->flight[$id]->isCancelled = true;
            return;
        }
        $this->early[$id] = true;
        if (count($this->early) > self::EARLY_MAX) {
            unset($this->early[array_key_first($this->early)]);
        }
    }

    // -- working --

    private function begin(Task $task): void
    {
        $this->flight[$task->id] = $task;
        if (isset($this->early[$task->id])) {
            unset($this->early[$task->id]);
            $task->isCancelled = true;
        }
        if (!$this->isSerial) {
            $task->fiber = array_pop($this->idle) ?? new \Fiber($this->workOff(...));
            $this->go($task, $task->fiber, $task);
            return;
        }
        Task::$now = $task;
        $this->work($task);
        Task::$now = null;
        $this->pipe->flush();
    }

    /** Until its handler waits, or has answered. */
    private function go(Task $task, \Fiber $fiber, mixed $value): void
    {
        Task::$now = $task;
        $this->isSettled = false;
        $fiber->isStarted() ? $fiber->resume($value) : $fiber->start($value);
        while (!$this->isSettled) {
            $fiber->throw(new \LogicException('a handler must wait by $task->wait() and the like, not by Fiber::suspend()'));
        }
        Task::$now = null;
        if (hrtime(true) - $this->flushed > self::BATCH_NANOSECONDS) {
            $this->pipe->flush();
            $this->flushed = hrtime(true);
        }
    }

    /** One message after another: a Fiber costs more to make than a task that does nothing. */
    private function workOff(Task $task): void
    {
        while (true) {
            $this->work($task);
            $this->idle[] = $task->fiber;
            $this->isSettled = true;
            $task = \Fiber::suspend();
        }
    }

    private function work(Task $task): void
    {
        try {
            if ($task->headers === []) {
                $outcome = ($this->handler)($task);
            } else {
                $task->deadline = $this->version === 1 ? self::deadline($task->headers) : null;
                $outcome = Tracing::within($task->headers, fn () => ($this->handler)($task));
            }
            $id = $this->version > 1 ? $task->id : null;
            $answer = $outcome === null ? Encoder::done($id) : $this->answers->outcome($outcome, $id);
        } catch (\Throwable $error) {
            $answer = $this->answers->failure($error, $this->id($task));
        }
        $this->isChild() && self::endChild($error ?? null);
        $this->answer($task, $answer);
    }

    /** A process that the handler has forked has left the handler. Only its parent answers. */
    private static function endChild(?\Throwable $error): never
    {
        $error === null || file_put_contents('php://stderr', "{$error}\n");
        exit($error === null ? 0 : 1);
    }

    /**
     * Version 1 asks a worker to give up by itself; version 2 is told when it is so far.
     *
     * @param array<string, string> $headers
     */
    private static function deadline(array $headers): ?int
    {
        $after = $headers['TimeoutMilliseconds'] ?? '';
        return preg_match('/^\d{1,12}$/D', $after) === 1 ? hrtime(true) + (int) $after * 1_000_000 : null;
    }

    private function checkDeadline(Task $task, int $now): void
    {
        if ($task->deadline !== null && $now >= $task->deadline) {
            $task->isCancelled = true;
        }
    }

    private function id(Task $task): int|string|null
    {
        return $this->version > 1 ? $task->id : null;
    }

    /** @param array<string, mixed> $fields */
    private function complain(string $message, array $fields): void
    {
        $level = $fields['level'];
        unset($fields['level']);
        foreach ($fields as $name => $value) {
            $message .= " {$name}=" . (is_scalar($value) ? $value : json_encode($value));
        }
        file_put_contents('php://stderr', "{$level}: {$message}\n");
    }
}
