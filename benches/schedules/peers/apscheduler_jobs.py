"""APScheduler with that many jobs of a second each, all due at one instant. It prints when each was due and when its
function was called."""

import logging
import os
import time
from datetime import datetime, timezone

from apscheduler.events import EVENT_JOB_EXECUTED, EVENT_SCHEDULER_STARTED
from apscheduler.schedulers.blocking import BlockingScheduler


def now():
    return time.time_ns() // 1000


def tell(line):
    os.write(1, f"{line}\n".encode())  # print() of several threads would mix lines


def executed(event):
    tell(f"{event.scheduled_run_time.timestamp() * 1e6:.0f}|{event.retval}")


def main():
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)  # it warns of each slot that it leaves out
    scheduler = BlockingScheduler()
    url = os.environ["DATABASE"].replace("postgres:", "postgresql+psycopg:", 1)
    scheduler.add_jobstore("sqlalchemy", url=url)
    scheduler.add_listener(executed, EVENT_JOB_EXECUTED)
    scheduler.add_listener(lambda _: tell("up"), EVENT_SCHEDULER_STARTED)
    first = datetime.now(timezone.utc).replace(microsecond=0)
    for _ in range(int(os.environ["SCHEDULES"])):
        scheduler.add_job("apscheduler_jobs:now", "interval", seconds=1, start_date=first)
    scheduler.start()


if __name__ == "__main__":
    main()
