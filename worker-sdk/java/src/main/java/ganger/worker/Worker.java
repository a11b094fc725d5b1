package ganger.worker;

import java.io.IOException;
import java.io.InputStream;
import java.nio.channels.SocketChannel;
import java.util.Objects;

/** A worker: a handler, and how it is called. */
public final class Worker {
    private static final String UNIVERSAL_BUFFER = "msgpack.universal-buffer";
    private static final int FRAME_BYTES_MAX = 64 << 20;
    // An array holds no more, with what stands around a frame.
    private static final int FRAME_BYTES_LIMIT = Integer.MAX_VALUE - 64;

    static {
        // Before the codec is loaded: its quicker buffers, which gain little here, need sun.misc.Unsafe, of
        // which Java warns on stderr from 24 on and which it is to lose.
        if (Runtime.version().feature() >= 24 && System.getProperty(UNIVERSAL_BUFFER) == null) {
            System.setProperty(UNIVERSAL_BUFFER, "true");
        }
    }

    private final Handler handler;
    private int concurrency = 1;
    private int frameBytesMax = FRAME_BYTES_MAX;
    private boolean virtualThreads = true;
    private boolean logging = true;
    private WarmUp warmUp = () -> { };
    private boolean stopping;
    private Connection running;

    private Worker(Handler handler) {
        this.handler = Objects.requireNonNull(handler, "a handler must not be null");
    }

    /**
     * A worker of that handler, with one message in hand at a time.
     *
     * @param handler what is done with each message
     * @return the worker
     */
    public static Worker of(Handler handler) {
        return new Worker(handler);
    }

    /**
     * Takes so many messages at once. With 1, which is the default, the handler is called by the thread that
     * calls {@link #run}; with more, each message has a virtual thread of its own (Java 21), or one of as
     * many platform threads.
     *
     * @param messages how many, from 1
     * @return this worker
     */
    public Worker concurrency(int messages) {
        if (messages < 1) {
            throw new IllegalArgumentException("concurrency must be 1 or more: " + messages);
        }
        concurrency = messages;
        return this;
    }

    /**
     * Whether several messages at once use virtual threads where this Java has them, which is the default.
     * Turn it off for handlers that compute for long, or that block in {@code synchronized} before Java 24.
     *
     * @param wanted whether to
     * @return this worker
     */
    public Worker virtualThreads(boolean wanted) {
        virtualThreads = wanted;
        return this;
    }

    /**
     * Whether {@link #run} brings {@code java.util.logging}, and with it {@code System.Logger}, to the
     * daemon's log by a {@link LogHandler}, which is the default. It does so only where logging has not been
     * set up otherwise.
     *
     * @param wanted whether to
     * @return this worker
     */
    public Worker logging(boolean wanted) {
        logging = wanted;
        return this;
    }

    /** What a worker does before it takes messages. */
    @FunctionalInterface
    public interface WarmUp {
        /**
         * Does it.
         *
         * @throws Exception to end the worker instead
         */
        void run() throws Exception;
    }

    /**
     * What {@link #run} does before the worker connects: {@code start_timeout} counts, {@code timeout} does not.
     *
     * @param work such as the first use of what is slow only then
     * @return this worker
     */
    public Worker warmUp(WarmUp work) {
        warmUp = Objects.requireNonNull(work, "a warm-up must not be null");
        return this;
    }

    /**
     * The longest frame under a daemon that does not tell its own, the pool's {@code frame_bytes_max}, in {@code
     * GANGER_FRAME_BYTES_MAX}; 64 MiB unless set. What is longer can't be answered.
     *
     * @param bytes the longest frame
     * @return this worker
     */
    public Worker frameBytesMax(int bytes) {
        if (bytes < 1 || bytes > FRAME_BYTES_LIMIT) {
            String rule = "frameBytesMax must be within 1 and " + FRAME_BYTES_LIMIT + ": " + bytes;
            throw new IllegalArgumentException(rule);
        }
        frameBytesMax = bytes;
        return this;
    }

    /**
     * Connects to the daemon that has started this process, and works until it asks to leave. Returns when
     * all that is in hand is answered; the program must then end, so close what would keep it up. From then
     * on nothing is to be read from stdin: the daemon's lines come there.
     *
     * <p>After an {@link OutOfMemoryError} of a handler it answers, leaves and throws that, for a process
     * that has run out of memory is better replaced.
     *
     * @throws ProtocolException if what the daemon sends can't be understood
     * @throws IOException if there is no daemon to connect to
     * @throws IllegalStateException if the warm-up has failed
     */
    public void run() throws IOException {
        if (logging) {
            LogHandler.install();
        }
        Start start = Start.begin();
        try {
            warmUp.run();
        } catch (Exception cold) {
            throw new IllegalStateException("the warm-up has failed: " + cold.getMessage(), cold);
        }
        int told = Math.min(Start.number("GANGER_FRAME_BYTES_MAX"), FRAME_BYTES_LIMIT);
        try (SocketChannel pipe = start.connect()) {
            serve(pipe, start.control(), Start.version(), told > 0 ? told : frameBytesMax);
        }
    }

    /**
     * Has {@link #run} begin no more messages, and return when all that is in hand is answered; what comes meanwhile
     * is given back, uncharged. From any thread, such as a shutdown hook of the process, which then waits for that;
     * also before {@code run}.
     */
    public synchronized void stop() {
        stopping = true;
        if (running != null) {
            running.stop();
        }
    }

    /**
     * {@link #run} on a connection that is there already, which it closes. It is what {@link
     * ganger.worker.testing.Harness} uses.
     *
     * @param pipe the connection
     * @param control the lines that the daemon writes to stdin, without the first one; it is read by a
     *     thread of its own, to its end
     * @param version that of the protocol, 1 or 2
     * @throws ProtocolException if what comes can't be understood
     * @throws IOException if the connection can't be used
     */
    public void serve(SocketChannel pipe, InputStream control, int version) throws IOException {
        serve(pipe, control, version, frameBytesMax);
    }

    private void serve(SocketChannel pipe, InputStream control, int version, int bytesMax) throws IOException {
        if (version != 1 && version != 2) {
            throw new IllegalArgumentException("the protocol's version must be 1 or 2: " + version);
        }
        // Version 1 has one message at a time.
        int atOnce = version == 1 ? 1 : concurrency;
        try (pipe; Connection connection = new Connection(handler, pipe, version, bytesMax)) {
            setRunning(connection);
            connection.run(control, atOnce, virtualThreads);
        } finally {
            setRunning(null);
        }
    }

    private synchronized void setRunning(Connection connection) {
        running = connection;
        if (stopping && connection != null) {
            connection.stop();
        }
    }
}
