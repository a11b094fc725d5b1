// The worker under test: a body's first word says what to do with it.
// Arguments: the concurrency, and frameBytesMax if it is to be lower than the pool's.
import { spawnSync } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { done, reject, reply, requeue, retry, run } from "ganger-worker";
import { published, unusual } from "./unusual.mjs";

const concurrency = Number(process.argv[2]);
let together = [];
const host = new AbortController();
let warmth = "cold";

/** With this process's own stdin. */
function child() {
  return spawnSync("cat", { stdio: ["inherit", "pipe", "inherit"] }).stdout.toString();
}

/** Says something when the answer has gone. */
async function linger(task) {
  await sleep(1);
  while (!task.answered) await sleep(1);
  task.log("warn", "said late", { n: 1 });
  console.error("printed late");
  task.progress("late");
  try {
    await task.emit("parts", "late");
  } catch (error) {
    task.log("info", `refused: ${error.message}`);
  }
}

function warmUp() {
  if (process.env.WARM_UP === "exit") process.exit(9);
  warmth = `warm, stdin held ${child().length} bytes`;
}

async function handle(task) {
  if (typeof task.message !== "string") return reply(task.message);
  const at = task.message.indexOf(" ");
  const verb = at < 0 ? task.message : task.message.slice(0, at);
  const rest = at < 0 ? "" : task.message.slice(at + 1);
  switch (verb) {
    case "":
      return;
    case "done":
      return done();
    case "echo":
      return reply(rest);
    case "headers":
      return reply(JSON.stringify(task.headers), { headers: { n: 7, ü: "é" }, queue: rest });
    case "about": {
      const { correlationId, queue, attempt, millisecondsLeft, properties } = task;
      const key = properties.key && [...properties.key];
      return reply(JSON.stringify({ correlationId, queue, attempt, millisecondsLeft, key }));
    }
    case "retry":
      return retry("later", { afterMs: 1500 });
    case "reject":
      return reject("never");
    case "requeue":
      return requeue();
    case "raise":
      throw new TypeError(`no good: ${rest}`);
    case "strange":
      throw null;
    case "wrong":
      return 5;
    case "unspeakable":
      return reply("x", { headers: { f: Symbol("x") } });
    case "unusual":
      return unusual[rest];
    case "publish":
      return void (await task.emit(...published[rest]));
    case "forgotten":
      task.emit(...published[rest]); // without await
      return;
    case "child":
      return reply(child());
    case "warmth":
      return reply(warmth);
    case "stop":
      return host.abort();
    case "linger":
      return void linger(task);
    case "count":
      return task.progress(5);
    case "large":
      return reply("x".repeat(Number(rest)));
    case "exit":
      return process.exit(3);
    case "together":
      await new Promise((resolve) => {
        together.push(resolve);
        if (together.length === concurrency) together.forEach((each) => each());
      });
      return;
    case "sleep":
      return void (await sleep(Number(rest)));
    case "stuck":
      try {
        await sleep(30_000, undefined, { signal: task.signal });
      } catch {
        return retry("gave up");
      }
      return;
    case "uncaught":
      return void (await sleep(30_000, undefined, { signal: task.signal }));
    case "emit":
      for (let n = 0; n < Number(rest); n++) await task.emit("parts", `part ${n}`, { n });
      return;
    case "progress":
      return task.progress(rest || "1 of 2");
    case "log":
      return task.log("debug", "noted", { target: "tests", n: 1, many: [1, 2] });
    case "console":
      await sleep(1);
      return console.warn("hot %s", "stuff", { degrees: 90 });
  }
}

// "echo" and "done" also go the way without a promise.
await run((task) => (task.message === "done" ? done() : handle(task)), {
  concurrency,
  warmUp,
  signal: host.signal,
  ...(process.argv[3] ? { frameBytesMax: Number(process.argv[3]) } : {}),
});
