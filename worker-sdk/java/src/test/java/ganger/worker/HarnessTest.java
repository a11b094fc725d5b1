package ganger.worker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ganger.worker.testing.Harness;
import ganger.worker.testing.Message;
import ganger.worker.testing.Note;
import ganger.worker.testing.Result;
import io.opentelemetry.api.baggage.Baggage;
import io.opentelemetry.api.trace.Span;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Handlers without a daemon, which is also how the library itself is tested where a process is not needed. */
@Timeout(120)
class HarnessTest {
    private static Outcome shout(Task task) {
        task.emit("heard", task.text());
        task.emit("bytes", new byte[] {-1}, Map.of("n", 1));
        task.progress("half way");
        task.log(System.Logger.Level.INFO, "shouting", Map.of("volume", 11));
        return Outcome.reply(task.text().toUpperCase(Locale.ROOT)).header("loud", true).to("answers");
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 16})
    void resultsInTheOrderOfTheMessages(int concurrency) throws Exception {
        List<Message> messages = IntStream.range(0, 500).mapToObj(n -> Message.of("message " + n)).toList();
        Worker worker = Worker.of(HarnessTest::shout).concurrency(concurrency);
        List<Result> results = Harness.work(worker, 2, messages);
        for (int n = 0; n < 500; n++) {
            Result result = results.get(n);
            assertEquals(201, result.status());
            assertEquals("MESSAGE " + n, result.text());
            assertEquals(Map.of("loud", true), result.headers());
            assertEquals("answers", result.queue());
            assertEquals(List.of("half way"), result.progress());
            assertEquals(List.of("heard", "bytes"), result.emits().stream().map(Note::queue).toList());
            assertEquals("message " + n, result.emits().get(0).text());
            assertEquals(Map.of("n", 1L), result.emits().get(1).headers());
            assertEquals("shouting", result.logs().get(0).text());
            assertEquals(Map.of("level", "info", "volume", 11L), result.logs().get(0).headers());
        }
    }

    @Test
    void everythingOfAMessageReachesTheHandler() throws Exception {
        Message message = Message.of(new byte[] {-1}).correlationId("c").queue("q").header("a", "b").attempt(3)
            .millisecondsLeft(100).property("row_id", 7L).property("again", true);
        Result result = Harness.work(task -> {
            assertFalse(task.isText());
            assertThrows(IllegalStateException.class, task::text);
            assertEquals(task, Task.current().get());
            assertThrows(UnsupportedOperationException.class, () -> task.headers().put("x", "y"));
            return Outcome.reply(task.correlationId() + task.queue() + task.headers() + task.attempt()
                + task.millisecondsLeft().getAsLong() + task.properties() + task);
        }, message).get(0);
        assertEquals("cq{a=b}3100{row_id=7, again=true}Task 0 of q", result.text());
        assertEquals(Optional.empty(), Task.current());
    }

    @Test
    void bytesThatAreTextAreBoth() throws Exception {
        Message message = Message.of("ü".getBytes(java.nio.charset.StandardCharsets.UTF_8));
        Result result = Harness.work(task -> Outcome.reply(task.text() + task.bytes().length + task.isText()), message)
            .get(0);
        assertEquals("ü2false", result.text());
    }

    @Test
    void cancellationInterrupts() throws Exception {
        Message message = Message.of("x").cancelAfter(Duration.ofMillis(10));
        Result result = Harness.work(task -> {
            try {
                new CountDownLatch(1).await();
                return Outcome.done();
            } catch (InterruptedException interrupted) {
                return Outcome.retry("cancelled is " + task.isCancelled()).after(Duration.ofMinutes(1));
            }
        }, message).get(0);
        assertEquals("cancelled is true", result.text());
        assertEquals(60_000, result.retryAfterMs());
    }

    @Test
    void waitsOfAllLengths() throws Exception {
        List<Result> results = Harness.work(
            task -> Outcome.retry("").after(Duration.parse(task.text())), "PT-1S", "PT0.0009S", "PT9999999999999999S");
        assertEquals(List.of(0L, 0L, Long.MAX_VALUE), results.stream().map(Result::retryAfterMs).toList());
    }

    @Test
    void aHandlerRunsInTheMessagesTrace() throws Exception {
        String trace = "0af7651916cd43dd8448eb211c80319c";
        Message traced = Message.of("x").header("traceparent", "00-" + trace + "-b7ad6b7169203331-01")
            .header("baggage", "shop=7");
        Worker worker = Worker.of(task -> Outcome.reply(Span.current().getSpanContext().getTraceId() + " "
            + Baggage.current().getEntryValue("shop")));
        List<Result> results = Harness.work(worker, 2, List.of(traced, Message.of("x").header("a", "b")));
        assertEquals(trace + " 7", results.get(0).text());
        assertEquals("0".repeat(32) + " null", results.get(1).text());
    }

    @Test
    void version1() throws Exception {
        Worker worker = Worker.of(task -> Outcome.reply(task.bytes())).concurrency(4);
        List<Result> results = Harness.work(worker, 1, List.of(Message.of("a"), Message.of("b")));
        assertEquals(List.of("a", "b"), results.stream().map(Result::text).toList());
    }

    @Test
    void theVersionIsThatOfTheManifest() throws Exception {
        String manifest = Files.readString(Path.of("pom.xml"));
        String own = "<artifactId>ganger-worker</artifactId>\n  <version>" + Connection.VERSION + "</version>";
        assertTrue(manifest.contains(own), manifest);
    }

    @Test
    void badArgumentsAndMessagesAreTold() throws Exception {
        Worker worker = Worker.of(task -> null);
        assertThrows(NullPointerException.class, () -> Worker.of(null));
        assertThrows(IllegalArgumentException.class, () -> worker.concurrency(0));
        assertThrows(IllegalArgumentException.class, () -> worker.frameBytesMax(0));
        assertThrows(IllegalArgumentException.class, () -> worker.frameBytesMax(Integer.MAX_VALUE));
        assertThrows(IllegalArgumentException.class, () -> Outcome.of(103, ""));
        assertThrows(NullPointerException.class, () -> Outcome.reply((String) null));
        assertThrows(IllegalArgumentException.class, () -> Harness.work(worker, 3, List.of()));
        ProtocolException refused =
            assertThrows(ProtocolException.class, () -> Harness.work(task -> null, Message.of("x").attempt(-1)));
        assertTrue(refused.getMessage().contains("have a number from 1 in \"5\""), refused::getMessage);
        Result result = Harness.work(task -> {
            task.emit("", "x");
            return null;
        }, "x").get(0);
        assertEquals(500, result.status());
        assertTrue(result.text().contains("emit needs the name of a queue"), result::text);
    }
}
