package ganger.worker;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;

/**
 * The reading side of the pipe, for one thread. The channel is non-blocking, for a blocking one is closed by
 * the interrupt of a thread that reads or writes it, and interrupts are how tasks are cancelled.
 */
final class PipeSource implements FrameReader.Source, AutoCloseable {
    private final SocketChannel pipe;
    private final Selector selector;
    private volatile boolean leaving;
    private boolean full;

    PipeSource(SocketChannel pipe) throws IOException {
        this.pipe = pipe;
        selector = Selector.open();
        pipe.configureBlocking(false);
        pipe.register(selector, SelectionKey.OP_READ);
    }

    /** What has arrived is still read, then comes the end. From any thread. */
    void leave() {
        leaving = true;
        selector.wakeup();
    }

    @Override
    public int read(ByteBuffer into) throws IOException {
        while (true) {
            if (!full && !leaving) {
                selector.select(key -> { });
                // An interrupt that comes late is nobody's, and would let no select() wait.
                Thread.interrupted();
            }
            int read = readSome(into);
            full = !into.hasRemaining();
            if (read == 0 && leaving) {
                shut();
                return -1;
            }
            if (read != 0) {
                return read;
            }
        }
    }

    /** The daemon is to see that nobody reads what it writes from here on. */
    private void shut() {
        try {
            pipe.shutdownInput();
        } catch (IOException gone) {
            // It has ended.
        }
    }

    /** A daemon that is gone, whose pipe may be reset, needs this worker no more. */
    private int readSome(ByteBuffer into) {
        try {
            return pipe.read(into);
        } catch (IOException gone) {
            return -1;
        }
    }

    @Override
    public void close() throws IOException {
        selector.close();
    }
}
