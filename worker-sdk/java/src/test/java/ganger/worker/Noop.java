package ganger.worker;

import java.io.EOFException;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.msgpack.core.MessageBufferPacker;
import org.msgpack.core.MessagePack;
import org.msgpack.value.Value;
import org.msgpack.value.ValueFactory;

/**
 * What the library costs: tasks that do nothing, beside a loop written by hand, in one run.
 *
 * <p>{@code java -cp 'target/classes:target/test-classes:target/libs/*' ganger.worker.Noop [ROUNDS [OPTION…]]}
 * prints, for one message at a time and for 64, the median of the rounds' ratios of the processor time that a
 * message takes: library / by hand. The two take turns, and have warmed up. Then how long a start takes until
 * the first answer, and what memory a worker has after all. The options are those of the workers' JVM.
 */
final class Noop {
    private static final int WARM_UP = 200_000;
    private static final int MESSAGES = 200_000;
    private static final double NANOS_A_MICRO = 1000;
    private static final double NANOS_A_MILLI = 1e6;

    private Noop() { }

    /** What one process has cost. */
    private record Cost(double micros, double startMillis, double mebibytes) { }

    public static void main(String[] args) throws Exception {
        if (args.length > 0 && args[0].equals("worker")) {
            worker(args[1], Integer.parseInt(args[2]));
            return;
        }
        int rounds = args.length > 0 ? Integer.parseInt(args[0]) : 5;
        List<String> options = args.length > 1 ? List.of(args).subList(1, args.length) : List.of();
        for (int ahead : new int[] {1, 64}) {
            List<String> ways = new ArrayList<>(List.of("library", "by hand"));
            Map<String, List<Cost>> costs = new HashMap<>();
            List<Double> ratios = new ArrayList<>();
            for (int round = 0; round < rounds; round++) {
                Map<String, Cost> both = new HashMap<>();
                for (String way : ways) {
                    both.put(way, measure(way, ahead, options));
                }
                both.forEach((way, cost) -> costs.computeIfAbsent(way, any -> new ArrayList<>()).add(cost));
                ratios.add(both.get("library").micros() / both.get("by hand").micros());
                Collections.reverse(ways);
            }
            System.out.printf(Locale.ROOT, "%d at once: %s, %s, ratio %.2f%n", ahead,
                shown("library", costs), shown("by hand", costs), median(ratios));
        }
    }

    private static String shown(String way, Map<String, List<Cost>> costs) {
        List<Cost> all = costs.get(way);
        return String.format(Locale.ROOT, "%s %.1f µs (start %.0f ms, %.0f MiB)", way,
            median(all.stream().map(Cost::micros).toList()),
            median(all.stream().map(Cost::startMillis).toList()),
            median(all.stream().map(Cost::mebibytes).toList()));
    }

    private static double median(List<Double> numbers) {
        return numbers.stream().sorted().toList().get(numbers.size() / 2);
    }

    // -- the workers --

    private static void worker(String way, int concurrency) throws IOException {
        if (way.equals("library")) {
            Worker.of(task -> Outcome.done()).concurrency(concurrency).run();
        } else {
            byHand(concurrency);
        }
    }

    private static void byHand(int concurrency) throws IOException {
        SocketChannel pipe = SocketChannel.open(UnixDomainSocketAddress.of(System.getenv("GANGER_PIPE")));
        MessageBufferPacker packer = MessagePack.newDefaultBufferPacker();
        packer.packMapHeader(3).packString("0").packString("").packString("1").packInt(100);
        packer.packString("2").packMapHeader(1).packString("concurrency").packString("" + concurrency);
        send(pipe, packer);
        ExecutorService pool = concurrency == 1 ? null : pool(concurrency);
        Executor threads = pool == null ? Runnable::run : pool;
        ByteBuffer arrived = ByteBuffer.allocate(1 << 16).flip();
        while (true) {
            while (arrived.remaining() < 4 || arrived.remaining() < 4 + arrived.getInt(arrived.position())) {
                arrived.compact();
                int read = pipe.read(arrived);
                arrived.flip();
                if (read < 0) {
                    if (pool != null) {
                        pool.shutdown();
                    }
                    return;
                }
            }
            byte[] frame = new byte[arrived.getInt()];
            arrived.get(frame);
            threads.execute(() -> answer(pipe, packer, frame));
        }
    }

    /** The same kind of threads as the library's. */
    private static ExecutorService pool(int concurrency) {
        try {
            return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        } catch (ReflectiveOperationException older) {
            return Executors.newFixedThreadPool(concurrency);
        }
    }

    private static void answer(SocketChannel pipe, MessageBufferPacker packer, byte[] frame) {
        try {
            Map<Value, Value> task = MessagePack.newDefaultUnpacker(frame).unpackValue().asMapValue().map();
            Value id = task.get(ValueFactory.newString("4"));
            synchronized (packer) {
                packer.clear();
                packer.packMapHeader(3).packString("0").packString("").packString("1").packInt(200);
                packer.packString("4").packValue(id);
                send(pipe, packer);
            }
        } catch (IOException broken) {
            throw new IllegalStateException(broken);
        }
    }

    private static void send(SocketChannel pipe, MessageBufferPacker packer) throws IOException {
        byte[] data = packer.toByteArray();
        ByteBuffer frame = ByteBuffer.allocate(4 + data.length).putInt(data.length).put(data).flip();
        while (frame.hasRemaining()) {
            pipe.write(frame);
        }
    }

    // -- the daemon's side --

    private static Cost measure(String way, int ahead, List<String> options) throws Exception {
        Path path = Files.createTempDirectory("ganger-bench").resolve("pipe");
        try (ServerSocketChannel listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            listener.bind(UnixDomainSocketAddress.of(path));
            List<String> command = new ArrayList<>();
            command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
            command.addAll(options);
            command.addAll(List.of("-cp", System.getProperty("java.class.path"), Noop.class.getName(), "worker"));
            command.addAll(List.of(way, Integer.toString(ahead)));
            ProcessBuilder builder = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT);
            builder.environment().putAll(Map.of("GANGER_PROTOCOL", "2", "GANGER_PIPE", path.toString()));
            long began = System.nanoTime();
            Process process = builder.start();
            process.getOutputStream().write("pipe\n".getBytes(StandardCharsets.UTF_8));
            process.getOutputStream().flush();
            double start;
            double used;
            double memory;
            try (SocketChannel pipe = listener.accept()) {
                exchange(pipe, 1, ahead);
                start = System.nanoTime() - began;
                exchange(pipe, WARM_UP, ahead);
                long before = processorNanos(process.pid());
                exchange(pipe, MESSAGES, ahead);
                used = processorNanos(process.pid()) - before;
                memory = residentMebibytes(process.pid());
            }
            process.getOutputStream().close();
            if (process.waitFor() != 0) {
                throw new IllegalStateException("the worker " + way + " has failed");
            }
            return new Cost(used / MESSAGES / NANOS_A_MICRO, start / NANOS_A_MILLI, memory);
        } finally {
            Files.delete(path);
            Files.delete(path.getParent());
        }
    }

    /** That of all threads, which have a clock finer than ticks. */
    private static long processorNanos(long pid) throws IOException {
        long sum = 0;
        try (DirectoryStream<Path> threads = Files.newDirectoryStream(Path.of("/proc/" + pid + "/task"))) {
            for (Path thread : threads) {
                sum += Long.parseLong(Files.readString(thread.resolve("schedstat")).split(" ")[0]);
            }
        }
        return sum;
    }

    private static double residentMebibytes(long pid) throws IOException {
        String status = Files.readString(Path.of("/proc/" + pid + "/status"));
        String line = status.lines().filter(each -> each.startsWith("VmRSS:")).findFirst().orElseThrow();
        return Long.parseLong(line.replaceAll("\\D", "")) / 1024.0;
    }

    private static void exchange(SocketChannel pipe, int count, int ahead) throws IOException {
        ByteBuffer heap = ByteBuffer.allocateDirect(1 << 16);
        ByteBuffer arrived = ByteBuffer.allocateDirect(1 << 16);
        int sent = 0;
        int answered = 0;
        while (answered < count) {
            heap.clear();
            for (; sent < count && sent < answered + ahead; sent++) {
                byte[] input = input(sent);
                heap.putInt(input.length).put(input);
            }
            heap.flip();
            while (heap.hasRemaining()) {
                pipe.write(heap);
            }
            if (pipe.read(arrived) < 0) {
                throw new EOFException();
            }
            arrived.flip();
            while (arrived.remaining() >= 4 && arrived.remaining() >= 4 + arrived.getInt(arrived.position())) {
                byte[] frame = new byte[arrived.getInt()];
                arrived.get(frame);
                boolean done = new String(frame, StandardCharsets.ISO_8859_1).contains("\u00a11\u00cc\u00c8");
                answered += done ? 1 : 0;
            }
            arrived.compact();
        }
    }

    private static byte[] input(int id) throws IOException {
        MessageBufferPacker packer = MessagePack.newDefaultBufferPacker();
        packer.packMapHeader(8).packString("0").packString("hello").packString("1").packString("");
        packer.packString("2").packString("work").packString("3").packMapHeader(0).packString("4").packInt(id);
        packer.packString("5").packInt(1).packString("6").packNil();
        packer.packString("7").packMapHeader(1).packString("row_id").packInt(id);
        return packer.toByteArray();
    }
}
