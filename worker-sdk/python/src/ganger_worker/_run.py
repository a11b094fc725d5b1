"""The two entrances: :func:`run` for programs, :func:`serve` for those with a loop of their own."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

from . import _asyncio, _control, _logging, _threads
from ._frames import FRAME_BYTES_MAX, encode
from ._outcome import Outcome, Status
from ._task import AsyncTask, Task
from ._version import __version__

Handler: TypeAlias = Callable[[Task], Outcome | None]
"""A plain handler; with a concurrency above 1 it is called by several threads."""
AsyncHandler: TypeAlias = Callable[[AsyncTask], Awaitable[Outcome | None]]
"""An `async def` handler."""
WarmUp: TypeAlias = Callable[[], object]
"""What is done before the first message; an `async def` handler's may be one, too."""

SDK = "ganger-python"


def run(
    handler: Handler | AsyncHandler,
    *,
    concurrency: int = 1,
    log_level: int | None = logging.INFO,
    frame_bytes_max: int | None = None,
    warm_up: WarmUp | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Connects to the daemon that has started this process, and works until it asks to leave.

    `concurrency` messages are in hand at once: in threads, or as asyncio tasks if the handler is an
    `async def`. With 1, a plain handler runs in the thread that calls this. `logging` goes to the
    daemon from `log_level` on, unless it has been set up; None leaves it alone. `frame_bytes_max` lowers
    the pool's own limit, which the daemon tells. `warm_up` is called before this process takes messages:
    what it loads counts against no message's timeout, but against the pool's `start_timeout`. When `stop`
    is set, nothing new is begun, and this returns once all that is in hand is answered.
    """
    _check(handler, concurrency)
    if _is_async(handler):
        asynchronous = cast(AsyncHandler, handler)
        asyncio.run(
            _connected(asynchronous, concurrency, log_level, frame_bytes_max, warm_up, stop)
        )
        return
    name, control = _begin(log_level)
    if warm_up is not None:
        warm_up()
    pipe = _control.connect(name)
    limit = _control.frame_bytes_max(frame_bytes_max)
    work(handler, pipe, control, _version(), concurrency, limit, stop)


async def serve(
    handler: AsyncHandler,
    *,
    concurrency: int = 1,
    log_level: int | None = logging.INFO,
    frame_bytes_max: int | None = None,
    warm_up: WarmUp | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """:func:`run` for a program with an asyncio loop of its own. Cancelled, it gives back what it has
    in hand, uncharged; when `stop` is set, it finishes that first.
    """
    _check(handler, concurrency)
    if not _is_async(handler):
        raise TypeError(f"serve needs an async def handler: {handler!r}")
    await _connected(handler, concurrency, log_level, frame_bytes_max, warm_up, stop)


async def _connected(
    handler: AsyncHandler,
    concurrency: int,
    log_level: int | None,
    frame_bytes_max: int | None,
    warm_up: WarmUp | None,
    stop: threading.Event | asyncio.Event | None,
) -> None:
    name, control = _begin(log_level)
    if warm_up is not None:
        warmed = warm_up()
        if inspect.isawaitable(warmed):
            await warmed
    pipe = _control.connect(name)
    limit = _control.frame_bytes_max(frame_bytes_max)
    await serve_on(handler, pipe, control, _version(), concurrency, limit, stop)


def _begin(log_level: int | None) -> tuple[str, int]:
    if log_level is not None:
        _logging.install(log_level)
    return _control.take()


def work(
    handler: Handler | AsyncHandler,
    pipe: socket.socket,
    control: int,
    version: int,
    concurrency: int,
    frame_bytes_max: int = FRAME_BYTES_MAX,
    stop: threading.Event | None = None,
) -> None:
    """Works a connection off that is there already."""
    if _is_async(handler):
        asynchronous = cast(AsyncHandler, handler)
        asyncio.run(
            serve_on(asynchronous, pipe, control, version, concurrency, frame_bytes_max, stop)
        )
        return
    worker = _threads.Worker(
        cast(Handler, handler),
        pipe,
        control,
        version=version,
        concurrency=concurrency if version > 1 else 1,
        frame_bytes_max=frame_bytes_max,
    )
    if stop is not None:
        _watch(stop, worker.stop)
    worker.run(hello(version, concurrency))


async def serve_on(
    handler: AsyncHandler,
    pipe: socket.socket,
    control: int,
    version: int,
    concurrency: int,
    frame_bytes_max: int = FRAME_BYTES_MAX,
    stop: threading.Event | asyncio.Event | None = None,
) -> None:
    """The same for an `async def` handler."""
    worker = _asyncio.Worker(
        handler,
        pipe,
        control,
        version=version,
        concurrency=concurrency,
        frame_bytes_max=frame_bytes_max,
    )
    waiting = None
    if isinstance(stop, asyncio.Event):
        waiting = asyncio.ensure_future(stop.wait())
        waiting.add_done_callback(lambda _: worker.stop())
    elif stop is not None:
        _watch(stop, worker.stop_from_elsewhere)
    try:
        await worker.run(hello(version, concurrency))
    finally:
        if waiting is not None:
            waiting.cancel()


def _watch(stop: threading.Event, then: Callable[[], None]) -> None:
    def wait() -> None:
        stop.wait()
        then()

    threading.Thread(target=wait, name="ganger-stop", daemon=True).start()


def hello(version: int, concurrency: int) -> bytes | None:
    """The first frame's map; version 1 has none."""
    if version == 1:
        return None
    headers = {"sdk": SDK, "version": __version__, "concurrency": str(concurrency)}
    return encode("", Status.HELLO, headers)


def _version() -> int:
    """2, unless the daemon is one that knows version 1 only."""
    spoken = os.environ.get("GANGER_PROTOCOL", "1")
    return 2 if spoken.isdigit() and int(spoken) >= 2 else 1


def _is_async(handler: Any) -> bool:
    function = handler if inspect.isroutine(handler) else getattr(handler, "func", None)
    call = getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__
    return any(inspect.iscoroutinefunction(each) for each in (handler, function, call))


def _check(handler: Any, concurrency: Any) -> None:
    if not callable(handler):
        raise TypeError(f"a handler must be callable: {handler!r}")
    if type(concurrency) is not int or concurrency < 1:
        raise ValueError(f"concurrency must be a whole number from 1: {concurrency!r}")
