// Places orders from stdin, one a line, each with its message in one transaction:
// {"id": "o-1", "customer": "ann", "article": "tea", "quantity": 2, "total": 900}
//
// It says `placed` when that is committed. Whoever has not heard it places the order once more under
// its id, which changes nothing where it is there already.
import { createInterface } from "node:readline";
import pg from "pg";

const ORDER = `
  INSERT INTO orders (id, customer, article, quantity, total)
  VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING`;
// It becomes a message in each queue that is subscribed, in this transaction.
const MESSAGE = `
  INSERT INTO published_messages (topic, message_id, content_type, body)
  VALUES ('order.placed', $1, 'application/json', $2)`;
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
      await db.query(MESSAGE, [id, JSON.stringify(order)]);
      await db.query(CHARGE, [total, customer]); // refused if it is not covered, and the message with it
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
