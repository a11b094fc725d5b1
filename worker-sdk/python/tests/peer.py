"""The daemon's side of the protocol, by hand: a real process on a real pipe."""

from __future__ import annotations

import os
import secrets
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgpack

MODES = Path(__file__).with_name("modes.py")
DEADLINE_SECONDS = 60


class Peer:
    """One worker process and its pipe."""

    def __init__(
        self,
        *args: str,
        version: int = 2,
        hello: bool = True,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        name = secrets.token_hex(16)
        path = f"/tmp/CoreFxPipe_{name}"
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("GANGER_")}
        env = inherited | dict(env)
        if version == 2:
            env |= {"GANGER_PROTOCOL": "2", "GANGER_PIPE": path}
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            try:
                listener.listen(1)
                listener.settimeout(DEADLINE_SECONDS)
                self.process = subprocess.Popen(
                    [sys.executable, str(MODES), *args],
                    stdin=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=env,
                )
                # What is next on stdin is not part of the first line, though it comes with it.
                self.tell(f"{name}\n__of_a_newer_daemon__ 1")
                self.pipe, _ = listener.accept()
            finally:
                os.unlink(path)
        self.pipe.settimeout(DEADLINE_SECONDS)
        self.input = self.pipe.makefile("rb")
        self.hello = self.receive() if version == 2 and hello else None

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        self.input.close()
        self.pipe.close()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def send(self, body: str | bytes | None, id: int = 1, **fields: Any) -> None:
        self.pipe.sendall(frame(task(body, id, **fields)))

    def receive(self) -> dict[str, Any]:
        (size,) = struct.unpack(">I", self.input.read(4))
        output: dict[str, Any] = msgpack.unpackb(self.input.read(size), strict_map_key=False)
        return output

    def ask(self, body: str | bytes, id: int = 1, **fields: Any) -> dict[str, Any]:
        self.send(body, id, **fields)
        return self.receive()

    def begin(self, body: str, id: int = 1, **fields: Any) -> None:
        """Sends one that says when it is in hand."""
        begun = self.ask(body, id, **fields)
        assert begun["0"] == "begun", begun

    def ended(self) -> int:
        """The exit code; the pipe holds nothing more."""
        code = self.process.wait(DEADLINE_SECONDS)
        assert self.input.read() == b""
        return code

    def stderr(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


def task(body: str | bytes | None, id: int, **fields: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {"0": body, "1": "", "2": "q", "3": {}, "4": id, "5": 1, "6": None, "7": {}}
    return whole | {key.lstrip("_"): value for key, value in fields.items()}


def frame(output: Mapping[str, Any]) -> bytes:
    data: bytes = msgpack.packb(output)
    return struct.pack(">I", len(data)) + data
