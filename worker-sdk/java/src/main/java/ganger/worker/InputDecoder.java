package ganger.worker;

import java.io.IOException;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.msgpack.core.ExtensionTypeHeader;
import org.msgpack.core.MessageFormat;
import org.msgpack.core.MessagePack;
import org.msgpack.core.MessageUnpacker;
import org.msgpack.core.buffer.ArrayBufferInput;
import org.msgpack.value.ValueType;

/** Reads inputs, one after the other. For one thread. */
final class InputDecoder {
    private static final int MUST_BE_THERE = 0b1111;

    private final ArrayBufferInput from = new ArrayBufferInput(new byte[0]);
    private final MessageUnpacker unpacker = MessagePack.newDefaultUnpacker(from);
    private byte[] bytes;
    private int start;
    // Of the input that is being read.
    private int seen;
    private Object message;
    private String correlationId;
    private String queue;
    private Map<String, String> headers;
    private Long id;
    private long attempt;
    private Long millisecondsLeft;
    private Map<String, Object> properties;

    Input decode(byte[] bytes, int start, int end) throws ProtocolException {
        Structure.check(bytes, start, end);
        this.bytes = bytes;
        this.start = start;
        try {
            from.reset(bytes, start, end - start);
            unpacker.reset(from);
            return decode();
        } catch (ProtocolException ours) {
            throw ours;
        } catch (IOException | RuntimeException unreadable) { // such as a timestamp that no calendar has
            throw wrong("be MessagePack: " + unreadable);
        }
    }

    private Input decode() throws IOException {
        if (type() != ValueType.MAP) {
            throw wrong("be a map");
        }
        seen = 0;
        attempt = 0;
        correlationId = queue = "";
        headers = Map.of();
        properties = Map.of();
        id = millisecondsLeft = null;
        message = "";
        for (int entries = unpacker.unpackMapHeader(); entries > 0; entries--) {
            entry(text("have texts as its keys"));
        }
        if ((seen & MUST_BE_THERE) != MUST_BE_THERE) {
            int missing = Integer.numberOfTrailingZeros(~seen);
            throw wrong("have the keys \"0\" to \"3\": no \"" + missing + "\"");
        }
        return new Input(message, correlationId, queue, headers, id, attempt, millisecondsLeft, properties);
    }

    private void entry(String key) throws IOException {
        int number = key.length() == 1 ? key.charAt(0) - '0' : -1;
        if (number < 0 || number > 7) {
            unpacker.skipValue(); // of a newer daemon
            return;
        }
        if ((seen & 1 << number) != 0) {
            throw wrong("have each key once: \"" + key + "\" is there twice");
        }
        seen |= 1 << number;
        if (unpacker.tryUnpackNil()) {
            return;
        }
        switch (number) {
            case 0 -> message = body();
            case 1 -> correlationId = text("have a text in \"1\"");
            case 2 -> queue = text("have a text in \"2\"");
            case 3 -> headers = headers();
            case 4 -> id = number("have a number from 0 in \"4\"");
            case 5 -> attempt = attempt();
            case 6 -> millisecondsLeft = clamped(number("have a number from 0 in \"6\""));
            default -> properties = properties();
        }
    }

    private Object body() throws IOException {
        if (type() == ValueType.BINARY) {
            return unpacker.readPayload(unpacker.unpackBinaryHeader());
        }
        return text("have a text or bytes in \"0\"");
    }

    private Map<String, String> headers() throws IOException {
        String rule = "have a map of texts to texts in \"3\"";
        int size = mapHeader(rule);
        if (size == 0) {
            return Map.of();
        }
        Map<String, String> all = new LinkedHashMap<>();
        for (; size > 0; size--) {
            String name = text(rule);
            all.put(name, text(rule));
        }
        return Collections.unmodifiableMap(all);
    }

    private Map<String, Object> properties() throws IOException {
        String rule = "have a map with texts as names in \"7\"";
        int size = mapHeader(rule);
        if (size == 0) {
            return Map.of();
        }
        Map<String, Object> all = new LinkedHashMap<>();
        for (; size > 0; size--) {
            String name = text(rule);
            all.put(name, value());
        }
        return Collections.unmodifiableMap(all);
    }

    private long attempt() throws IOException {
        String rule = "have a number from 1 in \"5\"";
        long told = clamped(number(rule));
        if (told == 0) {
            throw wrong(rule + ": 0");
        }
        return told;
    }

    // -- values --

    private ValueType type() throws IOException {
        return unpacker.getNextFormat().getValueType();
    }

    private int mapHeader(String rule) throws IOException {
        if (type() != ValueType.MAP) {
            throw wrong(rule + ": " + type());
        }
        return unpacker.unpackMapHeader();
    }

    private String text(String rule) throws IOException {
        if (type() != ValueType.STRING) {
            throw wrong(rule + ": " + type());
        }
        int before = start + (int) unpacker.getTotalReadBytes();
        String text = unpacker.unpackString();
        // Bytes that are no UTF-8 have become this one, which may also stand there in its own right.
        if (text.indexOf('\uFFFD') >= 0) {
            checkUtf8(before, start + (int) unpacker.getTotalReadBytes(), rule);
        }
        return text;
    }

    private void checkUtf8(int before, int after, String rule) throws IOException {
        int type = bytes[before] & 0xff;
        int head = switch (type) {
            case 0xd9 -> 2;
            case 0xda -> 3;
            case 0xdb -> 5;
            default -> 1;
        };
        try {
            ByteBuffer payload = ByteBuffer.wrap(bytes, before + head, after - before - head);
            StandardCharsets.UTF_8.newDecoder().decode(payload);
        } catch (CharacterCodingException malformed) {
            throw wrong(rule + ": it is not UTF-8");
        }
    }

    /** Of 64 bits, without a sign. */
    private Long number(String rule) throws IOException {
        if (type() != ValueType.INTEGER) {
            throw wrong(rule + ": " + type());
        }
        if (unpacker.getNextFormat() == MessageFormat.UINT64) {
            return unpacker.unpackBigInteger().longValue();
        }
        long number = unpacker.unpackLong();
        if (number < 0) {
            throw wrong(rule + ": " + number);
        }
        return number;
    }

    /** At most what a long holds, which is as good as for ever. */
    private static long clamped(long unsigned) {
        return unsigned < 0 ? Long.MAX_VALUE : unsigned;
    }

    private Object value() throws IOException {
        return switch (type()) {
            case NIL -> {
                unpacker.unpackNil();
                yield null;
            }
            case BOOLEAN -> unpacker.unpackBoolean();
            case INTEGER -> integer();
            case FLOAT -> unpacker.unpackDouble();
            case STRING -> text("have UTF-8 in \"7\"");
            case BINARY -> unpacker.readPayload(unpacker.unpackBinaryHeader());
            case ARRAY -> list();
            case MAP -> map();
            case EXTENSION -> extension();
        };
    }

    private Object integer() throws IOException {
        if (unpacker.getNextFormat() == MessageFormat.UINT64) {
            BigInteger number = unpacker.unpackBigInteger();
            return number.bitLength() < Long.SIZE ? (Object) number.longValue() : number;
        }
        return unpacker.unpackLong();
    }

    private List<Object> list() throws IOException {
        List<Object> all = new ArrayList<>();
        for (int size = unpacker.unpackArrayHeader(); size > 0; size--) {
            all.add(value());
        }
        return Collections.unmodifiableList(all);
    }

    private Map<Object, Object> map() throws IOException {
        Map<Object, Object> all = new LinkedHashMap<>();
        for (int size = unpacker.unpackMapHeader(); size > 0; size--) {
            Object name = value();
            all.put(name, value());
        }
        return Collections.unmodifiableMap(all);
    }

    private Object extension() throws IOException {
        ExtensionTypeHeader header = unpacker.unpackExtensionTypeHeader();
        if (header.isTimestampType()) {
            return unpacker.unpackTimestamp(header);
        }
        return unpacker.readPayload(header.getLength());
    }

    private static ProtocolException wrong(String rule) {
        return new ProtocolException("an input must " + rule);
    }
}
