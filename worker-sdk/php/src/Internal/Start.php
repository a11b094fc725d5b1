<?php

declare(strict_types=1);

namespace Ganger\Internal;

use Ganger\Worker;

/**
 * The start of a worker: from the pipe's name on stdin to a connection.
 *
 * @internal
 */
final class Start
{
    private const LINE_BYTES_MAX = 1 << 16;

    /** @var resource keeps the number 0 */
    private static $nothing;

    /**
     * The pipe's name, which stdin begins with, and the control lines to come. Stdin itself is empty from here on,
     * so that neither a handler nor its child processes can eat such a line.
     *
     * @return array{string, resource}
     */
    public static function take(): array
    {
        if (stream_isatty(STDIN)) {
            self::leave('this is a worker of ganger, which starts it and writes a pipe\'s name to its stdin: '
                . 'put it into a [[pools]] section, or try it with Ganger\Testing\Harness');
        }
        $name = self::firstLine();
        if ($name === '') {
            self::leave('stdin must begin with a line that names the pipe: it has ended');
        }
        // Opened anew, child processes do not inherit it (e); it waits for nobody (n).
        $control = @fopen('/proc/self/fd/0', 'ren') ?: fopen('php://fd/0', 'r');
        self::emptyStdin();
        return [$name, $control];
    }

    /**
     * The pipe of that name.
     *
     * @param resource $control
     */
    public static function connect(string $name, $control): Pipe
    {
        $path = self::path($name);
        $pipe = @stream_socket_client("unix://{$path}", $code, $reason);
        if ($pipe === false) {
            self::leave("can't connect to {$path}: {$reason}");
        }
        return new Pipe($pipe, $control);
    }

    /** The longest frame: the daemon's limit, or a lower one that is asked for. */
    public static function frameBytesMax(?int $wanted): int
    {
        $told = (string) getenv('GANGER_FRAME_BYTES_MAX');
        if (preg_match('/^\d{1,15}$/D', $told) !== 1) {
            return $wanted ?? Worker::FRAME_BYTES_MAX;
        }
        return min($wanted ?? PHP_INT_MAX, (int) $told);
    }

    /** PHP has no dup2 of its own. Without FFI the number is free for /dev/null once STDIN is closed. */
    private static function emptyStdin(): void
    {
        try {
            $libc = \FFI::cdef('int open(const char *, int, ...); int dup2(int, int); int close(int);');
            $nothing = $libc->open('/dev/null', 0);
            if ($nothing > 0 && $libc->dup2($nothing, 0) === 0) {
                $libc->close($nothing);
                return;
            }
        } catch (\Throwable) {
            // It is not installed, or not allowed.
        }
        fclose(STDIN);
        self::$nothing = fopen('/dev/null', 'r');
    }

    /** Byte by byte: what follows is for others. */
    private static function firstLine(): string
    {
        $control = fopen('php://fd/0', 'r');
        stream_set_read_buffer($control, 0);
        $line = '';
        while (strlen($line) < self::LINE_BYTES_MAX) {
            $byte = fread($control, 1);
            if ($byte === false || $byte === '' || $byte === "\n") {
                break;
            }
            $line .= $byte;
        }
        return rtrim($line, "\r");
    }

    private static function path(string $name): string
    {
        $told = (string) getenv('GANGER_PIPE');
        if ($told !== '') {
            return $told;
        }
        $below = (string) getenv('TMPDIR');
        $there = "{$below}/CoreFxPipe_{$name}";
        return $below !== '' && file_exists($there) ? $there : "/tmp/CoreFxPipe_{$name}";
    }

    private static function leave(string $reason): never
    {
        fwrite(STDERR, "{$reason}\n");
        exit(1);
    }
}
