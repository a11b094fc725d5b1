"""A worker that does nothing, written as the README's sample is: a message read, an answer sent.

Beside that it tells what it has received, as `benches/common/tally.rs` wants it: when it has had
nothing to do for 5 ms, how many messages came since it told last, and when the last one did.
"""

import socket
import struct
import sys
import time

import msgpack

FOR_EVER = struct.pack("ll", 0, 0)
IDLE_FOR = struct.pack("ll", 0, 5000)  # seconds and microseconds

tally = None
if len(sys.argv) > 1:
    tally = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    tally.connect(sys.argv[1])
pipe = socket.socket(socket.AF_UNIX)
pipe.connect("/tmp/CoreFxPipe_" + sys.stdin.readline().rstrip("\n"))
received = 0


def wait_at_most(time):
    pipe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, time)


def tell():
    global received
    tally.send(struct.pack("<Qq", received, last))
    received = 0
    wait_at_most(FOR_EVER)


def read_exactly(size):
    data = b""
    while len(data) < size:
        try:
            part = pipe.recv(size - len(data))
        except BlockingIOError:
            tell()
            continue
        if not part:
            sys.exit(0)
        data += part
    return data


while True:
    task = msgpack.unpackb(read_exactly(struct.unpack(">I", read_exactly(4))[0]))
    if tally:
        last = time.monotonic_ns()
        if received == 0:
            wait_at_most(IDLE_FOR)
        received += 1
    answer = msgpack.packb({"0": "", "1": 200})
    pipe.sendall(struct.pack(">I", len(answer)) + answer)
