// graphile-worker with a task that does nothing. `batches` turns on what its page on performance
// recommends for speed; else it is as that page has it without.

import { createRequire } from "node:module";

// The library is where the benchmark has installed it, not beside this file.
const { run } = createRequire(`${process.env.LIBRARIES}/`)("graphile-worker");

const batches = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
const runner = await run({
  preset: {
    worker: {
      connectionString: process.env.DATABASE,
      concurrentJobs: 24,
      maxPoolSize: 25,
      ...(process.argv[2] === "batches" ? batches : {}),
    },
  },
  taskList: { nothing: async () => {} },
});
await runner.promise;
