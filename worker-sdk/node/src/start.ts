/** The start of a worker, and the lines that the daemon writes to its stdin. */

import { closeSync, constants, createReadStream, existsSync, openSync } from "node:fs";
import { connect as open, Socket } from "node:net";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { isatty } from "node:tty";
import { FRAME_BYTES_MAX } from "./frames.js";

const LINE_CHARS_MAX = 1 << 16;

/** Lines of a stream as they come, to whoever listens at the time. */
export class Lines {
  readonly #waiting: string[] = [];
  #rest = "";
  #ended = false;
  #heard: ((line: string | undefined) => void) | undefined;
  readonly #stream: Readable;

  constructor(stream: Readable) {
    this.#stream = stream;
    stream.setEncoding("utf8");
    stream.on("data", (data: string) => {
      const lines = (this.#rest + data).split("\n");
      this.#rest = lines.pop()!.slice(-LINE_CHARS_MAX);
      for (const line of lines) this.#tell(line.replace(/\r$/, ""));
    });
    stream.on("end", () => this.#end());
    stream.on("error", () => this.#end());
  }

  /** One line; undefined at the end. */
  first(): Promise<string | undefined> {
    return new Promise((resolve) => {
      this.listen((line) => {
        this.#heard = undefined;
        resolve(line);
      });
    });
  }

  /** All lines from now on, and undefined at the end. */
  listen(heard: (line: string | undefined) => void): void {
    this.#heard = heard;
    while (this.#waiting.length > 0 && this.#heard === heard) heard(this.#waiting.shift()!);
    if (this.#ended && this.#heard === heard) heard(undefined);
  }

  /** No more is wanted: the stream holds up the process's end no longer. */
  close(): void {
    this.#heard = undefined;
    this.#stream.destroy();
  }

  #tell(line: string): void {
    if (this.#heard) this.#heard(line);
    else this.#waiting.push(line);
  }

  #end(): void {
    this.#ended = true;
    this.#heard?.(undefined);
  }
}

/** The pipe's name, which stdin begins with, and the control lines to come. */
export async function take(): Promise<[name: string, lines: Lines]> {
  if (isatty(0)) {
    throw new Error(
      "this is a worker of ganger, which starts it and writes a pipe's name to its stdin: " +
        "put it into a [[pools]] section, or try it with ganger-worker/testing",
    );
  }
  const lines = new Lines(moveStdin());
  const name = await lines.first();
  if (!name) throw new Error("stdin must begin with a line that names the pipe: it has ended");
  return [name, lines];
}

/**
 * Stdin at a descriptor that child processes do not inherit. Stdin itself is empty from here on, so that
 * neither a handler nor its child processes can eat a control line. Node has no `dup2`: where stdin can't
 * be opened anew, as for another user's pipe, it stays where it is.
 */
function moveStdin(): Readable {
  let file: number;
  try {
    // Without O_NONBLOCK this would wait for the daemon, should it be gone already.
    file = openSync("/proc/self/fd/0", constants.O_RDONLY | constants.O_NONBLOCK);
  } catch {
    return process.stdin;
  }
  closeSync(0);
  openSync("/dev/null", "r"); // takes the lowest number, which is 0
  try {
    return new Socket({ fd: file, readable: true, writable: false });
  } catch {
    return createReadStream("", { fd: file }); // it is no pipe
  }
}

/** The pipe of that name. */
export async function connect(name: string): Promise<Socket> {
  const pipe = open({ path: pathOf(name), allowHalfOpen: true });
  await new Promise<void>((resolve, reject) => {
    pipe.once("connect", resolve);
    pipe.once("error", reject);
  });
  pipe.removeAllListeners("error");
  return pipe;
}

/** The longest frame: the daemon's limit, or a lower one that is asked for. */
export function frameBytesMaxOf(wanted: number | undefined): number {
  const told = /^\d{1,15}$/.exec(process.env["GANGER_FRAME_BYTES_MAX"] ?? "");
  if (told === null) return wanted ?? FRAME_BYTES_MAX;
  return Math.min(wanted ?? Infinity, Number(told[0]));
}

function pathOf(name: string): string {
  const { GANGER_PIPE: told, TMPDIR: below } = process.env;
  if (told) return told;
  const there = below ? join(below, `CoreFxPipe_${name}`) : undefined;
  return there && existsSync(there) ? there : `/tmp/CoreFxPipe_${name}`;
}

/** The id of a `__cancel__` line, as text: it has 64 bits. */
export function cancelledId(line: string): string | undefined {
  return /^__cancel__ (\d{1,20})$/.exec(line)?.[1];
}
