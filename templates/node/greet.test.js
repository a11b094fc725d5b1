// The handler in a real worker, without a daemon.
import assert from "node:assert/strict";
import { test } from "node:test";
import { work } from "ganger-worker/testing";
import { greet } from "./greet.js";

test("whoever is named is greeted", async () => {
  const [result] = await work(greet, ["world"]);
  assert.deepEqual([result.status, result.message], [201, "Hello, world!"]);
});

test("nobody is rejected", async () => {
  const [result] = await work(greet, [""]);
  assert.deepEqual([result.status, result.message], [400, "nobody to greet"]);
});
