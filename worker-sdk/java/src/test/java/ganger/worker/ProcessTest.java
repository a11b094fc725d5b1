package ganger.worker;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ganger.worker.WorkerProcess.Answer;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.msgpack.value.Value;
import org.msgpack.value.ValueFactory;

/** Real worker processes, with a daemon by hand on the other side. */
@Timeout(120)
class ProcessTest {
    private static final int MIB = 1 << 20;

    private static String done(long id) {
        return "{\"0\":\"\",\"1\":200,\"4\":" + id + "}";
    }

    private static String gaveUp(long id) {
        return "{\"0\":\"gave up\",\"1\":429,\"4\":" + id + "}";
    }

    private static Map<String, Value> with(Map<String, Value> fields, String key, Value value) {
        fields.put(key, value);
        return fields;
    }

    private static Value headers(String name, String value) {
        return ValueFactory.newMap(ValueFactory.newString(name), ValueFactory.newString(value));
    }

    private static void contains(String part, String whole) {
        assertTrue(whole.contains(part), () -> "no \"" + part + "\" in " + whole);
    }

    @Test
    void outcomes() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(1, 2)) {
            assertEquals(done(9), worker.ask("", 9).json());
            assertEquals(done(9), worker.ask("done", 9).json());
            assertEquals("{\"0\":\"later\",\"1\":429,\"4\":9,\"5\":1500}", worker.ask("retry", 9).json());
            assertEquals("{\"0\":\"never\",\"1\":400,\"4\":9}", worker.ask("reject", 9).json());
            assertEquals("{\"0\":\"\",\"1\":300,\"4\":9}", worker.ask("requeue", 9).json());
            assertEquals("{\"0\":\"mine\",\"1\":299,\"4\":9}", worker.ask("custom", 9).json());
            Answer echo = worker.ask("echo Grüße 漢 🦀 \uFFFD", 9);
            assertEquals("Grüße 漢 🦀 \uFFFD", echo.text());
            assertEquals(201, echo.status());
            worker.write(WorkerProcess.frame(
                with(WorkerProcess.task("headers answers", 0), "3", headers("a", "ä"))));
            Answer headers = worker.receive();
            assertEquals("{a=ä}", headers.text());
            Value both = ValueFactory.newMap(ValueFactory.newString("n"), ValueFactory.newInteger(7),
                ValueFactory.newString("ü"), ValueFactory.newString("é"));
            assertEquals(both, headers.get(2));
            assertEquals("answers", headers.get(3).asStringValue().asString());
            assertEquals(0, headers.id());
        }
    }

    @Test
    void everythingOfAMessageReachesTheHandler() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(1, 2)) {
            Value last = ValueFactory.newInteger(new java.math.BigInteger("18446744073709551615"));
            Map<String, Value> fields = WorkerProcess.task(ValueFactory.newString("about"), last);
            fields.put("1", ValueFactory.newString("c"));
            fields.put("5", ValueFactory.newInteger(3));
            fields.put("6", ValueFactory.newInteger(5000));
            fields.put("7", ValueFactory.newMap(ValueFactory.newString("row_id"), ValueFactory.newInteger(4)));
            worker.write(WorkerProcess.frame(fields));
            worker.expect("{\"0\":\"c q 3 OptionalLong[5000] {row_id=4}\",\"1\":201,\"4\":18446744073709551615}");
        }
    }

    @ParameterizedTest
    @CsvSource({"1, platform", "2, platform", "2, virtual"})
    void aHandlerThatThrowsAnswersAndGoesOn(int concurrency, String threads) throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(concurrency, 2, 64 * MIB, threads)) {
            Answer answer = worker.ask("throw x", 1);
            assertEquals(List.of(500, 1L), List.of(answer.status(), answer.id()));
            assertEquals("java.lang.IllegalStateException: no good: ? x", answer.text().lines().findFirst().get());
            contains("Modes.java", answer.text());
            contains("Caused by: java.io.IOException: below", answer.text());
            contains("java.lang.AssertionError: wrong", worker.ask("assert", 2).text());
            Answer deep = worker.ask("deep", 3);
            contains("java.lang.StackOverflowError", deep.text());
            assertTrue(deep.text().length() < 10_000, "too long");
            contains("whose text throws java.lang.IllegalArgumentException", worker.ask("worse", 4).text());
            assertEquals(500, worker.ask("interrupted", 5).status());
            contains("the header \"f\" can't be sent: MessagePack has no java.lang.Object",
                worker.ask("unspeakable", 6).text());
            contains("U+d800", worker.ask("half", 7).text());
            contains("nested at most 62 deep", worker.ask("nested", 8).text());
            assertEquals("{\"0\":\"on\",\"1\":201,\"4\":9}", worker.ask("echo on", 9).json());
        }
    }

    @Test
    void aProcessWithoutMemoryAnswersAndLeaves() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(2, 2)) {
            worker.begin("stuck", 1);
            contains("java.lang.OutOfMemoryError: none left", worker.ask("memory", 2).text());
            worker.tell("__cancel__ 1");
            worker.expect(gaveUp(1));
            worker.ended(1);
            contains("none left", worker.stderr());
        }
    }

    @Test
    void aReplyThatTheDaemonWouldRefuseIsAFailure() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(1, 2, 4096, "platform")) {
            Answer answer = worker.ask("large 5000", 1);
            assertEquals(500, answer.status());
            contains("at most 4096 bytes: 50", answer.text());
            // With why it was cancelled and its stack.
            worker.begin("uncaught sleep", 4);
            worker.tell("__cancel__ 4");
            assertEquals(429, worker.receive().status());
            assertEquals("x".repeat(4000), worker.ask("large 4000", 2).text());
            // Its stack is longer than a frame may be.
            contains("java.lang.StackOverflowError", worker.ask("deep", 3).text());
        }
    }

    @Test
    void largeEmptyAndBinaryBodies() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(1, 2)) {
            String large = "ü".repeat(5 * MIB);
            assertEquals(large, worker.ask("echo " + large, 1).text());
            byte[] binary = new byte[10 * MIB];
            for (int n = 0; n < binary.length; n++) {
                binary[n] = (byte) n;
            }
            worker.write(WorkerProcess.frame(
                WorkerProcess.task(ValueFactory.newBinary(binary), ValueFactory.newInteger(2))));
            assertArrayEquals(binary, worker.receive().get(0).asBinaryValue().asByteArray());
            assertEquals("{\"0\":\"\",\"1\":201,\"4\":3}", worker.ask("echo ", 3).json());
        }
    }

    @Test
    void framesInDribblesAndHeaps() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(100, 2)) {
            for (byte each : WorkerProcess.frame(WorkerProcess.task("echo slow", 1))) {
                worker.write(new byte[] {each});
            }
            assertEquals("slow", worker.receive().text());
            ByteArrayOutputStream heap = new ByteArrayOutputStream();
            for (int n = 0; n < 100; n++) {
                heap.write(WorkerProcess.frame(WorkerProcess.task("echo " + n, n)));
            }
            byte[] all = heap.toByteArray();
            worker.write(Arrays.copyOf(all, all.length - 5));
            worker.write(Arrays.copyOfRange(all, all.length - 5, all.length));
            Map<Long, String> answers = new HashMap<>();
            Map<Long, String> wanted = new HashMap<>();
            for (long n = 0; n < 100; n++) {
                Answer answer = worker.receive();
                answers.put(answer.id(), answer.text());
                wanted.put(n, Long.toString(n));
            }
            assertEquals(wanted, answers);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"platform", "virtual"})
    void manyAtOnceAndASlowOneHoldsUpNoOther(String threads) throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(8, 2, 64 * MIB, threads)) {
            for (int n = 0; n < 8; n++) {
                worker.send("together", n);
            }
            Set<Long> seen = new HashSet<>();
            for (int n = 0; n < 8; n++) {
                seen.add(worker.receive().id());
            }
            assertEquals(8, seen.size());
            for (int n = 0; n < 7; n++) {
                worker.begin("stuck", n);
            }
            for (long n : LongStream.range(8, 200).toArray()) {
                assertEquals(n, worker.ask("echo x", n).id());
            }
            boolean virtual = worker.ask("thread", 9).text().startsWith("VirtualThread");
            assertEquals(threads.equals("virtual") && Runtime.version().feature() >= 21, virtual);
            for (int n = 0; n < 7; n++) {
                worker.tell("__cancel__ " + n);
                worker.expect(gaveUp(n));
            }
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 4})
    void notesGoOutBeforeTheAnswer(int concurrency) throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(concurrency, 2)) {
            worker.send("emit 300", 5);
            for (int n = 0; n < 300; n++) {
                worker.expect("{\"0\":\"part " + n + "\",\"1\":103,\"2\":{\"n\":" + n + "},\"3\":\"parts\",\"4\":5}");
            }
            worker.expect(done(5));
            assertEquals("{\"0\":\"1 of 2\",\"1\":102,\"4\":1}", worker.ask("progress", 1).json());
            worker.expect(done(1));
            String fields = "{\"level\":\"debug\",\"level_\":\"mine\",\"many\":\"[1, 2]\",\"n\":1,\"target\":\"tests\"}";
            assertEquals("{\"0\":\"noted\",\"1\":101,\"2\":" + fields + ",\"4\":1}", worker.ask("log", 1).json());
            worker.expect(done(1));
        }
    }

    @Test
    void loggingBecomesRecordsOfTheMessage() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(1, 2)) {
            String first = "{\"0\":\"hot stuff\",\"1\":101,\"2\":{\"level\":\"warn\",\"target\":\"shop\"},\"4\":1}";
            assertEquals(first, worker.ask("logging", 1).json());
            worker.expect("{\"0\":\"90 degrees\",\"1\":101,\"2\":{\"level\":\"info\",\"target\":\"oven\"},\"4\":1}");
            String third = worker.receive().json();
            contains("{\"0\":\"broken\",\"1\":101,\"2\":{\"level\":\"error\",\"target\":\"shop\",\"exception\":\"java", third);
            contains("no gas", third);
            worker.expect(done(1));
            worker.tell("__quit__");
            worker.ended(0);
            assertEquals("INFO shop: outside\n", worker.stderr());
        }
    }

    @Test
    void cancelInterrupts() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(1, 2)) {
            worker.begin("stuck", 3);
            worker.tell("__cancel__ 77\n__cancel__ \n__cancel__ x\n__cancel__ 3");
            worker.expect(gaveUp(3));
            // One that overtakes its message: stdin and the pipe have no common order.
            worker.tell("__cancel__ 4");
            worker.begin("stuck", 4);
            worker.expect(gaveUp(4));
            for (String where : List.of("sleep", "channel", "future", "wrapped")) {
                worker.begin("uncaught " + where, 5);
                worker.tell("__cancel__ 5");
                Answer answer = worker.receive();
                assertEquals(List.of(429, 5L), List.of(answer.status(), answer.id()));
                assertTrue(answer.text().startsWith("cancelled\njava."), answer::text);
                contains("Modes.java", answer.text());
            }
            worker.write(WorkerProcess.frame(
                with(WorkerProcess.task("uncaught sleep", 5), "3", headers("TimeoutMilliseconds", "0"))));
            assertEquals("begun", worker.receive().text());
            worker.tell("__cancel__ 5");
            contains("timed out: the limit is 0 ms\njava.lang.InterruptedException", worker.receive().text());
            assertEquals("{\"0\":\"on\",\"1\":201,\"4\":6}", worker.ask("echo on", 6).json());
        }
    }

    @ParameterizedTest
    @CsvSource({"1, platform", "2, platform", "2, virtual"})
    void anInterruptBreaksNoPipe(int concurrency, String threads) throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(concurrency, 2, 64 * MIB, threads)) {
            for (int n = 0; n < 5; n++) {
                Answer part = worker.ask("flagged", n);
                assertEquals(MIB, part.text().length());
                worker.expect(done(n));
            }
            assertEquals("{\"0\":\"on\",\"1\":201,\"4\":6}", worker.ask("echo on", 6).json());
        }
    }

    @Test
    void anEmitOfATaskThatIsAnsweredIsRefused() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(1, 2)) {
            assertEquals(done(1), worker.ask("late", 1).json());
            contains("emit needs a task that is not yet answered", worker.ask("emit-late", 2).text());
            assertEquals("-1", worker.ask("stdin", 3).text());
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 3})
    void quitWhenIdle(int concurrency) throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(concurrency, 2)) {
            worker.ask("echo x", 1);
            worker.tell("__quit__");
            worker.ended(0);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"platform", "virtual"})
    void quitWhenBusy(String threads) throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(3, 2, 64 * MIB, threads)) {
            worker.begin("stuck", 1);
            worker.begin("stuck", 2);
            worker.send("sleep 200", 3);
            worker.tell("__quit__");
            worker.expect(done(3));
            worker.tell("__cancel__ 1");
            worker.expect(gaveUp(1));
            worker.tell("__cancel__ 2");
            worker.expect(gaveUp(2));
            worker.ended(0);
        }
    }

    @Test
    void whatHasArrivedBeforeItLeavesIsWorkedOn() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(1, 2)) {
            worker.begin("stuck", 1);
            worker.send("echo x", 2);
            worker.tell("__quit__");
            worker.tell("__cancel__ 1");
            worker.expect(gaveUp(1));
            worker.expect("{\"0\":\"x\",\"1\":201,\"4\":2}");
            worker.ended(0);
        }
    }

    @Test
    void theEndOfThePipeAndOfStdin() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(1, 2)) {
            worker.send("sleep 100", 1);
            worker.pipe.shutdownOutput();
            worker.expect(done(1));
            worker.ended(0);
        }
        try (WorkerProcess worker = WorkerProcess.start(1, 2)) {
            worker.send("sleep 100", 1);
            worker.process.getOutputStream().close();
            worker.expect(done(1));
            worker.ended(0);
        }
        try (WorkerProcess worker = WorkerProcess.start(1, 2)) {
            worker.send("sleep 100", 1);
            worker.pipe.close(); // a daemon that is gone is no error
            assertEquals(0, worker.process.waitFor(), worker::stderr);
        }
    }

    @Test
    void whatAWorkerDoesNotKnowItIgnores() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(1, 2)) {
            worker.tell("__context_switch__\n\n__unheard__ of");
            Map<String, Value> fields = WorkerProcess.task("echo x", 1);
            fields.put("8", headers("new", "x"));
            fields.put("more", ValueFactory.newBinary(new byte[] {-1}));
            worker.write(WorkerProcess.frame(fields));
            worker.expect("{\"0\":\"x\",\"1\":201,\"4\":1}");
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void aHostileInputEndsTheConnection(int concurrency) throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(concurrency, 2)) {
            worker.write(WorkerProcess.frame(new TreeMap<>(Map.of("0", ValueFactory.newString("m")))));
            worker.ended(1);
            contains("no \"1\"", worker.stderr());
        }
        try (WorkerProcess worker = WorkerProcess.start(concurrency, 2)) {
            worker.write(new byte[] {0x7f, -1, -1, -1});
            worker.ended(1);
            contains("at most 67108864 bytes", worker.stderr());
        }
    }

    @Test
    void version1() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(8, 1)) {
            // Ahead of the answers, as `pipeline` does it; the answers are in order.
            ByteArrayOutputStream heap = new ByteArrayOutputStream();
            for (int n = 0; n < 200; n++) {
                Map<String, Value> fields = WorkerProcess.task("echo " + n, n);
                List.of("4", "5", "6", "7").forEach(fields::remove);
                heap.write(WorkerProcess.frame(fields));
            }
            worker.write(heap.toByteArray());
            for (int n = 0; n < 200; n++) {
                worker.expect("{\"0\":\"" + n + "\",\"1\":201}");
            }
            assertEquals("{\"0\":\"1 of 2\",\"1\":-1}", worker.ask("progress", 1).json());
            worker.expect("{\"0\":\"\",\"1\":200}");
            assertEquals("{\"0\":\"\",\"1\":200}", worker.ask("log", 1).json());
            Answer answer = worker.ask("emit 1", 1);
            assertEquals(500, answer.status());
            contains("version 2", answer.text());
            worker.tell("__quit__");
            worker.ended(0);
            assertEquals("debug: noted level_=mine many=[1, 2] n=1 target=tests\n", worker.stderr());
        }
    }

    @Test
    void version1GivesUpByItselfAndYieldsWhenTold() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(1, 1)) {
            worker.write(WorkerProcess.frame(
                with(WorkerProcess.task("stuck", 1), "3", headers("TimeoutMilliseconds", "100"))));
            worker.expect("{\"0\":\"begun\",\"1\":-1}");
            worker.expect("{\"0\":\"gave up\",\"1\":429}");
            worker.write(WorkerProcess.frame(
                with(WorkerProcess.task("uncaught sleep", 1), "3", headers("TimeoutMilliseconds", "100"))));
            worker.expect("{\"0\":\"begun\",\"1\":-1}");
            contains("timed out: the limit is 100 ms\njava.lang.InterruptedException", worker.receive().text());
            for (String after : List.of("-1", "soon", "99999999999999")) {
                worker.write(WorkerProcess.frame(
                    with(WorkerProcess.task("echo x", 1), "3", headers("TimeoutMilliseconds", after))));
                worker.expect("{\"0\":\"x\",\"1\":201}");
            }
            worker.begin("stuck", 1);
            worker.tell("__context_switch__");
            worker.expect("{\"0\":\"gave up\",\"1\":429}");
        }
    }

    @Test
    void theFirstWorkerOfTheReadme() throws Exception {
        Path shout = Path.of("examples", "Shout.java");
        contains("```java\n" + Files.readString(shout) + "```", Files.readString(Path.of("README.md")));
        try (WorkerProcess worker = WorkerProcess.of(2, List.of(shout.toString()))) {
            assertEquals(100, worker.receive().status());
            assertEquals("{\"0\":\"HELLO!\",\"1\":201,\"4\":1}", worker.ask("hello", 1).json());
            assertFalse(worker.stderr().contains("Exception"), worker::stderr);
        }
    }

    @Test
    void itSaysWhatItLacks() throws IOException, InterruptedException {
        ProcessBuilder builder = new ProcessBuilder(
            Path.of(System.getProperty("java.home"), "bin", "java").toString(),
            "-cp", System.getProperty("java.class.path"), Modes.class.getName(), "1", "4096", "platform");
        Process process = builder.redirectErrorStream(true).start();
        process.getOutputStream().close();
        contains("stdin must begin with a line that names the pipe", new String(process.getInputStream().readAllBytes()));
        assertEquals(1, process.waitFor());
    }
}
