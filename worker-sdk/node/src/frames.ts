/** The bytes of the protocol: frames, what the daemon sends, what a worker answers. */

import { Decoder, Encoder } from "@msgpack/msgpack";
import { Status, type Body } from "./outcome.js";

/** The longest frame, unless the pool's `frame_bytes_max` says otherwise. */
export const FRAME_BYTES_MAX = 64 * 1024 * 1024;

const DEPTH_MAX = 64;
const KEYS = ["0", "1", "2", "3", "4", "5", "6", "7"] as const;

/** The daemon, or what pretends to be one, has sent what the protocol forbids. */
export class ProtocolError extends Error {
  override name = "ProtocolError";
}

/** Cuts a stream of bytes into frames, however they come. */
export class Splitter {
  /** What was wrong with the length at which the stream has ended. */
  broken: ProtocolError | undefined;
  readonly #frameBytesMax: number;
  #chunks: Buffer[] = [];
  #bytes = 0;
  /** So many are needed before anything can be made of them. */
  #wanted = 4;

  constructor(frameBytesMax: number) {
    this.#frameBytesMax = frameBytesMax;
  }

  /** The frames that are whole now. A bad length sets `broken`; what came before it counts. */
  feed(data: Buffer): Buffer[] {
    if (this.#bytes > 0) {
      this.#chunks.push(data);
      this.#bytes += data.length;
      if (this.#bytes < this.#wanted) return [];
      data = Buffer.concat(this.#chunks);
    }
    const frames: Buffer[] = [];
    let start = 0;
    this.#wanted = 4;
    while (this.broken === undefined && data.length - start >= 4) {
      const size = data.readUInt32BE(start);
      if (size === 0 || size > this.#frameBytesMax) {
        this.broken = this.#judge(size);
        break;
      }
      if (data.length - start < 4 + size) {
        this.#wanted = 4 + size;
        break;
      }
      frames.push(data.subarray(start + 4, start + 4 + size));
      start += 4 + size;
    }
    this.#bytes = data.length - start;
    this.#chunks = this.#bytes > 0 ? [data.subarray(start)] : [];
    return frames;
  }

  /** What is left of a frame that is not whole. */
  get rest(): Buffer {
    return Buffer.concat(this.#chunks);
  }

  #judge(size: number): ProtocolError {
    if (size === 0) return new ProtocolError("a frame's length must be 1 or more: 0");
    if (size > 0x7fffffff) {
      return new ProtocolError(`a frame's length must not have its top bit set: ${size}`);
    }
    return new ProtocolError(
      `a frame must have at most ${this.#frameBytesMax} bytes (run's frameBytesMax): ${size}`,
    );
  }
}

// Integers of 64 bits as bigints: a number has 53. A name that is no text is kept apart from all texts.
const decoder = new Decoder({
  useBigInt64: true,
  mapKeyConverter: (key) => (typeof key === "string" ? key : `\0${String(key)}`),
});
let encoder = new Encoder({ useBigInt64: true });
/** An encoder keeps its buffer, which is not to be as large as the largest answer for ever. */
const ENCODER_BYTES_MAX = 1 << 20;

/** A message's number: 64 bits, so one beyond 2^53 is a bigint. */
export type Id = number | bigint;

/** An output as a MessagePack map, without its length. It is valid until the next one is made. */
export function encode(
  message: Body,
  status: number,
  headers?: Readonly<Record<string, unknown>> | null,
  queue?: string | null,
  id?: Id | null,
  afterMs?: number | null,
): Uint8Array {
  const output: Record<string, unknown> = { "0": message, "1": status };
  if (headers != null) output["2"] = headers;
  if (queue != null) output["3"] = queue;
  if (id != null) output["4"] = whole(id);
  if (afterMs != null) output["5"] = whole(afterMs);
  const data = encoder.encodeSharedRef(output);
  if (data.length > ENCODER_BYTES_MAX) encoder = new Encoder({ useBigInt64: true });
  return data;
}

/** The frame of the answer that most tasks have, without the way through `encode`. */
export function done(id?: Id): Buffer {
  if (typeof id !== "number" || id <= 0xff || id > 0xffffffff) {
    return framed(encode("", Status.DONE, null, null, id), FRAME_BYTES_MAX);
  }
  const start = id > 0xffff ? DONE_LONG : DONE_SHORT;
  const frame = Buffer.allocUnsafe(id > 0xffff ? 19 : 17);
  frame.set(start);
  if (id > 0xffff) frame.writeUInt32BE(id, start.length);
  else frame.writeUInt16BE(id, start.length);
  return frame;
}

/** Before an id of 16 bits, or of 32. */
const DONE_SHORT = Buffer.from("0000000d83a130a0a131ccc8a134cd", "hex");
const DONE_LONG = Buffer.from("0000000f83a130a0a131ccc8a134ce", "hex");

/** Beyond 32 bits the library takes a number for a float. */
function whole(value: Id): Id {
  return typeof value === "number" && value > 0xffffffff ? BigInt(value) : value;
}

/** With its length in front; RangeError if the daemon would refuse it. */
export function framed(data: Uint8Array, frameBytesMax: number): Buffer {
  if (data.length > frameBytesMax) {
    throw new RangeError(`an answer must have at most ${frameBytesMax} bytes: ${data.length}`);
  }
  const frame = Buffer.allocUnsafe(4 + data.length);
  frame.writeUInt32BE(data.length, 0);
  frame.set(data, 4);
  return frame;
}

/** Of a task: keys "0" to "7". */
export interface Fields {
  message: Body;
  correlationId: string;
  queue: string;
  headers: Record<string, string>;
  id: Id | undefined;
  attempt: number | undefined;
  millisecondsLeft: number | undefined;
  properties: Record<string, unknown>;
}

/** An input, checked; ProtocolError says what is wrong with it. */
export function decode(frame: Buffer): Fields {
  let task: unknown;
  try {
    task = unpack(frame);
  } catch (error) {
    throw new ProtocolError(`an input must be one MessagePack map: ${(error as Error).message}`);
  }
  const first = frame[0]!;
  if (!isMap(task) || (first & 0xf0) !== 0x80 || Object.keys(task).length !== (first & 0x0f)) {
    checkKeys(frame, task);
  }
  return check(task as Record<string, unknown>);
}

const PROTO = Buffer.from("\xa9__proto__", "latin1");

/** The library refuses the name `__proto__`, but whoever sends messages may call a header so. */
export function unpack(frame: Buffer, by: Decoder = decoder): unknown {
  try {
    return by.decode(frame);
  } catch (error) {
    if (!frame.includes(PROTO)) throw error;
    const copy = Buffer.from(frame);
    renameProto(copy, 0);
    return by.decode(copy);
  }
}

/** Makes `--proto__` of each such name in the value there; returns where it ends. */
function renameProto(frame: Buffer, at: number): number {
  const [start, values, isMap] = entries(frame, at);
  if (values === 0) return skip(frame, at);
  at = start;
  for (let n = 0; n < values; n++) {
    const isName = isMap && n % 2 === 0;
    if (isName && frame.subarray(at, at + PROTO.length).equals(PROTO)) frame.write("--", at + 1);
    at = renameProto(frame, at);
  }
  return at;
}

/** Where the values within a list or a map begin, and how many they are; none in anything else. */
function entries(frame: Buffer, at: number): [start: number, values: number, isMap: boolean] {
  const type = frame[at]!;
  if (type >= 0x80 && type <= 0x8f) return [at + 1, 2 * (type & 0x0f), true];
  if (type >= 0x90 && type <= 0x9f) return [at + 1, type & 0x0f, false];
  if (type === 0xdc) return [at + 3, frame.readUInt16BE(at + 1), false];
  if (type === 0xdd) return [at + 5, frame.readUInt32BE(at + 1), false];
  if (type === 0xde) return [at + 3, 2 * frame.readUInt16BE(at + 1), true];
  if (type === 0xdf) return [at + 5, 2 * frame.readUInt32BE(at + 1), true];
  return [at, 0, false];
}

/** By its prototype: what its names are, such as `constructor`, is up to whoever sends messages. */
function isMap(value: unknown): value is Record<string, unknown> {
  return (
    typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype
  );
}

/** What is out of the ordinary: a map of other size, names that are no texts, or are there twice. */
function checkKeys(frame: Buffer, task: unknown): void {
  if (!isMap(task)) {
    throw new ProtocolError(`an input must be a map: ${Array.isArray(task) ? "array" : typeof task}`);
  }
  const [start, values] = entries(frame, 0);
  if (Object.keys(task).length === values / 2) return;
  // The library keeps one of two that have the same name.
  const seen = new Set<string>();
  let at = start;
  for (let n = 0; n < values; n += 2) {
    const end = skip(frame, at);
    const key = String(decoder.decode(frame.subarray(at, end)));
    if (seen.has(key) && (KEYS as readonly string[]).includes(key)) {
      throw new ProtocolError(`an input must have each key once: "${key}" is there twice`);
    }
    seen.add(key);
    at = skip(frame, end);
  }
}

/** Where the value ends, without making anything of it. */
function skip(frame: Buffer, at: number): number {
  for (let left = 1; left > 0; left--) {
    const type = frame[at]!;
    const length = (bytes: number): number => 1 + bytes + frame.readUIntBE(at + 1, bytes);
    const [start, values] = entries(frame, at);
    if (start > at) {
      left += values;
      at = start;
    } else if (type <= 0x7f || type >= 0xe0 || (type >= 0xc0 && type <= 0xc3)) at += 1;
    else if (type <= 0xbf) at += 1 + (type & 0x1f);
    else if (type <= 0xc6) at += length(1 << (type - 0xc4));
    else if (type <= 0xc9) at += 1 + length(1 << (type - 0xc7));
    else if (type <= 0xcb) at += type === 0xca ? 5 : 9;
    else if (type <= 0xcf) at += 1 + (1 << (type - 0xcc));
    else if (type <= 0xd3) at += 1 + (1 << (type - 0xd0));
    else if (type <= 0xd8) at += 2 + (1 << (type - 0xd4));
    else at += length(1 << (type - 0xd9));
  }
  return at;
}

function check(task: Record<string, unknown>): Fields {
  if (!("0" in task && "1" in task && "2" in task && "3" in task)) {
    const key = KEYS.find((key) => !(key in task));
    throw new ProtocolError(`an input must have the keys "0" to "3": no "${key}"`);
  }
  const message = task["0"] ?? "";
  if (typeof message !== "string" && !(message instanceof Uint8Array)) {
    throw wrong("0", "a text or bytes", message);
  }
  const headers = map(task, "3");
  for (const name in headers) {
    if (typeof headers[name] !== "string") throw wrong("3", "a map of texts to texts", headers[name]);
  }
  const properties = map(task, "7");
  for (const name in properties) {
    const value = properties[name];
    if (typeof value === "object") checkDepth(value, DEPTH_MAX - 2);
    else if (typeof value === "bigint") properties[name] = narrow(value);
  }
  const id = narrow(task["4"] ?? undefined);
  if (typeof id === "bigint" ? id < 0n : id !== undefined && !isCount(id, 0)) {
    throw wrong("4", "a number from 0", id);
  }
  return {
    message,
    correlationId: text(task, "1"),
    queue: text(task, "2"),
    headers: headers as Record<string, string>,
    id: id as Id | undefined,
    attempt: count(task, "5", 1),
    millisecondsLeft: count(task, "6", 0),
    properties,
  };
}

/** A number where that is exact. */
function narrow(value: unknown): unknown {
  const exact = typeof value === "bigint" && BigInt.asIntN(54, value) === value;
  return exact ? Number(value) : value;
}

function text(task: Record<string, unknown>, key: string): string {
  const value = task[key] ?? "";
  if (typeof value !== "string") throw wrong(key, "a text", value);
  return value;
}

function map(task: Record<string, unknown>, key: string): Record<string, unknown> {
  const value = task[key] ?? {};
  if (!isMap(value)) throw wrong(key, "a map", value);
  return value;
}

function isCount(value: unknown, least: number): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= least;
}

function count(task: Record<string, unknown>, key: string, least: number): number | undefined {
  const value = narrow(task[key] ?? undefined);
  if (value === undefined || isCount(value, least)) return value;
  if (typeof value === "bigint" && value > 0n) return Number(value);
  throw wrong(key, `a number from ${least}`, value);
}

function checkDepth(value: unknown, left: number): void {
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return;
  if (left === 0) throw new ProtocolError(`an input must be nested at most ${DEPTH_MAX} deep`);
  for (const inner of Object.values(value)) checkDepth(inner, left - 1);
}

function wrong(key: string, wanted: string, value: unknown): ProtocolError {
  const shown = typeof value === "object" ? "" : ` ${String(value).slice(0, 40)}`;
  return new ProtocolError(`an input's key "${key}" must hold ${wanted}: ${typeof value}${shown}`);
}
