/** The start of a worker, and the lines that the daemon writes to its stdin. */

import { existsSync } from "node:fs";
import { connect as open, type Socket } from "node:net";
import { join } from "node:path";
import type { Readable } from "node:stream";

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

/** The pipe that stdin names, and the control lines to come. */
export async function connect(): Promise<[Socket, Lines]> {
  if (process.stdin.isTTY) {
    throw new Error(
      "this is a worker of ganger, which starts it and writes a pipe's name to its stdin: " +
        "put it into a [[pools]] section, or try it with ganger-worker/testing",
    );
  }
  const lines = new Lines(process.stdin);
  const name = await lines.first();
  if (!name) throw new Error("stdin must begin with a line that names the pipe: it has ended");
  const pipe = open({ path: pathOf(name), allowHalfOpen: true });
  await new Promise<void>((resolve, reject) => {
    pipe.once("connect", resolve);
    pipe.once("error", reject);
  });
  pipe.removeAllListeners("error");
  return [pipe, lines];
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
