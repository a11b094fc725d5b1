"""What both kinds of worker do alike about what a task says before its answer."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from . import _control
from ._outcome import Status
from ._outgoing import field, note_frame
from ._task import TaskData


class Notes:
    """A worker's notes: they go out before the answer of their task, from the process that opened the pipe."""

    def __init__(self, version: int, frame_bytes_max: int) -> None:
        self.version = version
        self._frame_bytes_max = frame_bytes_max
        self._pid = os.getpid()
        # Reentrant, for a signal's handler may log.
        self._noting = threading.RLock()

    def is_open(self, task: TaskData) -> bool:
        return self.version > 1 and not task._answered and not self._is_child()

    def field(self, value: object) -> object:
        return field(value, self._frame_bytes_max)

    def note(
        self,
        task: TaskData,
        status: int,
        message: object,
        headers: Mapping[str, object] | None = None,
        queue: str | None = None,
    ) -> None:
        if self._is_child() and status != Status.LOG:
            raise RuntimeError("a process that the handler has forked can't emit or show progress")
        if status == Status.LOG and not self.is_open(task):
            _control.complain(message, headers)
            return
        id = self._id(task)
        frame = note_frame(status, message, headers, queue, id, self._frame_bytes_max)
        with self._noting:
            if not task._answered:
                self._write(frame)
                return
        if status == Status.LOG:
            _control.complain(message, headers)
        elif status == Status.EMIT:
            raise RuntimeError("emit must come before the handler's answer")

    def _close(self, task: TaskData) -> None:
        """The answer is next: a note that came after it would be about no message in flight."""
        with self._noting:
            task._answered = True

    def _is_child(self) -> bool:
        return os.getpid() != self._pid

    def _id(self, task: TaskData) -> int | None:
        return task.id if self.version > 1 else None

    def _write(self, frame: bytes) -> None:
        raise NotImplementedError
