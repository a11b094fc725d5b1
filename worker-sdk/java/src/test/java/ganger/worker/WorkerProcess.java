package ganger.worker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.msgpack.core.MessageBufferPacker;
import org.msgpack.core.MessagePack;
import org.msgpack.value.Value;
import org.msgpack.value.ValueFactory;

/** A real worker process, with the daemon's side of the protocol by hand. */
final class WorkerProcess implements AutoCloseable {
    /** Each costs a second less of a processor, and the tests have many. */
    private static final List<String> QUICK = List.of("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto");

    final Process process;
    final SocketChannel pipe;
    private final DataInputStream input;
    private final Path stderr;

    /** An output, as it came. */
    record Answer(Value value) {
        String json() {
            return value.toJson();
        }

        Value get(int key) {
            Value name = ValueFactory.newString(Integer.toString(key));
            return value.asMapValue().map().getOrDefault(name, ValueFactory.newNil());
        }

        int status() {
            return get(1).asIntegerValue().asInt();
        }

        String text() {
            return get(0).asStringValue().asString();
        }

        long id() {
            return get(4).asIntegerValue().asLong();
        }
    }

    /** The worker of {@link Modes}, on the other threads where that is wanted. */
    static WorkerProcess start(int concurrency, int version) throws IOException {
        return start(concurrency, version, 64 << 20, "platform");
    }

    static WorkerProcess start(int concurrency, int version, int frameBytesMax, String threads) throws IOException {
        return start(concurrency, version, frameBytesMax, threads, Map.of());
    }

    static WorkerProcess start(
            int concurrency, int version, int frameBytesMax, String threads, Map<String, String> environment)
            throws IOException {
        List<String> main = List.of(Modes.class.getName(), "" + concurrency, "" + frameBytesMax, threads);
        WorkerProcess worker = new WorkerProcess(version, main, environment);
        if (version == 2) {
            String headers = "{\"sdk\":\"ganger-java\",\"version\":\"" + Connection.VERSION
                + "\",\"concurrency\":\"" + concurrency + "\"}";
            assertEquals("{\"0\":\"\",\"1\":100,\"2\":" + headers + "}", worker.receive().json());
        }
        return worker;
    }

    /** Any main class with its arguments, or a file of sources. */
    static WorkerProcess of(int version, List<String> main) throws IOException {
        return new WorkerProcess(version, main, Map.of());
    }

    private WorkerProcess(int version, List<String> main, Map<String, String> environment) throws IOException {
        String name = UUID.randomUUID().toString();
        Path path = Path.of("/tmp/CoreFxPipe_" + name);
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(QUICK);
        command.addAll(List.of("-cp", System.getProperty("java.class.path")));
        command.addAll(main);
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.environment().keySet().removeIf(key -> key.startsWith("GANGER_"));
        if (version == 2) {
            builder.environment().putAll(Map.of("GANGER_PROTOCOL", "2", "GANGER_PIPE", path.toString()));
        }
        builder.environment().putAll(environment);
        stderr = Files.createTempFile("ganger-worker", ".stderr");
        builder.redirectOutput(ProcessBuilder.Redirect.DISCARD).redirectError(stderr.toFile());
        try (ServerSocketChannel listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            listener.bind(UnixDomainSocketAddress.of(path));
            process = builder.start();
            // What is next on stdin is not part of the first line, though it comes with it.
            tell(name + "\n__of_a_newer_daemon__ 1");
            pipe = listener.accept();
        } finally {
            Files.delete(path);
        }
        input = new DataInputStream(new BufferedInputStream(Channels.newInputStream(pipe), 1 << 16));
    }

    void tell(String line) throws IOException {
        process.getOutputStream().write((line + "\n").getBytes(StandardCharsets.UTF_8));
        process.getOutputStream().flush();
    }

    /** An input's fields by their keys, as a careful daemon sends them. */
    static Map<String, Value> task(Value body, Value id) {
        Map<String, Value> fields = new TreeMap<>();
        fields.put("0", body);
        fields.put("1", ValueFactory.newString(""));
        fields.put("2", ValueFactory.newString("q"));
        fields.put("3", ValueFactory.emptyMap());
        fields.put("4", id);
        fields.put("5", ValueFactory.newInteger(1));
        fields.put("6", ValueFactory.newNil());
        fields.put("7", ValueFactory.emptyMap());
        return fields;
    }

    static Map<String, Value> task(String body, long id) {
        return task(ValueFactory.newString(body), ValueFactory.newInteger(id));
    }

    static byte[] frame(Map<String, Value> fields) throws IOException {
        MessageBufferPacker packer = MessagePack.newDefaultBufferPacker();
        packer.packMapHeader(fields.size());
        for (Map.Entry<String, Value> field : fields.entrySet()) {
            packer.packString(field.getKey()).packValue(field.getValue());
        }
        byte[] data = packer.toByteArray();
        return ByteBuffer.allocate(4 + data.length).putInt(data.length).put(data).array();
    }

    void write(byte[] data) throws IOException {
        ByteBuffer left = ByteBuffer.wrap(data);
        while (left.hasRemaining()) {
            pipe.write(left);
        }
    }

    void send(String body, long id) throws IOException {
        write(frame(task(body, id)));
    }

    Answer receive() throws IOException {
        byte[] data = new byte[input.readInt()];
        input.readFully(data);
        return new Answer(MessagePack.newDefaultUnpacker(data).unpackValue());
    }

    Answer ask(String body, long id) throws IOException {
        send(body, id);
        return receive();
    }

    void expect(String json) throws IOException {
        assertEquals(json, receive().json());
    }

    /** Sends one that says when it is in hand. */
    void begin(String body, long id) throws IOException {
        assertEquals("begun", ask(body, id).text());
    }

    /** Sees that nothing more is said, and how the process ends. */
    void ended(int code) throws IOException, InterruptedException {
        byte[] rest = input.readAllBytes();
        assertTrue(process.waitFor(1, TimeUnit.MINUTES), "it does not end");
        assertEquals(code, process.exitValue(), () -> stderr());
        assertEquals("[]", Arrays.toString(rest));
    }

    String stderr() {
        try {
            return Files.readString(stderr);
        } catch (IOException gone) {
            return gone.toString();
        }
    }

    @Override
    public void close() throws IOException {
        process.destroyForcibly();
        process.getOutputStream().close();
        pipe.close();
        Files.delete(stderr);
    }
}
