// Real worker processes, with a daemon by hand on the other side.
import assert from "node:assert/strict";
import { test } from "node:test";
import { frame, Peer, task } from "./support/peer.mjs";

const MIB = 1 << 20;

/** A test with a worker of its own, which takes so many at once. */
function worker(name, args, body, options) {
  test(name, { timeout: 60_000 }, async () => {
    const peer = await Peer.start(args, options);
    try {
      await body(peer);
    } finally {
      await peer.close();
    }
  });
}

worker("HELLO names the library and how much it takes", [7], async (peer) => {
  assert.deepEqual(Object.keys(peer.hello), ["0", "1", "2"]);
  assert.equal(peer.hello[0], "");
  assert.equal(peer.hello[1], 100);
  assert.equal(peer.hello[2].sdk, "ganger-node");
  assert.equal(peer.hello[2].concurrency, "7");
});

worker("outcomes", [1], async (peer) => {
  for (const [body, answer] of [
    ["", { 0: "", 1: 200 }],
    ["done", { 0: "", 1: 200 }],
    ["echo Grüße 漢 🦀", { 0: "Grüße 漢 🦀", 1: 201 }],
    ["retry", { 0: "later", 1: 429, 5: 1500 }],
    ["reject", { 0: "never", 1: 400 }],
    ["requeue", { 0: "", 1: 300 }],
  ]) {
    assert.deepEqual(await peer.ask(body, 9), { ...answer, 4: 9 });
  }
  const answer = await peer.ask("headers answers", 0, { 3: { a: "ä", b: "" } });
  assert.deepEqual(answer, {
    0: '{"a":"ä","b":""}', 1: 201, 2: { n: 7, ü: "é" }, 3: "answers", 4: 0,
  });
  const last = (1n << 64n) - 1n;
  const about = await peer.ask("about", last, { 1: "c", 5: 3, 6: 5000, 7: { key: Buffer.from([255]) } });
  assert.deepEqual(JSON.parse(about[0]), {
    correlationId: "c", queue: "q", attempt: 3, millisecondsLeft: 5000, key: [255],
  });
  assert.equal(about[4], last);
});

worker("a handler that throws answers 500 and goes on", [1], async (peer) => {
  const answer = await peer.ask("raise x");
  assert.equal(answer[1], 500);
  assert.equal(answer[4], 1);
  const [first, ...stack] = answer[0].split("\n");
  assert.equal(first, "TypeError: no good: x");
  assert.match(stack.join(), /modes\.mjs/);
  assert.match((await peer.ask("strange"))[0], /thrown: null/);
  assert.match((await peer.ask("wrong"))[0], /must return an outcome/);
  assert.equal((await peer.ask("echo x"))[0], "x");
});

worker("a reply that the daemon would refuse is a failure", [1, 4096], async (peer) => {
  const answer = await peer.ask("large 5000");
  assert.equal(answer[1], 500);
  assert.match(answer[0], /at most 4096 bytes: 50/);
  assert.equal((await peer.ask("large 4000"))[0].length, 4000);
});

worker("large, empty and binary bodies", [1], async (peer) => {
  const large = "ü".repeat(5 * MIB);
  assert.ok((await peer.ask(`echo ${large}`))[0] === large);
  const binary = Buffer.alloc(10 * MIB, Buffer.from([...Array(256).keys()]));
  assert.ok(binary.equals((await peer.ask(binary))[0]));
  assert.equal((await peer.ask(Buffer.alloc(0)))[0].length, 0);
  assert.equal((await peer.ask("echo "))[0], "");
});

worker("frames in dribbles and heaps", [100], async (peer) => {
  peer.pipe.setNoDelay?.();
  for (const byte of frame(task("echo slow", 1))) {
    await new Promise((resolve) => peer.pipe.write(Buffer.from([byte]), resolve));
  }
  assert.equal((await peer.receive())[0], "slow");
  const heap = Buffer.concat([...Array(100).keys()].map((n) => frame(task(`echo ${n}`, n))));
  peer.pipe.write(heap.subarray(0, -5));
  peer.pipe.write(heap.subarray(-5));
  const answers = new Map();
  for (let n = 0; n < 100; n++) {
    const answer = await peer.receive();
    answers.set(answer[4], answer[0]);
  }
  for (let n = 0; n < 100; n++) assert.equal(answers.get(n), String(n));
});

worker("many at once", [8], async (peer) => {
  for (let n = 0; n < 8; n++) peer.send("together", n);
  const ids = new Set();
  for (let n = 0; n < 8; n++) ids.add((await peer.receive())[4]);
  assert.equal(ids.size, 8);
});

worker("a slow one holds up no other", [2], async (peer) => {
  peer.send("stuck", 1);
  for (let n = 2; n < 200; n++) assert.equal((await peer.ask("echo x", n))[4], n);
  peer.tell("__cancel__ 1");
  assert.deepEqual(await peer.receive(), { 0: "gave up", 1: 429, 4: 1 });
});

worker("notes go out before the answer", [1], async (peer) => {
  peer.send("emit 300", 5);
  for (let n = 0; n < 300; n++) {
    assert.deepEqual(await peer.receive(), { 0: `part ${n}`, 1: 103, 2: { n }, 3: "parts", 4: 5 });
  }
  assert.equal((await peer.receive())[1], 200);
  assert.deepEqual(await peer.ask("progress"), { 0: "1 of 2", 1: 102, 4: 1 });
  assert.equal((await peer.receive())[1], 200);
  const fields = { level: "debug", target: "tests", n: 1, many: "[1,2]" };
  assert.deepEqual(await peer.ask("log"), { 0: "noted", 1: 101, 2: fields, 4: 1 });
  assert.equal((await peer.receive())[1], 200);
  const text = "hot stuff { degrees: 90 }";
  assert.deepEqual(await peer.ask("console"), { 0: text, 1: 101, 2: { level: "warn" }, 4: 1 });
  assert.equal((await peer.receive())[1], 200);
});

worker("cancel", [1], async (peer) => {
  peer.send("stuck", 3);
  peer.tell("__cancel__ 77\n__cancel__ \n__cancel__ x\n__cancel__ 3");
  assert.deepEqual(await peer.receive(), { 0: "gave up", 1: 429, 4: 3 });
  // One that overtakes its message: stdin and the pipe have no common order.
  peer.tell("__cancel__ 4");
  peer.send("stuck", 4);
  assert.equal((await peer.receive())[1], 429);
  peer.send("uncaught", 5);
  peer.tell("__cancel__ 5");
  const { 0: said, ...answer } = await peer.receive();
  assert.deepEqual(answer, { 1: 429, 4: 5 });
  assert.match(said, /^cancelled\nAbortError: .*\n    at /);
  assert.equal((await peer.ask("echo on", 6))[0], "on");
});

worker("quit when idle", [3], async (peer) => {
  await peer.ask("echo x");
  peer.tell("__quit__");
  assert.equal(await peer.end(), 0);
});

worker("quit when busy", [2], async (peer) => {
  peer.send("stuck", 1);
  assert.equal((await peer.ask("echo x", 3))[0], "x");
  peer.send("sleep 200", 2);
  peer.tell("__quit__");
  assert.deepEqual(await peer.receive(), { 0: "", 1: 200, 4: 2 });
  peer.tell("__cancel__ 1");
  assert.equal((await peer.receive())[1], 429);
  assert.equal(await peer.end(), 0);
});

worker("the end of the pipe", [1], async (peer) => {
  peer.send("sleep 100");
  peer.pipe.end();
  assert.equal((await peer.receive())[1], 200);
  assert.equal(await peer.end(), 0);
});

worker("the end of stdin", [1], async (peer) => {
  peer.send("sleep 100");
  peer.control.end();
  assert.equal((await peer.receive())[1], 200);
  assert.equal(await peer.end(), 0);
});

worker("a daemon that is gone is no error", [1], async (peer) => {
  peer.send("sleep 100");
  await peer.ask("progress");
  peer.pipe.destroy();
  peer.control.end();
  assert.equal(await peer.ended, 0, peer.stderr);
});

worker("what a worker does not know it ignores", [1], async (peer) => {
  peer.tell("__context_switch__\n\n__unheard__ of");
  const answer = await peer.ask("echo x", 1, { 8: { new: [1] }, more: Buffer.from([255]) });
  assert.equal(answer[0], "x");
});

worker("a hostile input ends the connection", [1], async (peer) => {
  peer.pipe.write(frame({ 0: "m" }));
  assert.equal(await peer.end(), 1);
  assert.match(peer.stderr, /no "1"/);
});

worker("a hostile length ends the connection", [1], async (peer) => {
  peer.pipe.write(Buffer.from([0x7f, 0xff, 0xff, 0xff]));
  assert.equal(await peer.end(), 1);
  assert.match(peer.stderr, /at most 67108864 bytes/);
});

// -- version 1 --

worker("version 1", [8], async (peer) => {
  // Ahead of the answers, as `pipeline` does it; the answers are in order.
  const inputs = [...Array(200).keys()].map((n) => {
    const { 0: body, 1: correlation, 2: queue, 3: headers } = task(n % 2 ? `echo ${n}` : "sleep 1", n);
    return frame({ 0: body, 1: correlation, 2: queue, 3: headers });
  });
  peer.pipe.write(Buffer.concat(inputs));
  for (let n = 0; n < 200; n++) {
    assert.deepEqual(await peer.receive(), n % 2 ? { 0: String(n), 1: 201 } : { 0: "", 1: 200 });
  }
  assert.deepEqual(await peer.ask("progress"), { 0: "1 of 2", 1: -1 });
  assert.deepEqual(await peer.receive(), { 0: "", 1: 200 });
  assert.deepEqual(await peer.ask("log"), { 0: "", 1: 200 });
  const answer = await peer.ask("emit 1");
  assert.equal(answer[1], 500);
  assert.match(answer[0], /version 2/);
  peer.tell("__quit__");
  assert.equal(await peer.end(), 0);
  assert.match(peer.stderr, /debug: noted/);
}, { version: 1 });

worker("version 1 gives up by itself and yields when told", [1], async (peer) => {
  const answer = await peer.ask("stuck", 1, { 3: { TimeoutMilliseconds: "100" } });
  assert.deepEqual(answer, { 0: "gave up", 1: 429 });
  for (const timeout of ["-1", "soon"]) {
    assert.equal((await peer.ask("echo x", 1, { 3: { TimeoutMilliseconds: timeout } }))[0], "x");
  }
  // The line may overtake the message, which knows nothing of it then.
  const telling = setInterval(() => peer.tell("__context_switch__"), 20);
  try {
    assert.equal((await peer.ask("stuck"))[0], "gave up");
  } finally {
    clearInterval(telling);
  }
}, { version: 1 });
