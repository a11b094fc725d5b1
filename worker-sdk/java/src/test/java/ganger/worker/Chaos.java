package ganger.worker;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Locale;
import java.util.Map;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * The worker of ganger's own tests of this library: real daemon, real queue, workers killed. Arguments: the
 * concurrency, the version. What it does is in the file $RECORD.
 */
final class Chaos {
    private static final int BODY_CHARS_MAX = 100;

    private final FileChannel record;

    private Chaos(FileChannel record) {
        this.record = record;
    }

    public static void main(String[] args) throws Exception {
        Path path = Path.of(System.getenv("RECORD"));
        FileChannel record = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        Worker worker = Worker.of(new Chaos(record)::handle).concurrency(Integer.parseInt(args[0]));
        Start start = Start.begin();
        try (SocketChannel pipe = start.connect()) {
            worker.serve(pipe, start.control(), Integer.parseInt(args[1]));
        }
    }

    private Outcome handle(Task task) throws Exception {
        note("began", task);
        Thread.sleep(2);
        Outcome outcome = chaos(task);
        note("done", task);
        return outcome;
    }

    private static Outcome chaos(Task task) {
        if (!task.isText()) {
            return Outcome.reply(task.bytes());
        }
        String text = task.text();
        if (text.startsWith("shout: ")) {
            return Outcome.reply(text.toUpperCase(Locale.ROOT)).header("colour", task.headers().get("colour"));
        }
        switch (text) {
            case "raise" -> throw new IllegalStateException("no good");
            case "emit" -> task.emit("parts", "part", Map.of("n", 1));
            case "log" -> {
                task.log(System.Logger.Level.WARNING, "it is hot", Map.of("degrees", 90));
                Logger.getLogger("shop").log(Level.INFO, "half way");
                task.progress("half way");
            }
            default -> {
                if (text.equals("retry") && task.attempt() == 1) {
                    return Outcome.retry("later").after(Duration.ofMillis(10));
                }
            }
        }
        return Outcome.done();
    }

    private void note(String event, Task task) throws IOException {
        String body = task.isText() ? task.text() : "bytes";
        int end = body.offsetByCodePoints(0, Math.min(BODY_CHARS_MAX, body.codePointCount(0, body.length())));
        String attempt = task.attempt() == 0 ? "-" : Long.toString(task.attempt());
        long micros = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
        String line = String.join("\t", event, body.substring(0, end), Long.toString(ProcessHandle.current().pid()),
            attempt, Long.toString(micros)) + "\n";
        record.write(ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8)));
    }
}
