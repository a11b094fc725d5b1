"""The worker of ganger's own tests of this library: real daemon, real queue, workers killed.

Arguments: `plain` or `async`, the concurrency, the version. What it does is in the file $RECORD.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time

from ganger_worker import AsyncTask, Outcome, Task, reply, retry, run

record = os.open(os.environ["RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def note(event: str, task: Task | AsyncTask) -> None:
    body = task.message if isinstance(task.message, str) else "bytes"
    micros = int(time.time() * 1e6)
    line = f"{event}\t{body[:100]}\t{os.getpid()}\t{task.attempt or '-'}\t{micros}\n"
    os.write(record, line.encode())


def decide(task: Task | AsyncTask) -> Outcome | None:
    if isinstance(task.message, bytes):
        return reply(task.message)
    if task.message.startswith("shout: "):
        return reply(task.message.upper(), headers={"colour": task.headers["colour"]})
    if task.message == "raise":
        raise ValueError("no good")
    if task.message == "retry" and task.attempt == 1:
        return retry("later", after=0.01)
    if task.message == "log":
        logging.getLogger("shop").warning("it is hot", extra={"degrees": 90})
        task.progress("half way")
    return None


def plain(task: Task) -> Outcome | None:
    note("began", task)
    time.sleep(0.002)
    if task.message == "emit":
        task.emit("parts", "part", {"n": 1})
    outcome = decide(task)
    note("done", task)
    return outcome


async def asynchronous(task: AsyncTask) -> Outcome | None:
    note("began", task)
    await asyncio.sleep(0.002)
    if task.message == "emit":
        await task.emit("parts", "part", {"n": 1})
    outcome = decide(task)
    note("done", task)
    return outcome


if __name__ == "__main__":
    kind, concurrency, version = sys.argv[1:]
    os.environ["GANGER_PROTOCOL"] = version
    run(plain if kind == "plain" else asynchronous, concurrency=int(concurrency))
