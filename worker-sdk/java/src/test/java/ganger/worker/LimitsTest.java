package ganger.worker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ganger.worker.WorkerProcess.Answer;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.msgpack.value.Value;
import org.msgpack.value.ValueFactory;

/** What can't be sent or comes too late, what children have, and how a worker begins and ends by itself. */
@Timeout(120)
class LimitsTest {
    private static final int MIB = 1 << 20;
    private static final List<String> BUILT_INS =
        List.of("", "__proto__", "constructor", "hasOwnProperty", "length", "toString");

    private static void contains(String part, String whole) {
        assertTrue(whole.contains(part), () -> "no \"" + part + "\" in " + whole);
    }

    @ParameterizedTest
    @CsvSource({"1, platform", "2, virtual"})
    void whatCanNotBeSentIsThisMessagesFailure(int concurrency, String threads) throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(concurrency, 2, 64 * MIB, threads)) {
            contains("a map's names must be texts: null", worker.ask("null", 1).text());
            Answer broken = worker.ask("badly", 2);
            assertEquals(500, broken.status());
            contains("java.lang.AssertionError: no such thing", broken.text());
            // A length that is wrong would be the end of the process.
            assertEquals("{\"changing\":{\"n\":1}}", worker.ask("changing", 3).get(2).toJson());
            assertEquals("{\"0\":\"on\",\"1\":201,\"4\":4}", worker.ask("echo on", 4).json());
        }
    }

    @Test
    void theDaemonsLongestFrameCounts() throws Exception {
        for (int own : List.of(64 * MIB, 1024)) {
            Map<String, String> told = Map.of("GANGER_FRAME_BYTES_MAX", "4096");
            try (WorkerProcess worker = WorkerProcess.start(1, 2, own, "platform", told)) {
                contains("at most 4096 bytes: 50", worker.ask("large 5000", 1).text());
                assertEquals(201, worker.ask("large 4000", 2).status());
            }
        }
    }

    @Test
    void namesThatAreBuiltInElsewhere() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(1, 2)) {
            Value[] pairs = BUILT_INS.stream().flatMap(name -> List.of(name, "of " + name).stream())
                .map(ValueFactory::newString).toArray(Value[]::new);
            Map<String, Value> fields = WorkerProcess.task("names", 1);
            fields.put("3", ValueFactory.newMap(pairs));
            worker.write(WorkerProcess.frame(fields));
            for (String name : BUILT_INS) {
                Answer record = worker.receive();
                assertEquals("named\nand more", record.text());
                assertEquals("{\"level\":\"info\",\"" + name + "\":\"of " + name + "\"}", record.get(2).toJson());
            }
            assertEquals(ValueFactory.newMap(pairs), worker.receive().get(2));
        }
    }

    @Test
    void whatIsLoggedLateOrAtLengthIsOnStderr() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(1, 2, 4096, "platform")) {
            assertEquals(200, worker.ask("late", 1).status());
            assertEquals(200, worker.ask("log-late 5000", 2).status());
            worker.tell("__quit__");
            worker.ended(0);
            contains("warn: too late n=1\nwarn: xxxx", worker.stderr());
        }
    }

    @Test
    void aChildTakesNoControlLines() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(2, 2)) {
            worker.begin("stuck", 1);
            // What the runtime puts there is written only; it is not waited for.
            assertEquals("1", worker.ask("child", 2).text());
            worker.tell("__cancel__ 1");
            assertEquals("gave up", worker.receive().text());
            worker.tell("__quit__");
            worker.ended(0);
        }
    }

    @Test
    void anExitInOneHandlerEndsTheProcessAtOnce() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(2, 2)) {
            worker.begin("stuck", 1);
            worker.send("exit", 2);
            worker.ended(7);
        }
    }

    @Test
    void stopLeavesWhenAllIsAnswered() throws Exception {
        try (WorkerProcess worker = WorkerProcess.start(2, 2)) {
            worker.begin("stuck", 1);
            assertEquals(200, worker.ask("stop", 2).status());
            worker.tell("__cancel__ 1");
            assertEquals("gave up", worker.receive().text());
            worker.ended(0);
        }
    }

    @Test
    void whatComesAfterTheStopIsGivenBack() throws Exception {
        for (String verb : List.of("stop", "memory")) {
            try (WorkerProcess worker = WorkerProcess.start(2, 2)) {
                worker.begin("stuck", 1);
                worker.ask(verb, 2);
                // The places of those that are answered are filled again; a cancelled one is given back at once.
                worker.send("echo x", 3);
                worker.tell("__cancel__ 3");
                worker.expect(givenBack(3));
                worker.tell("__cancel__ 4");
                worker.send("echo x", 4);
                worker.expect(givenBack(4));
                worker.send("echo x", 5);
                worker.tell("__cancel__ 1");
                assertEquals("gave up", worker.receive().text());
                worker.expect(givenBack(5));
                worker.ended(verb.equals("stop") ? 0 : 1);
            }
        }
    }

    private static String givenBack(long id) {
        return "{\"0\":\"the worker is about to end\",\"1\":300,\"4\":" + id + "}";
    }

    @Test
    void aWarmUpThatFailsConnectsNowhere() throws IOException, InterruptedException {
        ProcessBuilder builder = new ProcessBuilder(
            Path.of(System.getProperty("java.home"), "bin", "java").toString(),
            "-cp", System.getProperty("java.class.path"), Modes.class.getName(), "1", "4096", "platform");
        // Who connects finds nothing there, and says another thing.
        builder.environment().putAll(new TreeMap<>(Map.of("COLD", "no model", "GANGER_PIPE", "/tmp/ganger-nowhere")));
        Process process = builder.redirectErrorStream(true).start();
        process.getOutputStream().write("pipe\n".getBytes());
        process.getOutputStream().flush();
        contains("the warm-up has failed: no model", new String(process.getInputStream().readAllBytes()));
        assertEquals(1, process.waitFor());
    }
}
