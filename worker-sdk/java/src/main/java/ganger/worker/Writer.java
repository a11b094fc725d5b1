package ganger.worker;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Frames to the pipe, from any thread, interrupted or not. Those that wait for each other go out in one
 * write. A daemon that is gone is no error: the end of the pipe says so.
 */
final class Writer implements AutoCloseable {
    // So much may wait for the pipe; who has more to say waits with it.
    private static final int WAITING_BYTES_MAX = 1 << 20;
    // The runtime copies each write through a buffer of its own, as long as what is written.
    private static final int WRITE_BYTES_MAX = 1 << 18;

    private final SocketChannel pipe;
    private final int frameBytesMax;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition written = lock.newCondition();
    private FrameBuffer waiting = new FrameBuffer();
    private FrameBuffer spare = new FrameBuffer();
    private boolean writing;
    private boolean broken;
    // Of the one thread that writes.
    private Selector selector;

    /** The channel must be non-blocking. */
    Writer(SocketChannel pipe, int frameBytesMax) {
        this.pipe = pipe;
        this.frameBytesMax = frameBytesMax;
    }

    /** Returns when it is on its way, if it can be sent as it is. */
    void write(Output output) {
        lock.lock();
        try {
            while (writing && waiting.size() > WAITING_BYTES_MAX) {
                written.awaitUninterruptibly();
            }
            if (broken) {
                return;
            }
            waiting.append(output, frameBytesMax);
            if (writing) {
                return; // who writes takes it along
            }
            writing = true;
        } finally {
            lock.unlock();
        }
        writeAll();
    }

    /** Waits until nothing waits. */
    void flush() {
        lock.lock();
        try {
            while (writing) {
                written.awaitUninterruptibly();
            }
        } finally {
            lock.unlock();
        }
    }

    private void writeAll() {
        boolean sound = false;
        try {
            FrameBuffer data = next(null);
            while (data != null) {
                write(data.view());
                data = next(data);
            }
            sound = true;
        } catch (IOException gone) {
            sound = false;
        } finally {
            if (!sound) {
                giveUp();
            }
        }
    }

    /** What has come meanwhile; null if that is nothing. */
    private FrameBuffer next(FrameBuffer done) {
        lock.lock();
        try {
            if (done != null && done.capacity() <= WAITING_BYTES_MAX) {
                done.clear();
                spare = done;
            }
            written.signalAll();
            if (waiting.isEmpty()) {
                writing = false;
                return null;
            }
            FrameBuffer data = waiting;
            waiting = spare == null ? new FrameBuffer() : spare;
            spare = null;
            return data;
        } finally {
            lock.unlock();
        }
    }

    private void giveUp() {
        lock.lock();
        try {
            broken = true;
            writing = false;
            waiting = new FrameBuffer();
            written.signalAll();
        } finally {
            lock.unlock();
        }
    }

    private void write(ByteBuffer data) throws IOException {
        int end = data.limit();
        while (data.position() < end) {
            data.limit(Math.min(end, data.position() + WRITE_BYTES_MAX));
            if (pipe.write(data) == 0) {
                awaitRoom();
            }
        }
    }

    private void awaitRoom() throws IOException {
        if (selector == null) {
            selector = Selector.open();
            pipe.register(selector, SelectionKey.OP_WRITE);
        }
        boolean interrupted = Thread.interrupted();
        while (selector.select(key -> { }) == 0) {
            interrupted |= Thread.interrupted();
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void close() throws IOException {
        if (selector != null) {
            selector.close();
        }
    }
}
