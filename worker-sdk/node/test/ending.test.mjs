// Beginnings and ends that the daemon has not asked for: warm-up, a host that stops, late notes.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";
import { MODES, Peer } from "./support/peer.mjs";

function worker(name, args, body) {
  test(name, { timeout: 60_000 }, async () => {
    const peer = await Peer.start(args);
    try {
      await body(peer);
    } finally {
      await peer.close();
    }
  });
}

worker("child processes can't read the control lines", [2], async (peer) => {
  assert.equal((await peer.ask("child"))[0], "");
  assert.equal((await peer.ask("warmth"))[0], "warm, stdin held 0 bytes");
  peer.tell("__quit__");
  assert.equal(await peer.end(), 0);
});

worker("a host that stops finishes what is in hand", [3], async (peer) => {
  peer.send("stuck", 1);
  assert.equal((await peer.ask("stop", 2))[1], 200);
  peer.send("echo x", 3); // the daemon does not know yet
  peer.tell("__cancel__ 1");
  assert.deepEqual(await peer.receive(), { 0: "gave up", 1: 429, 4: 1 });
  const answer = await peer.receive();
  assert.deepEqual([answer[1], answer[4]], [300, 3]);
  assert.equal(await peer.end(), 0);
});

worker("what is held until the end goes back when it is cancelled", [4], async (peer) => {
  peer.send("stuck", 1);
  assert.equal((await peer.ask("stop", 3))[1], 200);
  peer.send("echo x", 4);
  peer.tell("__cancel__ 4");
  let answer = await peer.receive();
  assert.deepEqual([answer[1], answer[4]], [300, 4]);
  // Stdin and the pipe have no common order.
  peer.tell("__cancel__ 5");
  peer.send("echo x", 5);
  answer = await peer.receive();
  assert.deepEqual([answer[1], answer[4]], [300, 5]);
  peer.tell("__cancel__ 1");
  assert.deepEqual(await peer.receive(), { 0: "gave up", 1: 429, 4: 1 });
  assert.equal(await peer.end(), 0);
});

worker("a host that stops an idle worker", [1], async (peer) => {
  assert.equal((await peer.ask("stop"))[1], 200);
  assert.equal(await peer.end(), 0);
});

worker("what is said after the answer goes to stderr", [1], async (peer) => {
  assert.equal((await peer.ask("linger"))[1], 200);
  while (!peer.stderr.includes("refused")) await once(peer.process.stderr, "data");
  assert.match(peer.stderr, /warn: said late n=1\n/);
  assert.match(peer.stderr, /printed late\n/);
  assert.match(peer.stderr, /refused: emit must come before the handler's answer/);
  assert.equal((await peer.ask("echo on"))[0], "on");
});

test("warm-up comes before the pipe", { timeout: 60_000 }, async () => {
  const path = `/tmp/CoreFxPipe_warm-${process.pid}`;
  const server = createServer().listen(path);
  let connections = 0;
  server.on("connection", () => connections++);
  await once(server, "listening");
  const child = spawn(process.execPath, [MODES, "1"], { env: { ...process.env, WARM_UP: "exit" } });
  child.stdin.end(`warm-${process.pid}\n`);
  const [code] = await once(child, "close");
  // What has connected by then is told in the next turn of the loop.
  await new Promise((resolve) => setImmediate(resolve));
  server.close();
  assert.deepEqual([code, connections], [9, 0]);
});
