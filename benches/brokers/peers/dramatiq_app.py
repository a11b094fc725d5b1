"""dramatiq with an actor that does nothing. Run as a program, it sends one message."""

import os

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

dramatiq.set_broker(RabbitmqBroker(url=os.environ["BROKER"]))


@dramatiq.actor(actor_name="nothing", queue_name="bench")
def nothing(body):
    pass


if __name__ == "__main__":
    nothing.send("x" * 200)
