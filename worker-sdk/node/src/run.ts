/** The entrance for programs. */

import { encode } from "./frames.js";
import { bridgeConsole } from "./console.js";
import { Status } from "./outcome.js";
import { connect, frameBytesMaxOf, take } from "./start.js";
import { loadTracing } from "./tracing.js";
import { VERSION } from "./version.js";
import { Worker, type Handler } from "./worker.js";

export interface Options {
  /** How many messages are in hand at once; 1 unless it says otherwise. */
  concurrency?: number;
  /** Whether `console` of a handler goes to the daemon's log; true unless it says otherwise. */
  console?: boolean;
  /** Lower than the pool's own `frame_bytes_max`, which the daemon tells. */
  frameBytesMax?: number;
  /**
   * Called before this process takes messages: what it loads counts against no message's timeout, but
   * against the pool's `start_timeout`.
   */
  warmUp?: () => unknown;
  /** Once it aborts, nothing new is begun, and `run` resolves when all that is in hand is answered. */
  signal?: AbortSignal;
}

/**
 * Connects to the daemon that has started this process, works until it asks to leave, and resolves
 * when all that is in hand is answered.
 */
export async function run(handler: Handler, options: Options = {}): Promise<void> {
  const { concurrency = 1, signal } = options;
  if (typeof handler !== "function") throw new TypeError(`a handler must be a function: ${handler}`);
  if (!Number.isInteger(concurrency) || concurrency < 1) {
    throw new RangeError(`concurrency must be a whole number from 1: ${concurrency}`);
  }
  await loadTracing();
  const [name, lines] = await take();
  await options.warmUp?.();
  const pipe = await connect(name);
  const frameBytesMax = frameBytesMaxOf(options.frameBytesMax);
  const version = Number(process.env["GANGER_PROTOCOL"] ?? 1) >= 2 ? 2 : 1;
  const restore = options.console === false ? undefined : bridgeConsole();
  try {
    const worker = new Worker(handler, pipe, lines, { version, frameBytesMax });
    signal?.addEventListener("abort", worker.stop);
    if (signal?.aborted) worker.stop();
    await worker.run(hello(version, concurrency));
    signal?.removeEventListener("abort", worker.stop);
  } finally {
    restore?.();
  }
}

/** The first frame's map; version 1 has none. @internal */
export function hello(version: number, concurrency: number): Uint8Array | undefined {
  if (version === 1) return undefined;
  const headers = { sdk: "ganger-node", version: VERSION, concurrency: String(concurrency) };
  return encode("", Status.HELLO, headers);
}
