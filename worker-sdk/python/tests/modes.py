"""The worker under test: a body's first word says what to do with it.

Arguments: `plain` or `async`, the concurrency, and frame_bytes_max if it is not the usual one.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time

from ganger_worker import AsyncTask, Outcome, Task, done, reject, reply, requeue, retry, run

concurrency = int(sys.argv[2])
barrier = threading.Barrier(concurrency)
together = 0


def simple(task: Task | AsyncTask) -> Outcome | None:
    """What plain and async handlers do alike."""
    if isinstance(task.message, bytes):
        return reply(task.message)
    verb, _, rest = task.message.partition(" ")
    match verb:
        case "" | "done":
            return done() if verb else None
        case "echo":
            return reply(rest)
        case "headers":
            return reply(repr(sorted(task.headers.items())), headers={"n": 7, "ü": "é"}, queue=rest)
        case "about":
            parts = [task.correlation_id, task.queue, task.attempt, task.milliseconds_left]
            return reply(repr([*parts, sorted(task.properties.items())]))
        case "retry":
            return retry("later", after=1.5)
        case "reject":
            return reject("never")
        case "requeue":
            return requeue()
        case "raise":
            raise ValueError("no good: \ud800 " + rest)
        case "wrong":
            return 5  # type: ignore[return-value]
        case "unspeakable":
            return reply("\ud800")
        case "large":
            return reply("x" * int(rest))
        case "exit":
            sys.exit(3)
        case "progress":
            task.progress("1 of 2")
        case "log":
            task.log("debug", "noted", target="tests", n=1, many=[1, 2])
        case "logging":
            logging.getLogger("shop").warning("hot %s", "stuff", extra={"degrees": 90})
        case "child":
            cat = subprocess.run(["cat"], capture_output=True, timeout=30, check=True)
            return reply(cat.stdout)
    return None


def plain(task: Task) -> Outcome | None:
    verb, _, rest = task.text.partition(" ") if isinstance(task.message, str) else ("", "", "")
    if verb == "together":
        barrier.wait(30)
    elif verb == "sleep":
        time.sleep(float(rest))
    elif verb == "stuck":
        task.progress("begun")
        assert task.wait_cancelled(30)
        return retry("gave up")
    elif verb == "emit":
        for n in range(int(rest)):
            task.emit("parts", f"part {n}", {"n": n})
    return simple(task)


async def asynchronous(task: AsyncTask) -> Outcome | None:
    global together
    verb, _, rest = task.text.partition(" ") if isinstance(task.message, str) else ("", "", "")
    if verb == "together":
        together += 1
        while together < concurrency:
            await asyncio.sleep(0.001)
    elif verb == "sleep":
        await asyncio.sleep(float(rest))
    elif verb == "stuck":
        task.progress("begun")
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return retry("gave up")
    elif verb == "uncaught":
        task.progress("begun")
        await asyncio.sleep(30)
    elif verb == "emit":
        for n in range(int(rest)):
            await task.emit("parts", f"part {n}", {"n": n})
    return simple(task)


if __name__ == "__main__":
    limits = [int(each) for each in sys.argv[3:]]
    handler = plain if sys.argv[1] == "plain" else asynchronous
    run(handler, concurrency=concurrency, frame_bytes_max=limits[0] if limits else 64 << 20)
