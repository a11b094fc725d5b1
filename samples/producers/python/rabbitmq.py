"""Sends a message to RabbitMQ and returns when the broker has it."""

import os
import uuid

import pika

correlation_id = str(uuid.uuid4())
url = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost")
with pika.BlockingConnection(pika.URLParameters(url)) as connection:
    channel = connection.channel()
    channel.confirm_delivery()  # from here on basic_publish waits, and raises if it was not taken
    channel.basic_publish(
        exchange="",
        routing_key="orders",
        body=b'{"order": 17}',
        mandatory=True,  # without the queue UnroutableError, not a message that is gone
        properties=pika.BasicProperties(
            delivery_mode=pika.DeliveryMode.Persistent,
            content_type="application/json",
            message_id=str(uuid.uuid4()),
            correlation_id=correlation_id,
            reply_to="orders.replies",
            headers={"tenant": "blue", "traceparent": os.environ["TRACEPARENT"]},
        ),
    )
print(correlation_id)
