// Places orders from stdin, one a line, each with its messages in one transaction:
// {"id": "o-1", "customer": "ann", "article": "tea", "quantity": 2, "total": 900}
//
// It says `placed` when that is committed. Whoever has not heard it places the order once more under
// its id, which changes nothing where it is there already.
import { createInterface } from "node:readline";
import pg from "pg";

const ORDER = `
  INSERT INTO orders (id, customer, article, quantity, total)
  VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING`;
// A row for each queue.
const MESSAGES = `
  INSERT INTO consumer_messages (queue, message_id, content_type, body)
  SELECT queue, $1, 'application/json', $2 FROM unnest($3::text[]) AS queue`;
const CHARGE = "UPDATE customers SET credit = credit - $1 WHERE name = $2";

const connectionString = process.env.DATABASE_URL ?? "postgresql://localhost/shop";
const db = new pg.Client({ connectionString });
await db.connect();

async function place(order) {
  const { id, customer, article, quantity, total } = order;
  await db.query("BEGIN");
  try {
    const placed = await db.query(ORDER, [id, customer, article, quantity, total]);
    if (placed.rowCount === 1) {
      await db.query(MESSAGES, [id, JSON.stringify(order), ["stock", "invoices", "points"]]);
      await db.query(CHARGE, [total, customer]); // refused if it is not covered, and the messages with it
    }
    await db.query("COMMIT");
  } catch (error) {
    await db.query("ROLLBACK");
    throw error;
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  try {
    await place(order);
    console.log("placed", order.id);
  } catch (error) {
    if (!error.constraint) throw error;
    console.log("refused", order.id, error.constraint);
  }
}
await db.end();
