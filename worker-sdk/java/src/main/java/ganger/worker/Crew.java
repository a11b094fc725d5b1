package ganger.worker;

import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadFactory;

/** The threads that work on messages, never on more at once than was told. */
interface Crew extends AutoCloseable {
    /** Waits until there is room for it. */
    void execute(Runnable work);

    /** Waits until all is done. */
    @Override
    void close();

    static Crew of(int concurrency, boolean virtualThreads) {
        if (concurrency == 1) {
            return new Caller();
        }
        ThreadFactory virtual = virtualThreads ? virtualThreads() : null;
        if (virtual != null) {
            return new Many(concurrency, work -> virtual.newThread(work).start(), () -> { });
        }
        ExecutorService pool = Executors.newFixedThreadPool(concurrency);
        return new Many(concurrency, pool, pool::shutdown);
    }

    /** By reflection, since they came with Java 21; null before. */
    private static ThreadFactory virtualThreads() {
        try {
            Class<?> type = Class.forName("java.lang.Thread$Builder");
            Object builder = Thread.class.getMethod("ofVirtual").invoke(null);
            builder = type.getMethod("name", String.class, long.class).invoke(builder, "ganger-", 0L);
            return (ThreadFactory) type.getMethod("factory").invoke(builder);
        } catch (ReflectiveOperationException older) {
            return null;
        }
    }

    /** The thread that reads does it all. */
    final class Caller implements Crew {
        @Override
        public void execute(Runnable work) {
            work.run();
        }

        @Override
        public void close() { }
    }

    /** Threads of an executor. */
    final class Many implements Crew {
        private final int concurrency;
        private final Semaphore room;
        private final Executor threads;
        private final Runnable end;

        Many(int concurrency, Executor threads, Runnable end) {
            this.concurrency = concurrency;
            this.room = new Semaphore(concurrency);
            this.threads = threads;
            this.end = end;
        }

        @Override
        public void execute(Runnable work) {
            room.acquireUninterruptibly();
            boolean begun = false;
            try {
                threads.execute(() -> {
                    try {
                        work.run();
                    } finally {
                        room.release();
                    }
                });
                begun = true;
            } finally {
                if (!begun) {
                    room.release();
                }
            }
        }

        @Override
        public void close() {
            room.acquireUninterruptibly(concurrency);
            end.run();
        }
    }
}
