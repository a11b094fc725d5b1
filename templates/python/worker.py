"""A worker for ganger: it greets whoever is named in the message."""

from ganger_worker import Outcome, Task, reject, reply, run


def greet(task: Task) -> Outcome:
    if not task.text:
        return reject("nobody to greet")  # never tried again: a dead letter
    return reply(f"Hello, {task.text}!")


if __name__ == "__main__":
    run(greet)
