"""Fibonacci numbers: a worker over version 1 of ganger's protocol (proto-spec/README.md)."""

import socket
import struct
import sys

import msgpack

pipe = socket.socket(socket.AF_UNIX)
pipe.connect("/tmp/CoreFxPipe_" + sys.stdin.readline().rstrip("\n"))
frames = pipe.makefile("rwb")
while length := frames.read(4):  # nothing at end of file: ganger needs this worker no more
    task = msgpack.unpackb(frames.read(*struct.unpack(">I", length)))
    try:
        n, a, b = int(task["0"]), 0, 1  # "0" is the message's body
        for _ in range(n):
            a, b = b, a + b
        print(f"fibonacci({n}) = {a}", flush=True)  # goes to ganger's log
        # Whoever gives a correlation id waits for a reply: that is 201. Done without one is 200.
        answer = {"0": str(a), "1": 201 if task["1"] else 200}
    except ValueError as error:
        answer = {"0": str(error), "1": 500}  # failed: tried again, in the end a dead letter
    data = msgpack.packb(answer)
    frames.write(struct.pack(">I", len(data)) + data)
    frames.flush()
