// The published vectors: proto-spec/vectors, or where GANGER_VECTORS says.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { test } from "node:test";
import { decode, done, encode, framed, ProtocolError, Splitter } from "../dist/esm/frames.js";
import { VERSION } from "../dist/esm/version.js";

const folder = process.env.GANGER_VECTORS ?? new URL("../../../proto-spec/vectors", import.meta.url).pathname;

function vectors(name) {
  const file = JSON.parse(readFileSync(join(folder, `${name}.json`), "utf8"));
  assert.equal(file.format, 1);
  assert.ok(file.vectors.length > 0);
  return file.vectors;
}

const body = (meaning) => ("text" in meaning ? meaning.text : Buffer.from(meaning.hex, "hex"));
const id = (text) => (text == null ? undefined : Number.isSafeInteger(+text) ? +text : BigInt(text));

function property(meaning) {
  if ("integer" in meaning) return id(meaning.integer);
  return "boolean" in meaning ? meaning.boolean : body(meaning);
}

for (const vector of [...vectors("input-v1"), ...vectors("input-v2")]) {
  test(`input ${vector.version}: ${vector.name}`, () => {
    const { meaning } = vector;
    const fields = decode(Buffer.from(vector.bytes, "hex"));
    assert.deepEqual(fields, {
      message: body(meaning.message),
      correlationId: meaning.correlation_id,
      queue: meaning.queue,
      headers: Object.fromEntries(meaning.headers),
      id: id(meaning.id),
      attempt: meaning.attempt ?? undefined,
      millisecondsLeft: meaning.milliseconds_left ?? undefined,
      properties: Object.fromEntries(meaning.properties.map(([name, value]) => [name, property(value)])),
    });
    assert.deepEqual(Object.keys(fields.headers), meaning.headers.map(([name]) => name));
  });
}

for (const vector of vectors("input-hostile")) {
  test(`hostile input: ${vector.name}`, () => {
    assert.throws(() => decode(Buffer.from(vector.bytes, "hex")), ProtocolError);
  });
}

test("what the vectors lack is refused too", () => {
  const start = "85a130a16da131a0a132a171a133";
  for (const [name, data] of Object.entries({
    empty: "",
    "header of a number": `${start}81a16101a13401`,
    "headers in a list": `${start}90a13401`,
    "true for an id": `${start}80a134c3`,
    "a fraction for an id": `${start}80a134cb3ff8000000000000`,
    "0xc1": `${start}80a134c1`,
    "properties nested too deep": `86a130a16da131a0a132a171a13380a13401a13781a161${"91".repeat(64)}c0`,
    "claims 4 GiB": `${start}80a178c6ffffffff`,
    "a list that claims 2 G": `${start}80a178dd7fffffff`,
    "claims 4 G entries": "dfffffffff",
  })) {
    assert.throws(() => decode(Buffer.from(data, "hex")), ProtocolError, name);
  }
});

test("unknown keys may hold anything, and a header may have any name", () => {
  const start = "86a130a16da131a0a132a171a13380a13401a178";
  const repeated = "87a130a16da131a0a132a171a13380a13401a178c0a178c0";
  const wide = "de0005a130a16da131a0a132a171a13380a13401";
  for (const data of [`${start}820102c0c3`, `${start}c70305616263`, repeated, wide]) {
    assert.equal(decode(Buffer.from(data, "hex")).id, 1, data);
  }
  const name = "a95f5f70726f746f5f5f";
  const proto = `88a130${name}a131a0a132a171a13381${name}a161a13401a13501a136c0a13781a16193${name}c40101cb3ff8000000000000`;
  const { message, headers, properties } = decode(Buffer.from(proto, "hex"));
  assert.equal(message, "__proto__");
  assert.deepEqual(headers, { "--proto__": "a" });
  assert.deepEqual(properties, { a: ["__proto__", Buffer.of(1), 1.5] });
});

let written = 0;
for (const vector of [...vectors("output-v1"), ...vectors("output-v2")]) {
  if (vector.form !== "canonical") continue;
  written++;
  test(`output: ${vector.name}`, () => {
    const { meaning } = vector;
    const headers = meaning.headers && Object.fromEntries(meaning.headers);
    const data = encode(
      body(meaning.message),
      meaning.status,
      headers,
      meaning.reply_queue,
      id(meaning.id),
      meaning.retry_after_ms,
    );
    assert.equal(Buffer.from(data).toString("hex"), vector.bytes);
  });
}

test("enough was written, and wide numbers stay whole", () => {
  assert.ok(written > 20);
  const data = encode("", 429, null, null, 2 ** 40, 2 ** 33);
  assert.equal(Buffer.from(data).toString("hex"),
    "84a130a0a131cd01ada134cf0000010000000000a135cf0000000200000000");
});

test("the short way to the usual answer writes the same", () => {
  for (const id of [undefined, 0, 127, 128, 255, 256, 65_535, 65_536, 0xffffffff, 0x100000000, 2n ** 64n - 1n]) {
    assert.deepEqual(done(id), framed(encode("", 200, null, null, id), 100), `${id}`);
  }
});

for (const vector of vectors("framing")) {
  test(`framing: ${vector.name}`, () => {
    const stream = Buffer.from(vector.stream, "hex");
    for (const size of [1, 2, 3, 5, 7, stream.length || 1]) {
      const splitter = new Splitter(vector.frame_bytes_max);
      const frames = [];
      for (let at = 0; at < stream.length; at += size) {
        frames.push(...splitter.feed(stream.subarray(at, at + size)).map((f) => f.toString("hex")));
      }
      assert.deepEqual(frames, vector.frames);
      assert.equal(splitter.broken !== undefined, vector.error !== null);
      if (!splitter.broken) assert.equal(splitter.rest.toString("hex"), vector.rest);
    }
  });
}

test("the version is one", () => {
  assert.equal(createRequire(import.meta.url)("../package.json").version, VERSION);
});
