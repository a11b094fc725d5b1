"""A version 1 worker, written from proto-spec alone: `reply: …` is answered in capitals."""

import os
import socket
import struct
import sys
import time

import msgpack

record = os.open(os.environ["RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
pipe = socket.socket(socket.AF_UNIX)
pipe.connect("/tmp/CoreFxPipe_" + sys.stdin.readline().rstrip("\n"))


def note(event, body):
    micros = int(time.time() * 1e6)
    os.write(record, f"{event}\t{body}\t{os.getpid()}\t-\t{micros}\n".encode())


def read(size):
    data = b""
    while len(data) < size:
        part = pipe.recv(size - len(data))
        if not part:
            sys.exit(0)  # the daemon has closed the pipe: time to leave
        data += part
    return data


while True:
    task = msgpack.unpackb(read(struct.unpack(">I", read(4))[0]))
    body, headers = task["0"], task["3"]
    note("began", body)
    print("working on", body, flush=True)
    answer = {"0": "", "1": 200}
    if body.startswith("reply: "):
        answer = {"0": body.upper(), "1": 201, "2": {"colour": headers["colour"]}}
    note("done", body)
    data = msgpack.packb(answer)
    pipe.sendall(struct.pack(">I", len(data)) + data)
