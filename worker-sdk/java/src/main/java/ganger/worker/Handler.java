package ganger.worker;

/** What is done with a message. */
@FunctionalInterface
public interface Handler {
    /**
     * Works on one message. When the daemon asks to abandon the message, since it takes too long or since
     * the daemon stops, this thread is interrupted; what the handler answers then still counts, and an
     * {@link InterruptedException} that comes out answers that it is to be tried again.
     *
     * <p>With a concurrency above 1 several threads call this at once.
     *
     * @param task the message
     * @return what becomes of it; null is the same as {@link Outcome#done()}
     * @throws Exception when it has failed: it is tried again by the pool's rules, and the exception with
     *     its stack is kept with the dead letter that it may become
     */
    Outcome handle(Task task) throws Exception;
}
