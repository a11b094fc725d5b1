package ganger.worker;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/** A message as its handler sees it. */
public final class Task {
    private static final ThreadLocal<Task> CURRENT = new ThreadLocal<>();

    private final Input input;
    private final int version;
    private final Writer writer;
    // Nothing is emitted once it is answered: the daemon would end a worker that does.
    private final ReentrantLock emitting = new ReentrantLock();
    private boolean answered;
    private Thread thread;
    private long begunNanos;
    private volatile boolean cancelled;
    private volatile boolean timedOut;

    Task(Input input, int version, Writer writer) {
        this.input = input;
        this.version = version;
        this.writer = writer;
    }

    /**
     * The task that this thread works on.
     *
     * @return nothing outside of a handler, or in another thread than that which called it
     */
    public static Optional<Task> current() {
        return Optional.ofNullable(CURRENT.get());
    }

    /**
     * The body as a text.
     *
     * @return the text
     * @throws IllegalStateException if it is none
     */
    public String text() {
        if (input.message() instanceof String text) {
            return text;
        }
        try {
            ByteBuffer bytes = ByteBuffer.wrap((byte[]) input.message());
            return StandardCharsets.UTF_8.newDecoder().decode(bytes).toString();
        } catch (CharacterCodingException binary) {
            throw new IllegalStateException("the message is no text: it is not UTF-8", binary);
        }
    }

    /**
     * The body as bytes.
     *
     * @return the bytes, in UTF-8 if it is a text
     */
    public byte[] bytes() {
        return input.message() instanceof String text
            ? text.getBytes(StandardCharsets.UTF_8)
            : ((byte[]) input.message()).clone();
    }

    /**
     * Whether the body came as a text, which it does if it is UTF-8.
     *
     * @return whether it did
     */
    public boolean isText() {
        return input.message() instanceof String;
    }

    /**
     * The message's correlation id.
     *
     * @return empty if it has none
     */
    public String correlationId() {
        return input.correlationId();
    }

    /**
     * The queue or topic that it was read from.
     *
     * @return its name
     */
    public String queue() {
        return input.queue();
    }

    /**
     * The message's headers.
     *
     * @return in their text form
     */
    public Map<String, String> headers() {
        return input.headers();
    }

    /**
     * The daemon's number for it on this connection, which {@link Long#toUnsignedString(long)} shows.
     *
     * @return the number; 0 if the daemon does not tell
     */
    public long id() {
        return input.id() == null ? 0 : input.id();
    }

    /**
     * Which try this is.
     *
     * @return from 1; 0 if the daemon does not tell
     */
    public long attempt() {
        return input.attempt();
    }

    /**
     * After how long, from when it was handed out, this process is killed for taking too long.
     *
     * @return empty for never
     */
    public OptionalLong millisecondsLeft() {
        Long left = input.millisecondsLeft();
        return left == null ? OptionalLong.empty() : OptionalLong.of(left);
    }

    /**
     * What the source knows of it: message id, content type, topic, partition, offset and so on.
     *
     * @return String, Long, Boolean, byte[] and so on, each by its name
     */
    public Map<String, Object> properties() {
        return input.properties();
    }

    /**
     * Whether the daemon has asked to abandon it, for which it also interrupts the handler's thread.
     *
     * @return whether it has
     */
    public boolean isCancelled() {
        return cancelled;
    }

    /**
     * Publishes a message while the work goes on. This task is not done before it is stored; when it is
     * tried again, it emits again, with the same header {@code ganger-emit-id}.
     *
     * @param queue a queue or topic
     * @param message the message
     * @throws IllegalStateException if the task is already answered
     * @throws UnsupportedOperationException if the daemon knows version 1 of the protocol only
     */
    public void emit(String queue, String message) {
        emit(queue, message, Map.of());
    }

    /**
     * {@link #emit(String, String)} with headers.
     *
     * @param queue a queue or topic
     * @param message the message
     * @param headers their values as those of {@link Outcome#header}
     * @throws IllegalStateException if the task is already answered
     * @throws UnsupportedOperationException if the daemon knows version 1 of the protocol only
     */
    public void emit(String queue, String message, Map<String, ?> headers) {
        emitAny(queue, message, headers);
    }

    /**
     * {@link #emit(String, String, Map)} with bytes.
     *
     * @param queue a queue or topic
     * @param message the message
     * @param headers their values as those of {@link Outcome#header}
     * @throws IllegalStateException if the task is already answered
     * @throws UnsupportedOperationException if the daemon knows version 1 of the protocol only
     */
    public void emit(String queue, byte[] message, Map<String, ?> headers) {
        emitAny(queue, message, headers);
    }

    private void emitAny(String queue, Object message, Map<String, ?> headers) {
        if (queue.isEmpty()) {
            throw new IllegalArgumentException("emit needs the name of a queue: \"\"");
        }
        if (version == 1) {
            throw new UnsupportedOperationException(
                "emit needs version 2 of the protocol, which this daemon lacks");
        }
        Objects.requireNonNull(message, "a message must not be null");
        Output output =
            new Output(Output.EMIT, message, headers.isEmpty() ? null : headers, queue, number(), null);
        emitting.lock();
        try {
            if (answered) {
                throw new IllegalStateException("emit needs a task that is not yet answered");
            }
            writer.write(output);
        } finally {
            emitting.unlock();
        }
    }

    /**
     * Shows how far it is; it also proves that the worker is alive ({@code stall_timeout}).
     *
     * @param message a few words
     */
    public void progress(String message) {
        int status = version == 1 ? Output.IGNORE_MESSAGE : Output.PROGRESS;
        note(new Output(status, Output.mended(message), null, null, answers(), null));
    }

    /**
     * Writes a record of this message to the daemon's log.
     *
     * @param level how bad it is
     * @param message the text
     */
    public void log(System.Logger.Level level, String message) {
        log(level, message, Map.of());
    }

    /**
     * {@link #log(System.Logger.Level, String)} with fields. To a version 1 daemon it goes over stderr, and so
     * does what can't be sent: the task is answered already, or the record is too large.
     *
     * @param level how bad it is
     * @param message the text
     * @param fields by their names; {@code target} names the origin
     */
    public void log(System.Logger.Level level, String message, Map<String, ?> fields) {
        if (level == System.Logger.Level.OFF) {
            return;
        }
        Map<String, Object> headers = new LinkedHashMap<>();
        headers.put("level", nameOf(level));
        fields.forEach((name, value) -> {
            // The record's own level is another.
            headers.put(name.equals("level") ? "level_" : Output.mended(name), plain(value));
        });
        if (version > 1 && sendLog(message, headers)) {
            return;
        }
        StringBuilder line = new StringBuilder().append(headers.remove("level")).append(": ").append(message);
        headers.forEach((name, value) -> line.append(' ').append(name).append('=').append(value));
        System.err.println(line);
    }

    private boolean sendLog(String message, Map<String, Object> headers) {
        try {
            return note(new Output(Output.LOG, Output.mended(message), headers, null, answers(), null));
        } catch (UnsendableException tooLarge) {
            return false;
        }
    }

    /** Sends what may be lost: it has come too late, if this says so. */
    private boolean note(Output output) {
        emitting.lock();
        try {
            if (!answered) {
                writer.write(output);
            }
            return !answered;
        } finally {
            emitting.unlock();
        }
    }

    private static String nameOf(System.Logger.Level level) {
        return switch (level) {
            case ERROR, OFF -> "error";
            case WARNING -> "warn";
            case INFO -> "info";
            case DEBUG -> "debug";
            case TRACE, ALL -> "trace";
        };
    }

    /** What the log can hold: anything is a text there. */
    private static Object plain(Object value) {
        boolean simple = value instanceof Long || value instanceof Integer || value instanceof Short
            || value instanceof Byte || value instanceof Double || value instanceof Float
            || value instanceof Boolean;
        if (simple) {
            return value;
        }
        return Output.mended(String.valueOf(value));
    }

    @Override
    public String toString() {
        return "Task " + Long.toUnsignedString(id()) + " of " + queue();
    }

    // -- what the worker does with it --

    /** The id, or null. */
    Long number() {
        return input.id();
    }

    /** What an output names that is about this task; version 1 names nothing. */
    Long answers() {
        return version == 1 ? null : input.id();
    }

    /** After how many milliseconds it is to be given up; empty for never. */
    OptionalLong limitMs() {
        try {
            long limit = Long.parseLong(headers().getOrDefault("TimeoutMilliseconds", "-1"));
            return limit < 0 ? OptionalLong.empty() : OptionalLong.of(limit);
        } catch (NumberFormatException notOurs) {
            return OptionalLong.empty();
        }
    }

    /** Why a handler was asked to give up. */
    String whyCancelled() {
        return timedOut ? "timed out: the limit is " + limitMs().getAsLong() + " ms" : "cancelled";
    }

    void begin() {
        CURRENT.set(this);
        synchronized (this) {
            thread = Thread.currentThread();
            begunNanos = System.nanoTime();
        }
    }

    /** The daemon asks for it. Its clock began a little before this one. */
    void cancel() {
        OptionalLong limit = limitMs();
        synchronized (this) {
            long passedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begunNanos);
            if (!cancelled && limit.isPresent()) {
                timedOut = passedMs >= limit.getAsLong() - limit.getAsLong() / 10;
            }
        }
        interrupt();
    }

    /** Version 1 asks a worker to give up by itself. */
    void timeOut() {
        timedOut = true;
        interrupt();
    }

    private void interrupt() {
        synchronized (this) {
            boolean again = cancelled;
            cancelled = true;
            if (thread != null && !again) {
                thread.interrupt(); // once: a handler that clears up is not disturbed again
            }
        }
    }

    void end() {
        synchronized (this) {
            thread = null;
        }
        Thread.interrupted();
        CURRENT.remove();
        emitting.lock();
        answered = true;
        emitting.unlock();
    }
}
