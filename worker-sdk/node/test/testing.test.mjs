// The harness, by which handlers are tested without a daemon, and what is seen best through it.
import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { createRequire } from "node:module";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { context, propagation } from "@opentelemetry/api";
import { currentTask, done, ProtocolError, reply, retry, run } from "ganger-worker";
import { work } from "ganger-worker/testing";

async function shout(task) {
  await task.emit("heard", task.text);
  task.progress("half way");
  task.log("info", "shouting", { volume: 11 });
  return reply(task.text.toUpperCase(), { headers: { loud: true }, queue: "answers" });
}

test("results in the order of the messages", async () => {
  const bodies = [...Array(500).keys()].map((n) => `message ${n}`);
  for (const concurrency of [1, 16]) {
    const results = await work(shout, bodies, { concurrency });
    assert.deepEqual(results.map((each) => each.message), bodies.map((each) => each.toUpperCase()));
    assert.deepEqual(results[499], {
      status: 201,
      message: "MESSAGE 499",
      headers: { loud: true },
      queue: "answers",
      emits: [{ message: "message 499", headers: {}, queue: "heard" }],
      logs: [{ message: "shouting", headers: { level: "info", volume: 11 } }],
      progress: ["half way"],
    });
  }
});

test("everything of a message reaches the handler", async () => {
  let seen;
  const sent = {
    body: Buffer.from([255]), correlationId: "c", queue: "q", headers: { a: "b" }, attempt: 3,
    millisecondsLeft: 100, properties: { row_id: 7 },
  };
  const [result] = await work((task) => void (seen = task), [sent]);
  assert.equal(result.status, 200);
  assert.deepEqual([...seen.bytes], [255]);
  assert.throws(() => seen.text, TypeError);
  const { correlationId, queue, headers, attempt, millisecondsLeft, properties } = seen;
  assert.deepEqual({ correlationId, queue, headers, attempt, millisecondsLeft, properties }, {
    correlationId: "c", queue: "q", headers: { a: "b" }, attempt: 3, millisecondsLeft: 100,
    properties: { row_id: 7 },
  });
});

test("cancellation", async () => {
  const handle = async (task) => {
    await sleep(30_000, undefined, { signal: task.signal }).catch(() => {});
    return task.cancelled ? retry("gave up", { afterMs: 60_000 }) : done();
  };
  const [result] = await work(handle, [{ cancelAfterMs: 10 }]);
  assert.equal(result.message, "gave up");
  assert.equal(result.retryAfterMs, 60_000);
});

test("version 1", async () => {
  const results = await work((task) => reply(task.text), ["a", "b"], { protocol: 1, concurrency: 4 });
  assert.deepEqual(results.map((each) => each.message), ["a", "b"]);
});

test("hostile messages are thrown, and a handler that stands still is told", async () => {
  await assert.rejects(work(done, [{ headers: { a: 5 } }]), ProtocolError);
  await assert.rejects(work(() => new Promise(() => {}), ["a"], { timeoutMs: 50 }), /for 50 ms/);
});

test("the current task is known, and only while it lasts", async () => {
  const handle = async (task) => {
    await sleep(1);
    return reply(String(currentTask() === task));
  };
  const results = await work(handle, Array(8).fill("x"), { concurrency: 4 });
  assert.deepEqual(new Set(results.map((each) => each.message)), new Set(["true"]));
  assert.equal(currentTask(), undefined);
});

test("console goes to the log while a handler runs, and as ever after it", async () => {
  const before = console.error;
  const [result] = await work(() => console.error("it", 5), ["x"], { console: true });
  assert.deepEqual(result.logs, [{ message: "it 5", headers: { level: "error" } }]);
  assert.equal(console.error, before);
});

test("bad arguments are told", async () => {
  for (const concurrency of [0, -1, 1.5, "2"]) {
    await assert.rejects(run(done, { concurrency }), /concurrency must be a whole number from 1/);
  }
  await assert.rejects(run("shout"), /must be a function/);
  for (const afterMs of [-1, NaN]) {
    assert.throws(() => retry("", { afterMs }), /afterMs must be 0 or more milliseconds/);
  }
  const [result] = await work((task) => task.emit("", "x"), ["a"]);
  assert.match(result.message, /emit needs the name of a queue/);
});

test("CommonJS has the same", async () => {
  const require = createRequire(import.meta.url);
  const { work } = require("ganger-worker/testing");
  const { reply } = require("ganger-worker");
  const [result] = await work((task) => reply(task.text + "!"), ["a"]);
  assert.equal(result.message, "a!");
});

test("a handler runs in the OpenTelemetry context of its message", async () => {
  const store = new AsyncLocalStorage();
  const key = Symbol.for("trace");
  context.setGlobalContextManager({
    active: () => store.getStore(),
    with: (active, work, self, ...args) => store.run(active, () => work.apply(self, args)),
    bind: (_, target) => target,
    enable() { return this; },
    disable() { return this; },
  });
  propagation.setGlobalPropagator({
    inject() {},
    extract: (active, carrier) => active.setValue(key, carrier.traceparent),
    fields: () => ["traceparent"],
  });
  const handle = async () => {
    await sleep(1);
    return reply(String(context.active()?.getValue(key)));
  };
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const results = await work(handle, [{ headers: { traceparent } }, "x"]);
  assert.deepEqual(results.map((each) => each.message), [traceparent, "undefined"]);
});
