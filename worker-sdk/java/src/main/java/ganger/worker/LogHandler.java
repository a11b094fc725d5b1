package ganger.worker;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.logging.ConsoleHandler;
import java.util.logging.ErrorManager;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.logging.SimpleFormatter;

/**
 * Brings {@code java.util.logging} to the daemon's log: what a handler's thread logs becomes a record of its
 * message, with the logger's name as its target; the rest goes to stderr, which the daemon logs too. {@code
 * System.Logger} comes along, for it logs there, and so does SLF4J with its binding {@code slf4j-jdk14}.
 *
 * <p>{@link Worker#run} installs one, unless logging has been set up: by {@code java.util.logging.config.file}
 * or {@code .class}, or by changing the root logger's handlers. It can be named there as a handler like any
 * other.
 */
public final class LogHandler extends Handler {
    private static final String STACK = "exception";

    /** For {@code java.util.logging}. */
    public LogHandler() {
        setFormatter(new SimpleFormatter());
    }

    /** At the root logger, where nothing but the default is set up. */
    static void install() {
        boolean configured = System.getProperty("java.util.logging.config.file") != null
            || System.getProperty("java.util.logging.config.class") != null;
        Logger root = Logger.getLogger("");
        Handler[] handlers = root.getHandlers();
        if (!configured && handlers.length == 1 && handlers[0].getClass() == ConsoleHandler.class) {
            root.removeHandler(handlers[0]);
            root.addHandler(new LogHandler());
        }
    }

    @Override
    public void publish(LogRecord record) {
        if (!isLoggable(record)) {
            return;
        }
        try {
            String text = getFormatter().formatMessage(record);
            Optional<Task> task = Task.current();
            if (task.isPresent()) {
                task.get().log(level(record.getLevel()), text, fields(record));
            } else {
                String stack = record.getThrown() == null ? "" : "\n" + Failure.text(record.getThrown());
                System.err.println(record.getLevel().getName() + " " + record.getLoggerName() + ": " + text + stack);
            }
        } catch (RuntimeException failed) {
            reportError(null, failed, ErrorManager.WRITE_FAILURE);
        }
    }

    private static Map<String, Object> fields(LogRecord record) {
        Map<String, Object> fields = new LinkedHashMap<>();
        if (record.getLoggerName() != null) {
            fields.put("target", record.getLoggerName());
        }
        if (record.getThrown() != null) {
            fields.put(STACK, Failure.text(record.getThrown()));
        }
        return fields;
    }

    static System.Logger.Level level(Level level) {
        int severity = level.intValue();
        if (severity >= Level.SEVERE.intValue()) {
            return System.Logger.Level.ERROR;
        } else if (severity >= Level.WARNING.intValue()) {
            return System.Logger.Level.WARNING;
        } else if (severity >= Level.INFO.intValue()) {
            return System.Logger.Level.INFO;
        } else if (severity >= Level.FINE.intValue()) {
            return System.Logger.Level.DEBUG;
        }
        return System.Logger.Level.TRACE;
    }

    @Override
    public void flush() { }

    @Override
    public void close() { }
}
