package ganger.worker;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/** The start of a worker: the pipe's name, which stdin begins with, and the control lines that follow. */
record Start(String name, InputStream control) {
    private static final int NAME_BYTES_MAX = 1 << 16;

    /** Reads the name. What is left of stdin is for the control lines. */
    static Start begin() throws IOException {
        if (isTerminal()) {
            throw new IOException("this is a worker of ganger, which starts it and writes a pipe's name to its "
                + "stdin: put it into a [[pools]] section, or try it with ganger.worker.testing");
        }
        InputStream stdin = takeStdin();
        String name = firstLine(stdin);
        if (name.isEmpty()) {
            throw new IOException("stdin must begin with a line that names the pipe: it has ended");
        }
        return new Start(name, stdin);
    }

    /** Opens the pipe. */
    SocketChannel connect() throws IOException {
        return SocketChannel.open(UnixDomainSocketAddress.of(path(name)));
    }

    /** 2, unless the daemon is one that knows version 1 only. */
    static int version() {
        return number("GANGER_PROTOCOL") >= 2 ? 2 : 1;
    }

    /** A number in the environment; 0 if there is none. */
    static int number(String variable) {
        String told = System.getenv(variable);
        try {
            return told == null ? 0 : Integer.parseInt(told);
        } catch (NumberFormatException notOurs) {
            return 0;
        }
    }

    /**
     * Stdin, where neither a handler nor a child that inherits it can eat a control line. Linux opens it anew under a
     * descriptor that no child has; closing the first one has the runtime put /dev/null in its place, from which
     * nothing can be read. Where it can't be opened anew, as on other systems, it stays where it is.
     */
    private static InputStream takeStdin() {
        InputStream stdin = System.in;
        System.setIn(InputStream.nullInputStream());
        try {
            InputStream moved = new BufferedInputStream(new FileInputStream("/proc/self/fd/0"));
            new FileInputStream(FileDescriptor.in).close();
            return moved;
        } catch (IOException elsewhere) {
            return stdin;
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
}
