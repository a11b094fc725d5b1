"""The worker of `async def` handlers: one asyncio task a message, in one thread."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from . import _control, _tracing
from ._answer import Flight, answer_frame, end_child, failure_frame, returned_frame
from ._frames import ProtocolError, Splitter, decode, framed
from ._notes import Notes
from ._outcome import Outcome, requeue
from ._task import AsyncTask, TaskData, _current
from ._threads import timeout_ms


class Worker(Notes, asyncio.Protocol):
    """One connection, worked off to its end by :meth:`run`."""

    def __init__(
        self,
        handler: Callable[[AsyncTask], Awaitable[Outcome | None]],
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
        self._splitter = Splitter(frame_bytes_max)
        self._flight = Flight()
        self._running: dict[TaskData, asyncio.Task[None]] = {}
        # Version 1 has its messages one after the other, however many wait in the pipe.
        self._in_order: asyncio.Lock | None = asyncio.Lock() if version == 1 else None
        self._out: list[bytes] = []
        self._fatal: BaseException | None = None
        self._leaving = False
        # Whether nothing new is begun, and the ids of what came meanwhile.
        self._is_ending = False
        self._held: list[int | None] = []
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._room = asyncio.Event()

    async def run(self, hello: bytes | None) -> None:
        """Until the daemon has asked to leave and all that is in hand is answered."""
        loop = self._loop
        self._room.set()
        self._pipe.setblocking(False)
        self._transport: asyncio.Transport
        self._transport, _ = await loop.create_unix_connection(lambda: self, sock=self._pipe)
        if hello is not None:
            self._write(framed(hello, self._frame_bytes_max))
        _control.listen(self._control, self._heard_elsewhere)
        try:
            await self._over.wait()
        finally:
            await self._end()
        if self._fatal is not None:
            raise self._fatal

    async def _end(self) -> None:
        """What is left when the loop or its caller cancels this: each message goes back."""
        for running in self._running.values():
            running.cancel()
        if self._running:
            await asyncio.wait(list(self._running.values()))
        self._return_held()
        self._flush()
        self._transport.close()

    def _return_held(self) -> None:
        """What has come and was not begun, be it unread yet."""
        self._end_input()
        if not self._transport.is_closing():
            self._transport.pause_reading()
        try:
            while data := self._pipe.recv(1 << 16):
                for frame in self._splitter.feed(data):
                    self._hold(frame)
        except (OSError, ProtocolError):
            pass  # the end, or what can't be understood, nor can what comes after it
        for id in self._held:
            self._write(returned_frame(id, self._frame_bytes_max))

    def _hold(self, frame: bytes) -> None:
        """It is given back at the end, or when it is cancelled, as its time may run out before."""
        id = self._id(AsyncTask(decode(frame), self))
        self._held.append(id)
        if id in self._flight.early:
            self._return_cancelled(id)

    def _return_cancelled(self, id: int | None) -> None:
        if id in self._held:
            self._held.remove(id)
            self._flight.early.pop(id, None)
            self._write(returned_frame(id, self._frame_bytes_max))

    def stop(self) -> None:
        """Begins nothing new, and ends once all that is in hand is answered."""
        self._is_ending = True
        if not self._running:
            self._over.set()

    def stop_from_elsewhere(self) -> None:
        """The same from another thread."""
        self._soon(self.stop)

    def _soon(self, step: Callable[..., None], *args: str) -> None:
        try:
            self._loop.call_soon_threadsafe(step, *args)
        except RuntimeError:
            pass  # the loop is over, and so is this worker

    # -- asyncio's callbacks --

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._splitter.feed(data):
                if self._is_ending:
                    self._hold(frame)
                else:
                    self._begin(frame)
            if self._splitter.broken is not None:
                raise self._splitter.broken
        except Exception as error:
            self._fail(error)

    def eof_received(self) -> bool:
        self._leave()
        return True  # writing goes on

    def connection_lost(self, exc: Exception | None) -> None:
        self._room.set()
        self._leave()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    # -- control --

    def _heard_elsewhere(self, line: str) -> None:
        """In the thread that reads stdin."""
        self._soon(self._heard, line)

    def _heard(self, line: str) -> None:
        if line == _control.QUIT:
            self._end_input()
        elif line == _control.YIELD and self.version == 1:
            for task in list(self._flight.tasks.values()):
                self._cancel(task)
        elif (id := _control.cancelled_id(line)) is not None:
            if abandoned := self._flight.cancelled(id):
                self._cancel(abandoned)
            else:
                self._return_cancelled(id)

    def _cancel(self, task: TaskData) -> None:
        if not task.cancelled:
            task._cancel()
            self._running[task].cancel()

    def _end_input(self) -> None:
        """What has arrived is still read and worked on, then the pipe ends; writing goes on."""
        try:
            self._pipe.shutdown(socket.SHUT_RD)
        except OSError:
            pass

    def _leave(self) -> None:
        if not self._leaving:
            self._leaving = True
            if not self._transport.is_closing():
                self._transport.pause_reading()
        if not self._running:
            self._over.set()

    def _fail(self, error: BaseException) -> None:
        self._fatal = self._fatal or error
        self._is_ending = True
        self._leave()

    # -- working --

    def _begin(self, frame: bytes) -> None:
        task = AsyncTask(decode(frame), self)
        if self._in_order is None:
            self._flight.tasks[task.id] = task
            if self._flight.early:
                self._flight.look(task)
        running = self._loop.create_task(self._work(task))
        self._running[task] = running
        running.add_done_callback(lambda _: self._ended(task))
        if task.cancelled:
            running.cancel()

    async def _work(self, task: AsyncTask) -> None:
        if self._in_order is not None:
            async with self._in_order:
                self._flight.tasks[task.id] = task  # the head, the only one that may be told to yield
                await self._work_now(task)
                self._flight.tasks.pop(task.id, None)
        else:
            await self._work_now(task)

    async def _work_now(self, task: AsyncTask) -> None:
        _current.set(task)
        headers = task.headers
        timer = None
        if headers:
            _tracing.attach(headers)  # for this asyncio task alone, which ends with the message
            if self.version == 1 and (after := timeout_ms(task)) is not None:
                timer = self._loop.call_later(after / 1000, self._cancel, task)
        try:
            outcome = await self._handler(task)
        except BaseException as error:
            if self._is_child():
                end_child(error)
            self._answer_failure(task, error)
            if not isinstance(error, (Exception, asyncio.CancelledError)):
                self._fatal = self._fatal or error  # such as SystemExit: answered, and the end
                self.stop()
        else:
            if self._is_child():
                end_child(None)
            self._answer(task, answer_frame(outcome, self._id(task), self._frame_bytes_max))
        finally:
            if timer is not None:
                timer.cancel()

    def _answer_failure(self, task: AsyncTask, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError) and not task.cancelled:
            frame = answer_frame(
                requeue("the worker was stopped"), self._id(task), self._frame_bytes_max
            )
        else:
            frame = failure_frame(error, self._id(task), self._frame_bytes_max)
        self._answer(task, frame)

    def _answer(self, task: AsyncTask, frame: bytes) -> None:
        self._close(task)
        self._write(frame)

    def _ended(self, task: AsyncTask) -> None:
        running = self._running.pop(task)
        self._flight.tasks.pop(task.id, None)
        if running.cancelled():  # before its first step
            self._answer_failure(task, asyncio.CancelledError())
        if (self._leaving or self._is_ending) and not self._running:
            self._over.set()

    # -- writing --

    def _write(self, frame: bytes) -> None:
        """With all others of this turn of the loop, in one write."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    def _flush(self) -> None:
        if self._out:
            data = b"".join(self._out)
            self._out.clear()
            if not self._transport.is_closing():
                self._transport.write(data)

    async def drained(self) -> None:
        """Until the pipe has taken most of what waits."""
        self._flush()
        await self._room.wait()
