package ganger.worker;

import java.io.IOException;
import java.nio.channels.ServerSocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.AbstractList;
import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * The worker under test: a body's first word says what to do with it. Arguments: the concurrency,
 * frame_bytes_max, and the kind of threads.
 */
final class Modes {
    private static CountDownLatch together;
    private static Task last;
    private static Worker worker;

    private Modes() { }

    public static void main(String[] args) throws Exception {
        int concurrency = Integer.parseInt(args[0]);
        together = new CountDownLatch(concurrency);
        worker = Worker.of(Modes::handle)
            .concurrency(concurrency)
            .frameBytesMax(Integer.parseInt(args[1]))
            .virtualThreads(args[2].equals("virtual"))
            .warmUp(Modes::warmUp);
        worker.run();
    }

    /** Ends as the environment says. */
    private static void warmUp() throws IOException {
        String why = System.getenv("COLD");
        if (why != null) {
            throw new IOException(why);
        }
    }

    private static Outcome handle(Task task) throws Exception {
        String body = task.isText() ? task.text() : "binary";
        int blank = body.indexOf(' ');
        String verb = blank < 0 ? body : body.substring(0, blank);
        String rest = blank < 0 ? "" : body.substring(blank + 1);
        return switch (verb) {
            case "" -> null;
            case "done" -> Outcome.done();
            case "echo" -> Outcome.reply(rest);
            case "binary" -> Outcome.reply(task.bytes());
            case "headers" -> Outcome.reply(task.headers().toString()).to(rest).header("n", 7).header("ü", "é");
            case "about" -> Outcome.reply(task.correlationId() + " " + task.queue() + " " + task.attempt() + " "
                + task.millisecondsLeft() + " " + new TreeMap<>(task.properties()));
            case "retry" -> Outcome.retry("later").after(Duration.ofMillis(1500));
            case "reject" -> Outcome.reject("never");
            case "requeue" -> Outcome.requeue("");
            case "custom" -> Outcome.of(299, "mine");
            case "large" -> Outcome.reply("x".repeat(Integer.parseInt(rest)));
            default -> fails(task, verb, rest);
        };
    }

    private static Outcome fails(Task task, String verb, String rest) throws Exception {
        return switch (verb) {
            case "throw" -> throw new IllegalStateException("no good: \ud800 " + rest, new IOException("below"));
            case "deep" -> deep(task);
            case "assert" -> throw new AssertionError("wrong");
            case "memory" -> throw new OutOfMemoryError("none left");
            case "worse" -> throw new IllegalStateException() {
                private static final long serialVersionUID = 1;

                @Override
                public String getMessage() {
                    throw new IllegalArgumentException();
                }
            };
            case "interrupted" -> throw new InterruptedException("by nobody");
            case "unspeakable" -> Outcome.reply("x").header("f", new Object());
            case "half" -> Outcome.reply("\ud800");
            case "nested" -> nested();
            case "null" -> Outcome.reply("x").header("map", Collections.singletonMap(null, 1));
            case "badly" -> Outcome.reply("x").header("broken", new BrokenList());
            case "changing" -> Outcome.reply("x").header("changing", new ChangingMap());
            default -> meanwhile(task, verb, rest);
        };
    }

    private static Outcome deep(Task task) {
        return deep(task).to(task.queue());
    }

    private static Outcome nested() {
        List<Object> list = new ArrayList<>();
        list.add(list);
        return Outcome.reply("x").header("list", list);
    }

    private static Outcome meanwhile(Task task, String verb, String rest) throws Exception {
        switch (verb) {
            case "together" -> {
                together.countDown();
                together.await();
            }
            case "sleep" -> Thread.sleep(Integer.parseInt(rest));
            case "stuck" -> {
                task.progress("begun");
                return untilCancelled(task);
            }
            case "uncaught" -> {
                task.progress("begun");
                waitIn(rest);
            }
            case "flagged" -> {
                // As those do who can't throw it on; and others interrupt what they should not.
                Thread.currentThread().interrupt();
                task.emit("parts", "x".repeat(1 << 20));
            }
            case "emit" -> {
                for (int n = 0; n < Integer.parseInt(rest); n++) {
                    task.emit("parts", "part " + n, Map.of("n", n));
                }
            }
            case "progress" -> task.progress("1 of 2");
            case "log" -> logs(task);
            case "logging" -> logging();
            case "late" -> last = task;
            case "log-late" -> {
                last.log(System.Logger.Level.WARNING, "too late", Map.of("n", 1));
                last.progress("too late");
                task.log(System.Logger.Level.WARNING, "x".repeat(Integer.parseInt(rest)));
            }
            case "names" -> {
                return names(task);
            }
            case "child" -> {
                return Outcome.reply(child());
            }
            case "exit" -> System.exit(7);
            case "stop" -> worker.stop();
            case "emit-late" -> last.emit("parts", "late");
            case "stdin" -> {
                return Outcome.reply("" + System.in.read());
            }
            case "thread" -> {
                return Outcome.reply(Thread.currentThread().toString());
            }
            default -> throw new IllegalArgumentException(verb);
        }
        return Outcome.done();
    }

    /** Headers and fields with names that are something else in other languages. */
    private static Outcome names(Task task) {
        Outcome reply = Outcome.reply("named");
        for (Map.Entry<String, String> header : new TreeMap<>(task.headers()).entrySet()) {
            task.log(System.Logger.Level.INFO, "named\nand more", Map.of(header.getKey(), header.getValue()));
            reply = reply.header(header.getKey(), header.getValue());
        }
        return reply;
    }

    /** What a child finds that has this process' stdin. */
    private static String child() throws Exception {
        Process child = new ProcessBuilder("/bin/cat")
            .redirectInput(ProcessBuilder.Redirect.INHERIT)
            .start();
        return new String(child.getInputStream().readAllBytes(), StandardCharsets.UTF_8) + child.waitFor();
    }

    /** Fails while it is sent. */
    private static final class BrokenList extends AbstractList<Object> {
        @Override
        public Object get(int index) {
            throw new AssertionError("no such thing");
        }

        @Override
        public int size() {
            return 1;
        }
    }

    /** Has another size each time, as when other threads change it. */
    private static final class ChangingMap extends AbstractMap<String, Integer> {
        private int sizes;

        @Override
        public Set<Map.Entry<String, Integer>> entrySet() {
            return Set.of(Map.entry("n", 1));
        }

        @Override
        public int size() {
            return ++sizes + 1;
        }
    }

    private static Outcome untilCancelled(Task task) {
        try {
            new CountDownLatch(1).await();
            return Outcome.done();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            return task.isCancelled() ? Outcome.retry("gave up") : Outcome.reject("by whom?");
        }
    }

    private static void waitIn(String where) throws Exception {
        switch (where) {
            case "channel" -> {
                try (ServerSocketChannel listener = ServerSocketChannel.open()) {
                    listener.bind(null).accept();
                }
            }
            case "future" -> {
                ExecutorService other = Executors.newSingleThreadExecutor();
                try {
                    other.submit(() -> {
                        new CountDownLatch(1).await();
                        return null;
                    }).get();
                } finally {
                    other.shutdownNow();
                    other.awaitTermination(1, TimeUnit.MINUTES);
                }
            }
            case "wrapped" -> {
                try {
                    Thread.sleep(Duration.ofMinutes(1).toMillis());
                } catch (InterruptedException interrupted) {
                    throw new IllegalStateException("as many do", interrupted);
                }
            }
            default -> Thread.sleep(Duration.ofMinutes(1).toMillis());
        }
    }

    private static void logs(Task task) {
        Map<String, Object> fields = new TreeMap<>(Map.of("target", "tests", "n", 1, "many", List.of(1, 2)));
        fields.put("level", "mine");
        task.log(System.Logger.Level.DEBUG, "noted", fields);
    }

    private static void logging() throws IOException {
        Logger.getLogger("shop").log(Level.WARNING, "hot {0}", "stuff");
        System.getLogger("oven").log(System.Logger.Level.INFO, "{0} degrees", 90);
        Logger.getLogger("shop").log(Level.SEVERE, "broken", new IOException("no gas"));
        Logger.getLogger("shop").fine("below the level");
        Thread other = new Thread(() -> Logger.getLogger("shop").info("outside"));
        other.start();
        try {
            other.join();
        } catch (InterruptedException never) {
            throw new IOException(never);
        }
    }
}
