/** One connection, worked off to its end. */

import type { Socket } from "node:net";
import {
  decode,
  done,
  encode,
  framed,
  FRAME_BYTES_MAX,
  Splitter,
  type Id,
} from "./frames.js";
import { DONE, requeue, Status, type Headers, type Outcome } from "./outcome.js";
import { field, noteFrame, outcomeFrame, readable } from "./outgoing.js";
import { cancelledId, type Lines } from "./start.js";
import { Task, within, type Port } from "./task.js";
import { traced } from "./tracing.js";

/** What is done with one message. What it throws is a failure, and the worker goes on. */
export type Handler = (task: Task) => Outcome | void | null | Promise<Outcome | void | null>;

const EARLY_MAX = 1000;
const STACK_CHARS_MAX = 8000;
const TIMER_MS_MAX = 0x7fffffff;

export interface Settings {
  version: number;
  frameBytesMax?: number;
}

export class Worker implements Port {
  readonly version: number;
  readonly #handler: Handler;
  readonly #pipe: Socket;
  readonly #lines: Lines;
  readonly #frameBytesMax: number;
  readonly #splitter: Splitter;
  /** Those in hand, by their ids as text. */
  readonly #flight = new Map<string, Task>();
  /** Cancellations that came before their messages: stdin and the pipe have no common order. */
  readonly #early = new Set<string>();
  /** Version 1 has its messages one after the other, however many wait in the pipe. */
  readonly #behind: Buffer[] = [];
  /** The ids of what came when nothing new was to be begun. */
  readonly #held: (Id | undefined)[] = [];
  #isEnding = false;
  #out: Buffer[] = [];
  #busy = 0;
  #leaving = false;
  #over: ((error?: Error) => void) | undefined;

  constructor(handler: Handler, pipe: Socket, lines: Lines, settings: Settings) {
    this.version = settings.version;
    this.#handler = handler;
    this.#pipe = pipe;
    this.#lines = lines;
    this.#frameBytesMax = settings.frameBytesMax ?? FRAME_BYTES_MAX;
    this.#splitter = new Splitter(this.#frameBytesMax);
  }

  /** Until the daemon has asked to leave and all that is in hand is answered. */
  async run(hello: Uint8Array | undefined): Promise<void> {
    const over = new Promise<void>((resolve, reject) => {
      this.#over = (error) => (error ? reject(error) : resolve());
    });
    this.#pipe.on("data", (data: Buffer) => this.#read(data));
    this.#pipe.on("end", () => this.#leave());
    // A daemon that is gone is no error; it needs this worker no more.
    this.#pipe.on("error", () => this.#leave());
    this.#pipe.on("close", () => this.#leave());
    if (hello !== undefined) this.#pipe.write(framed(hello, this.#frameBytesMax));
    this.#lines.listen((line) => this.#heard(line));
    try {
      if (this.#isEnding) this.stop();
      await over;
      this.#returnHeld();
      await new Promise<void>((resolve) => {
        if (this.#pipe.destroyed) resolve();
        else this.#pipe.once("close", resolve).end(Buffer.concat(this.#out), () => this.#pipe.destroy());
      });
    } finally {
      this.#pipe.destroy();
      this.#lines.close();
    }
  }

  /** Begins nothing new, and ends once all that is in hand is answered. */
  readonly stop = (): void => {
    this.#isEnding = true;
    for (const frame of this.#behind.splice(0)) this.#hold(frame);
    if (this.#busy === 0) this.#over?.();
  };

  #returnHeld(): void {
    this.#pipe.pause();
    const rest = this.#pipe.read() as Buffer | null;
    for (const frame of rest === null ? [] : this.#splitter.feed(rest)) this.#hold(frame);
    for (const id of this.#held) this.#return(id);
  }

  /** It goes back at the end, or when it is cancelled, as its time may run out before. */
  #hold(frame: Buffer): void {
    const id = this.version > 1 ? decode(frame).id : undefined;
    if (this.#early.delete(String(id))) this.#return(id);
    else this.#held.push(id);
  }

  #return(id: Id | undefined): void {
    this.#write(outcomeFrame(requeue("the worker is about to end"), id, this.#frameBytesMax));
  }

  // -- reading --

  #read(data: Buffer): void {
    try {
      for (const frame of this.#splitter.feed(data)) {
        if (this.#isEnding) this.#hold(frame);
        else if (this.version === 1 && this.#busy > 0) this.#behind.push(frame);
        else this.#begin(frame);
      }
      if (this.#splitter.broken) throw this.#splitter.broken;
    } catch (error) {
      this.#over?.(error as Error);
    }
  }

  #heard(line: string | undefined): void {
    if (line === undefined || line === "__quit__") {
      // What has arrived by now is read first: it takes a turn of the loop, or two.
      setImmediate(() => setImmediate(() => this.#leave()));
    } else if (line === "__context_switch__" && this.version === 1) {
      for (const task of this.#flight.values()) task.cancel();
    } else {
      const id = cancelledId(line);
      if (id !== undefined) this.#cancel(id);
    }
  }

  #cancel(id: string): void {
    const task = this.#flight.get(id);
    if (task !== undefined) {
      task.cancel();
      return;
    }
    const held = this.#held.findIndex((each) => String(each) === id);
    if (held >= 0) {
      this.#return(this.#held.splice(held, 1)[0]);
      return;
    }
    this.#early.add(id);
    if (this.#early.size > EARLY_MAX) {
      for (const oldest of this.#early) {
        this.#early.delete(oldest);
        break;
      }
    }
  }

  #leave(): void {
    this.#leaving = true;
    if (this.#busy === 0 && this.#behind.length === 0) this.#over?.();
  }

  // -- working --

  #begin(frame: Buffer): void {
    const task = new Task(decode(frame), this);
    const key = String(task.id);
    this.#busy++;
    this.#flight.set(key, task);
    if (this.#early.size > 0 && this.#early.delete(key)) task.cancel();
    const timer = this.version === 1 ? timerOf(task) : undefined;
    const end = (answer: Buffer): void => {
      if (timer !== undefined) clearTimeout(timer);
      this.#flight.delete(key);
      this.#busy--;
      task.close();
      this.#write(answer);
      if (this.#behind.length > 0) this.#next();
      else if (this.#leaving) this.#leave();
      else if (this.#isEnding) this.stop();
    };
    let outcome: ReturnType<Handler>;
    let promised: boolean;
    try {
      outcome = within(task, (task) => traced(task, this.#handler));
      promised = isPromise(outcome);
    } catch (error) {
      end(this.#failure(error, task));
      return;
    }
    if (promised) {
      Promise.resolve(outcome).then(
        (outcome) => end(this.#answer(outcome, task)),
        (error: unknown) => end(this.#failure(error, task)),
      );
    } else {
      end(this.#answer(outcome as Outcome | void | null, task));
    }
  }

  /** In a turn of its own: a thousand messages that wait are no recursion. */
  #next(): void {
    queueMicrotask(() => {
      if (this.#busy > 0) return;
      const frame = this.#behind.shift();
      if (frame === undefined) return;
      try {
        this.#begin(frame);
      } catch (error) {
        this.#over?.(error as Error);
      }
    });
  }

  #answer(outcome: Outcome | void | null, task: Task): Buffer {
    try {
      if (outcome == null || outcome === DONE) return done(this.#id(task));
      return outcomeFrame(outcome, this.#id(task), this.#frameBytesMax);
    } catch (error) {
      return this.#failure(error, task);
    }
  }

  /** 500, or 429 for what was cancelled, with the error in its first line and the stack below. */
  #failure(error: unknown, task: Task): Buffer {
    const isCancelled = task.cancelled && task.signal.aborted && isAbort(error, task.signal);
    let reason = isCancelled ? `cancelled\n${describe(error)}` : describe(error);
    if (reason.length > STACK_CHARS_MAX) reason = `${reason.slice(0, STACK_CHARS_MAX)}…`;
    const status = isCancelled ? Status.RETRY : Status.UNKNOWN_ERROR;
    const data = encode(readable(reason, this.#frameBytesMax), status, null, null, this.#id(task));
    return framed(data, this.#frameBytesMax);
  }

  // -- writing --

  field(value: unknown): unknown {
    return field(value, this.#frameBytesMax);
  }

  note(task: Task, status: number, message: unknown, headers?: Headers, queue?: string): void {
    const isLog = status === Status.LOG;
    if (isLog && (this.version === 1 || task.answered)) {
      const { level, ...fields } = headers ?? {};
      const shown = Object.entries(fields).map(([name, value]) => ` ${name}=${value}`);
      process.stderr.write(`${level}: ${readable(message, this.#frameBytesMax)}${shown.join("")}\n`);
      return;
    }
    if (task.answered) {
      if (status === Status.EMIT) throw new Error("emit must come before the handler's answer");
      return;
    }
    const id = this.#id(task);
    this.#write(noteFrame(status, message, headers, queue, id, this.#frameBytesMax));
  }

  /** Until the pipe has taken most of what waits. */
  async drained(): Promise<void> {
    this.#flush();
    if (!this.#pipe.writableNeedDrain || this.#pipe.destroyed) return;
    await new Promise<void>((resolve) => {
      const go = (): void => {
        this.#pipe.off("drain", go).off("close", go);
        resolve();
      };
      this.#pipe.on("drain", go).on("close", go);
    });
  }

  #id(task: Task): Id | undefined {
    return this.version > 1 ? task.id : undefined;
  }

  /** With all others of this turn of the loop, in one write; at once if there will be none. */
  #write(frame: Buffer): void {
    this.#out.push(frame);
    if (this.#busy === 0) this.#flush();
    else if (this.#out.length === 1) process.nextTick(() => this.#flush());
  }

  #flush(): void {
    const out = this.#out;
    if (out.length === 0) return;
    this.#out = [];
    if (this.#pipe.writable) this.#pipe.write(out.length === 1 ? out[0]! : Buffer.concat(out));
  }
}

function isPromise<T>(value: T | Promise<T>): value is Promise<T> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === "function";
}

/** Whether a handler that was told to stop has just done so. */
function isAbort(error: unknown, signal: AbortSignal): boolean {
  return error === signal.reason || (error as { name?: unknown } | null)?.name === "AbortError";
}

function describe(error: unknown): string {
  try {
    if (!(error instanceof Error)) return `thrown: ${String(error)}`;
    const first = `${error.name}: ${error.message}`;
    const stack = error.stack ?? "";
    return stack.startsWith(first) ? stack : `${first}\n${stack}`;
  } catch {
    return "thrown: something that can't be shown";
  }
}

/** Version 1 asks a worker to give up by itself; version 2 is told when it is so far. */
function timerOf(task: Task): NodeJS.Timeout | undefined {
  const after = Number(task.headers["TimeoutMilliseconds"] ?? -1);
  if (!(after >= 0) || after > TIMER_MS_MAX) return undefined;
  return setTimeout(() => task.cancel(), after).unref();
}
