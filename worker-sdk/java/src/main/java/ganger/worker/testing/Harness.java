package ganger.worker.testing;

import ganger.worker.Handler;
import ganger.worker.Worker;
import java.io.IOException;
import java.io.InputStream;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.Pipe;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.stream.Stream;

/** Runs a handler on messages, without a daemon. */
public final class Harness {
    private Harness() { }

    /**
     * Runs a handler on texts, one at a time.
     *
     * @param handler what is tested
     * @param bodies the messages' bodies
     * @return what became of them, in their order
     * @throws IOException if the worker fails, or says nothing for a minute
     */
    public static List<Result> work(Handler handler, String... bodies) throws IOException {
        return work(Worker.of(handler), 2, Stream.of(bodies).map(Message::of).toList());
    }

    /**
     * Runs a handler on messages, one at a time.
     *
     * @param handler what is tested
     * @param messages what it is given
     * @return what became of them, in their order
     * @throws IOException if the worker fails, or says nothing for a minute
     */
    public static List<Result> work(Handler handler, Message... messages) throws IOException {
        return work(Worker.of(handler), 2, List.of(messages));
    }

    /**
     * Runs a worker on messages, as many at once as it takes.
     *
     * @param worker what is tested, with its concurrency
     * @param version that of the protocol, 1 or 2
     * @param messages what it is given
     * @return what became of them, in their order
     * @throws IOException if the worker fails, or says nothing for a minute
     */
    public static List<Result> work(Worker worker, int version, List<Message> messages) throws IOException {
        Pipe control = Pipe.open();
        Path folder = Files.createTempDirectory("ganger");
        Path path = folder.resolve("pipe");
        try (ServerSocketChannel listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            listener.bind(UnixDomainSocketAddress.of(path));
            SocketChannel theirs = SocketChannel.open(UnixDomainSocketAddress.of(path));
            SocketChannel ours = listener.accept();
            FutureTask<Void> serving = serve(worker, theirs, Channels.newInputStream(control.source()), version);
            return exchange(ours, control.sink(), serving, version, messages);
        } finally {
            Files.deleteIfExists(path);
            Files.deleteIfExists(folder);
        }
    }

    private static FutureTask<Void> serve(Worker worker, SocketChannel pipe, InputStream control, int version) {
        FutureTask<Void> serving = new FutureTask<>(() -> {
            try (pipe; control) {
                worker.serve(pipe, control, version);
            }
            return null;
        });
        Thread thread = new Thread(serving, "ganger-worker-under-test");
        thread.setDaemon(true);
        thread.start();
        return serving;
    }

    private static List<Result> exchange(
            SocketChannel ours, Pipe.SinkChannel control, FutureTask<Void> serving, int version,
            List<Message> messages) throws IOException {
        List<Result> results;
        try (ours; control; Peer peer = new Peer(ours, control, version, messages)) {
            results = peer.exchange();
        } catch (EndedException ended) {
            await(serving); // the worker's own error, if it has one, says more
            throw ended;
        }
        await(serving);
        return results;
    }

    private static void await(FutureTask<Void> serving) throws IOException {
        try {
            serving.get();
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof IOException own) {
                throw own;
            }
            if (failed.getCause() instanceof RuntimeException own) {
                throw own;
            }
            throw new CompletionException(failed.getCause());
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted while the worker ends", interrupted);
        }
    }
}
