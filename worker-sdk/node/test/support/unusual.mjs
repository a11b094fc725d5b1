// What a handler might return or publish, though it is neither text nor bytes, or can't be sent.
import { reject, reply, retry } from "ganger-worker";

const circular = [];
circular.push(circular);

export const unusual = {
  object: reply({ a: [1, "ü", null] }),
  typed: reply([1], { headers: { "Content-Type": "text/x" } }),
  number: reply(5),
  null: reply(null),
  buffer: reply(new Uint8Array([255]).buffer),
  headers: reply("x", { headers: { a: { b: [1] }, big: 1n << 70n, n: 1.5, when: new Date(0) } }),
  names: reply("x", { headers: JSON.parse('{"constructor":"a","__proto__":"b","toString":"c"}') }),
  reason: reject(new TypeError("odd \ud800")),
  function: reply(() => 5),
  nan: reply(NaN),
  "inner-nan": reply({ a: [Infinity] }),
  circle: reply(circular),
  map: reply(new Map([["a", 1]])),
  bytes: reply({ a: Buffer.from("x") }),
  bigint: reply({ a: 1n }),
  surrogate: reply("a\ud800"),
  name: reply("x", { headers: { "\ud800": "x" } }),
  value: reply("x", { headers: { h: "\ud800" } }),
  symbol: reply("x", { headers: { h: Symbol("x") } }),
  list: reply("x", { headers: [1] }),
  fetched: reply("x", { headers: new Headers() }),
  many: reply("x", { headers: Object.fromEntries([...Array(10_001).keys()].map((n) => [n, ""])) }),
  queue: reply("x", { queue: 5 }),
  status: { status: "200" },
  note: { status: 102 },
  after: { status: 429, afterMs: -1 },
  endless: { status: 429, afterMs: Infinity },
};

const json = { "content-type": "application/json" };

/** What becomes of those that can be sent. */
export const sent = {
  object: { 0: '{"a":[1,"ü",null]}', 1: 201, 2: json },
  typed: { 0: "[1]", 1: 201, 2: { "Content-Type": "text/x" } },
  number: { 0: "5", 1: 201, 2: json },
  null: { 0: "", 1: 201 },
  buffer: { 0: new Uint8Array([255]), 1: 201 },
  headers: {
    0: "x",
    1: 201,
    2: { a: '{"b":[1]}', big: String(1n << 70n), n: 1.5, when: "1970-01-01T00:00:00.000Z" },
  },
  // The last is what our own decoder makes of __proto__.
  names: { 0: "x", 1: 201, 2: { constructor: "a", toString: "c", "--proto__": "b" } },
  reason: { 0: "TypeError: odd \ufffd", 1: 400 },
};

const body = /TypeError: a message must be text, bytes or what JSON has: /;

/** What is said of the others. */
export const refused = {
  function: body,
  nan: body,
  "inner-nan": body,
  circle: body,
  map: body,
  bytes: body,
  bigint: body,
  surrogate: /a message must be text: "a\\ud800" has half a character/,
  name: /a header's name must be text/,
  value: /the header 'h' must be text/,
  symbol: /the header 'h' must be text, bytes or what JSON has: symbol/,
  list: /headers must be an object of names and values: \[ 1 \]/,
  fetched: /headers must be an object of names and values: /,
  many: /at most 10000 headers: 10001/,
  queue: /a queue's name must be text: 5/,
  status: /must return an outcome/,
  note: /an answer's status must be one that ends the message: 102/,
  after: /afterMs must be a whole number from 0: -1/,
  endless: /afterMs must be a whole number from 0: Infinity/,
};

export const published = {
  object: ["parts", { a: 1 }],
  queue: [5, "x"],
  circle: ["parts", circular],
};

export function tooLate() {
  return retry("x", { afterMs: Infinity });
}
