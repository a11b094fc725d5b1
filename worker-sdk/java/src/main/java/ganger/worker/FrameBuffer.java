package ganger.worker;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.msgpack.core.MessagePack;
import org.msgpack.core.MessagePacker;
import org.msgpack.core.buffer.MessageBuffer;
import org.msgpack.core.buffer.MessageBufferOutput;

/** Frames, one behind the other, that are to be written. */
final class FrameBuffer implements MessageBufferOutput {
    private static final int BYTES_AT_FIRST = 1 << 13;
    private static final int BYTES_LIMIT = Integer.MAX_VALUE - 16;
    private static final int LENGTH_BYTES = 4;

    private byte[] bytes = new byte[BYTES_AT_FIRST];
    private int size;
    private MessagePacker packer = MessagePack.newDefaultPacker(this);

    /** Adds the output with its length; nothing, if it can't be sent. */
    void append(Output output, int frameBytesMax) {
        int start = size;
        boolean whole = false;
        try {
            room(LENGTH_BYTES);
            size += LENGTH_BYTES;
            output.pack(packer);
            packer.flush();
            int length = size - start - LENGTH_BYTES;
            if (length > frameBytesMax) {
                throw new UnsendableException("what is sent must fit into frame_bytes_max, at most "
                    + frameBytesMax + " bytes: " + length);
            }
            ByteBuffer.wrap(bytes).putInt(start, length);
            whole = true;
        } catch (IOException never) {
            throw new IllegalStateException("writing to an array has failed", never);
        } finally {
            if (!whole) {
                size = start;
                packer = MessagePack.newDefaultPacker(this);
            }
        }
    }

    boolean isEmpty() {
        return size == 0;
    }

    int size() {
        return size;
    }

    int capacity() {
        return bytes.length;
    }

    void clear() {
        size = 0;
    }

    ByteBuffer view() {
        return ByteBuffer.wrap(bytes, 0, size);
    }

    private void room(int more) {
        if (more > bytes.length - size) {
            long wanted = (long) size + more;
            if (wanted > BYTES_LIMIT) {
                throw new UnsendableException("what is sent must fit into an array: " + wanted + " bytes");
            }
            bytes = Arrays.copyOf(bytes, (int) Math.min(BYTES_LIMIT, Math.max(wanted, 2L * bytes.length)));
        }
    }

    // -- what the packer asks for --

    @Override
    public MessageBuffer next(int minimumSize) {
        room(minimumSize);
        return MessageBuffer.wrap(bytes, size, bytes.length - size);
    }

    @Override
    public void writeBuffer(int length) {
        size += length;
    }

    @Override
    public void write(byte[] buffer, int offset, int length) {
        room(length);
        System.arraycopy(buffer, offset, bytes, size, length);
        size += length;
    }

    @Override
    public void add(byte[] buffer, int offset, int length) {
        write(buffer, offset, length);
    }

    @Override
    public void close() { }

    @Override
    public void flush() { }
}
