// Puts a message into a table queue, in the transaction of a row of its own. Node 22.5 or later.
import { randomUUID } from "node:crypto";
import { DatabaseSync } from "node:sqlite";

const correlationId = randomUUID();
const headers = { tenant: "blue", traceparent: process.env.TRACEPARENT };
const db = new DatabaseSync(process.env.DATABASE ?? "ganger.db");
db.exec("PRAGMA busy_timeout = 10000");
db.exec("PRAGMA synchronous = FULL"); // or a power cut may take back what was sent
db.exec("BEGIN IMMEDIATE");
try {
  db.prepare("INSERT INTO orders (id, state) VALUES (17, 'new')").run();
  db.prepare(
    `INSERT INTO consumer_messages
       (queue, body, headers, correlation_id, reply_to, message_id, content_type)
     VALUES ('orders', ?, ?, ?, 'orders.replies', ?, 'application/json')`,
  ).run('{"order": 17}', JSON.stringify(headers), correlationId, randomUUID());
  db.exec("COMMIT");
} catch (error) {
  db.exec("ROLLBACK");
  throw error;
}
console.log(correlationId);
