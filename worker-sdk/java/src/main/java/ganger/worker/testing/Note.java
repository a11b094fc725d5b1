package ganger.worker.testing;

import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * An emit or a log record.
 *
 * @param bytes the message
 * @param headers those of an emit; of a log record its level, target and fields
 * @param queue where an emit goes; null for a log record
 */
public record Note(byte[] bytes, Map<String, Object> headers, String queue) {
    /**
     * The message as a text.
     *
     * @return the text
     */
    public String text() {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
