<?php

declare(strict_types=1);

namespace Ganger\Internal;

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
     * The pipe that stdin names, and the control lines to come. Stdin itself is empty from here
     * on, so that neither a handler nor its child processes can eat such a line.
     */
    public static function connect(): Pipe
    {
        if (stream_isatty(STDIN)) {
            self::leave('this is a worker of ganger, which starts it and writes a pipe\'s name to its stdin: '
                . 'put it into a [[pools]] section, or try it with Ganger\Testing\Harness');
        }
        $control = fopen('php://fd/0', 'r');
        stream_set_read_buffer($control, 0);
        $name = self::firstLine($control);
        if ($name === '') {
            self::leave('stdin must begin with a line that names the pipe: it has ended');
        }
        $path = self::path($name);
        $pipe = @stream_socket_client("unix://{$path}", $code, $reason);
        if ($pipe === false) {
            self::leave("can't connect to {$path}: {$reason}");
        }
        fclose(STDIN);
        self::$nothing = fopen('/dev/null', 'r');
        return new Pipe($pipe, $control);
    }

    /**
     * Byte by byte: what follows is for others.
     *
     * @param resource $control
     */
    private static function firstLine($control): string
    {
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
