"""The worker of plain handlers: in the main thread, or in as many threads as it takes messages."""

from __future__ import annotations

import queue
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import _control, _tracing
from ._answer import Flight, answer_frame, failure_frame
from ._frames import Splitter, decode, done, encode, framed
from ._outcome import Outcome, Status
from ._task import Task, TaskData, _current

_READ_BYTES = 1 << 13
_READ_BYTES_LARGE = 1 << 18


class Writer:
    """Frames to the pipe, from any thread. Those that wait for each other go out in one write."""

    def __init__(self, pipe: socket.socket) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque()

    def write(self, frame: bytes) -> None:
        """Returns when it is on its way. A daemon that is gone is no error: the pipe's end says so."""
        if not self._lock.acquire(False):
            self._waiting.append(frame)
            self._lock.acquire()
            frame = b"".join(self._take())  # none, if another thread has taken it along
        try:
            if frame:
                self._pipe.sendall(frame)
        except OSError:
            pass
        finally:
            self._lock.release()

    def _take(self) -> Iterator[bytes]:
        for _ in range(len(self._waiting)):
            yield self._waiting.popleft()


class Worker:
    """One connection, worked off to its end by :meth:`run`."""

    def __init__(
        self,
        handler: Callable[[Task], Outcome | None],
        pipe: socket.socket,
        control: int,
        *,
        version: int,
        concurrency: int,
        frame_bytes_max: int,
    ) -> None:
        self.version = version
        self._handler = handler
        self._pipe = pipe
        self._control = control
        self._concurrency = concurrency
        self._frame_bytes_max = frame_bytes_max
        self._writer = Writer(pipe)
        self._flight = Flight()
        self._fatal: BaseException | None = None

    def run(self, hello: bytes | None) -> None:
        """Until the daemon has asked to leave and all that is in hand is answered."""
        if hello is not None:
            self._writer.write(framed(hello, self._frame_bytes_max))
        _control.listen(self._control, self._heard)
        if self._concurrency == 1:
            for frame in self._frames():
                self._work(frame)
        else:
            self._in_threads()
        self._pipe.close()
        if self._fatal is not None:
            raise self._fatal

    # -- reading --

    def _frames(self) -> Iterator[bytes]:
        splitter = Splitter(self._frame_bytes_max)
        receive = self._pipe.recv
        size = _READ_BYTES
        while True:
            try:
                data = receive(size)
            except OSError:
                return
            if not data:
                return
            # A buffer that is large costs more to get than to fill.
            size = _READ_BYTES if len(data) < size else _READ_BYTES_LARGE
            for frame in splitter.feed(data):
                yield frame
                if self._fatal is not None:
                    return
            if splitter.broken is not None:
                raise splitter.broken

    def _heard(self, line: str) -> None:
        if line == _control.QUIT:
            self._leave()
        elif line == _control.YIELD and self.version == 1:
            for task in list(self._flight.tasks.values()):
                task._cancel()
        elif (id := _control.cancelled_id(line)) is not None:
            if abandoned := self._flight.cancelled(id):
                abandoned._cancel()

    def _leave(self) -> None:
        """What has arrived is still read and worked on, then the pipe ends; writing goes on."""
        try:
            self._pipe.shutdown(socket.SHUT_RD)
        except OSError:
            pass

    # -- working --

    def _in_threads(self) -> None:
        frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

        def loop() -> None:
            while (frame := frames.get()) is not None:
                self._work(frame)

        threads = [
            threading.Thread(target=loop, name=f"ganger-{n}") for n in range(self._concurrency)
        ]
        for thread in threads:
            thread.start()
        try:
            for frame in self._frames():
                frames.put(frame)
        finally:
            for _ in threads:
                frames.put(None)
            for thread in threads:
                thread.join()

    def _work(self, frame: bytes) -> None:
        try:
            task = Task(decode(frame), self)
        except BaseException as error:
            if self._concurrency == 1:
                raise
            self._fatal = error
            self._leave()
            return
        id, headers = task.id, task.headers
        timer = traced = None
        flight = self._flight
        flight.tasks[id] = task
        if flight.early:
            flight.look(task)
        outside = _current.set(task)
        if headers:
            traced = _tracing.attach(headers)
            timer = _timer(task) if self.version == 1 else None
        answers = id if self.version > 1 else None
        try:
            outcome = self._handler(task)
            if outcome is None:
                answer = done(answers)
            else:
                answer = answer_frame(outcome, answers, self._frame_bytes_max)
        except BaseException as error:
            answer = failure_frame(error, answers, self._frame_bytes_max)
            if not isinstance(error, Exception):
                self._fatal = error  # such as SystemExit: answered, and the end
                self._leave()
        if headers:
            _tracing.detach(traced)
            if timer is not None:
                timer.cancel()
        _current.reset(outside)
        del flight.tasks[id]
        self._writer.write(answer)

    def note(
        self,
        task: TaskData,
        status: int,
        message: str | bytes,
        headers: Mapping[str, object] | None = None,
        queue: str | None = None,
    ) -> None:
        if self.version == 1 and status != Status.IGNORE_MESSAGE:
            _control.complain(message, headers)
            return
        id = task.id if self.version > 1 else None
        data = encode(message, status, headers, queue, id)
        self._writer.write(framed(data, self._frame_bytes_max))

    async def drained(self) -> None:
        raise NotImplementedError("a thread waits in note()")


def timeout_ms(task: TaskData) -> int | None:
    """After how long version 1 asks a worker to give up; version 2 is told when it is so far."""
    try:
        after = int(task.headers.get("TimeoutMilliseconds", "-1"))
    except ValueError:
        return None
    return after if after >= 0 else None


def _timer(task: Task) -> Any:
    after = timeout_ms(task)
    if after is None:
        return None
    timer = threading.Timer(min(after / 1000, threading.TIMEOUT_MAX), task._cancel)
    timer.daemon = True
    timer.start()
    return timer
