/** The entrance for programs. */

import { encode, FRAME_BYTES_MAX } from "./frames.js";
import { bridgeConsole } from "./console.js";
import { Status } from "./outcome.js";
import { connect } from "./start.js";
import { loadTracing } from "./tracing.js";
import { VERSION } from "./version.js";
import { Worker, type Handler } from "./worker.js";

export interface Options {
  /** How many messages are in hand at once; 1 unless it says otherwise. */
  concurrency?: number;
  /** Whether `console` of a handler goes to the daemon's log; true unless it says otherwise. */
  console?: boolean;
  /** That of the pool: 64 MiB unless configured. */
  frameBytesMax?: number;
}

/**
 * Connects to the daemon that has started this process, works until it asks to leave, and resolves
 * when all that is in hand is answered.
 */
export async function run(handler: Handler, options: Options = {}): Promise<void> {
  const { concurrency = 1, frameBytesMax = FRAME_BYTES_MAX } = options;
  if (typeof handler !== "function") throw new TypeError(`a handler must be a function: ${handler}`);
  if (!Number.isInteger(concurrency) || concurrency < 1) {
    throw new RangeError(`concurrency must be a whole number from 1: ${concurrency}`);
  }
  await loadTracing();
  const [pipe, lines] = await connect();
  const version = Number(process.env["GANGER_PROTOCOL"] ?? 1) >= 2 ? 2 : 1;
  const restore = options.console === false ? undefined : bridgeConsole();
  try {
    const worker = new Worker(handler, pipe, lines, { version, frameBytesMax });
    await worker.run(hello(version, concurrency));
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
