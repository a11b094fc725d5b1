package ganger.worker;

import java.util.Map;

/**
 * What the daemon sends: one message. The body is a String or a byte[]; what is not told is null, attempt 0.
 */
record Input(
    Object message,
    String correlationId,
    String queue,
    Map<String, String> headers,
    Long id,
    long attempt,
    Long millisecondsLeft,
    Map<String, Object> properties) { }
