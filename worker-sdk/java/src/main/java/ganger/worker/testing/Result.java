package ganger.worker.testing;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

/**
 * What became of one message, and what its handler sent meanwhile.
 *
 * @param status the protocol's number: 200 done, 201 reply, 300 requeue, 400 reject, 429 retry, 500 failed
 * @param bytes the reply, or the reason of a failure
 * @param headers of the reply; empty if there are none
 * @param queue where the reply goes, if the handler has said so; null otherwise
 * @param retryAfterMs after how long to try again, if the handler has said so; null otherwise
 * @param emits what it emitted
 * @param logs what it logged
 * @param progress what it said of its progress
 */
public record Result(
        int status, byte[] bytes, Map<String, Object> headers, String queue, Long retryAfterMs,
        List<Note> emits, List<Note> logs, List<String> progress) {
    /**
     * The reply, or the reason of a failure, as a text.
     *
     * @return the text
     */
    public String text() {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
