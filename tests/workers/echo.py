"""Answers each message with all that it was told of it."""

import json

from ganger_worker import Outcome, Task, reply, run


def echo(task: Task) -> Outcome:
    told = {
        "body": task.text,
        "correlation_id": task.correlation_id,
        "headers": dict(task.headers),
        "properties": dict(task.properties),
    }
    return reply(json.dumps(told, default=repr))


run(echo)
