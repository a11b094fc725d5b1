"""What the library costs: tasks that do nothing, beside a loop written by hand, in one run.

python bench/noop.py [ROUNDS] prints, for each kind of worker, the processor time that a message takes and
the median of the ratios library / by hand. In each round both are started, and then take short turns, so
that what else the machine does meets both. The loop by hand is what the protocol asks of a worker at the
least: it judges a frame's length, calls a handler, and answers 500 if that raises.
"""

from __future__ import annotations

import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import msgpack

HERE = Path(__file__).resolve()
TURNS = 40
MESSAGES = 1000
"""In each turn."""
KINDS = {"plain": 1, "async": 64}
"""How many are in the pipe at once."""


FRAME_BYTES_MAX = 64 << 20


def by_hand_plain(pipe: socket.socket) -> None:
    frames = pipe.makefile("rb")
    unpack, pack = msgpack.unpackb, msgpack.packb

    def handle(task: dict[str, object]) -> None:
        return None

    send(pipe, {"0": "", "1": 100, "2": {"sdk": "none", "version": "0", "concurrency": "1"}})
    while length := frames.read(4):
        (size,) = struct.unpack(">I", length)
        if not 0 < size <= FRAME_BYTES_MAX:
            raise ValueError(size)
        task = unpack(frames.read(size))
        try:
            handle(task)
            answer = {"0": "", "1": 200, "4": task["4"]}
        except Exception as error:
            answer = {"0": str(error), "1": 500, "4": task["4"]}
        data = pack(answer)
        pipe.sendall(struct.pack(">I", len(data)) + data)


def by_hand_async(pipe: socket.socket) -> None:
    import asyncio

    async def main() -> None:
        reader, writer = await asyncio.open_unix_connection(sock=pipe)
        hello = {"sdk": "none", "version": "0", "concurrency": str(KINDS["async"])}
        data = msgpack.packb({"0": "", "1": 100, "2": hello})
        writer.write(struct.pack(">I", len(data)) + data)
        running = set()

        async def handle(task: dict[str, object]) -> None:
            return None

        async def work(task: dict[str, object]) -> None:
            try:
                await handle(task)
                answer = {"0": "", "1": 200, "4": task["4"]}
            except Exception as error:
                answer = {"0": str(error), "1": 500, "4": task["4"]}
            data = msgpack.packb(answer)
            writer.write(struct.pack(">I", len(data)) + data)

        while True:
            try:
                (size,) = struct.unpack(">I", await reader.readexactly(4))
            except asyncio.IncompleteReadError:
                return
            if not 0 < size <= FRAME_BYTES_MAX:
                raise ValueError(size)
            task = msgpack.unpackb(await reader.readexactly(size))
            running.add(each := asyncio.create_task(work(task)))
            each.add_done_callback(running.discard)

    asyncio.run(main())


def send(pipe: socket.socket, output: dict[str, object]) -> None:
    data = msgpack.packb(output)
    pipe.sendall(struct.pack(">I", len(data)) + data)


def worker(kind: str, way: str) -> None:
    if way == "library":
        from ganger_worker import AsyncTask, Task, run

        def plain(task: Task) -> None:
            return None

        async def asynchronous(task: AsyncTask) -> None:
            return None

        run(plain if kind == "plain" else asynchronous, concurrency=KINDS[kind])
        return
    pipe = socket.socket(socket.AF_UNIX)
    sys.stdin.readline()
    pipe.connect(os.environ["GANGER_PIPE"])
    (by_hand_plain if kind == "plain" else by_hand_async)(pipe)


class Measured:
    """A worker, and the processor time of its messages."""

    def __init__(self, kind: str, way: str) -> None:
        self.ahead = KINDS[kind]
        path = f"/tmp/ganger-bench-{os.getpid()}"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(1)
            env = os.environ | {"GANGER_PROTOCOL": "2", "GANGER_PIPE": path}
            arguments = [sys.executable, str(HERE), "worker", kind, way]
            self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, env=env)
            self.control.write(b"pipe\n")
            self.control.flush()
            self.pipe, _ = listener.accept()
            os.unlink(path)
        self.turn()  # the start is not counted

    @property
    def control(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    def turn(self) -> float:
        """Microseconds a message."""
        before = processor_seconds(self.process.pid)
        exchange(self.pipe, MESSAGES, self.ahead)
        return (processor_seconds(self.process.pid) - before) / MESSAGES * 1e6

    def end(self) -> None:
        self.pipe.shutdown(socket.SHUT_WR)
        self.control.close()
        if self.process.wait(30) != 0:
            raise SystemExit(f"a worker has failed: {self.process.args!r}")
        self.pipe.close()


def processor_seconds(pid: int) -> float:
    """The threads' own clock, in nanoseconds: ticks are too coarse."""
    spent = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        spent += int((thread / "schedstat").read_text().split()[0])
    return spent / 1e9


def exchange(pipe: socket.socket, count: int, ahead: int) -> None:
    inputs = []
    for id in range(count):
        task = {
            "0": "hello",
            "1": "",
            "2": "work",
            "3": {},
            "4": id,
            "5": 1,
            "6": None,
            "7": {"row_id": id},
        }
        data = msgpack.packb(task)
        inputs.append(struct.pack(">I", len(data)) + data)
    waiting = iter(inputs)
    left, in_flight, buffer = count, 0, b""
    while left:
        heap = []
        while in_flight < ahead and (frame := next(waiting, None)) is not None:
            heap.append(frame)
            in_flight += 1
        if heap:
            pipe.sendall(b"".join(heap))
        buffer += pipe.recv(1 << 16)
        while len(buffer) >= 4:
            end = 4 + int.from_bytes(buffer[:4], "big")
            if len(buffer) < end:
                break
            if b"\xa11\xcc\xc8" in buffer[:end]:
                left -= 1
                in_flight -= 1
            buffer = buffer[end:]


def main() -> None:
    if sys.argv[1:2] == ["worker"]:
        worker(*sys.argv[2:])
        return
    rounds = int(sys.argv[1]) if sys.argv[1:] else 5
    # Whether a message wakes up another processor weighs more than all that is compared here.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    began = time.monotonic()
    for kind in KINDS:
        ratios: list[float] = []
        costs: dict[str, list[float]] = {"library": [], "by hand": []}
        for _ in range(rounds):
            workers = {way: Measured(kind, way) for way in costs}
            for _ in range(TURNS):
                for way, measured in workers.items():
                    costs[way].append(measured.turn())
                ratios.append(costs["library"][-1] / costs["by hand"][-1])
            for measured in workers.values():
                measured.end()
        shown = ", ".join(f"{way} {statistics.median(cost):.1f} µs" for way, cost in costs.items())
        print(f"{kind}: {shown}, ratio {statistics.median(ratios):.2f}", flush=True)
    print(f"{rounds} rounds of {TURNS} turns of {MESSAGES} messages in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
