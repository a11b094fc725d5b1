<?php

declare(strict_types=1);

namespace Ganger\Internal;

/**
 * The pipe, and stdin's control lines beside it: all that this process waits for or writes to.
 *
 * @internal
 */
final class Pipe
{
    private const READ_BYTES = 1 << 13;
    private const READ_BYTES_LARGE = 1 << 18;
    private const LINE_BYTES_MAX = 1 << 16;

    /** Whether the daemon may still send messages. */
    public bool $isOpen = true;
    /** Whether the kernel ends a wait, and PHP need not ask it before each read. */
    private bool $isTimed = false;
    private bool $isHeard = true;
    private int $readBytes = self::READ_BYTES;
    private string $line = '';
    private string $out = '';

    /**
     * @param resource $pipe
     * @param resource $control
     * @param ?\Closure(): ?float $beside is called before what may block, for so many seconds at most
     */
    public function __construct(
        private readonly mixed $pipe,
        private readonly mixed $control,
        private readonly ?\Closure $beside = null,
    ) {
        foreach ([$pipe, $control] as $stream) {
            stream_set_blocking($stream, false);
            stream_set_read_buffer($stream, 0);
        }
        stream_set_timeout($pipe, 0); // for feof, which may wait
    }

    /** From here on `read` waits, for a second at most or two; whether that can be. */
    public function waitAlone(): bool
    {
        if ($this->beside !== null) {
            return false;
        }
        stream_set_blocking($this->pipe, true);
        stream_set_timeout($this->pipe, 1);
        if (function_exists('socket_import_stream')) {
            $second = ['sec' => 1, 'usec' => 0];
            $socket = socket_import_stream($this->pipe);
            $this->isTimed = socket_set_option($socket, SOL_SOCKET, SO_RCVTIMEO, $second);
        }
        return true;
    }

    /**
     * Waits for messages, control lines and these streams; for ever if no seconds are given. Returns the
     * streams that are ready.
     *
     * @param array<resource> $read
     * @param array<resource> $write
     * @return array{array<resource>, array<resource>}
     */
    public function select(bool $forMessages, array $read, array $write, ?float $seconds): array
    {
        if ($forMessages && $this->isOpen) {
            $read['pipe'] = $this->pipe;
        }
        if ($this->isHeard) {
            $read['control'] = $this->control;
        }
        if ($this->beside !== null) {
            $seconds = min($seconds ?? INF, ($this->beside)() ?? INF);
            $seconds = $seconds === INF ? null : $seconds;
        }
        if ($read === [] && $write === []) {
            usleep((int) (($seconds ?? 0) * 1e6));
            return [[], []];
        }
        $none = null;
        $whole = $seconds === null ? null : (int) $seconds;
        $micros = $seconds === null ? null : (int) (fmod($seconds, 1) * 1e6);
        if (@stream_select($read, $write, $none, $whole, $micros) === false) {
            return [[], []]; // by a signal
        }
        return [$read, $write];
    }

    /** What has come; nothing at the end, after which it is not open. */
    public function read(): string
    {
        $data = $this->isTimed
            ? (string) @stream_socket_recvfrom($this->pipe, $this->readBytes)
            : (string) @fread($this->pipe, $this->readBytes);
        if ($data === '') {
            $this->isOpen = !feof($this->pipe);
        }
        // A buffer that is large costs more to get than to fill.
        $this->readBytes = strlen($data) < $this->readBytes ? self::READ_BYTES : self::READ_BYTES_LARGE;
        return $data;
    }

    /**
     * The control lines that have come; null as the last one for the end of stdin.
     *
     * @return list<?string>
     */
    public function lines(): array
    {
        $data = (string) @fread($this->control, self::READ_BYTES);
        if ($data === '') {
            $this->isHeard = !feof($this->control);
            return $this->isHeard ? [] : [null];
        }
        $lines = explode("\n", $this->line . $data);
        $this->line = substr(array_pop($lines), -self::LINE_BYTES_MAX);
        return $lines;
    }

    /** What has arrived is still read, then it ends; writing goes on. */
    public function shutReading(): void
    {
        @stream_socket_shutdown($this->pipe, STREAM_SHUT_RD);
    }

    /** To go out with the next `flush`. */
    public function put(string $frame): void
    {
        $this->out .= $frame;
    }

    /** Returns when it is on its way. A daemon that is gone is no error: the pipe's end says so. */
    public function flush(): void
    {
        while ($this->out !== '') {
            $sent = @fwrite($this->pipe, $this->out);
            if ($sent === strlen($this->out) || $sent === false) {
                $this->out = '';
                return;
            }
            $this->out = substr($this->out, $sent);
            $this->awaitRoom();
        }
    }

    private function awaitRoom(): void
    {
        $seconds = $this->beside === null ? null : 0;
        $this->beside === null || ($this->beside)();
        $write = [$this->pipe];
        $none = null;
        @stream_select($none, $write, $none, $seconds, 0);
    }

    public function close(): void
    {
        $this->flush();
        fclose($this->pipe);
    }
}
