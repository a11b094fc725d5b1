"""The worker under test: a body's first word says what to do with it.

Arguments: `plain` or `async`, the concurrency, and frame_bytes_max if it is to be lower than the pool's.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time

from unusual import PUBLISHED, UNUSUAL  # type: ignore[import-not-found]

from ganger_worker import (
    AsyncTask,
    Outcome,
    Task,
    current_task,
    done,
    reject,
    reply,
    requeue,
    retry,
    run,
)

concurrency = int(sys.argv[2])
barrier = threading.Barrier(concurrency)
together = 0
stop = threading.Event()
late = threading.Event()
warmth = "cold"

def forked(how: str) -> None:
    """The child leaves the handler, too; the parent goes on when it is over."""
    task = current_task()
    assert task is not None
    child = os.fork()
    if child == 0:
        task.log("info", "said by a child")
        if how == "exit":
            sys.exit(7)
        if how == "raise":
            raise ValueError("in a child")
        if how == "note":
            task.progress("no")
        return
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    task.log("info", f"the child has ended: {code}")


def linger(task: Task | AsyncTask) -> None:
    """Says something when the answer has gone."""
    late.wait(30)
    task.log("warn", "said late", n=1)
    task.progress("late")
    if isinstance(task, Task):
        try:
            task.emit("parts", "late")
        except RuntimeError as error:
            print(f"refused: {error}", file=sys.stderr, flush=True)


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
        case "unusual":
            unusual: Outcome = UNUSUAL[rest]
            return unusual
        case "fork":
            forked(rest)
        case "stop":
            stop.set()
            for thread in threading.enumerate():
                if thread.name == "ganger-stop":
                    thread.join()
        case "warmth":
            return reply(warmth)
        case "linger":
            threading.Thread(target=linger, args=[task]).start()
        case "late":
            late.set()
        case "progress":
            task.progress(rest or "1 of 2")
        case "count":
            task.progress(5)
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
    elif verb == "publish":
        task.emit(**PUBLISHED[rest])
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
    elif verb == "publish":
        await task.emit(**PUBLISHED[rest])
    return simple(task)


def warm_up() -> None:
    global warmth
    if os.environ.get("WARM_UP") == "exit":
        sys.exit(9)
    child = subprocess.run(["cat"], capture_output=True, timeout=30, check=True)
    warmth = f"warm, stdin held {len(child.stdout)} bytes"


if __name__ == "__main__":
    limits = [int(each) for each in sys.argv[3:]]
    handler = plain if sys.argv[1] == "plain" else asynchronous
    limit = limits[0] if limits else None
    run(handler, concurrency=concurrency, frame_bytes_max=limit, warm_up=warm_up, stop=stop)
