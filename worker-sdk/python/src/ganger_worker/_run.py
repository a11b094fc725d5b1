"""The two entrances: :func:`run` for programs, :func:`serve` for those with a loop of their own."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import socket
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

SDK = "ganger-python"


def run(
    handler: Handler | AsyncHandler,
    *,
    concurrency: int = 1,
    log_level: int | None = logging.INFO,
    frame_bytes_max: int = FRAME_BYTES_MAX,
) -> None:
    """Connects to the daemon that has started this process, and works until it asks to leave.

    `concurrency` messages are in hand at once: in threads, or as asyncio tasks if the handler is an
    `async def`. With 1, a plain handler runs in the thread that calls this. `logging` goes to the
    daemon from `log_level` on, unless it has been set up; None leaves it alone. `frame_bytes_max` is
    that of the pool.
    """
    _check(handler, concurrency)
    if log_level is not None:
        _logging.install(log_level)
    pipe, control = _control.connect()
    work(handler, pipe, control, _version(), concurrency, frame_bytes_max)


async def serve(
    handler: AsyncHandler,
    *,
    concurrency: int = 1,
    log_level: int | None = logging.INFO,
    frame_bytes_max: int = FRAME_BYTES_MAX,
) -> None:
    """:func:`run` for a program with an asyncio loop of its own. Cancelled, it gives back what it has
    in hand, uncharged.
    """
    _check(handler, concurrency)
    if not _is_async(handler):
        raise TypeError(f"serve needs an async def handler: {handler!r}")
    if log_level is not None:
        _logging.install(log_level)
    pipe, control = _control.connect()
    await serve_on(handler, pipe, control, _version(), concurrency, frame_bytes_max)


def work(
    handler: Handler | AsyncHandler,
    pipe: socket.socket,
    control: int,
    version: int,
    concurrency: int,
    frame_bytes_max: int = FRAME_BYTES_MAX,
) -> None:
    """Works a connection off that is there already."""
    if _is_async(handler):
        asynchronous = cast(AsyncHandler, handler)
        asyncio.run(serve_on(asynchronous, pipe, control, version, concurrency, frame_bytes_max))
        return
    worker = _threads.Worker(
        cast(Handler, handler),
        pipe,
        control,
        version=version,
        concurrency=concurrency if version > 1 else 1,
        frame_bytes_max=frame_bytes_max,
    )
    worker.run(hello(version, concurrency))


async def serve_on(
    handler: AsyncHandler,
    pipe: socket.socket,
    control: int,
    version: int,
    concurrency: int,
    frame_bytes_max: int = FRAME_BYTES_MAX,
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
    await worker.run(hello(version, concurrency))


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
