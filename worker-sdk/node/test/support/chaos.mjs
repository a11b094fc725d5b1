// The worker of ganger's own tests of this library: real daemon, real queue, workers killed.
// Arguments: the concurrency, the version. What it does is in the file $RECORD.
import { openSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { reply, retry, run } from "ganger-worker";

const [concurrency, version] = process.argv.slice(2);
process.env.GANGER_PROTOCOL = version;
const record = openSync(process.env.RECORD, "a");

function note(event, task) {
  const body = typeof task.message === "string" ? task.message.slice(0, 100) : "bytes";
  writeSync(record, `${event}\t${body}\t${process.pid}\t${task.attempt ?? "-"}\t${Date.now() * 1000}\n`);
}

async function decide(task) {
  const { message } = task;
  if (typeof message !== "string") return reply(message);
  if (message.startsWith("shout: ")) {
    return reply(message.toUpperCase(), { headers: { colour: task.headers.colour } });
  }
  if (message === "raise") throw new TypeError("no good");
  if (message === "retry" && task.attempt === 1) return retry("later", { afterMs: 10 });
  if (message === "emit") await task.emit("parts", "part", { n: 1 });
  if (message === "log") {
    task.log("warn", "it is hot", { degrees: 90 });
    task.progress("half way");
  }
}

async function handle(task) {
  note("began", task);
  await sleep(2);
  const outcome = await decide(task);
  note("done", task);
  return outcome;
}

await run(handle, { concurrency: Number(concurrency) });
