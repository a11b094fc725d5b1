package ganger.worker;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.function.Consumer;

/** The lines that the daemon writes to a worker's stdin. */
final class Control {
    static final String QUIT = "__quit__";
    static final String YIELD = "__context_switch__";
    static final String CANCEL = "__cancel__ ";

    private static final int LINE_BYTES_MAX = 1 << 16;

    private Control() { }

    /** Reads them in a thread of its own, which holds no program up; the end counts as {@link #QUIT}. */
    static void listen(InputStream stdin, Consumer<String> heard) {
        Thread thread = new Thread(() -> read(stdin, heard), "ganger-control");
        thread.setDaemon(true);
        thread.start();
    }

    private static void read(InputStream stdin, Consumer<String> heard) {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        try {
            for (int next = stdin.read(); next >= 0; next = stdin.read()) {
                if (next == '\n') {
                    heard.accept(line.toString(StandardCharsets.UTF_8).stripTrailing());
                    line.reset();
                } else if (line.size() < LINE_BYTES_MAX) {
                    line.write(next);
                }
            }
        } catch (IOException broken) {
            // There are no more, as at the end.
        }
        heard.accept(QUIT);
    }
}
