"""What both kinds of worker do alike: from what a handler returned or raised to a frame."""

from __future__ import annotations

import asyncio
import traceback

from ._frames import done, encode, framed
from ._outcome import _DONE, Outcome, Status
from ._task import TaskData

_STACK_CHARS_MAX = 8000
"""Of a stack; a dead letter keeps no more either."""


def answer_frame(outcome: object, id: int | None, frame_bytes_max: int) -> bytes:
    """What a handler returned, as a frame. What can't be sent is a failure that says so."""
    if outcome is None or outcome is _DONE:
        return done(id)
    try:
        if not isinstance(outcome, Outcome):
            raise TypeError(
                "a handler must return an Outcome, such as done() or reply(…), or None: "
                f"{type(outcome).__name__}"
            )
        data = encode(
            outcome.message, outcome.status, outcome.headers, outcome.queue, id, outcome.after_ms
        )
        return framed(data, frame_bytes_max)
    except Exception as error:
        return failure_frame(error, id, frame_bytes_max)


def failure_frame(error: BaseException, id: int | None, frame_bytes_max: int) -> bytes:
    """500, with the error in its first line and the stack below."""
    if isinstance(error, asyncio.CancelledError):
        return framed(encode("cancelled", Status.RETRY, id=id), frame_bytes_max)
    try:
        first = "".join(traceback.format_exception_only(error)).strip()
        below = error.__traceback__ and error.__traceback__.tb_next  # without our own frame
        stack = "".join(traceback.format_exception(type(error), error, below))
    except Exception as worse:  # an exception whose text raises one
        first = stack = f"{type(error).__name__}, whose text raises {type(worse).__name__}"
    if len(stack) > _STACK_CHARS_MAX:
        stack = "…" + stack[-_STACK_CHARS_MAX:]
    text = f"{first[:_STACK_CHARS_MAX]}\n{stack}".encode(errors="replace").decode()
    return framed(encode(text, Status.UNKNOWN_ERROR, id=id), max(frame_bytes_max, 1 << 20))


class Flight:
    """The tasks in hand, and the cancellations that came before their messages."""

    __slots__ = ("early", "tasks")

    _EARLY_MAX = 1000

    def __init__(self) -> None:
        self.tasks: dict[int | None, TaskData] = {}
        self.early: dict[int | None, None] = {}

    def look(self, task: TaskData) -> None:
        """To be called when a task has begun, if anything came early."""
        if task.id in self.early:
            self.early.pop(task.id, None)
            task._cancel()

    def cancelled(self, id: int) -> TaskData | None:
        """The task of that id. One that is unknown was answered, or is still in the pipe."""
        task = self.tasks.get(id)
        if task is None:
            self.early[id] = None
            if len(self.early) > self._EARLY_MAX:
                self.early.pop(next(iter(self.early)), None)
            # It may have begun just now, in another thread, and not have seen this.
            task = self.tasks.get(id)
        return task
