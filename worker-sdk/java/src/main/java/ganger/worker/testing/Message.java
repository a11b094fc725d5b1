package ganger.worker.testing;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/** What the handler is given. It never changes: each method returns another one. */
public final class Message {
    final Object body;
    final String correlationId;
    final String queue;
    final Map<String, String> headers;
    final int attempt;
    final Long millisecondsLeft;
    final Map<String, Object> properties;
    final Duration cancelAfter;

    private Message(
            Object body, String correlationId, String queue, Map<String, String> headers, int attempt,
            Long millisecondsLeft, Map<String, Object> properties, Duration cancelAfter) {
        this.body = body;
        this.correlationId = correlationId;
        this.queue = queue;
        this.headers = headers;
        this.attempt = attempt;
        this.millisecondsLeft = millisecondsLeft;
        this.properties = properties;
        this.cancelAfter = cancelAfter;
    }

    /**
     * A first attempt at a text, from the queue {@code test}.
     *
     * @param body the text
     * @return the message
     */
    public static Message of(String body) {
        return new Message(body, "", "test", Map.of(), 1, null, Map.of(), null);
    }

    /**
     * {@link #of(String)} with bytes.
     *
     * @param body the bytes
     * @return the message
     */
    public static Message of(byte[] body) {
        return new Message(body, "", "test", Map.of(), 1, null, Map.of(), null);
    }

    /**
     * With a correlation id.
     *
     * @param id it
     * @return the message with it
     */
    public Message correlationId(String id) {
        return new Message(body, id, queue, headers, attempt, millisecondsLeft, properties, cancelAfter);
    }

    /**
     * From another queue.
     *
     * @param name the queue
     * @return the message with it
     */
    public Message queue(String name) {
        return new Message(body, correlationId, name, headers, attempt, millisecondsLeft, properties, cancelAfter);
    }

    /**
     * With one more header.
     *
     * @param name its name
     * @param value its value
     * @return the message with it
     */
    public Message header(String name, String value) {
        Map<String, String> more = new LinkedHashMap<>(headers);
        more.put(name, value);
        return new Message(body, correlationId, queue, more, attempt, millisecondsLeft, properties, cancelAfter);
    }

    /**
     * At another attempt than the first one.
     *
     * @param number which, from 1
     * @return the message with it
     */
    public Message attempt(int number) {
        return new Message(body, correlationId, queue, headers, number, millisecondsLeft, properties, cancelAfter);
    }

    /**
     * With a time after which the process would be killed.
     *
     * @param milliseconds how long
     * @return the message with it
     */
    public Message millisecondsLeft(long milliseconds) {
        return new Message(body, correlationId, queue, headers, attempt, milliseconds, properties, cancelAfter);
    }

    /**
     * With one more property of its source.
     *
     * @param name its name
     * @param value a String, byte[], Boolean, Integer or Long
     * @return the message with it
     */
    public Message property(String name, Object value) {
        Map<String, Object> more = new LinkedHashMap<>(properties);
        more.put(name, value);
        return new Message(body, correlationId, queue, headers, attempt, millisecondsLeft, more, cancelAfter);
    }

    /**
     * Asks the handler to abandon it.
     *
     * @param wait so long after it was handed out
     * @return the message with it
     */
    public Message cancelAfter(Duration wait) {
        return new Message(body, correlationId, queue, headers, attempt, millisecondsLeft, properties, wait);
    }
}
