// Sends a message to RabbitMQ and ends when the broker has it.
import { randomUUID } from "node:crypto";
import amqplib from "amqplib";

const correlationId = randomUUID();
const connection = await amqplib.connect(process.env.AMQP_URL ?? "amqp://localhost");
const channel = await connection.createConfirmChannel();
let returned;
channel.on("return", (message) => {
  returned = message.fields.replyText;
});
channel.publish("", "orders", Buffer.from('{"order": 17}'), {
  persistent: true,
  mandatory: true, // without the queue it comes back, before it is confirmed
  contentType: "application/json",
  messageId: randomUUID(),
  correlationId,
  replyTo: "orders.replies",
  headers: { tenant: "blue", traceparent: process.env.TRACEPARENT },
});
await channel.waitForConfirms(); // throws if it was not taken
await connection.close();
if (returned) throw new Error(`not sent: ${returned}`);
console.log(correlationId);
