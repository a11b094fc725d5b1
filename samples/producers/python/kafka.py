"""Sends a record to Kafka and returns when all replicas in sync have it."""

import os
import sys
import uuid

from confluent_kafka import Producer

correlation_id = str(uuid.uuid4())
failures = []
producer = Producer({
    "bootstrap.servers": os.environ.get("KAFKA_BROKERS", "localhost:9092"),
    "enable.idempotence": True,  # acks=all, and a retry is no duplicate
    "partitioner": "murmur2_random",  # a key goes where other clients' producers put it
})
producer.produce(
    "orders",
    key="customer-4",
    value=b'{"order": 17}',
    headers={
        "CorrelationId": correlation_id,
        "ReplyTo": "orders.replies",
        "MessageId": str(uuid.uuid4()),
        "content-type": "application/json",
        "tenant": "blue",
        "traceparent": os.environ["TRACEPARENT"],
    },
    on_delivery=lambda error, record: failures.append(error) if error else None,
)
unsent = producer.flush(30)  # calls on_delivery
if unsent or failures:
    sys.exit(f"not sent: {failures or 'no answer in 30 s'}")
print(correlation_id)
