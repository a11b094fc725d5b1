// graphile-worker whose crontab has that many items for each minute. It has no handler of their task, so their
// jobs stay in the table.

import { EventEmitter } from "node:events";
import { createRequire } from "node:module";

// The library is where the benchmark has installed it, not beside this file.
const { parseCronItems, run } = createRequire(`${process.env.LIBRARIES}/`)("graphile-worker");

const items = Array.from({ length: Number(process.env.SCHEDULES) }, (_, number) => ({
  task: "nothing",
  match: "* * * * *",
  identifier: `s${number}`,
}));
const events = new EventEmitter();
events.on("cron:started", () => console.log("up"));
const runner = await run({
  preset: { worker: { connectionString: process.env.DATABASE } },
  taskList: { other: async () => {} },
  parsedCronItems: parseCronItems(items),
  events,
});
await runner.promise;
