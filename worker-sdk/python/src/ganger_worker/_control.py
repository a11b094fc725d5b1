"""The start of a worker, and the lines that the daemon writes to its stdin."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping

from ._frames import FRAME_BYTES_MAX

QUIT = "__quit__"
CANCEL = "__cancel__ "
YIELD = "__context_switch__"
_LINE_BYTES_MAX = 1 << 16


def take() -> tuple[str, int]:
    """The pipe's name, which stdin begins with, and a file for the control lines to come, which child
    processes do not inherit. Stdin itself is empty from here on, so that neither a handler nor its
    child processes can eat such a line.
    """
    if os.isatty(0):
        raise SystemExit(
            "this is a worker of ganger, which starts it and writes a pipe's name to its stdin: "
            "put it into a [[pools]] section, or try it with ganger_worker.testing"
        )
    name = _first_line()
    if not name:
        raise SystemExit("stdin must begin with a line that names the pipe: it has ended")
    control = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return name, control


def connect(name: str) -> socket.socket:
    """The pipe of that name."""
    pipe = socket.socket(socket.AF_UNIX)
    pipe.connect(_path(name))
    return pipe


def frame_bytes_max(wanted: int | None) -> int:
    """The longest frame: the daemon's limit, or a lower one that is asked for."""
    told = os.environ.get("GANGER_FRAME_BYTES_MAX", "")
    if not (told.isascii() and told.isdigit()):
        return wanted or FRAME_BYTES_MAX
    return min(wanted or int(told), int(told))


def _first_line() -> str:
    """Byte by byte: what follows is for others."""
    line = bytearray()
    while len(line) < _LINE_BYTES_MAX:
        byte = os.read(0, 1)
        if byte in (b"", b"\n"):
            break
        line += byte
    return line.decode(errors="replace").rstrip("\r")


def _path(name: str) -> str:
    told = os.environ.get("GANGER_PIPE")
    if told:
        return told
    below = os.environ.get("TMPDIR")
    if below and os.path.exists(path := os.path.join(below, f"CoreFxPipe_{name}")):
        return path
    return f"/tmp/CoreFxPipe_{name}"


def listen(file: int, heard: Callable[[str], None]) -> None:
    """Reads control lines in a thread of its own; the end of the file counts as `__quit__`."""

    def loop() -> None:
        rest = b""
        while True:
            try:
                data = os.read(file, 4096)
            except OSError:
                data = b""
            if not data:
                heard(QUIT)
                return
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[-_LINE_BYTES_MAX:]
            for line in lines:
                heard(line.decode(errors="replace").rstrip("\r"))

    threading.Thread(target=loop, name="ganger-control", daemon=True).start()


def cancelled_id(line: str) -> int | None:
    """The id of a `__cancel__` line."""
    id = line.removeprefix(CANCEL)
    return int(id) if id != line and id.isascii() and id.isdigit() else None


def complain(message: object, headers: Mapping[str, object] | None) -> None:
    """A log record for a daemon that has no LOG frames: it reads stderr."""
    level = (headers or {}).get("level", "info")
    fields = {key: value for key, value in (headers or {}).items() if key != "level"}
    print(f"{level}: {message}", *(f"{k}={v}" for k, v in fields.items()), file=sys.stderr, flush=True)
