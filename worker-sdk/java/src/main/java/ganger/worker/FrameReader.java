package ganger.worker;

import java.io.IOException;
import java.nio.ByteBuffer;

/** Takes a stream of bytes apart into frames, many of them a read. */
final class FrameReader {
    private static final int BUFFER_BYTES = 1 << 16;
    // The runtime copies each read through a buffer of its own, as long as what is asked for.
    private static final int READ_BYTES_MAX = 1 << 18;
    private static final int LENGTH_BYTES = 4;

    /** Where the bytes come from. */
    interface Source {
        /** Waits for some bytes and puts them into the buffer; how many, or -1 at the end. */
        int read(ByteBuffer into) throws IOException;
    }

    private final Source source;
    private final int frameBytesMax;
    private ByteBuffer buffer = ByteBuffer.allocate(BUFFER_BYTES);
    // What is read and not yet taken is between these two.
    private int from;
    private int to;
    private int length;

    FrameReader(Source source, int frameBytesMax) {
        this.source = source;
        this.frameBytesMax = frameBytesMax;
    }

    /**
     * Goes to the next frame; false at the end, even within one. The frame is in {@link #bytes} from {@link
     * #start} to {@link #end}, until the next call.
     */
    boolean next() throws IOException {
        from += length;
        length = 0;
        if (!has(LENGTH_BYTES)) {
            return false;
        }
        int wanted = buffer.getInt(from);
        if (wanted < 1 || wanted > frameBytesMax) {
            throw new ProtocolException("a frame must have at least 1 and at most " + frameBytesMax + " bytes: "
                + Integer.toUnsignedString(wanted));
        }
        if (!has(LENGTH_BYTES + wanted)) {
            return false;
        }
        from += LENGTH_BYTES;
        length = wanted;
        return true;
    }

    byte[] bytes() {
        return buffer.array();
    }

    int start() {
        return from;
    }

    int end() {
        return from + length;
    }

    /** Whether so many bytes are there from {@link #from} on, after as many reads as that takes. */
    private boolean has(int wanted) throws IOException {
        if (to - from >= wanted) {
            return true;
        }
        makeRoom(wanted);
        while (to - from < wanted) {
            buffer.limit(Math.min(buffer.capacity(), to + READ_BYTES_MAX)).position(to);
            int read = source.read(buffer);
            if (read < 0) {
                return false;
            }
            to += read;
        }
        return true;
    }

    /** Moves what is there to the start of a buffer that is large enough, and no larger than it need be. */
    private void makeRoom(int wanted) {
        byte[] there = buffer.array();
        int capacity = Math.max(wanted, BUFFER_BYTES);
        if (buffer.capacity() != capacity) {
            buffer = ByteBuffer.allocate(capacity);
        }
        System.arraycopy(there, from, buffer.array(), 0, to - from);
        to -= from;
        from = 0;
    }
}
