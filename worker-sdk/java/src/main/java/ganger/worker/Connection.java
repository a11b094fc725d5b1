package ganger.worker;

import java.io.IOException;
import java.io.InputStream;
import java.nio.channels.SocketChannel;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/** One connection, worked off to its end by {@link #run}. */
final class Connection implements AutoCloseable {
    static final String VERSION = "0.1.0";

    private static final int FRAME_BYTES_BESIDE_REASON = 64;

    private final Handler handler;
    private final int version;
    private final int frameBytesMax;
    private final PipeSource source;
    private final Writer writer;
    private final Flight flight;
    private final AtomicReference<Throwable> broken = new AtomicReference<>();
    // Made when version 1 gives a timeout.
    private ScheduledThreadPoolExecutor timers;

    Connection(Handler handler, SocketChannel pipe, int version, int frameBytesMax) throws IOException {
        this.handler = handler;
        this.version = version;
        this.frameBytesMax = frameBytesMax;
        this.source = new PipeSource(pipe);
        this.flight = new Flight(this::giveBack, source::leave);
        this.writer = new Writer(pipe, frameBytesMax);
    }

    /** Until the daemon has asked to leave and all that is in hand is answered. */
    void run(InputStream control, int concurrency, boolean virtualThreads) throws IOException {
        if (version > 1) {
            writer.write(hello(concurrency));
        }
        Control.listen(control, this::hear);
        try (Crew crew = Crew.of(concurrency, virtualThreads)) {
            read(crew);
        } finally {
            flight.giveBackHeld();
        }
        writer.flush();
        Throwable fatal = broken.get();
        if (fatal instanceof Error error) {
            throw error;
        } else if (fatal != null) {
            throw new IllegalStateException("the worker has failed", fatal);
        }
    }

    private static Output hello(int concurrency) {
        Map<String, String> headers = new LinkedHashMap<>();
        headers.put("sdk", "ganger-java");
        headers.put("version", VERSION);
        headers.put("concurrency", Integer.toString(concurrency));
        return new Output(Output.HELLO, "", headers, null, null, null);
    }

    private void read(Crew crew) throws IOException {
        FrameReader frames = new FrameReader(source, frameBytesMax);
        InputDecoder decoder = new InputDecoder();
        while (frames.next()) {
            Input input = decoder.decode(frames.bytes(), frames.start(), frames.end());
            crew.execute(() -> work(new Task(input, version, writer)));
        }
    }

    private void hear(String line) {
        if (line.equals(Control.QUIT)) {
            source.leave();
        } else if (line.equals(Control.YIELD) && version == 1) {
            flight.cancelAll();
        } else if (line.startsWith(Control.CANCEL)) {
            try {
                flight.cancel(Long.parseUnsignedLong(line.substring(Control.CANCEL.length())));
            } catch (NumberFormatException unknown) {
                // A line of a newer daemon.
            }
        }
    }

    /** Begins nothing new, and ends once all that is in hand is answered. From any thread. */
    void stop() {
        flight.stop();
    }

    private void fail(Throwable fatal) {
        broken.compareAndSet(null, fatal);
        flight.stop();
    }

    // -- working --

    private void work(Task task) {
        if (!flight.take(task)) {
            return;
        }
        try {
            answer(task, handled(task));
        } catch (Throwable ours) {
            fail(ours);
        } finally {
            flight.putDown();
        }
    }

    private void giveBack(Task task) {
        answer(task, Outcome.requeue("the worker is about to end"));
    }

    /** What the handler says; of one that throws, what is to be said for it. */
    private Outcome handled(Task task) {
        Future<?> timer = null;
        Tracing.Scope traced = null;
        flight.begin(task);
        try {
            if (!task.headers().isEmpty()) {
                timer = timer(task);
                traced = Tracing.attach(task.headers());
            }
            Outcome outcome = handler.handle(task);
            return outcome == null ? Outcome.done() : outcome;
        } catch (Throwable thrown) {
            if (Failure.isFatal(thrown)) {
                fail(thrown);
            }
            boolean gaveUp = task.isCancelled() && Failure.isByInterrupt(thrown);
            String text = Failure.text(thrown);
            return gaveUp ? Outcome.retry(fitting(task.whyCancelled() + "\n" + text)) : failed(text);
        } finally {
            if (traced != null) {
                traced.close();
            }
            if (timer != null) {
                timer.cancel(false);
            }
            flight.end(task);
        }
    }

    private Outcome failed(String reason) {
        return Outcome.of(Output.UNKNOWN_ERROR, fitting(reason));
    }

    /** As much of a reason as fits into a frame, at three bytes a character. */
    private String fitting(String reason) {
        int charsMax = Math.max(0, (frameBytesMax - FRAME_BYTES_BESIDE_REASON) / 3);
        return reason.length() <= charsMax ? reason : reason.substring(0, charsMax);
    }

    /** Version 1 asks a worker to give up by itself; version 2 is told when it is so far. */
    private Future<?> timer(Task task) {
        OptionalLong limit = version == 1 ? task.limitMs() : OptionalLong.empty();
        return limit.isEmpty()
            ? null
            : timers().schedule(task::timeOut, limit.getAsLong(), TimeUnit.MILLISECONDS);
    }

    /** Of the one thread that version 1 has. */
    private ScheduledThreadPoolExecutor timers() {
        if (timers == null) {
            timers = new ScheduledThreadPoolExecutor(1, work -> {
                Thread thread = new Thread(work, "ganger-timers");
                thread.setDaemon(true);
                return thread;
            });
            timers.setRemoveOnCancelPolicy(true);
        }
        return timers;
    }

    private void answer(Task task, Outcome outcome) {
        try {
            writer.write(outcome.output(task.answers()));
        } catch (UnsendableException ours) {
            writer.write(failed(ours.getMessage()).output(task.answers()));
        } catch (RuntimeException | Error theirs) { // of a list or map that throws
            if (Failure.isFatal(theirs)) {
                fail(theirs);
            }
            writer.write(failed(Failure.text(theirs)).output(task.answers()));
        }
    }

    @Override
    public void close() throws IOException {
        if (timers != null) {
            timers.shutdownNow();
        }
        source.close();
        writer.close();
    }
}
