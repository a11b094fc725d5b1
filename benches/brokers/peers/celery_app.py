"""Celery with a task that does nothing. Run as a program, it sends one."""

import os

from celery import Celery

app = Celery(broker=os.environ["BROKER"])
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_acks_late=True,  # done first, acknowledged then, as ganger does it
    task_default_queue="bench",
    task_ignore_result=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=50,
)


@app.task(name="nothing")
def nothing(body):
    pass


if __name__ == "__main__":
    nothing.delay("x" * 200)
