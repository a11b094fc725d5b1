// What the library costs: tasks that do nothing, beside a loop written by hand, in one run.
//
// node bench/noop.mjs [ROUNDS] prints, for one message at a time and for 64, the median of the rounds'
// ratios of the processor time that a message takes: library / by hand. The two take turns.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { Decoder, Encoder, encode } from "@msgpack/msgpack";

const MESSAGES = 30_000;
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
      const end = 4 + rest.readUInt32BE();
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

async function measure(way, ahead) {
  const path = `/tmp/ganger-bench-${process.pid}`;
  const server = createServer().listen(path);
  await once(server, "listening");
  const env = { ...process.env, GANGER_PROTOCOL: "2", GANGER_PIPE: path };
  const args = [new URL(import.meta.url).pathname, "worker", way, String(ahead)];
  const child = spawn(process.execPath, args, { env, stdio: ["pipe", "inherit", "inherit"] });
  const ended = once(child, "exit");
  child.stdin.write("pipe\n");
  const [pipe] = await once(server, "connection");
  server.close();
  await exchange(pipe, 3000, ahead);
  const before = processorMicros(child.pid);
  await exchange(pipe, MESSAGES, ahead);
  const used = processorMicros(child.pid) - before;
  pipe.end();
  child.stdin.end();
  const [code] = await ended;
  if (code !== 0) throw new Error(`the worker ${way} has failed`);
  return used / MESSAGES;
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
  for (const ahead of AHEAD) {
    const costs = { library: [], "by hand": [] };
    for (let round = 0; round < rounds; round++) {
      const ways = Object.keys(costs);
      if (round % 2) ways.reverse();
      for (const way of ways) costs[way].push(await measure(way, ahead));
    }
    const ratios = costs.library.map((cost, n) => cost / costs["by hand"][n]);
    const shown = Object.entries(costs).map(([way, all]) => `${way} ${median(all).toFixed(1)} µs`);
    console.log(`${ahead} at once: ${shown.join(", ")}, ratio ${median(ratios).toFixed(2)}`);
  }
}
