<?php

declare(strict_types=1);

// What the library costs: tasks that do nothing, beside a loop written by hand, in one run.
//
// php bench/noop.php [ROUNDS] prints, for one message at a time and for many, the processor time that a message
// takes and the median of the ratios library / by hand. In each round both are started, and then take short
// turns, so that what else the machine does meets both. The loop by hand is what the protocol asks of a worker
// at the least: it judges a frame's length, reads until the frame is whole, calls a handler, and answers 500 if
// that throws. PHP's extension for MessagePack reads there, which is enough for texts, and many are in hand in
// Fibers.

use Ganger\Internal\{Encoder, Splitter};
use Ganger\Worker;

require __DIR__ . '/../tests/autoload.php';

const TURNS = 40;
/** In each turn. */
const MESSAGES = 1000;
/** How many are in the pipe at once. */
const KINDS = ['one' => 1, 'many' => 64];

function hello(int $concurrency): string
{
    $about = ['sdk' => 'none', 'version' => '0', 'concurrency' => (string) $concurrency];
    $data = Encoder::output('', 100, $about);
    return pack('N', strlen($data)) . $data;
}

function by_hand($pipe, int $concurrency, Closure $handler): void
{
    $answer = static function (string $frame) use ($pipe, $handler): void {
        $task = msgpack_unpack($frame);
        try {
            $handler($task);
            $data = "\x83\xa10\xa0\xa11\xcc\xc8\xa14" . msgpack_pack($task[4]);
        } catch (Throwable $error) {
            $data = "\x83\xa10" . msgpack_pack($error->getMessage()) . "\xa11\xcd\x01\xf4\xa14" . msgpack_pack($task[4]);
        }
        fwrite($pipe, pack('N', strlen($data)) . $data);
    };
    fwrite($pipe, hello($concurrency));
    while (($length = read_exactly($pipe, 4)) !== '') {
        $size = unpack('N', $length)[1];
        if ($size < 1 || $size > Worker::FRAME_BYTES_MAX) {
            throw new RuntimeException("a frame of {$size} bytes");
        }
        $frame = read_exactly($pipe, $size);
        $concurrency === 1 ? $answer($frame) : (new Fiber($answer))->start($frame);
    }
}

/** Less at the end only. */
function read_exactly($pipe, int $size): string
{
    $data = fread($pipe, $size);
    while (strlen($data) < $size && !feof($pipe)) {
        $data .= fread($pipe, $size - strlen($data));
    }
    return $data;
}

function worker(string $kind, string $way): void
{
    $handler = static fn () => null;
    if ($way === 'library') {
        Worker::run($handler, KINDS[$kind]);
        return;
    }
    fgets(STDIN);
    by_hand(stream_socket_client('unix://' . getenv('GANGER_PIPE')), KINDS[$kind], $handler);
}

/** A worker, and what its messages take. */
final class Measured
{
    /** Milliseconds from the start to the HELLO. */
    public readonly float $start;
    private readonly int $pid;
    private readonly int $ahead;
    private $process;
    private $stdin;
    private $pipe;

    public function __construct(string $kind, string $way)
    {
        $this->ahead = KINDS[$kind];
        $path = '/tmp/ganger-bench-' . getmypid();
        $listener = stream_socket_server("unix://{$path}");
        $began = hrtime(true);
        $env = ['GANGER_PROTOCOL' => '2', 'GANGER_PIPE' => $path];
        $command = [PHP_BINARY, __FILE__, 'worker', $kind, $way];
        $this->process = proc_open($command, [['pipe', 'r']], $pipes, null, $env);
        [$this->stdin] = $pipes;
        fwrite($this->stdin, "pipe\n");
        $this->pipe = stream_socket_accept($listener);
        fread($this->pipe, 1 << 16);
        $this->start = (hrtime(true) - $began) / 1e6;
        unlink($path);
        $this->pid = proc_get_status($this->process)['pid'];
        $this->turn();
    }

    /** Microseconds of processor time a message. */
    public function turn(): float
    {
        $before = processor_micros($this->pid);
        exchange($this->pipe, MESSAGES, $this->ahead);
        return (processor_micros($this->pid) - $before) / MESSAGES;
    }

    /** Returns the MiB of memory that it has had. */
    public function end(): float
    {
        preg_match('/VmRSS:\s+(\d+)/', file_get_contents("/proc/{$this->pid}/status"), $found);
        fclose($this->pipe);
        fclose($this->stdin);
        if (proc_close($this->process) !== 0) {
            throw new RuntimeException('a worker has failed');
        }
        return $found[1] / 1024;
    }
}

/** To one processor: whether a message wakes up another one weighs more than all that is compared here. */
function pin(): void
{
    preg_match('/^Cpus_allowed_list:\s+(\d+)/m', file_get_contents('/proc/self/status'), $found);
    exec("taskset -pc {$found[1]} " . getmypid());
}

/** The kernel's own clock, in nanoseconds: ticks are too coarse. */
function processor_micros(int $pid): float
{
    return (int) file_get_contents("/proc/{$pid}/schedstat") / 1e3;
}

function exchange($pipe, int $count, int $ahead): void
{
    $splitter = new Splitter(1 << 20);
    $sent = $inFlight = 0;
    while ($sent < $count || $inFlight > 0) {
        $heap = '';
        for (; $sent < $count && $inFlight < $ahead; $sent++, $inFlight++) {
            $id = Encoder::integer($sent);
            $data = "\x88\xa10\xa5hello\xa11\xa0\xa12\xa4work\xa13\x80\xa14{$id}\xa15\x01\xa16\xc0\xa17\x81\xa6row_id{$id}";
            $heap .= pack('N', strlen($data)) . $data;
        }
        $heap === '' || fwrite($pipe, $heap);
        $splitter->feed(fread($pipe, 1 << 16));
        while (($frame = $splitter->shift()) !== null) {
            $inFlight -= (int) str_contains($frame, "\xa11\xcc\xc8");
        }
    }
}

/** @param list<float> $list */
function median(array $list): float
{
    sort($list);
    return $list[intdiv(count($list), 2)];
}

if (($argv[1] ?? '') === 'worker') {
    worker($argv[2], $argv[3]);
    exit;
}
pin();
$ways = ['library', 'by hand'];
foreach (array_keys(KINDS) as $kind) {
    $costs = $starts = $memory = ['library' => [], 'by hand' => []];
    for ($round = 0; $round < (int) ($argv[1] ?? 5); $round++) {
        $workers = array_map(static fn ($way) => new Measured($kind, $way), array_combine($ways, $ways));
        for ($turn = 0; $turn < TURNS; $turn++) {
            foreach ($workers as $way => $measured) {
                $costs[$way][] = $measured->turn();
            }
        }
        foreach ($workers as $way => $measured) {
            $starts[$way][] = $measured->start;
            $memory[$way][] = $measured->end();
        }
    }
    printf('%s: ', $kind);
    foreach ($ways as $way) {
        $figures = [median($costs[$way]), median($starts[$way]), median($memory[$way])];
        printf('%s %.1f µs (start %.0f ms, %.1f MiB), ', $way, ...$figures);
    }
    $ratios = array_map(static fn ($library, $byHand) => $library / $byHand, $costs['library'], $costs['by hand']);
    printf("ratio %.2f\n", median($ratios));
}
