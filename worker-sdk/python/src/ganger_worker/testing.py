"""Runs a handler on messages, without a daemon: what is tested is the handler in the real worker, on
a real socket pair, in this process::

    from ganger_worker.testing import Message, work

    [result] = work(handle, [Message("10", headers={"tenant": "a"})])
    assert (result.status, result.message) == (201, "55")
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack

from ._frames import FRAME_BYTES_MAX, Splitter
from ._outcome import Status
from ._run import AsyncHandler, Handler
from ._run import work as _work_on

_STALLED_SECONDS = 60.0


@dataclass(frozen=True)
class Message:
    """What the handler is given."""

    body: str | bytes = ""
    correlation_id: str = ""
    queue: str = "test"
    headers: Mapping[str, str] = field(default_factory=dict)
    attempt: int = 1
    milliseconds_left: int | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    cancel_after: float | None = None
    """Asks the handler to abandon it, so many seconds after it was handed out."""


@dataclass(frozen=True)
class Note:
    """An emit, a log record or a progress note."""

    message: str | bytes
    headers: dict[str, Any]
    queue: str | None


@dataclass
class Result:
    """What became of one message, and what its handler sent meanwhile."""

    status: int = 0
    message: str | bytes = ""
    headers: dict[str, Any] | None = None
    queue: str | None = None
    retry_after_ms: int | None = None
    emits: list[Note] = field(default_factory=list)
    logs: list[Note] = field(default_factory=list)
    progress: list[str | bytes] = field(default_factory=list)


def work(
    handler: Handler | AsyncHandler,
    messages: Iterable[Message | str | bytes],
    *,
    concurrency: int = 1,
    protocol: int = 2,
    timeout: float = _STALLED_SECONDS,
) -> list[Result]:
    """The results, in the order of the messages; what the worker itself raises is raised here.

    TimeoutError if nothing is heard of the worker for so many seconds.
    """
    wanted = [each if isinstance(each, Message) else Message(each) for each in messages]
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    raised: list[BaseException] = []

    def loop() -> None:
        try:
            _work_on(handler, theirs, read, protocol, concurrency)
        except BaseException as error:
            raised.append(error)
        finally:
            theirs.close()

    worker = threading.Thread(target=loop, name="ganger-worker-under-test", daemon=True)
    worker.start()
    with ours:
        ours.settimeout(timeout)
        try:
            results = _Peer(ours, write, wanted, concurrency, protocol).exchange()
        except (EOFError, OSError):
            worker.join(1)
            if raised:
                raise raised[0] from None
            raise
        finally:
            os.close(write)
    worker.join(timeout)
    if not worker.is_alive():
        os.close(read)
    if raised:
        raise raised[0]
    return results


class _Peer:
    """The daemon's side."""

    def __init__(
        self,
        pipe: socket.socket,
        control: int,
        messages: list[Message],
        concurrency: int,
        protocol: int,
    ) -> None:
        self._pipe = pipe
        self._control = control
        self._waiting = deque(enumerate(messages))
        self._results = [Result() for _ in messages]
        self._in_flight: deque[int] = deque()
        self._room = concurrency if protocol > 1 else 1
        self._splitter = Splitter(FRAME_BYTES_MAX)
        self._frames: deque[bytes] = deque()
        self._timers: list[threading.Timer] = []

    def exchange(self) -> list[Result]:
        try:
            while self._waiting or self._in_flight:
                while self._waiting and len(self._in_flight) < self._room:
                    self._send(*self._waiting.popleft())
                self._take(msgpack.unpackb(self._receive(), strict_map_key=False))
        finally:
            for timer in self._timers:
                timer.cancel()
                timer.join()
        return self._results

    def _send(self, id: int, message: Message) -> None:
        task = {
            "0": message.body,
            "1": message.correlation_id,
            "2": message.queue,
            "3": dict(message.headers),
            "4": id,
            "5": message.attempt,
            "6": message.milliseconds_left,
            "7": dict(message.properties),
        }
        data = msgpack.packb(task)
        self._in_flight.append(id)
        self._pipe.sendall(struct.pack(">I", len(data)) + data)
        if message.cancel_after is not None:
            line = b"__cancel__ %d\n" % id
            timer = threading.Timer(message.cancel_after, self._tell, [line])
            self._timers.append(timer)
            timer.start()

    def _tell(self, line: bytes) -> None:
        os.write(self._control, line)

    def _receive(self) -> bytes:
        while not self._frames:
            data = self._pipe.recv(1 << 16)
            if not data:
                raise EOFError(f"the worker has left with {len(self._in_flight)} in hand")
            self._frames.extend(self._splitter.feed(data))
        return self._frames.popleft()

    def _take(self, output: dict[str, Any]) -> None:
        status, message = output["1"], output["0"]
        if status == Status.HELLO:
            return
        id = output.get("4")
        result = self._results[self._in_flight[0] if id is None else id]
        headers = output.get("2")
        note = Note(message, headers or {}, output.get("3"))
        if status in (Status.PROGRESS, Status.IGNORE_MESSAGE):
            result.progress.append(message)
        elif status == Status.LOG:
            result.logs.append(note)
        elif status == Status.EMIT:
            result.emits.append(note)
        else:
            result.status, result.message, result.headers = status, message, headers
            result.queue, result.retry_after_ms = note.queue, output.get("5")
            self._in_flight.remove(self._in_flight[0] if id is None else id)
