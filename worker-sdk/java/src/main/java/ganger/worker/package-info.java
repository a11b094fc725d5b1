/**
 * Write workers for ganger. A worker is a handler and a call of {@link ganger.worker.Worker#run}:
 *
 * <pre>{@code
 * public static void main(String[] args) throws IOException {
 *     Worker.of(task -> Outcome.reply(task.text().toUpperCase(Locale.ROOT))).run();
 * }
 * }</pre>
 *
 * <p>A handler returns an {@link ganger.worker.Outcome}, which says what becomes of the message; one that
 * throws has failed: the message is tried again by the pool's rules, and the worker goes on. {@link
 * ganger.worker.testing} runs a handler without a daemon.
 */
package ganger.worker;
