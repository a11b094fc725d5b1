/**
 * Runs a handler on messages, without a daemon: what is tested is the handler in the real worker, on a real
 * socket, in this process.
 *
 * <pre>{@code
 * List<Result> results = Harness.work(handler, Message.of("10").header("tenant", "a"));
 * assertEquals("55", results.get(0).text());
 * }</pre>
 */
package ganger.worker.testing;
