package ganger.worker.testing;

import java.io.IOException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.Pipe;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.msgpack.core.MessageBufferPacker;
import org.msgpack.core.MessagePack;
import org.msgpack.value.Value;
import org.msgpack.value.ValueFactory;

/** The daemon's side. */
final class Peer implements AutoCloseable {
    private static final long SILENCE_MS = 60_000;
    private static final int HELLO = 100;
    private static final int LOG = 101;
    private static final int PROGRESS = 102;
    private static final int EMIT = 103;
    private static final int IGNORE_MESSAGE = -1;

    private final SocketChannel pipe;
    private final Pipe.SinkChannel control;
    private final Selector selector = Selector.open();
    private final List<Message> messages;
    private final List<Open> all = new ArrayList<>();
    private final List<Open> inFlight = new ArrayList<>();
    private final ScheduledThreadPoolExecutor timers = new ScheduledThreadPoolExecutor(1);
    private ByteBuffer arrived = ByteBuffer.allocate(1 << 16).flip();
    private int room = 1;

    /** A message that is handed out, and what has come of it so far. */
    private static final class Open {
        private final List<Note> emits = new ArrayList<>();
        private final List<Note> logs = new ArrayList<>();
        private final List<String> progress = new ArrayList<>();
        private Result result;
    }

    Peer(SocketChannel pipe, Pipe.SinkChannel control, int version, List<Message> messages) throws IOException {
        this.pipe = pipe;
        this.control = control;
        this.messages = messages;
        pipe.configureBlocking(false);
        pipe.register(selector, SelectionKey.OP_READ);
        if (version > 1) {
            take(receive()); // the HELLO, which tells how many it takes at once
        }
    }

    List<Result> exchange() throws IOException {
        while (all.size() < messages.size() || !inFlight.isEmpty()) {
            while (all.size() < messages.size() && inFlight.size() < room) {
                send(messages.get(all.size()));
            }
            take(receive());
        }
        return all.stream().map(each -> each.result).toList();
    }

    private void send(Message message) throws IOException {
        int id = all.size();
        Open open = new Open();
        all.add(open);
        inFlight.add(open);
        byte[] frame = pack(message, id);
        ByteBuffer data = ByteBuffer.allocate(Integer.BYTES + frame.length).putInt(frame.length).put(frame).flip();
        while (data.hasRemaining()) {
            if (pipe.write(data) == 0) {
                awaitRoom();
            }
        }
        if (message.cancelAfter != null) {
            timers.schedule(() -> cancel(id), message.cancelAfter.toMillis(), TimeUnit.MILLISECONDS);
        }
    }

    /** Reads meanwhile, for a worker that writes much must not wait for us either. */
    private void awaitRoom() throws IOException {
        SelectionKey key = pipe.keyFor(selector);
        key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
        if (selector.select(ready -> { }, SILENCE_MS) == 0) {
            throw silent();
        }
        key.interestOps(SelectionKey.OP_READ);
        readMore();
    }

    private static byte[] pack(Message message, int id) throws IOException {
        MessageBufferPacker packer = MessagePack.newDefaultBufferPacker();
        packer.packMapHeader(8).packString("0").packValue(value(message.body));
        packer.packString("1").packString(message.correlationId);
        packer.packString("2").packString(message.queue);
        packer.packString("3").packValue(value(message.headers));
        packer.packString("4").packInt(id);
        packer.packString("5").packInt(message.attempt);
        packer.packString("6").packValue(value(message.millisecondsLeft));
        packer.packString("7").packValue(value(message.properties));
        return packer.toByteArray();
    }

    private static Value value(Object any) {
        if (any == null) {
            return ValueFactory.newNil();
        } else if (any instanceof String text) {
            return ValueFactory.newString(text);
        } else if (any instanceof byte[] bytes) {
            return ValueFactory.newBinary(bytes);
        } else if (any instanceof Boolean truth) {
            return ValueFactory.newBoolean(truth);
        } else if (any instanceof Integer || any instanceof Long) {
            return ValueFactory.newInteger(((Number) any).longValue());
        } else if (any instanceof Map<?, ?> map) {
            ValueFactory.MapBuilder builder = ValueFactory.newMapBuilder();
            map.forEach((name, each) -> builder.put(value(name), value(each)));
            return builder.build();
        }
        throw new IllegalArgumentException("a message can't have a " + any.getClass().getName());
    }

    private Void cancel(int id) throws IOException {
        ByteBuffer line = StandardCharsets.UTF_8.encode("__cancel__ " + id + "\n");
        while (line.hasRemaining()) {
            control.write(line);
        }
        return null;
    }

    // -- receiving --

    private Map<Value, Value> receive() throws IOException {
        while (arrived.remaining() < Integer.BYTES
                || arrived.remaining() < Integer.BYTES + arrived.getInt(arrived.position())) {
            selector.select(key -> { }, SILENCE_MS);
            if (readMore() == 0) {
                throw silent();
            }
        }
        byte[] frame = new byte[arrived.getInt()];
        arrived.get(frame);
        return MessagePack.newDefaultUnpacker(frame).unpackValue().asMapValue().map();
    }

    private static SocketTimeoutException silent() {
        return new SocketTimeoutException("nothing from the worker for " + SILENCE_MS + " ms");
    }

    private int readMore() throws IOException {
        ByteBuffer there = arrived;
        if (there.remaining() == there.capacity()) {
            arrived = ByteBuffer.allocate(2 * there.capacity()).put(there);
        } else {
            there.compact();
        }
        int read = pipe.read(arrived);
        arrived.flip();
        if (read < 0) {
            throw new EndedException(inFlight.size());
        }
        return read;
    }

    private void take(Map<Value, Value> output) throws IOException {
        int status = get(output, 1).asIntegerValue().asInt();
        Value message = get(output, 0);
        byte[] bytes = message.isNilValue() ? new byte[0] : message.asRawValue().asByteArray();
        Map<String, Object> headers = headers(get(output, 2));
        if (status == HELLO) {
            room = Integer.parseInt((String) headers.get("concurrency"));
            return;
        }
        Open open = about(get(output, 4), output);
        Value queue = get(output, 3);
        Note note = new Note(bytes, headers, queue.isNilValue() ? null : queue.asStringValue().asString());
        switch (status) {
            case PROGRESS, IGNORE_MESSAGE -> open.progress.add(note.text());
            case LOG -> open.logs.add(note);
            case EMIT -> open.emits.add(note);
            default -> {
                Value after = get(output, 5);
                Long afterMs = after.isNilValue() ? null : after.asIntegerValue().asLong();
                open.result = new Result(
                    status, bytes, headers, note.queue(), afterMs, open.emits, open.logs, open.progress);
                inFlight.remove(open);
            }
        }
    }

    private Open about(Value id, Map<Value, Value> output) throws IOException {
        Open open = null;
        if (id.isIntegerValue() && id.asIntegerValue().isInIntRange()) {
            int number = id.asIntegerValue().asInt();
            open = number < all.size() ? all.get(number) : null;
        } else if (id.isNilValue() && !inFlight.isEmpty()) {
            open = inFlight.get(0);
        }
        if (open == null || !inFlight.contains(open)) {
            throw new IOException("the worker speaks of a message that is not in flight: " + output);
        }
        return open;
    }

    private static Value get(Map<Value, Value> output, int key) {
        return output.getOrDefault(ValueFactory.newString(Integer.toString(key)), ValueFactory.newNil());
    }

    private static Map<String, Object> headers(Value value) {
        Map<String, Object> headers = new LinkedHashMap<>();
        if (value.isMapValue()) {
            value.asMapValue().map().forEach((name, each) -> headers.put(name.asStringValue().asString(), plain(each)));
        }
        return headers;
    }

    private static Object plain(Value value) {
        return switch (value.getValueType()) {
            case NIL -> null;
            case BOOLEAN -> value.asBooleanValue().getBoolean();
            case STRING -> value.asStringValue().asString();
            case BINARY -> value.asBinaryValue().asByteArray();
            case INTEGER -> value.asIntegerValue().isInLongRange()
                ? (Object) value.asIntegerValue().asLong()
                : value.asIntegerValue().asBigInteger();
            case FLOAT -> value.asFloatValue().toDouble();
            case EXTENSION -> value.isTimestampValue() ? value.asTimestampValue().toInstant() : value;
            case ARRAY, MAP -> value;
        };
    }

    @Override
    public void close() throws IOException {
        timers.shutdownNow();
        pipe.close();
        selector.close();
    }
}
