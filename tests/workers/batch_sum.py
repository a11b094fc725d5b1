"""Sums 0, 1, 2 … below `total` in batches, and gives up its place when its time is over: what is
left goes to the end of its own queue, with all that the next worker needs to go on."""

import json
import time

import pipe_v1

# So that a long task needs several turns; nothing waits for it.
BATCH_SECONDS = 0.0005

for body, queue, headers in pipe_v1.tasks():
    task = json.loads(body)
    # Absent or negative means never.
    timeout = int(headers.get("TimeoutMilliseconds", -1)) / 1000
    end = time.monotonic() + timeout if timeout >= 0 else float("inf")
    while task["next"] < task["total"] and time.monotonic() < end:
        stop = min(task["next"] + task["batch"], task["total"])
        task["sum"] += sum(range(task["next"], stop))
        task["next"] = stop
        time.sleep(BATCH_SECONDS)
    pipe_v1.note("done", body)
    if task["next"] < task["total"]:
        pipe_v1.reply(json.dumps(task), queue, headers)
    else:
        pipe_v1.reply(str(task["sum"]))
