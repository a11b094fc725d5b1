// What the library costs: tasks that do nothing, beside a loop written by hand, in one run.
//
// node bench/noop.mjs [ROUNDS] prints, for one message at a time and for 64, the processor time that a message
// takes and the median of the ratios library / by hand. In each round both are started, and then take short
// turns, so that what else the machine does meets both. The loop by hand is what the protocol asks of a worker
// at the least: it judges a frame's length, calls a handler, and answers 500 if that fails.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { Decoder, Encoder, encode } from "@msgpack/msgpack";

const TURNS = 40;
/** In each turn. */
const MESSAGES = 1000;
/** In both, before any that counts: V8 compiles what runs often. */
const WARM_UP = 10_000;
const FRAME_BYTES_MAX = 64 << 20;
const AHEAD = [1, 64];

function framed(output, encoder) {
  const data = encoder ? encoder.encodeSharedRef(output) : encode(output);
  const frame = Buffer.allocUnsafe(4 + data.length);
  frame.writeUInt32BE(data.length);
  frame.set(data, 4);
  return frame;
}

async function worker(way, concurrency) {
  if (way === "library") {
    const { run } = await import("ganger-worker");
    return run(async () => {}, { concurrency });
  }
  const decoder = new Decoder({ useBigInt64: true });
  const encoder = new Encoder({ useBigInt64: true });
  const handle = async () => {};
  const pipe = connect(process.env.GANGER_PIPE);
  const headers = { sdk: "none", version: "0", concurrency: String(concurrency) };
  pipe.write(framed({ 0: "", 1: 100, 2: headers }));
  let rest = Buffer.alloc(0);
  pipe.on("data", (data) => {
    rest = rest.length > 0 ? Buffer.concat([rest, data]) : data;
    while (rest.length >= 4) {
      const size = rest.readUInt32BE();
      if (size === 0 || size > FRAME_BYTES_MAX) throw new RangeError(`${size}`);
      const end = 4 + size;
      if (rest.length < end) break;
      const task = decoder.decode(rest.subarray(4, end));
      rest = rest.subarray(end);
      handle(task).then(
        () => pipe.write(framed({ 0: "", 1: 200, 4: task[4] }, encoder)),
        (error) => pipe.write(framed({ 0: String(error), 1: 500, 4: task[4] }, encoder)),
      );
    }
  });
  process.stdin.resume();
  pipe.on("close", () => process.exit(0));
}

/** A worker, and the processor time of its messages. */
class Measured {
  constructor(ahead) {
    this.ahead = ahead;
  }

  static async start(way, ahead) {
    const measured = new Measured(ahead);
    const path = `/tmp/ganger-bench-${process.pid}`;
    const server = createServer().listen(path);
    await once(server, "listening");
    const env = { ...process.env, GANGER_PROTOCOL: "2", GANGER_PIPE: path };
    const args = [new URL(import.meta.url).pathname, "worker", way, String(ahead)];
    measured.child = spawn(process.execPath, args, { env, stdio: ["pipe", "inherit", "inherit"] });
    measured.ended = once(measured.child, "exit");
    measured.child.stdin.write("pipe\n");
    [measured.pipe] = await once(server, "connection");
    server.close();
    await exchange(measured.pipe, WARM_UP, ahead);
    return measured;
  }

  /** Microseconds a message. */
  async turn() {
    const before = processorMicros(this.child.pid);
    await exchange(this.pipe, MESSAGES, this.ahead);
    return (processorMicros(this.child.pid) - before) / MESSAGES;
  }

  async end() {
    this.pipe.end();
    this.child.stdin.end();
    const [code] = await this.ended;
    if (code !== 0) throw new Error(`a worker has failed: ${this.child.spawnargs.join(" ")}`);
  }
}

/** To one processor: whether a message wakes up another one weighs more than all that is compared here. */
function pin() {
  const [, first] = /^Cpus_allowed_list:\s+(\d+)/m.exec(readFileSync("/proc/self/status", "utf8"));
  execFileSync("taskset", ["-apc", first, String(process.pid)]);
}

/** Of all threads, which have a clock finer than ticks. */
function processorMicros(pid) {
  const threads = readdirSync(`/proc/${pid}/task`);
  const nanos = (id) => Number(readFileSync(`/proc/${pid}/task/${id}/schedstat`, "utf8").split(" ")[0]);
  return threads.reduce((sum, id) => sum + nanos(id), 0) / 1000;
}

function exchange(pipe, count, ahead) {
  const frames = Array.from({ length: count }, (_, id) =>
    framed({ 0: "hello", 1: "", 2: "work", 3: {}, 4: id, 5: 1, 6: null, 7: { row_id: id } }),
  );
  return new Promise((resolve) => {
    let sent = 0;
    let answered = 0;
    let rest = Buffer.alloc(0);
    const go = () => {
      const heap = frames.slice(sent, answered + ahead);
      sent += heap.length;
      if (heap.length > 0) pipe.write(Buffer.concat(heap));
    };
    const read = (data) => {
      rest = Buffer.concat([rest, data]);
      let at = 0;
      while (rest.length - at >= 4 && rest.length - at >= 4 + rest.readUInt32BE(at)) {
        const end = at + 4 + rest.readUInt32BE(at);
        if (rest.subarray(at, end).includes("\xa11\xcc\xc8", 0, "latin1")) answered++;
        at = end;
      }
      rest = rest.subarray(at);
      if (answered < count) return go();
      pipe.off("data", read);
      resolve();
    };
    pipe.on("data", read);
    go();
  });
}

function median(numbers) {
  return [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];
}

if (process.argv[2] === "worker") {
  await worker(process.argv[3], Number(process.argv[4]));
} else {
  const rounds = Number(process.argv[2] ?? 5);
  pin();
  for (const ahead of AHEAD) {
    const costs = { library: [], "by hand": [] };
    for (let round = 0; round < rounds; round++) {
      const workers = {};
      for (const way in costs) workers[way] = await Measured.start(way, ahead);
      for (let turn = 0; turn < TURNS; turn++) {
        for (const way in costs) costs[way].push(await workers[way].turn());
      }
      for (const way in costs) await workers[way].end();
    }
    const ratios = costs.library.map((cost, n) => cost / costs["by hand"][n]);
    const shown = Object.entries(costs).map(([way, all]) => `${way} ${median(all).toFixed(1)} µs`);
    console.log(`${ahead} at once: ${shown.join(", ")}, ratio ${median(ratios).toFixed(2)}`);
  }
}
