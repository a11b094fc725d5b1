/** A message as its handler sees it. */

import { AsyncLocalStorage } from "node:async_hooks";
import type { Fields, Id } from "./frames.js";
import { Status, type Body, type Headers } from "./outcome.js";

/** Where a task's notes go. @internal */
export interface Port {
  readonly version: number;
  note(task: Task, status: number, message: unknown, headers?: Headers, queue?: string): void;
  /** A log record's field as it can be sent. */
  field(value: unknown): unknown;
  drained(): Promise<void>;
}

export type Level = "trace" | "debug" | "info" | "warn" | "error";

const current = new AsyncLocalStorage<Task>();

/** The task that is being worked on here; undefined outside of a handler. */
export function currentTask(): Task | undefined {
  return current.getStore();
}

/** @internal */
export function within<T>(task: Task, work: (task: Task) => T): T {
  return current.run(task, work, task);
}

export class Task {
  /** The body: a text if it is UTF-8, else bytes. */
  readonly message: Body;
  /** Empty if the message has none. */
  readonly correlationId: string;
  /** The queue or topic that it was read from. */
  readonly queue: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The daemon's number for it on this connection; a bigint beyond 2^53. */
  readonly id: Id | undefined;
  /** Which try this is, from 1. */
  readonly attempt: number | undefined;
  /** How long from now on until this process is killed for taking too long; undefined for never. */
  readonly millisecondsLeft: number | undefined;
  /** What the source knows of it: message id, content type, topic, partition, offset and so on. */
  readonly properties: Readonly<Record<string, unknown>>;

  readonly #port: Port;
  #cancelled = false;
  #answered = false;
  #controller: AbortController | undefined;

  /** @internal */
  constructor(fields: Fields, port: Port) {
    this.message = fields.message;
    this.correlationId = fields.correlationId;
    this.queue = fields.queue;
    this.headers = fields.headers;
    this.id = fields.id;
    this.attempt = fields.attempt;
    this.millisecondsLeft = fields.millisecondsLeft;
    this.properties = fields.properties;
    this.#port = port;
  }

  /** The body as a text; TypeError if it is none. */
  get text(): string {
    if (typeof this.message === "string") return this.message;
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.message);
  }

  /** The body as bytes. */
  get bytes(): Uint8Array {
    return typeof this.message === "string" ? Buffer.from(this.message) : this.message;
  }

  /** Whether the daemon has asked to abandon it: it took too long, or the daemon stops. */
  get cancelled(): boolean {
    return this.#cancelled;
  }

  /** Aborts when the daemon asks to abandon it. For `fetch`, timers, and whatever takes a signal. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#cancelled) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  /**
   * Publishes a message while the work goes on. This task is not done before it is stored; when it is
   * tried again, it emits again, with the same header `ganger-emit-id`. Await it, so that what waits
   * for the pipe does not pile up. What is neither text nor bytes is sent as JSON, as by `reply`.
   */
  emit(queue: string, message: unknown, headers?: Headers): Promise<void> {
    // What is wrong is thrown here: a promise that nobody awaits would end the process.
    if (!queue) throw new TypeError("emit needs the name of a queue: ''");
    if (this.#port.version === 1) {
      throw new Error("emit needs version 2 of the protocol, which this daemon lacks");
    }
    this.#port.note(this, Status.EMIT, message, headers, queue);
    return this.#port.drained();
  }

  /** Shows how far it is; it also proves that the worker is alive (`stall_timeout`). */
  progress(message: unknown): void {
    const status = this.#port.version === 1 ? Status.IGNORE_MESSAGE : Status.PROGRESS;
    this.#port.note(this, status, message);
  }

  /**
   * Writes a record of this message to the daemon's log, with these fields; `target` names its origin.
   * `console` comes here by itself. Once the message is answered, and with a version 1 daemon, it goes to
   * stderr.
   */
  log(level: Level, message: unknown, fields: Record<string, unknown> = {}): void {
    const headers = Object.create(null) as Record<string, unknown>;
    headers["level"] = this.#port.field(level);
    for (const [name, value] of Object.entries(fields)) {
      if (name !== "level") headers[String(this.#port.field(name))] = this.#port.field(value);
    }
    this.#port.note(this, Status.LOG, message, headers);
  }

  /** Whether it was answered: what it says then is about no message in flight. @internal */
  get answered(): boolean {
    return this.#answered;
  }

  /** @internal */
  close(): void {
    this.#answered = true;
  }

  /** @internal */
  cancel(): void {
    this.#cancelled = true;
    this.#controller?.abort();
  }
}
