// Sends a record to Kafka and ends when all replicas in sync have it.
import { randomUUID } from "node:crypto";
import kafkajs from "kafkajs";

const correlationId = randomUUID();
const brokers = (process.env.KAFKA_BROKERS ?? "localhost:9092").split(",");
const kafka = new kafkajs.Kafka({ brokers, logLevel: kafkajs.logLevel.ERROR });
const producer = kafka.producer({
  idempotent: true, // a retry is no duplicate
  maxInFlightRequests: 1,
  createPartitioner: kafkajs.Partitioners.DefaultPartitioner,
});
await producer.connect();
await producer.send({
  topic: "orders",
  acks: -1, // all replicas in sync; throws if they do not have it
  messages: [
    {
      key: "customer-4",
      value: '{"order": 17}',
      headers: {
        CorrelationId: correlationId,
        ReplyTo: "orders.replies",
        MessageId: randomUUID(),
        "content-type": "application/json",
        tenant: "blue",
        traceparent: process.env.TRACEPARENT,
      },
    },
  ],
});
await producer.disconnect();
console.log(correlationId);
