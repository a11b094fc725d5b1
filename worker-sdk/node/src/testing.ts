/**
 * Runs a handler on messages, without a daemon: what is tested is the handler in the real worker, on a
 * real socket, in this process.
 *
 * @packageDocumentation
 */

import { mkdtemp, rm } from "node:fs/promises";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { Decoder, encode } from "@msgpack/msgpack";
import { bridgeConsole } from "./console.js";
import { framed, FRAME_BYTES_MAX, Splitter, unpack } from "./frames.js";
import { Status, type Body } from "./outcome.js";
import { hello } from "./run.js";
import { Lines } from "./start.js";
import { loadTracing } from "./tracing.js";
import { Worker, type Handler } from "./worker.js";

/** What the handler is given; a text or bytes are a message of that body. */
export interface Message {
  body?: Body;
  correlationId?: string;
  queue?: string;
  headers?: Record<string, string>;
  attempt?: number;
  millisecondsLeft?: number;
  properties?: Record<string, unknown>;
  /** Asks the handler to abandon it, so many milliseconds after it was handed out. */
  cancelAfterMs?: number;
}

/** An emit or a log record. */
export interface Note {
  message: Body;
  headers: Record<string, unknown>;
  queue?: string;
}

/** What became of one message, and what its handler sent meanwhile. */
export interface Result {
  status: number;
  message: Body;
  headers?: Record<string, unknown>;
  queue?: string;
  retryAfterMs?: number;
  emits: Note[];
  logs: Note[];
  progress: Body[];
}

export interface WorkOptions {
  concurrency?: number;
  protocol?: 1 | 2;
  /** As `run` has it; false here unless it says otherwise. */
  console?: boolean;
  /** Rejects if nothing is heard of the worker for so long; a minute unless it says otherwise. */
  timeoutMs?: number;
}

/** The results, in the order of the messages; what the worker itself throws is thrown here. */
export async function work(
  handler: Handler,
  messages: Iterable<Message | Body>,
  options: WorkOptions = {},
): Promise<Result[]> {
  const { concurrency = 1, protocol = 2, timeoutMs = 60_000 } = options;
  await loadTracing();
  const [ours, theirs] = await pair();
  const control = new PassThrough();
  const worker = new Worker(handler, theirs, new Lines(control), { version: protocol });
  const restore = options.console ? bridgeConsole() : undefined;
  const working = worker.run(hello(protocol, concurrency)).finally(() => restore?.());
  const peer = new Peer(ours, control, [...messages], protocol === 1 ? 1 : concurrency);
  try {
    await Promise.race([
      peer.exchange(timeoutMs),
      working.then(() => Promise.reject(new Error("the worker has left with messages in hand"))),
    ]);
    ours.end();
    await working;
    return peer.results;
  } finally {
    peer.close();
    working.catch(() => {});
  }
}

const decoder = new Decoder();

/** Two ends of one socket. */
async function pair(): Promise<[Socket, Socket]> {
  const dir = await mkdtemp(join(tmpdir(), "ganger-"));
  const server = createServer({ allowHalfOpen: true });
  try {
    const path = join(dir, "pipe");
    await new Promise<void>((resolve) => server.listen(path, resolve));
    const accepted = new Promise<Socket>((resolve) => server.once("connection", resolve));
    const ours = connect({ path, allowHalfOpen: true });
    return [ours, await accepted];
  } finally {
    server.close();
    await rm(dir, { recursive: true });
  }
}

/** The daemon's side. */
class Peer {
  readonly results: Result[];
  readonly #messages: Message[];
  readonly #flight: number[] = [];
  readonly #splitter = new Splitter(FRAME_BYTES_MAX);
  readonly #timers: NodeJS.Timeout[] = [];
  #sent = 0;

  constructor(
    readonly pipe: Socket,
    readonly control: PassThrough,
    messages: (Message | Body)[],
    readonly room: number,
  ) {
    this.#messages = messages.map((each) =>
      typeof each === "string" || each instanceof Uint8Array ? { body: each } : each,
    );
    this.results = messages.map(() => {
      return { status: 0, message: "", emits: [], logs: [], progress: [] };
    });
    pipe.on("error", () => {});
  }

  exchange(timeoutMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const late = (): void => reject(new Error(`nothing from the worker for ${timeoutMs} ms`));
      this.pipe.setTimeout(timeoutMs, late);
      const go = (): void => {
        while (this.#sent < this.#messages.length && this.#flight.length < this.room) this.#send();
        if (this.#flight.length === 0) resolve();
      };
      this.pipe.on("data", (data: Buffer) => {
        for (const frame of this.#splitter.feed(data)) this.#take(unpack(frame, decoder) as Record<string, any>);
        go();
      });
      go();
    });
  }

  close(): void {
    for (const timer of this.#timers) clearTimeout(timer);
    this.pipe.destroy();
  }

  #send(): void {
    const id = this.#sent++;
    const message = this.#messages[id]!;
    const task = {
      "0": message.body ?? "",
      "1": message.correlationId ?? "",
      "2": message.queue ?? "test",
      "3": message.headers ?? {},
      "4": id,
      "5": message.attempt ?? 1,
      "6": message.millisecondsLeft ?? null,
      "7": message.properties ?? {},
    };
    this.#flight.push(id);
    this.pipe.write(framed(encode(task), FRAME_BYTES_MAX));
    if (message.cancelAfterMs !== undefined) {
      const tell = (): void => void this.control.write(`__cancel__ ${id}\n`);
      this.#timers.push(setTimeout(tell, message.cancelAfterMs));
    }
  }

  #take(output: Record<string, any>): void {
    const { "0": message, "1": status, "2": headers, "3": queue } = output;
    if (status === Status.HELLO) return;
    const id: number = output["4"] ?? this.#flight[0];
    const result = this.results[id]!;
    const note: Note = { message, headers: headers ?? {}, ...(queue ? { queue } : {}) };
    if (status === Status.PROGRESS || status === Status.IGNORE_MESSAGE) result.progress.push(message);
    else if (status === Status.LOG) result.logs.push(note);
    else if (status === Status.EMIT) result.emits.push(note);
    else {
      this.#flight.splice(this.#flight.indexOf(id), 1);
      Object.assign(result, { status, message });
      if (headers) result.headers = headers;
      if (queue) result.queue = queue;
      if (output["5"] != null) result.retryAfterMs = output["5"];
    }
  }
}
