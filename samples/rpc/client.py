"""Asks for Fibonacci numbers, all at once, and prints the answers: python3 client.py 10 20 30"""

from __future__ import annotations

import os
import sys
import time
import uuid

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic, BasicProperties

URL = os.environ.get("RABBITMQ_URL", "amqp://guest:guest@localhost:5672/%2f")
QUEUE = "rpc.fibonacci"
REPLIES = "amq.rabbitmq.reply-to"  # a pseudo-queue of this channel: nothing to declare or to delete
WAIT_SECONDS = 10


class Client:
    """Requests on one channel, their answers matched by correlation id."""

    def __init__(self, connection: pika.BlockingConnection) -> None:
        self._connection = connection
        self._channel = connection.channel()
        self._channel.confirm_delivery()  # publishing raises where the broker does not take it
        self._channel.basic_consume(REPLIES, self._answered, auto_ack=True)
        self._answers: dict[str, str] = {}

    def ask(self, questions: list[str]) -> dict[str, str]:
        """The answers by question; a question without one in time is left out."""
        ids = {str(uuid.uuid4()): question for question in questions}
        for id, question in ids.items():
            properties = BasicProperties(
                correlation_id=id,
                reply_to=REPLIES,
                # Nobody works on what nobody waits for any more.
                expiration=str(WAIT_SECONDS * 1000),
            )
            # mandatory: an error where there is no such queue, instead of silence.
            self._channel.basic_publish("", QUEUE, question.encode(), properties, mandatory=True)
        end = time.monotonic() + WAIT_SECONDS
        while not ids.keys() <= self._answers.keys() and (left := end - time.monotonic()) > 0:
            self._connection.process_data_events(time_limit=left)
        answered = ids.keys() & self._answers.keys()
        return {ids[id]: self._answers.pop(id) for id in answered}

    def _answered(
        self, _: BlockingChannel, __: Basic.Deliver, properties: BasicProperties, body: bytes
    ) -> None:
        error = (properties.headers or {}).get("error")
        self._answers[properties.correlation_id] = f"error: {error}" if error else body.decode()


def main(questions: list[str]) -> int:
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        answers = Client(connection).ask(questions)
    for question in questions:
        print(f"{question}: {answers.get(question, f'no answer within {WAIT_SECONDS} s')}")
    return 0 if answers.keys() >= set(questions) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
