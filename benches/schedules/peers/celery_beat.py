"""Celery with that many entries of a second each. Its beat prints when each was due and when it had been sent."""

import os
import time
from datetime import timedelta

from celery import Celery
from celery.beat import PersistentScheduler
from celery.signals import beat_init

PERIOD = timedelta(seconds=1)

app = Celery(broker=os.environ["BROKER"])
app.conf.beat_schedule = {
    f"s{number}": {"task": "nothing", "schedule": PERIOD} for number in range(int(os.environ["SCHEDULES"]))
}


@app.task(name="nothing", ignore_result=True)
def nothing():
    pass


def tell(line):
    os.write(1, f"{line}\n".encode())  # Celery makes print() write to its own log


@beat_init.connect
def up(**_):
    tell("up")


class Scheduler(PersistentScheduler):
    def apply_async(self, entry, *args, **kwargs):
        sent = super().apply_async(entry, *args, **kwargs)
        due = (entry.last_run_at + PERIOD).timestamp()
        tell(f"{due * 1e6:.0f}|{time.time_ns() // 1000}")
        return sent
