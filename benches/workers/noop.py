"""A worker that does nothing: `threads` or `asyncio`, and how many tasks at once."""

import sys

from ganger_worker import AsyncTask, Task, run


def plain(task: Task) -> None:
    return None


async def asynchronous(task: AsyncTask) -> None:
    return None


kind, concurrency = sys.argv[1:]
run(plain if kind == "threads" else asynchronous, concurrency=int(concurrency))
