# frozen_string_literal: true

# What a handler might return or publish, though it is no String, or can't be sent.

circular = []
circular << circular

UNUSUAL = {
  "object" => Ganger.reply({ a: [1, "ü", nil] }),
  "typed" => Ganger.reply([1], headers: { "Content-Type" => "text/x" }),
  "number" => Ganger.reply(5),
  "nil" => Ganger.reply(nil),
  "headers" => Ganger.reply("x", headers: { "a" => { b: [1] }, big: 1 << 70, n: 1.5, 7 => true }),
  "reason" => Ganger.reject(TypeError.new("odd \xff")),
  "nan" => Ganger.reply(Float::NAN),
  "inner-nan" => Ganger.reply({ a: [Float::INFINITY] }),
  "circle" => Ganger.reply(circular),
  "bytes" => Ganger.reply({ a: "\xff" }),
  "thing" => Ganger.reply(Object.new),
  "value" => Ganger.reply("x", headers: { "h" => [Float::NAN] }),
  "list" => Ganger.reply("x", headers: [1]),
  "many" => Ganger.reply("x", headers: (0..10_000).to_h { |n| [n, ""] }),
  "queue" => Ganger.reply("x", queue: 5),
  "name" => Ganger.reply("x", queue: "\xff"),
  "status" => Ganger::Outcome.new("200"),
  "note" => Ganger::Outcome.new(102),
  "after" => Ganger::Outcome.new(429, after_ms: -1),
  "fraction" => Ganger::Outcome.new(429, after_ms: 1.5)
}.freeze

JSON_TYPE = { "content-type" => "application/json" }.freeze

# What becomes of those that can be sent.
SENT = {
  "object" => { "0" => '{"a":[1,"ü",null]}', "1" => 201, "2" => JSON_TYPE },
  "typed" => { "0" => "[1]", "1" => 201, "2" => { "Content-Type" => "text/x" } },
  "number" => { "0" => "5", "1" => 201, "2" => JSON_TYPE },
  "nil" => { "0" => "", "1" => 201 },
  "headers" => { "0" => "x", "1" => 201,
                 "2" => { "a" => '{"b":[1]}', "big" => (1 << 70).to_s, "n" => 1.5, "7" => true } },
  "reason" => { "0" => "TypeError: odd ?", "1" => 400 }
}.freeze

body = "a message must be text, bytes or what JSON has: "

# What is said of the others.
REFUSED = {
  "nan" => body, "inner-nan" => body, "circle" => body, "bytes" => body, "thing" => body,
  "value" => "a header must be text, bytes or what JSON has: ",
  "list" => "headers must be a Hash: Array",
  "many" => "at most 10000 headers: 10001",
  "queue" => "a queue's name must be text: 5",
  "name" => "a queue's name must be text: ",
  "status" => 'an answer\'s status must be a whole number: "200"',
  "note" => "an answer's status must be one that ends the message: 102",
  "after" => "after_ms must be a whole number from 0: -1",
  "fraction" => "after_ms must be a whole number: 1.5"
}.freeze

PUBLISHED = { "object" => ["parts", { a: 1 }], "queue" => [5, "x"], "nan" => ["parts", Float::NAN] }.freeze
