"""Works on what Celery's clients send: its message protocol 2, in JSON."""

import json
from datetime import datetime, timezone

from celery.exceptions import Ignore, Reject
from ganger_worker import Outcome, Task, done, reject, reply, requeue, retry, run

from tasks import app  # your Celery application, as its own workers load it


def seconds_to(time: str) -> float:
    return (datetime.fromisoformat(time) - datetime.now(timezone.utc)).total_seconds()


def work(task: Task) -> Outcome:
    header = task.headers.get
    function = app.tasks.get(header("task", ""))
    if function is None:
        return reject(f"no such task: {header('task')}")
    if task.properties.get("content_type") != "application/json":
        return reject("only JSON is read here")
    if header("expires") and seconds_to(header("expires")) < 0:
        return done()  # as Celery does
    if header("eta") and (wait := seconds_to(header("eta"))) > 0:
        return retry("its time has not come", after=wait)
    args, kwargs, embedded = json.loads(task.message)
    if any((embedded or {}).values()):
        return reject("a chain, a chord or a callback: Celery's own workers do those")
    try:
        result = function(*args, **kwargs)  # an exception is a failed attempt
    except Ignore:
        return done()
    except Reject as error:
        return requeue(str(error)) if error.requeue else reject(str(error))
    if header("ignore_result") == "true":
        return done()
    meta = {"task_id": header("id"), "status": "SUCCESS", "result": result}
    return reply(json.dumps(meta | {"traceback": None, "children": []}))


run(work)
