"""The worker of plain handlers: in the main thread, or in as many threads as it takes messages."""

from __future__ import annotations

import queue
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from . import _control, _tracing
from ._answer import Flight, answer_frame, end_child, failure_frame, returned_frame
from ._frames import ProtocolError, Splitter, decode, done, framed
from ._notes import Notes
from ._outcome import Outcome
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


class Worker(Notes):
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
        super().__init__(version, frame_bytes_max)
        self._handler = handler
        self._pipe = pipe
        self._control = control
        self._concurrency = concurrency
        self._writer = Writer(pipe)
        self._flight = Flight()
        self._fatal: BaseException | None = None
        # Under the gate: whether nothing new is begun, how many are in hand, and the ids of
        # what came meanwhile.
        self._gate = threading.Lock()
        self._is_ending = False
        self._in_hand = 0
        self._held: list[int | None] = []

    def run(self, hello: bytes | None) -> None:
        """Until the daemon has asked to leave and all that is in hand is answered."""
        if hello is not None:
            self._write(framed(hello, self._frame_bytes_max))
        _control.listen(self._control, self._heard)
        if self._concurrency == 1:
            for frame in self._frames():
                self._take(frame)
        else:
            self._in_threads()
        self._return_held()
        self._pipe.close()
        if self._fatal is not None:
            raise self._fatal

    def stop(self) -> None:
        """Begins nothing new, and ends once all that is in hand is answered. From any thread."""
        with self._gate:
            self._is_ending = True
            is_idle = self._in_hand == 0
        if is_idle:
            self._leave()

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
            yield from splitter.feed(data)
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
            else:
                self._return_cancelled(id)

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
                self._take(frame)

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

    def _take(self, frame: bytes) -> None:
        """Works on it, unless this worker is about to end: then it waits to be given back.

        The reading end stays open until nothing is in hand, for a daemon that can't write any more takes
        the worker for lost, with all that it works on.
        """
        with self._gate:
            is_held = self._is_ending
            self._in_hand += not is_held
        if is_held:
            self._hold(frame)
            return
        try:
            self._work(frame)
        finally:
            with self._gate:
                self._in_hand -= 1
                is_over = self._is_ending and self._in_hand == 0
            if is_over:
                self._leave()

    def _hold(self, frame: bytes) -> None:
        """It is given back at the end, or when it is cancelled, as its time may run out before."""
        try:
            id = self._id(Task(decode(frame), self))
        except ProtocolError as error:
            self._fatal = self._fatal or error
            self._leave()
            return
        with self._gate:
            self._held.append(id)
        if id in self._flight.early:
            self._return_cancelled(id)

    def _return_cancelled(self, id: int | None) -> None:
        with self._gate:
            if id in self._held:
                self._held.remove(id)
                self._flight.early.pop(id, None)
                self._write(returned_frame(id, self._frame_bytes_max))

    def _return_held(self) -> None:
        with self._gate:
            for id in self._held:
                self._write(returned_frame(id, self._frame_bytes_max))
            self._held.clear()

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
        timer = traced = failed = None
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
            failed = error
            answer = failure_frame(error, answers, self._frame_bytes_max)
        if self._is_child():
            end_child(failed)
        if failed is not None and not isinstance(failed, Exception):
            with self._gate:
                self._fatal = self._fatal or failed  # such as SystemExit: answered, and the end
                self._is_ending = True
        if headers:
            _tracing.detach(traced)
            if timer is not None:
                timer.cancel()
        _current.reset(outside)
        del flight.tasks[id]
        self._close(task)
        self._write(answer)

    def _write(self, frame: bytes) -> None:
        self._writer.write(frame)

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
