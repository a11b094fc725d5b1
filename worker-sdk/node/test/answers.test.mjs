// What a handler may say, and what is its message's failure instead of the whole worker's.
import assert from "node:assert/strict";
import { test } from "node:test";
import { reply } from "ganger-worker";
import { work } from "ganger-worker/testing";
import { Peer } from "./support/peer.mjs";
import { refused, sent, tooLate, unusual } from "./support/unusual.mjs";

const NAMES = ["constructor", "toString", "valueOf", "hasOwnProperty", "length", "then", "__proto__", ""];

test("in life", { timeout: 60_000 }, async () => {
  assert.deepEqual(Object.keys({ ...sent, ...refused }), Object.keys(unusual));
  const peer = await Peer.start([2]);
  try {
    for (const [name, answer] of Object.entries(sent)) {
      const { 2: headers, ...rest } = answer;
      const output = await peer.ask(name === "names" ? "echo on" : `unusual ${name}`);
      if (name === "names") continue; // the library's decoder refuses the name
      assert.deepEqual({ ...output[2] }, { ...headers }, name);
      delete output[2];
      assert.deepEqual({ ...output, 0: plain(output[0]) }, { ...rest, 0: plain(rest[0]), 4: 1 });
    }
    for (const [name, why] of Object.entries(refused)) {
      const answer = await peer.ask(`unusual ${name}`);
      assert.equal(answer[1], 500, name);
      assert.match(answer[0], why);
    }
    const emit = { 0: '{"a":1}', 1: 103, 2: { "content-type": "application/json" }, 3: "parts", 4: 1 };
    assert.deepEqual(await peer.ask("publish object"), emit);
    assert.equal((await peer.receive())[1], 200);
    assert.deepEqual(await peer.ask("count"), { 0: "5", 1: 102, 4: 1 });
    assert.equal((await peer.receive())[1], 200);
    for (const name of ["queue", "circle"]) {
      assert.equal((await peer.ask(`publish ${name}`))[1], 500);
      assert.equal((await peer.ask(`forgotten ${name}`))[1], 500);
    }
    assert.equal((await peer.ask("echo on"))[0], "on");
  } finally {
    await peer.close();
  }
});

function plain(body) {
  return typeof body === "string" ? body : [...body];
}

test("in the harness", async () => {
  const names = Object.keys(unusual);
  const results = await work((task) => unusual[task.text], names);
  for (const [index, name] of names.entries()) {
    const { status, message, headers } = results[index];
    if (name in sent) {
      assert.equal(status, sent[name][1]);
      assert.deepEqual(plain(message), plain(sent[name][0]));
      assert.deepEqual({ ...headers }, { ...sent[name][2] });
    } else {
      assert.equal(status, 500, name);
      assert.match(message, refused[name]);
    }
  }
  assert.throws(tooLate, RangeError);
});

test("the daemon's limit is obeyed", { timeout: 60_000 }, async () => {
  const variables = { GANGER_FRAME_BYTES_MAX: "1024" };
  for (const args of [[1], [1, 4096]]) {
    const peer = await Peer.start(args, { variables });
    try {
      let answer = await peer.ask("large 1020");
      assert.equal(answer[1], 500);
      assert.match(answer[0], /at most 1024 bytes: 10/);
      // So is it by what a failure, a reason and a note have to say.
      answer = await peer.ask(`raise ${"x".repeat(900)}`);
      assert.equal(answer[1], 500);
      assert.match(answer[0], /TypeError: no good/);
      assert.equal((await peer.ask(`progress ${"ü".repeat(400)}`))[1], 102);
      assert.equal((await peer.receive())[1], 200);
    } finally {
      await peer.close();
    }
  }
  const peer = await Peer.start([1, 1000], { variables });
  assert.equal((await peer.ask("large 990"))[1], 500);
  await peer.close();
});

test("a header's name may be anybody's built-in", { timeout: 60_000 }, async () => {
  const peer = await Peer.start([1]);
  try {
    for (const name of NAMES) {
      const headers = name === "__proto__" ? undefined : { [name]: "v" };
      if (headers === undefined) continue; // the peer's encoder can't send it: the vectors have it
      const answer = await peer.ask("headers x", 1, { 3: headers });
      assert.deepEqual(JSON.parse(answer[0]), headers);
      assert.equal((await peer.ask("echo on", 1, { 7: headers }))[0], "on");
    }
  } finally {
    await peer.close();
  }
  const sent = Object.fromEntries(NAMES.map((name) => [name, "v"]));
  delete sent["__proto__"];
  const echo = (task) => {
    task.log("info", "said", JSON.parse('{"__proto__":"p","constructor":"c"}'));
    return reply("", { headers: { ...task.headers } });
  };
  const [result] = await work(echo, [{ headers: sent }]);
  assert.deepEqual({ ...result.headers }, sent);
  assert.deepEqual(result.logs[0].headers, { level: "info", "--proto__": "p", constructor: "c" });
});
