"""What both kinds of worker do alike: from what a handler returned or raised to a frame."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from typing import NoReturn

from ._frames import done, encode, framed
from ._outcome import _DONE, Status, requeue
from ._outgoing import outcome_frame, readable
from ._task import TaskData

_STACK_CHARS_MAX = 8000
"""Of a stack; a dead letter keeps no more either."""


def answer_frame(outcome: object, id: int | None, frame_bytes_max: int) -> bytes:
    """What a handler returned, as a frame. What can't be sent is a failure that says so."""
    if outcome is None or outcome is _DONE:
        return done(id)
    try:
        return outcome_frame(outcome, id, frame_bytes_max)
    except Exception as error:
        return failure_frame(error, id, frame_bytes_max)


def failure_frame(error: BaseException, id: int | None, frame_bytes_max: int) -> bytes:
    """500, or 429 for what was cancelled, with the error in its first line and the stack below."""
    cancelled = isinstance(error, asyncio.CancelledError)
    try:
        first = "cancelled" if cancelled else _first_line(error)
        below = error.__traceback__ and error.__traceback__.tb_next  # without our own frame
        stack = "".join(traceback.format_exception(type(error), error, below))
    except Exception as worse:  # an exception whose text raises one
        first = stack = f"{type(error).__name__}, whose text raises {type(worse).__name__}"
    if len(stack) > _STACK_CHARS_MAX:
        stack = "…" + stack[-_STACK_CHARS_MAX:]
    text = readable(f"{first[:_STACK_CHARS_MAX]}\n{stack}", frame_bytes_max)
    status = Status.RETRY if cancelled else Status.UNKNOWN_ERROR
    return framed(encode(text, status, id=id), frame_bytes_max)


def _first_line(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


def returned_frame(id: int | None, frame_bytes_max: int) -> bytes:
    """The answer to a message that a worker about to end has not begun."""
    return outcome_frame(requeue("the worker is about to end"), id, frame_bytes_max)


def end_child(error: BaseException | None) -> NoReturn:
    """A process that the handler has forked has left the handler. Only its parent answers."""
    code: object = 0
    if isinstance(error, SystemExit):
        code = error.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass  # closed, or nobody reads it
    os._exit(code & 0xFF if isinstance(code, int) else 1)


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
