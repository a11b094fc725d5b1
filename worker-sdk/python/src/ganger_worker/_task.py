"""A message as its handler sees it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias

from ._frames import Fields
from ._outcome import Status

Body: TypeAlias = str | bytes
_current: ContextVar[TaskData | None] = ContextVar("ganger_task", default=None)
_making_events = threading.Lock()


def current_task() -> TaskData | None:
    """The task that this thread or asyncio task works on; None outside of a handler."""
    return _current.get()


class Port(Protocol):
    """Where a task's notes go."""

    version: int

    def note(
        self,
        task: TaskData,
        status: int,
        message: object,
        headers: Mapping[str, object] | None = None,
        queue: str | None = None,
    ) -> None: ...

    def is_open(self, task: TaskData) -> bool:
        """Whether what a task logs still reaches the daemon by the pipe."""

    def field(self, value: object) -> object:
        """A log record's field as it can be sent."""

    async def drained(self) -> None: ...


class TaskData:
    """What :class:`Task` and :class:`AsyncTask` have in common."""

    __slots__ = (
        "_answered",
        "_cancelled",
        "_event",
        "_port",
        "attempt",
        "correlation_id",
        "headers",
        "id",
        "message",
        "milliseconds_left",
        "properties",
        "queue",
    )

    message: Body
    """The body: a text if it is UTF-8, else bytes."""
    correlation_id: str
    """Empty if the message has none."""
    queue: str
    """The queue or topic that it was read from."""
    headers: dict[str, str]
    id: int | None
    """The daemon's number for it on this connection."""
    attempt: int | None
    """Which try this is, from 1."""
    milliseconds_left: int | None
    """How long from now on until this process is killed for taking too long; None for never."""
    properties: dict[str, Any]
    """What the source knows of it: message id, content type, topic, partition, offset and so on."""

    def __init__(self, fields: Fields, port: Port) -> None:
        (
            self.message,
            self.correlation_id,
            self.queue,
            self.headers,
            self.id,
            self.attempt,
            self.milliseconds_left,
            self.properties,
        ) = fields
        self._port = port
        self._answered = False
        self._cancelled = False
        self._event: threading.Event | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.queue!r}: {self.message!r:.60}>"

    @property
    def text(self) -> str:
        """The body as a text; UnicodeDecodeError if it is none."""
        return self.message if isinstance(self.message, str) else self.message.decode()

    @property
    def bytes(self) -> bytes:
        """The body as bytes."""
        return self.message.encode() if isinstance(self.message, str) else self.message

    @property
    def cancelled(self) -> bool:
        """Whether the daemon has asked to abandon it: it took too long, or the daemon stops."""
        return self._cancelled

    def progress(self, message: object) -> None:
        """Shows how far it is; it also proves that the worker is alive (`stall_timeout`)."""
        if self._port.version == 1:
            self._port.note(self, Status.IGNORE_MESSAGE, message)
        else:
            self._port.note(self, Status.PROGRESS, message)

    def log(self, level: str, message: object, *, target: str = "", **fields: object) -> None:
        """Writes a record of this message to the daemon's log. `logging` comes here by itself.

        `level` is trace, debug, info, warn or error. What is logged once the message is answered, in a
        forked child or with a version 1 daemon goes to stderr.
        """
        field = self._port.field
        headers: dict[str, object] = {"level": field(level)}
        if target:
            headers["target"] = field(target)
        headers.update((str(field(name)), field(value)) for name, value in fields.items())
        self._port.note(self, Status.LOG, message, headers)

    def _emit(
        self, queue: str, message: object, headers: Mapping[str, object] | None
    ) -> None:
        if not queue:
            raise ValueError("emit needs the name of a queue: ''")
        if self._port.version == 1:
            raise RuntimeError("emit needs version 2 of the protocol, which this daemon lacks")
        self._port.note(self, Status.EMIT, message, headers, queue)

    def _cancel(self) -> None:
        self._cancelled = True
        if self._event is not None:
            self._event.set()


class Task(TaskData):
    """A message for a plain handler, which runs in a thread of its own or in the main one."""

    __slots__ = ()

    def emit(
        self, queue: str, message: object, headers: Mapping[str, object] | None = None
    ) -> None:
        """Publishes a message while the work goes on. This task is not done before it is stored;
        when it is tried again, it emits again, with the same header `ganger-emit-id`. What is neither
        text nor bytes is sent as JSON, as by :func:`ganger_worker.reply`.
        """
        self._emit(queue, message, headers)

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """Waits so many seconds, or until the daemon asks to abandon this; returns `cancelled`."""
        if self._event is None:
            with _making_events:
                self._event = self._event or threading.Event()
            if self._cancelled:
                self._event.set()
        return self._event.wait(timeout)


class AsyncTask(TaskData):
    """A message for an `async def` handler. When the daemon asks to abandon it, the handler is
    cancelled as asyncio does it: CancelledError at its next `await`.
    """

    __slots__ = ()

    async def emit(
        self, queue: str, message: object, headers: Mapping[str, object] | None = None
    ) -> None:
        """Publishes a message while the work goes on. This task is not done before it is stored;
        when it is tried again, it emits again, with the same header `ganger-emit-id`. What is neither
        text nor bytes is sent as JSON, as by :func:`ganger_worker.reply`.
        """
        self._emit(queue, message, headers)
        await self._port.drained()

