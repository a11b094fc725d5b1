package ganger.worker;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/** The start of a worker: what the daemon tells it, and the pipe. */
record Start(SocketChannel pipe, InputStream control) implements AutoCloseable {
    private static final int NAME_BYTES_MAX = 1 << 16;

    /** Opens the pipe that stdin names. What is left of stdin is for the control lines. */
    static Start connect() throws IOException {
        InputStream stdin = System.in;
        if (isTerminal()) {
            throw new IOException("this is a worker of ganger, which starts it and writes a pipe's name to its "
                + "stdin: put it into a [[pools]] section, or try it with ganger.worker.testing");
        }
        String name = firstLine(stdin);
        if (name.isEmpty()) {
            throw new IOException("stdin must begin with a line that names the pipe: it has ended");
        }
        // No handler is to eat a control line.
        System.setIn(InputStream.nullInputStream());
        return new Start(SocketChannel.open(UnixDomainSocketAddress.of(path(name))), stdin);
    }

    /** 2, unless the daemon is one that knows version 1 only. */
    static int version() {
        String spoken = System.getenv("GANGER_PROTOCOL");
        try {
            return spoken != null && Integer.parseInt(spoken) >= 2 ? 2 : 1;
        } catch (NumberFormatException notOurs) {
            return 1;
        }
    }

    private static boolean isTerminal() {
        try {
            String stdin = Files.readSymbolicLink(Path.of("/proc/self/fd/0")).toString();
            return stdin.startsWith("/dev/pts/") || stdin.startsWith("/dev/tty");
        } catch (IOException elsewhere) {
            return false;
        }
    }

    private static String firstLine(InputStream stdin) throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        int next = stdin.read();
        while (next >= 0 && next != '\n' && line.size() < NAME_BYTES_MAX) {
            line.write(next);
            next = stdin.read();
        }
        return line.toString(StandardCharsets.UTF_8).stripTrailing();
    }

    private static Path path(String name) {
        String told = System.getenv("GANGER_PIPE");
        if (told != null && !told.isEmpty()) {
            return Path.of(told);
        }
        String below = System.getenv("TMPDIR");
        if (below != null && !below.isEmpty()) {
            Path there = Path.of(below, "CoreFxPipe_" + name);
            if (Files.exists(there)) {
                return there;
            }
        }
        return Path.of("/tmp/CoreFxPipe_" + name);
    }

    @Override
    public void close() throws IOException {
        pipe.close();
    }
}
