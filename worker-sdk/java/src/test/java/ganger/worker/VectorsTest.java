package ganger.worker;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The bytes that all libraries and the daemon agree on. */
class VectorsTest {
    private static final int MAX = 64 << 20;
    private static final HexFormat HEX = HexFormat.of();

    private static List<JsonObject> vectors(String... names) throws IOException {
        String folder = System.getenv().getOrDefault("GANGER_VECTORS", "../../proto-spec/vectors");
        List<JsonObject> all = new ArrayList<>();
        for (String name : names) {
            String text = Files.readString(Path.of(folder, name + ".json"));
            JsonObject file = JsonParser.parseString(text).getAsJsonObject();
            assertEquals(1, file.get("format").getAsInt());
            file.getAsJsonArray("vectors").forEach(each -> all.add(each.getAsJsonObject()));
        }
        assertTrue(all.size() >= 3 * names.length, "only " + all.size());
        return all;
    }

    private static Input decode(String hex) throws IOException {
        byte[] data = HEX.parseHex(hex);
        // In the midst of others, as it is in a buffer.
        byte[] among = new byte[data.length + 20];
        System.arraycopy(data, 0, among, 10, data.length);
        return new InputDecoder().decode(among, 10, 10 + data.length);
    }

    private static Object body(JsonObject told) {
        return told.has("text") ? told.get("text").getAsString() : HEX.parseHex(told.get("hex").getAsString());
    }

    private static Long unsigned(JsonElement told) {
        return told.isJsonNull() ? null : (Long) Long.parseUnsignedLong(told.getAsString());
    }

    private static Map<String, Object> pairs(JsonArray told) {
        Map<String, Object> all = new LinkedHashMap<>();
        for (JsonElement pair : told) {
            all.put(pair.getAsJsonArray().get(0).getAsString(), shown(pair.getAsJsonArray().get(1)));
        }
        return all;
    }

    private static String shown(JsonElement told) {
        return told.isJsonObject()
            ? told.getAsJsonObject().entrySet().iterator().next().getValue().getAsString()
            : told.getAsString();
    }

    private static String shown(Object found) {
        return found instanceof byte[] bytes ? HEX.formatHex(bytes) : String.valueOf(found);
    }

    @Test
    void inputsMeanWhatTheyShould() throws IOException {
        for (JsonObject vector : vectors("input-v1", "input-v2")) {
            String name = vector.get("name").getAsString();
            JsonObject wanted = vector.getAsJsonObject("meaning");
            Input input = decode(vector.get("bytes").getAsString());
            assertEquals(shown(body(wanted.getAsJsonObject("message"))), shown(input.message()), name);
            assertEquals(wanted.getAsJsonObject("message").has("text"), input.message() instanceof String, name);
            assertEquals(wanted.get("correlation_id").getAsString(), input.correlationId(), name);
            assertEquals(wanted.get("queue").getAsString(), input.queue(), name);
            assertEquals(pairs(wanted.getAsJsonArray("headers")), input.headers(), name);
            assertEquals(unsigned(wanted.get("id")), input.id(), name);
            JsonElement attempt = wanted.get("attempt");
            assertEquals(attempt.isJsonNull() ? 0 : attempt.getAsLong(), input.attempt(), name);
            assertEquals(unsigned(wanted.get("milliseconds_left")), input.millisecondsLeft(), name);
            Map<String, Object> properties = new LinkedHashMap<>();
            input.properties().forEach((key, value) -> properties.put(key, shown(value)));
            assertEquals(pairs(wanted.getAsJsonArray("properties")), properties, name);
        }
    }

    @Test
    void hostileInputsAreRefused() throws IOException {
        for (JsonObject vector : vectors("input-hostile")) {
            String bytes = vector.get("bytes").getAsString();
            assertThrows(ProtocolException.class, () -> decode(bytes), vector.get("name").getAsString());
        }
    }

    @ParameterizedTest
    @CsvSource({
        "nothing, ''",
        "bin for a key, 85c40130a16da131a0a132a171a13380a13401",
        "a key that is not UTF-8, 85a130a16da131a0a132a171a13380a1ffc0",
        "a text that is not UTF-8, 85a130a1ffa131a0a132a171a13380a13401",
        "a longer one, 85a130d903efbffea131a0a132a171a13380a13401",
        "a header that is not UTF-8, 85a130a16da131a0a132a171a13381a161a1ffa13401",
        "header of a number, 85a130a16da131a0a132a171a13381a16101a13401",
        "headers in a list, 85a130a16da131a0a132a171a13390a13401",
        "true for an id, 85a130a16da131a0a132a171a13380a134c3",
        "a fraction for an id, 85a130a16da131a0a132a171a13380a134cb3ff8000000000000",
        "attempt 0, 86a130a16da131a0a132a171a13380a13401a13500",
        "0xc1, 85a130a16da131a0a132a171a13380a178c1",
        "claims 4 GiB, 85a130a16da131a0a132a171a13380a178c6ffffffff",
        "a body that claims 2 GiB, 84a130c67fffffffa131a0a132a171a13380",
        "a list that claims 2 G, 85a130a16da131a0a132a171a13380a178dd7fffffff",
        "claims 4 G entries, dfffffffff",
        "properties claim 4 G, 86a130a16da131a0a132a171a13380a13401a137dfffffffff",
        "an extension that claims 4 G, 86a130a16da131a0a132a171a13380a13401a13781a161c9ffffffff01",
        "a timestamp of no time, 86a130a16da131a0a132a171a13380a13401a13781a161c70cff000000007fffffffffffffff",
        "a timestamp of 3 bytes, 86a130a16da131a0a132a171a13380a13401a13781a161c703ff000000",
        "a length that is cut, 85a130a16da131a0a132a171a13380a178da00",
    })
    void soAreOthers(String name, String hex) {
        assertThrows(ProtocolException.class, () -> decode(hex), name);
    }

    /** Whatever else comes is read or refused, and nothing worse. */
    @Test
    void soIsWhateverElseCanNotBeRead() throws IOException {
        Random dice = new Random(5);
        List<JsonObject> inputs = vectors("input-v1", "input-v2");
        int refused = 0;
        for (int n = 0; n < 100_000; n++) {
            byte[] data = HEX.parseHex(inputs.get(n % inputs.size()).get("bytes").getAsString());
            for (int changes = 1 + dice.nextInt(3); changes > 0; changes--) {
                data[dice.nextInt(data.length)] = (byte) dice.nextInt(256);
            }
            try {
                new InputDecoder().decode(data, 0, data.length - dice.nextInt(2));
            } catch (ProtocolException wrong) {
                refused++;
            }
        }
        assertTrue(refused > 50_000, "only " + refused);
    }

    @ParameterizedTest
    @ValueSource(ints = {64, 1 << 20})
    void soIsWhatIsNestedTooDeep(int depth) {
        String start = "85a130a16da131a0a132a171a13380a178";
        assertThrows(ProtocolException.class, () -> decode(start + "91".repeat(depth) + "c0"));
    }

    @ParameterizedTest
    @ValueSource(strings = {
        "820102c0c3", "818001", "c70305616263", "d80100000000000000000000000000000000", "db00000001ff", "ca00000000",
        "c0a178c0"
    })
    void unknownKeysMayHoldAnything(String value) throws IOException {
        String count = value.equals("c0a178c0") ? "87" : "86";
        assertEquals(1, decode(count + "a130a16da131a0a132a171a13380a13401a178" + value).id());
        String deep = "86a130a16da131a0a132a171a13380a13401a178" + "91".repeat(63) + "c0";
        assertEquals(1, decode(deep).id());
    }

    @Test
    void propertiesHoldWhatMessagePackHas() throws IOException {
        String some = "8aa161c0a162c2a163cb3ff8000000000000a16492c3a178a1658101c0a166d6ff00000001"
            + "a167cfffffffffffffffffa168c70305010203a169d3ffffffff00000000a16aa3efbfbd";
        Input input = decode("86a130a16da131a0a132a171a13380a13401a137" + some);
        Map<String, Object> properties = new LinkedHashMap<>();
        input.properties().forEach((name, value) -> properties.put(name, shown(value)));
        assertEquals("{a=null, b=false, c=1.5, d=[true, x], e={1=null}, f=1970-01-01T00:00:01Z, "
            + "g=18446744073709551615, h=010203, i=-4294967296, j=\uFFFD}", properties.toString());
    }

    @Test
    void outputsAreWrittenByteForByte() throws IOException {
        int written = 0;
        for (JsonObject vector : vectors("output-v1", "output-v2")) {
            if (!vector.get("form").getAsString().equals("canonical")) {
                continue;
            }
            written++;
            JsonObject wanted = vector.getAsJsonObject("meaning");
            JsonElement headers = wanted.get("headers");
            JsonElement queue = wanted.get("reply_queue");
            Output output = new Output(
                wanted.get("status").getAsInt(),
                body(wanted.getAsJsonObject("message")),
                headers.isJsonNull() ? null : pairs(headers.getAsJsonArray()),
                queue.isJsonNull() ? null : queue.getAsString(),
                unsigned(wanted.get("id")),
                unsigned(wanted.get("retry_after_ms")));
            FrameBuffer buffer = new FrameBuffer();
            buffer.append(new Output(Output.DONE, "before", null, null, null, null), MAX);
            int before = buffer.size();
            buffer.append(output, MAX);
            byte[] frame = new byte[buffer.size() - before - 4];
            buffer.view().position(before + 4).get(frame);
            assertEquals(frame.length, buffer.view().getInt(before));
            String name = vector.get("name").getAsString();
            assertEquals(vector.get("bytes").getAsString(), HEX.formatHex(frame), name);
        }
        assertTrue(written > 20, "only " + written);
    }

    @Test
    void whatCanNotBeSentLeavesNothingBehind() {
        FrameBuffer buffer = new FrameBuffer();
        buffer.append(new Output(Output.DONE, "before", null, null, null, null), MAX);
        byte[] before = new byte[buffer.size()];
        buffer.view().get(before);
        Stream<Map<String, Object>> unsendable = Stream.of(
            Map.of("f", new Object()), Map.of("\ud800", 1), Map.of("f", new java.math.BigInteger("1").shiftLeft(64)),
            Map.of("f", new java.math.BigDecimal("0.1")), Map.of("f", Map.of(1, 2)), Map.of("f", "x".repeat(200)));
        unsendable.forEach(headers -> {
            Output output = new Output(Output.DONE, "m", headers, null, null, null);
            assertThrows(UnsendableException.class, () -> buffer.append(output, 100), headers::toString);
        });
        byte[] after = new byte[buffer.size()];
        buffer.view().get(after);
        assertArrayEquals(before, after);
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 7, Integer.MAX_VALUE})
    void framingHoweverTheStreamIsCut(int piece) throws IOException {
        for (JsonObject vector : vectors("framing")) {
            String name = vector.get("name").getAsString();
            ByteArrayInputStream stream = new ByteArrayInputStream(HEX.parseHex(vector.get("stream").getAsString()));
            FrameReader frames = new FrameReader(into -> read(stream, into, piece), vector.get("frame_bytes_max").getAsInt());
            List<String> found = new ArrayList<>();
            boolean broken = false;
            try {
                while (frames.next()) {
                    found.add(HEX.formatHex(frames.bytes(), frames.start(), frames.end()));
                }
            } catch (ProtocolException wrong) {
                broken = true;
            }
            List<String> wanted = new ArrayList<>();
            vector.getAsJsonArray("frames").forEach(each -> wanted.add(each.getAsString()));
            assertEquals(wanted, found, name);
            assertEquals(!vector.get("error").isJsonNull(), broken, name);
        }
    }

    private static int read(ByteArrayInputStream stream, ByteBuffer into, int piece) {
        byte[] part = new byte[Math.min(piece, into.remaining())];
        int length = stream.read(part, 0, part.length);
        if (length > 0) {
            into.put(part, 0, length);
        }
        return length;
    }
}
