"""Fibonacci numbers: a worker over version 1 of ganger's protocol (proto-spec/README.md)."""

import socket
import struct
import sys

import msgpack


def read_exactly(size):
    data = bytearray()
    while len(data) < size:
        part = pipe.recv(size - len(data))
        if not part:
            sys.exit(0)  # end of file: ganger needs this worker no more
        data += part
    return data


def send(answer):
    data = msgpack.packb(answer)
    pipe.sendall(struct.pack(">I", len(data)) + data)


pipe = socket.socket(socket.AF_UNIX)
pipe.connect("/tmp/CoreFxPipe_" + sys.stdin.readline().rstrip("\n"))
while True:
    (size,) = struct.unpack(">I", read_exactly(4))
    task = msgpack.unpackb(read_exactly(size))
    try:
        n, a, b = int(task["0"]), 0, 1  # "0" is the message's body
        for _ in range(n):
            a, b = b, a + b
        print(f"fibonacci({n}) = {a}", flush=True)  # goes to ganger's log
        # Whoever gives a correlation id waits for a reply: that is 201. Done without one is 200.
        send({"0": str(a), "1": 201 if task["1"] else 200})
    except ValueError as error:
        send({"0": str(error), "1": 500})  # failed: tried again, in the end a dead letter
