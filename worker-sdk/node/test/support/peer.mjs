// The daemon's side of the protocol, by hand: a real process on a real pipe.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { closeSync, constants, openSync, unlinkSync } from "node:fs";
import { createServer, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Decoder, encode } from "@msgpack/msgpack";

const decoder = new Decoder({ useBigInt64: true });
export const MODES = new URL("modes.mjs", import.meta.url).pathname;

export class Peer {
  static async start(args, { version = 2, variables = {} } = {}) {
    const peer = new Peer();
    const name = randomBytes(16).toString("hex");
    const path = `/tmp/CoreFxPipe_${name}`;
    const env = { ...process.env };
    for (const key of Object.keys(env)) if (key.startsWith("GANGER_")) delete env[key];
    Object.assign(env, variables);
    if (version === 2) Object.assign(env, { GANGER_PROTOCOL: "2", GANGER_PIPE: path });
    const server = createServer({ allowHalfOpen: true }).listen(path);
    await once(server, "listening");
    const [stdin, control] = pipe();
    peer.process = spawn(process.execPath, [MODES, ...args.map(String)], {
      env,
      stdio: [stdin, "pipe", "pipe"],
    });
    closeSync(stdin);
    peer.control = new Socket({ fd: control, readable: false, writable: true });
    peer.control.on("error", () => {});
    peer.stderr = "";
    peer.process.stderr.setEncoding("utf8").on("data", (data) => (peer.stderr += data));
    peer.ended = new Promise((resolve) => peer.process.once("close", resolve));
    // What is next on stdin is not part of the first line, though it comes with it.
    peer.tell(`${name}\n__of_a_newer_daemon__ 1`);
    [peer.pipe] = await once(server, "connection");
    server.close();
    peer.waiting = [];
    peer.listening = [];
    let rest = Buffer.alloc(0);
    const chunks = [];
    let bytes = 0;
    peer.pipe.on("data", (data) => {
      chunks.push(data);
      bytes += data.length;
      if (rest.length >= 4 && bytes < rest.readUInt32BE(0) + 4 - rest.length) return;
      rest = Buffer.concat([rest, ...chunks.splice(0)]);
      bytes = 0;
      while (rest.length >= 4 && rest.length >= 4 + rest.readUInt32BE(0)) {
        const end = 4 + rest.readUInt32BE(0);
        const output = decoder.decode(rest.subarray(4, end));
        rest = rest.subarray(end);
        const next = peer.listening.shift();
        if (next) next.resolve(output);
        else peer.waiting.push(output);
      }
    });
    peer.pipe.on("error", () => {});
    peer.pipe.on("close", () => {
      for (const next of peer.listening) next.reject(new Error(`the worker is gone: ${peer.stderr}`));
    });
    if (version === 2) peer.hello = await peer.receive();
    return peer;
  }

  tell(line) {
    this.control.write(`${line}\n`);
  }

  send(body, id = 1, fields = {}) {
    this.pipe.write(frame(task(body, id, fields)));
  }

  receive() {
    if (this.waiting.length > 0) return Promise.resolve(this.waiting.shift());
    return new Promise((resolve, reject) => this.listening.push({ resolve, reject }));
  }

  ask(body, id = 1, fields = {}) {
    this.send(body, id, fields);
    return this.receive();
  }

  /** Its exit code, when it has said nothing more. */
  async end() {
    const code = await this.ended;
    assert.deepEqual(this.waiting, []);
    return code;
  }

  async close() {
    this.process.kill("SIGKILL");
    this.pipe.destroy();
    this.control.destroy();
    await this.ended;
  }
}

/** As the daemon makes one: what Node itself gives a child is a socket. */
export function pipe() {
  const path = join(tmpdir(), `ganger-${randomBytes(16).toString("hex")}`);
  execFileSync("mkfifo", [path]);
  try {
    const read = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    return [read, openSync(path, constants.O_WRONLY)];
  } finally {
    unlinkSync(path);
  }
}

export function task(body, id, fields = {}) {
  return { 0: body, 1: "", 2: "q", 3: {}, 4: id, 5: 1, 6: null, 7: {}, ...fields };
}

export function frame(output) {
  const data = encode(output, { useBigInt64: true });
  const length = Buffer.alloc(4);
  length.writeUInt32BE(data.length);
  return Buffer.concat([length, data]);
}
