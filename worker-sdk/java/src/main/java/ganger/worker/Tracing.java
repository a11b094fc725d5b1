package ganger.worker;

import io.opentelemetry.api.baggage.propagation.W3CBaggagePropagator;
import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.propagation.TextMapGetter;
import io.opentelemetry.context.propagation.TextMapPropagator;
import java.util.Map;

/** OpenTelemetry's context, taken from a message's {@code traceparent} where its API is there. */
final class Tracing {
    private static final boolean IS_THERE = isThere();

    private Tracing() { }

    /** What makes the message's context that of this thread no more. */
    @FunctionalInterface
    interface Scope extends AutoCloseable {
        @Override
        void close();
    }

    /** Makes it that of this thread; null if there is none. */
    static Scope attach(Map<String, String> headers) {
        return IS_THERE && headers.containsKey("traceparent") ? OpenTelemetry.attach(headers) : null;
    }

    private static boolean isThere() {
        try {
            Class.forName("io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator");
            return true;
        } catch (ClassNotFoundException | LinkageError without) {
            return false;
        }
    }

    /**
     * Loaded only where it can be. The daemon speaks W3C's form whatever the program has set up, so that the
     * global propagators are not needed; who asks for those too early could set up none later.
     */
    private static final class OpenTelemetry {
        private static final TextMapPropagator W3C = TextMapPropagator.composite(
            W3CTraceContextPropagator.getInstance(), W3CBaggagePropagator.getInstance());

        static Scope attach(Map<String, String> headers) {
            return W3C.extract(Context.root(), headers, new Getter()).makeCurrent()::close;
        }
    }

    private static final class Getter implements TextMapGetter<Map<String, String>> {
        @Override
        public Iterable<String> keys(Map<String, String> headers) {
            return headers.keySet();
        }

        @Override
        public String get(Map<String, String> headers, String name) {
            return headers == null ? null : headers.get(name);
        }
    }
}
