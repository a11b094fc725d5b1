"""The pipe of version 1, written from proto-spec alone, for workers that are in Python."""

import os
import socket
import struct
import sys
import time

import msgpack

DONE_WITH_REPLY = 201

_record = os.open(os.environ["RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
_pipe = socket.socket(socket.AF_UNIX)


def note(event, body):
    """Records what happens, for the tests."""
    micros = int(time.time() * 1e6)
    os.write(_record, f"{event}\t{body}\t{os.getpid()}\t-\t{micros}\n".encode())


def tasks():
    """Yields body, queue and headers of each message, until the daemon closes the pipe."""
    _pipe.connect("/tmp/CoreFxPipe_" + sys.stdin.readline().rstrip("\n"))
    while True:
        task = msgpack.unpackb(_read(struct.unpack(">I", _read(4))[0]))
        note("began", task["0"])
        yield task["0"], task["2"], task["3"]


def reply(body, queue=None, headers=None):
    """Answers with a message to `queue`, or else to the one that the caller waits at."""
    data = msgpack.packb({"0": body, "1": DONE_WITH_REPLY, "2": headers, "3": queue})
    _pipe.sendall(struct.pack(">I", len(data)) + data)


def _read(size):
    data = b""
    while len(data) < size:
        part = _pipe.recv(size - len(data))
        if not part:
            sys.exit(0)
        data += part
    return data
