package ganger.worker;

/**
 * Whether bytes are one whole value of MessagePack, of which nothing is made: so a decoder that comes after
 * allocates nothing that bytes merely claim, and goes no deeper than is good.
 */
final class Structure {
    static final int DEPTH_MAX = 64;

    // What follows the types from 0xc4 on: so wide a number, so many bytes more, and for each of the number so
    // many bytes or values.
    private static final int[][] SIZES = {
        {1, 0, 1, 0}, {2, 0, 1, 0}, {4, 0, 1, 0}, // bin
        {1, 1, 1, 0}, {2, 1, 1, 0}, {4, 1, 1, 0}, // ext
        {0, 4, 0, 0}, {0, 8, 0, 0}, // float
        {0, 1, 0, 0}, {0, 2, 0, 0}, {0, 4, 0, 0}, {0, 8, 0, 0}, // uint
        {0, 1, 0, 0}, {0, 2, 0, 0}, {0, 4, 0, 0}, {0, 8, 0, 0}, // int
        {0, 2, 0, 0}, {0, 3, 0, 0}, {0, 5, 0, 0}, {0, 9, 0, 0}, {0, 17, 0, 0}, // fixext
        {1, 0, 1, 0}, {2, 0, 1, 0}, {4, 0, 1, 0}, // str
        {2, 0, 0, 1}, {4, 0, 0, 1}, // array
        {2, 0, 0, 2}, {4, 0, 0, 2}, // map
    };

    private final byte[] bytes;
    private final int end;
    private int at;

    private Structure(byte[] bytes, int start, int end) {
        this.bytes = bytes;
        this.at = start;
        this.end = end;
    }

    static void check(byte[] bytes, int start, int end) throws ProtocolException {
        Structure structure = new Structure(bytes, start, end);
        structure.skip(DEPTH_MAX);
        if (structure.at < end) {
            throw wrong("be one map: " + (end - structure.at) + " bytes follow it");
        }
    }

    private void skip(int depth) throws ProtocolException {
        if (at >= end) {
            throw wrong("be whole: it ends before a value");
        }
        int type = bytes[at++] & 0xff;
        if (type <= 0x7f || type >= 0xe0) {
            return; // a small number
        }
        if (type <= 0x8f) {
            skipAll(2 * (type & 0x0f), depth);
        } else if (type <= 0x9f) {
            skipAll(type & 0x0f, depth);
        } else if (type <= 0xbf) {
            pass(type & 0x1f);
        } else if (type == 0xc1) {
            throw wrong("be MessagePack, which never has the byte 0xc1");
        } else if (type >= 0xc4) {
            skipSized(SIZES[type - 0xc4], depth);
        }
    }

    private void skipSized(int[] size, int depth) throws ProtocolException {
        long number = 0;
        int digits = at;
        pass(size[0]);
        while (digits < at) {
            number = number << 8 | bytes[digits++] & 0xff;
        }
        pass(size[1] + number * size[2]);
        skipAll(number * size[3], depth);
    }

    private void skipAll(long values, int depth) throws ProtocolException {
        if (values > 0 && depth == 0) {
            throw wrong("be nested at most " + DEPTH_MAX + " deep");
        }
        for (; values > 0; values--) {
            skip(depth - 1);
        }
    }

    private void pass(long more) throws ProtocolException {
        if (more > end - at) {
            throw wrong("be whole: it claims " + (more - (end - at)) + " bytes more");
        }
        at += (int) more;
    }

    private static ProtocolException wrong(String rule) {
        return new ProtocolException("an input must " + rule);
    }
}
