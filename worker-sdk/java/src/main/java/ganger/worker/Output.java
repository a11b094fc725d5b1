package ganger.worker;

import java.io.IOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.msgpack.core.MessagePacker;

/** What a worker sends. */
final class Output {
    // The protocol's numbers.
    static final int IGNORE_MESSAGE = -1;
    static final int HELLO = 100;
    static final int LOG = 101;
    static final int PROGRESS = 102;
    static final int EMIT = 103;
    static final int DONE = 200;
    static final int DONE_WITH_REPLY = 201;
    static final int REQUEUE = 300;
    static final int REJECT = 400;
    static final int RETRY = 429;
    static final int UNKNOWN_ERROR = 500;

    private static final int HEADERS_MAX = 10_000;
    // A value of a header is within its map, which is within the frame's.
    private static final int VALUE_DEPTH_MAX = Structure.DEPTH_MAX - 2;
    private static final BigInteger LEAST = BigInteger.valueOf(Long.MIN_VALUE);
    private static final int UNSIGNED_BITS = 64;

    private final int status;
    private final boolean binary;
    private final byte[] message;
    private final Map<String, ?> headers;
    private final String queue;
    private final Long id;
    private final Long afterMs;

    /** The message is a String or a byte[]; of the others null, or a queue "", is not sent. The id is unsigned. */
    Output(int status, Object message, Map<String, ?> headers, String queue, Long id, Long afterMs) {
        this.status = status;
        this.binary = message instanceof byte[];
        this.message = binary ? (byte[]) message : utf8((String) message, "a message");
        this.headers = headers;
        this.queue = queue == null || queue.isEmpty() ? null : queue;
        this.id = id;
        this.afterMs = afterMs;
    }

    /** A text for people, in which a question mark stands for what is no character. */
    static String mended(String text) {
        return new String(text.getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8);
    }

    void pack(MessagePacker packer) throws IOException {
        packer.packMapHeader(2 + one(headers) + one(queue) + one(id) + one(afterMs));
        packer.packString("0");
        if (binary) {
            packer.packBinaryHeader(message.length);
        } else {
            packer.packRawStringHeader(message.length);
        }
        packer.writePayload(message);
        packer.packString("1").packInt(status);
        if (headers != null) {
            packer.packString("2");
            packHeaders(packer, List.copyOf(headers.entrySet()));
        }
        if (queue != null) {
            packer.packString("3");
            packText(packer, queue, "a queue's name");
        }
        if (id != null) {
            packer.packString("4");
            packUnsigned(packer, id);
        }
        if (afterMs != null) {
            packer.packString("5").packLong(afterMs);
        }
    }

    /** A copy: of a map that another thread changes meanwhile the number must be right. */
    private static void packHeaders(MessagePacker packer, List<? extends Map.Entry<String, ?>> all)
            throws IOException {
        if (all.size() > HEADERS_MAX) {
            throw new UnsendableException("there must be at most " + HEADERS_MAX + " headers: " + all.size());
        }
        packer.packMapHeader(all.size());
        for (Map.Entry<String, ?> header : all) {
            packHeader(packer, header.getKey(), header.getValue());
        }
    }

    private static int one(Object there) {
        return there == null ? 0 : 1;
    }

    private static void packUnsigned(MessagePacker packer, long number) throws IOException {
        if (number >= 0) {
            packer.packLong(number);
        } else {
            packer.packBigInteger(new BigInteger(Long.toUnsignedString(number)));
        }
    }

    private static void packHeader(MessagePacker packer, String name, Object value) throws IOException {
        packText(packer, name, "a header's name");
        try {
            packValue(packer, value, VALUE_DEPTH_MAX);
        } catch (UnsendableException unsendable) {
            String which = "the header \"" + name + "\" can't be sent: ";
            throw new UnsendableException(which + unsendable.getMessage());
        }
    }

    private static void packValue(MessagePacker packer, Object value, int depth) throws IOException {
        if (value == null) {
            packer.packNil();
        } else if (value instanceof CharSequence || value instanceof Character) {
            packText(packer, value.toString(), "a text");
        } else if (value instanceof Boolean truth) {
            packer.packBoolean(truth);
        } else if (value instanceof Number number) {
            packNumber(packer, number);
        } else if (value instanceof byte[] bytes) {
            packer.packBinaryHeader(bytes.length).writePayload(bytes);
        } else if (value instanceof Instant instant) {
            packer.packTimestamp(instant);
        } else if (value instanceof Map<?, ?> map) {
            packMap(packer, map, depth);
        } else if (value instanceof Collection<?> list) {
            packList(packer, list, depth);
        } else {
            throw new UnsendableException("MessagePack has no " + value.getClass().getName());
        }
    }

    private static void packNumber(MessagePacker packer, Number value) throws IOException {
        if (value instanceof Long || value instanceof Integer || value instanceof Short || value instanceof Byte) {
            packer.packLong(value.longValue());
        } else if (value instanceof Double || value instanceof Float) {
            packer.packDouble(value.doubleValue());
        } else if (value instanceof BigInteger number && isOf64Bits(number)) {
            packer.packBigInteger(number);
        } else {
            throw new UnsendableException("MessagePack has no such " + value.getClass().getName() + ": " + value);
        }
    }

    private static boolean isOf64Bits(BigInteger number) {
        return number.signum() < 0 ? number.compareTo(LEAST) >= 0 : number.bitLength() <= UNSIGNED_BITS;
    }

    private static void packMap(MessagePacker packer, Map<?, ?> map, int depth) throws IOException {
        checkDepth(depth);
        List<? extends Map.Entry<?, ?>> all = List.copyOf(map.entrySet());
        packer.packMapHeader(all.size());
        for (Map.Entry<?, ?> entry : all) {
            if (!(entry.getKey() instanceof String name)) {
                throw new UnsendableException("a map's names must be texts: " + entry.getKey());
            }
            packText(packer, name, "a name");
            packValue(packer, entry.getValue(), depth - 1);
        }
    }

    private static void packList(MessagePacker packer, Collection<?> list, int depth) throws IOException {
        checkDepth(depth);
        Object[] all = list.toArray();
        packer.packArrayHeader(all.length);
        for (Object value : all) {
            packValue(packer, value, depth - 1);
        }
    }

    private static void checkDepth(int depth) {
        if (depth == 0) {
            throw new UnsendableException("it must be nested at most " + VALUE_DEPTH_MAX + " deep");
        }
    }

    private static void packText(MessagePacker packer, String text, String what) throws IOException {
        byte[] bytes = utf8(text, what);
        packer.packRawStringHeader(bytes.length).writePayload(bytes);
    }

    /** Of which nothing is lost. */
    private static byte[] utf8(String text, String what) {
        if (text == null) {
            throw new UnsendableException(what + " must be a text: null");
        }
        for (int n = 0; n < text.length(); n++) {
            if (Character.isSurrogate(text.charAt(n))) {
                boolean pair = n + 1 < text.length() && Character.isSurrogatePair(text.charAt(n), text.charAt(n + 1));
                if (!pair) {
                    String half = Integer.toHexString(text.charAt(n));
                    throw new UnsendableException(what + " must be Unicode: it has half a character, U+" + half);
                }
                n++;
            }
        }
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
