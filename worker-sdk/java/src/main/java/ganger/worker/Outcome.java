package ganger.worker;

import java.time.Duration;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;

/** What a handler says became of its message. It never changes: each method returns another one. */
public final class Outcome {
    private static final Outcome DONE = of(Output.DONE, "");

    private final int status;
    private final Object message;
    private final Map<String, Object> headers;
    private final String queue;
    private final Long afterMs;

    private Outcome(int status, Object message, Map<String, Object> headers, String queue, Long afterMs) {
        this.status = status;
        this.message = Objects.requireNonNull(message, "a message must not be null");
        this.headers = headers;
        this.queue = queue;
        this.afterMs = afterMs;
    }

    /**
     * The work is done: the message leaves its queue.
     *
     * @return that outcome
     */
    public static Outcome done() {
        return DONE;
    }

    /**
     * The work is done, and this text is its result. It is published to the message's reply-to, or to where
     * {@link #to} says, before the message leaves its queue. With {@code to(task.queue())} a long task hands
     * on what is left.
     *
     * @param message the result
     * @return that outcome
     */
    public static Outcome reply(String message) {
        return of(Output.DONE_WITH_REPLY, message);
    }

    /**
     * {@link #reply(String)} with a result that is bytes.
     *
     * @param message the result, which must not be changed later
     * @return that outcome
     */
    public static Outcome reply(byte[] message) {
        return new Outcome(Output.DONE_WITH_REPLY, message, null, null, null);
    }

    /**
     * It has failed for now, and is tried again after the pool's own wait or after that of {@link #after}. An
     * attempt is charged; after the last one the message is a dead letter with this reason.
     *
     * @param reason why
     * @return that outcome
     */
    public static Outcome retry(String reason) {
        return of(Output.RETRY, reason);
    }

    /**
     * It can never work: the message becomes a dead letter with this reason, now.
     *
     * @param reason why
     * @return that outcome
     */
    public static Outcome reject(String reason) {
        return of(Output.REJECT, reason);
    }

    /**
     * Not here, not now: it is handed out again after a short wait. No attempt is charged.
     *
     * @param reason why
     * @return that outcome
     */
    public static Outcome requeue(String reason) {
        return of(Output.REQUEUE, reason);
    }

    /**
     * A status to which the pool's configuration gives a meaning ({@code [pools.statuses]}).
     *
     * @param status the number, from 200 on
     * @param message the reply, or the reason of a failure
     * @return that outcome
     * @throws IllegalArgumentException if such a status does not end a task
     */
    public static Outcome of(int status, String message) {
        if (status < Output.DONE) {
            throw new IllegalArgumentException("an outcome's status must be 200 or more: " + status);
        }
        return new Outcome(status, message, null, null, null);
    }

    /**
     * Adds a header to a reply.
     *
     * @param name its name
     * @param value a text, a number, a boolean, bytes, an {@link java.time.Instant}, null, or a list or map
     *     of those; queues keep it in its text form
     * @return the outcome with it
     */
    public Outcome header(String name, Object value) {
        Map<String, Object> more = headers == null ? new LinkedHashMap<>() : new LinkedHashMap<>(headers);
        more.put(Objects.requireNonNull(name, "a header's name must not be null"), value);
        return new Outcome(status, message, Collections.unmodifiableMap(more), queue, afterMs);
    }

    /**
     * Says where a reply goes, if not to the message's own reply-to.
     *
     * @param queue a queue or topic
     * @return the outcome with it
     */
    public Outcome to(String queue) {
        return new Outcome(status, message, headers, queue, afterMs);
    }

    /**
     * Says how long a retry is to wait.
     *
     * @param wait in whole milliseconds; less than one, or less than nothing, is at once
     * @return the outcome with it
     */
    public Outcome after(Duration wait) {
        return new Outcome(status, message, headers, queue, Math.max(0, milliseconds(wait)));
    }

    private static long milliseconds(Duration wait) {
        try {
            return wait.toMillis();
        } catch (ArithmeticException tooLong) {
            return wait.isNegative() ? 0 : Long.MAX_VALUE;
        }
    }

    /**
     * The number that the daemon is told.
     *
     * @return the status
     */
    public int status() {
        return status;
    }

    @Override
    public String toString() {
        String shown = message instanceof byte[] bytes ? bytes.length + " bytes" : "\"" + message + "\"";
        return "Outcome " + status + " " + shown;
    }

    /** What is sent for it. A reply must be what it is; of a reason what can't be read is mended. */
    Output output(Long id) {
        boolean isReason = status >= Output.REQUEUE && message instanceof String;
        Object sent = isReason ? Output.mended((String) message) : message;
        return new Output(status, sent, headers, queue, id, afterMs);
    }
}
