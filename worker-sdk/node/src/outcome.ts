/** What a handler says became of its message. */

/** The protocol's numbers. A handler needs none of them: see the functions below. */
export const Status = {
  IGNORE_MESSAGE: -1,
  HELLO: 100,
  LOG: 101,
  PROGRESS: 102,
  EMIT: 103,
  DONE: 200,
  DONE_WITH_REPLY: 201,
  REQUEUE: 300,
  REJECT: 400,
  RETRY: 429,
  UNKNOWN_ERROR: 500,
} as const;

/** A body: a text, or bytes that are none. */
export type Body = string | Uint8Array;

/** Of a reply or an emit. The daemon reads each value in its text form. */
export type Headers = Record<string, unknown>;

/**
 * An answer. Make one by {@link done}, {@link reply} and so on; by hand, to answer a status that the
 * pool's configuration gives a meaning (`[pools.statuses]`).
 */
export interface Outcome {
  readonly status: number;
  /** The reply, or the reason of a failure. A reply that is neither text nor bytes is sent as JSON. */
  readonly message?: unknown;
  /** Of the reply. */
  readonly headers?: Headers | undefined;
  /** Where the reply goes, if not to the message's own reply-to. */
  readonly queue?: string | undefined;
  /** After how many milliseconds to try again, if not after the pool's own wait. */
  readonly afterMs?: number | undefined;
}

/** @internal */
export const DONE: Outcome = Object.freeze({ status: Status.DONE });

/** The work is done: the message leaves its queue. */
export function done(): Outcome {
  return DONE;
}

/**
 * The work is done, and this is its result: published to the message's reply-to or to `queue`, before
 * the message leaves its own. With `queue: task.queue` a long task hands on what is left.
 *
 * Text and bytes go as they are, anything else as JSON, with the header `content-type: application/json`
 * unless `headers` has one. What JSON lacks is this message's failure.
 */
export function reply(
  message: unknown = "",
  options: { headers?: Headers; queue?: string } = {},
): Outcome {
  return { status: Status.DONE_WITH_REPLY, message, headers: options.headers, queue: options.queue };
}

/**
 * It failed for now: try again after so many milliseconds, or after the pool's own wait. An attempt
 * is charged; after the last one the message is a dead letter with this reason.
 */
export function retry(reason: unknown = "", options: { afterMs?: number } = {}): Outcome {
  const { afterMs } = options;
  if (afterMs === undefined) return { status: Status.RETRY, message: reason };
  if (!(afterMs >= 0 && Number.isSafeInteger(Math.round(afterMs)))) {
    throw new RangeError(`afterMs must be 0 or more milliseconds: ${afterMs}`);
  }
  return { status: Status.RETRY, message: reason, afterMs: Math.round(afterMs) };
}

/** It can never work: the message becomes a dead letter with this reason, now. */
export function reject(reason: unknown = ""): Outcome {
  return { status: Status.REJECT, message: reason };
}

/** Not here, not now: hand it out again after a short wait. No attempt is charged. */
export function requeue(reason: unknown = ""): Outcome {
  return { status: Status.REQUEUE, message: reason };
}
