"""A first worker: it answers in capitals."""

from ganger_worker import Outcome, Task, reply, run


def shout(task: Task) -> Outcome:
    return reply(task.text.upper() + "!")


run(shout, concurrency=4)
