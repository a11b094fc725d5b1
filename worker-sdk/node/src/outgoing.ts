/**
 * What may be sent. Bodies and headers that programs read go exactly as they are or not at all; reasons,
 * progress and log records, which people read, are made text whatever they hold.
 */

import { inspect } from "node:util";
import { encode, framed, type Id } from "./frames.js";
import { Status, type Body, type Outcome } from "./outcome.js";

const HEADERS_MAX = 10_000;
const FRAME_OVERHEAD_BYTES = 64;
const REASONS: ReadonlySet<number> = new Set([
  Status.REQUEUE,
  Status.REJECT,
  Status.RETRY,
  Status.UNKNOWN_ERROR,
  503,
]);
const LONE_SURROGATE = /\p{Surrogate}/u;
const LONE_SURROGATES = /\p{Surrogate}/gu;

type Sent = Record<string, unknown>;

/** An answer; throws for one that the daemon would refuse. */
export function outcomeFrame(outcome: Outcome, id: Id | undefined, frameBytesMax: number): Buffer {
  const { status, afterMs } = outcome;
  if (!Number.isSafeInteger(status)) {
    throw new TypeError(
      "a handler must return an outcome, such as done() or reply(…), or nothing: " + shown(outcome),
    );
  }
  if (status === Status.IGNORE_MESSAGE || (status >= 100 && status < 200)) {
    throw new RangeError(`an answer's status must be one that ends the message: ${status}`);
  }
  if (afterMs != null && !(Number.isSafeInteger(afterMs) && afterMs >= 0)) {
    throw new RangeError(`afterMs must be a whole number from 0: ${shown(afterMs)}`);
  }
  const [message, headers] = REASONS.has(status)
    ? [readable(outcome.message, frameBytesMax), sentHeaders(outcome.headers)]
    : body(outcome.message, sentHeaders(outcome.headers));
  return framed(encode(message, status, headers, queueName(outcome.queue), id, afterMs), frameBytesMax);
}

/** An emit, a log record or a progress note, judged alike. */
export function noteFrame(
  status: number,
  message: unknown,
  headers: unknown,
  queue: unknown,
  id: Id | undefined,
  frameBytesMax: number,
): Buffer {
  const [text, sent] =
    status === Status.EMIT
      ? body(message, sentHeaders(headers))
      : [readable(message, frameBytesMax), sentHeaders(headers)];
  return framed(encode(text, status, sent, queueName(queue), id), frameBytesMax);
}

/** For people: never an error, and never longer than a frame. */
export function readable(value: unknown, frameBytesMax: number): Body {
  const room = Math.floor(frameBytesMax / 2) - FRAME_OVERHEAD_BYTES;
  if (value instanceof Uint8Array) return value.subarray(0, room);
  if (value == null) return "";
  const text = textOf(value).replace(LONE_SURROGATES, "\ufffd");
  if (Buffer.byteLength(text) <= room) return text;
  return Buffer.from(text).subarray(0, room).toString().replace(/\ufffd$/, "");
}

/** A log record's field: a number stays one. */
export function field(value: unknown, frameBytesMax: number): unknown {
  if (value == null) return null;
  if (typeof value === "boolean" || typeof value === "number") return value;
  if (typeof value === "object" && !(value instanceof Uint8Array)) {
    try {
      return readable(JSON.stringify(value), frameBytesMax);
    } catch {
      return readable(value, frameBytesMax);
    }
  }
  return readable(value, frameBytesMax);
}

function textOf(value: unknown): string {
  try {
    return typeof value === "object" && !(value instanceof Error) ? inspect(value) : String(value);
  } catch {
    return "something that can't be shown";
  }
}

/** Text and bytes as they are; JSON, with its content type, of anything else that JSON has. */
function body(message: unknown, headers: Sent | undefined): [Body, Sent | undefined] {
  if (message == null) return ["", headers];
  if (typeof message === "string") return [wellFormed(message, "a message"), headers];
  const bytes = bytesOf(message);
  if (bytes !== undefined) return [bytes, headers];
  const text = json(message, "a message");
  const sent = headers ?? (Object.create(null) as Sent);
  if (!Object.keys(sent).some((name) => name.toLowerCase() === "content-type")) {
    sent["content-type"] = "application/json";
  }
  return [text, sent];
}

/** A copy without a prototype, in which every name is just a name. */
function sentHeaders(headers: unknown): Sent | undefined {
  if (headers == null) return undefined;
  if (typeof headers !== "object" || Symbol.iterator in headers) {
    throw new TypeError(`headers must be an object of names and values: ${shown(headers)}`);
  }
  const entries = Object.entries(headers);
  if (entries.length > HEADERS_MAX) {
    throw new RangeError(`a message must have at most ${HEADERS_MAX} headers: ${entries.length}`);
  }
  const sent = Object.create(null) as Sent;
  for (const [name, value] of entries) {
    sent[wellFormed(name, "a header's name")] = headerValue(value, `the header ${inspect(name)}`);
  }
  return sent;
}

/** The daemon reads it in its text form; what MessagePack lacks goes as JSON. */
function headerValue(value: unknown, what: string): unknown {
  switch (typeof value) {
    case "string":
      return wellFormed(value, what);
    case "boolean":
    case "number":
      return value;
    case "bigint":
      return String(value);
    case "undefined":
      return null;
    case "object":
      if (value === null) return null;
      return bytesOf(value) ?? (value instanceof Date ? value.toISOString() : json(value, what));
    default:
      throw new TypeError(`${what} must be text, bytes or what JSON has: ${typeof value}`);
  }
}

function queueName(queue: unknown): string | undefined {
  if (queue == null) return undefined;
  if (typeof queue !== "string") throw new TypeError(`a queue's name must be text: ${shown(queue)}`);
  return wellFormed(queue, "a queue's name");
}

function wellFormed(text: string, what: string): string {
  // Node 18 lacks the fast way.
  const isWellFormed = (text as { isWellFormed?: () => boolean }).isWellFormed?.();
  if (!(isWellFormed ?? !LONE_SURROGATE.test(text))) {
    throw new TypeError(`${what} must be text: ${JSON.stringify(text.slice(0, 40))} has half a character`);
  }
  return text;
}

function bytesOf(value: unknown): Uint8Array | undefined {
  if (value instanceof Uint8Array) return value;
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (!ArrayBuffer.isView(value)) return undefined;
  return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
}

function json(value: unknown, what: string): string {
  let reason: string = typeof value;
  try {
    const text = JSON.stringify(value, exactly);
    if (text !== undefined) return text;
  } catch (error) {
    reason = (error as Error).message;
  }
  throw new TypeError(`${what} must be text, bytes or what JSON has: ${reason}`);
}

/** `JSON.stringify` makes null or {} of some things that JSON lacks. */
function exactly(this: Record<string, unknown>, key: string, value: unknown): unknown {
  const given = this[key];
  const isLost =
    (typeof value === "number" && !Number.isFinite(value)) ||
    (given instanceof Date && value === null) ||
    ((given instanceof Map || given instanceof Set) && value === given) ||
    ArrayBuffer.isView(given);
  if (isLost) throw new TypeError(shown(given));
  return value;
}

function shown(value: unknown): string {
  return inspect(value, { depth: 1, breakLength: Infinity }).slice(0, 80);
}
