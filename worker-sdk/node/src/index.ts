/**
 * Write workers for ganger.
 *
 * A worker is a handler and a call of {@link run}. A handler returns an {@link Outcome}, made by
 * {@link done}, {@link reply}, {@link retry}, {@link reject} or {@link requeue}, or a promise of one;
 * nothing is the same as `done()`. One that throws has failed: the message is tried again by the
 * pool's rules, and the worker goes on. `ganger-worker/testing` runs a handler without a daemon.
 *
 * @packageDocumentation
 */

export { ProtocolError, type Id } from "./frames.js";
export {
  done,
  reject,
  reply,
  requeue,
  retry,
  Status,
  type Body,
  type Headers,
  type Outcome,
} from "./outcome.js";
export { run, type Options } from "./run.js";
export { currentTask, type Level, type Task } from "./task.js";
export { VERSION } from "./version.js";
export { type Handler } from "./worker.js";
