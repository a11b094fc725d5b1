<?php

declare(strict_types=1);

use Ganger\Internal\Decoder;
use Ganger\Internal\Encoder;

/** The daemon's side of the protocol, by hand: a real process on a real pipe. */
final class Peer
{
    private const DEADLINE_SECONDS = 60;

    /** @var resource */
    public $pipe;
    /** @var resource|null */
    public $stdin;
    /** @var array<mixed>|null */
    public ?array $hello = null;
    /** @var resource */
    private $process;
    /** @var resource */
    private $stderr;

    /**
     * @param list<int> $arguments
     * @param array<string, string> $variables
     */
    public function __construct(array $arguments, int $version = 2, array $variables = [], string $setting = 'ffi.enable=true')
    {
        $name = bin2hex(random_bytes(16));
        $path = "/tmp/CoreFxPipe_{$name}";
        $env = array_filter(getenv(), static fn (string $key) => !str_starts_with($key, 'GANGER_'), ARRAY_FILTER_USE_KEY);
        $env = $variables + $env;
        if ($version === 2) {
            $env += ['GANGER_PROTOCOL' => '2', 'GANGER_PIPE' => $path];
        }
        $listener = stream_socket_server("unix://{$path}");
        $this->stderr = tmpfile();
        $command = [PHP_BINARY, '-d', 'memory_limit=128M', '-d', 'display_errors=stderr', '-d', $setting, __DIR__ . '/modes.php', ...$arguments];
        $this->process = proc_open($command, [['pipe', 'r'], $this->stderr, $this->stderr], $pipes, null, $env);
        [$this->stdin] = $pipes;
        // What is next on stdin is not part of the first line, though it comes with it.
        $this->tell("{$name}\n__of_a_newer_daemon__ 1");
        $this->pipe = stream_socket_accept($listener, self::DEADLINE_SECONDS);
        stream_set_timeout($this->pipe, self::DEADLINE_SECONDS);
        fclose($listener);
        unlink($path);
        if ($version === 2) {
            $this->hello = $this->receive();
        }
    }

    /**
     * Calls this with the peer of a worker that is gone afterwards.
     *
     * @param list<int> $arguments
     * @param array<string, string> $variables
     */
    public static function of(
        array $arguments,
        Closure $what,
        int $version = 2,
        array $variables = [],
        string $setting = 'ffi.enable=true',
    ): void {
        $peer = new self($arguments, $version, $variables, $setting);
        try {
            $what($peer);
        } finally {
            proc_terminate($peer->process, 9);
            proc_close($peer->process);
        }
    }

    public function tell(string $line): void
    {
        fwrite($this->stdin, "{$line}\n");
    }

    public function closeStdin(): void
    {
        fclose($this->stdin);
    }

    /** @param array<mixed> $fields */
    public function send(string $body, int|string $id = 1, array $fields = []): void
    {
        $this->write(self::input($body, $id, $fields));
    }

    public function write(string $data): void
    {
        same(strlen($data), fwrite($this->pipe, $data));
    }

    /** @return array<mixed> */
    public function receive(): array
    {
        return (new Decoder())->map($this->read(unpack('N', $this->read(4))[1]));
    }

    /**
     * @param array<mixed> $fields
     * @return array<mixed>
     */
    public function ask(string $body, int|string $id = 1, array $fields = []): array
    {
        $this->send($body, $id, $fields);
        return $this->receive();
    }

    /**
     * Sends one that says when it is in hand.
     *
     * @param array<mixed> $fields
     */
    public function begin(string $body, int $id = 1, array $fields = []): void
    {
        same('begun', $this->ask($body, $id, $fields)[0]);
    }

    /** The exit code; the pipe holds nothing more. */
    public function ended(): int
    {
        same('', stream_get_contents($this->pipe));
        return $this->exitCode();
    }

    public function exitCode(): int
    {
        $until = microtime(true) + self::DEADLINE_SECONDS;
        do {
            $status = proc_get_status($this->process);
        } while ($status['running'] && microtime(true) < $until && usleep(1000) === null);
        same(false, $status['running']);
        return $status['exitcode'];
    }

    public function stderr(): string
    {
        return file_get_contents(stream_get_meta_data($this->stderr)['uri']);
    }

    /** @param array<mixed> $fields in MessagePack if they are more than a header's value can be */
    public static function input(string $body, int|string $id, array $fields = [], int $keys = 8): string
    {
        $packed = [
            Encoder::body($body),
            Encoder::text($fields['correlation_id'] ?? ''),
            "\xa1q",
            Encoder::map($fields['headers'] ?? []),
            substr(Encoder::done($id), 14),
            Encoder::integer($fields['attempt'] ?? 1),
            isset($fields['left']) ? Encoder::integer($fields['left']) : "\xc0",
            Encoder::map($fields['properties'] ?? []),
        ];
        $data = chr(0x80 + $keys + count($fields['more'] ?? []));
        foreach (array_slice($packed, 0, $keys) as $key => $value) {
            $data .= "\xa1{$key}{$value}";
        }
        foreach ($fields['more'] ?? [] as $key => $value) {
            $data .= Encoder::text((string) $key) . $value;
        }
        return Encoder::framed($data, 1 << 30);
    }

    private function read(int $size): string
    {
        $data = '';
        while (strlen($data) < $size) {
            $part = fread($this->pipe, $size - strlen($data));
            $part !== '' && $part !== false || throw new LogicException("nothing from the worker: {$this->stderr()}");
            $data .= $part;
        }
        return $data;
    }
}
