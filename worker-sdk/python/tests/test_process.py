"""Real worker processes, of each kind, with a daemon by hand on the other side."""

from __future__ import annotations

import time
import unittest
from typing import Any

from .peer import Peer, frame, task

KINDS = ("plain", "async")
MIB = 1 << 20


class Process(unittest.TestCase):
    """Everything that both kinds of handler must do."""

    def each(self, concurrency: int = 1, *args: str) -> Any:
        for kind in KINDS:
            with self.subTest(kind), Peer(kind, str(concurrency), *args) as peer:
                yield peer

    def test_hello_names_the_library_and_how_much_it_takes(self) -> None:
        for peer in self.each(7):
            assert peer.hello is not None
            self.assertEqual(list(peer.hello), ["0", "1", "2"])
            self.assertEqual((peer.hello["0"], peer.hello["1"]), ("", 100))
            self.assertEqual(peer.hello["2"]["sdk"], "ganger-python")
            self.assertEqual(peer.hello["2"]["concurrency"], "7")

    def test_outcomes(self) -> None:
        for peer in self.each():
            for body, answer in {
                "": {"0": "", "1": 200},
                "done": {"0": "", "1": 200},
                "echo Grüße 漢 🦀": {"0": "Grüße 漢 🦀", "1": 201},
                "retry": {"0": "later", "1": 429, "5": 1500},
                "reject": {"0": "never", "1": 400},
                "requeue": {"0": "", "1": 300},
            }.items():
                self.assertEqual(peer.ask(body, 9), answer | {"4": 9})
            headers = {"a": "ä", "b": ""}
            answer = peer.ask("headers answers", 0, _3=headers)
            self.assertEqual(answer["0"], "[('a', 'ä'), ('b', '')]")
            self.assertEqual(answer["2"], {"n": 7, "ü": "é"})
            self.assertEqual((answer["3"], answer["4"]), ("answers", 0))
            last = (1 << 64) - 1
            answer = peer.ask("about", last, _1="c", _5=3, _6=5000, _7={"row_id": 4, "key": b"\xff"})
            self.assertEqual(answer["0"], "['c', 'q', 3, 5000, [('key', b'\\xff'), ('row_id', 4)]]")
            self.assertEqual(answer["4"], last)

    def test_a_handler_that_raises_answers_500_and_goes_on(self) -> None:
        for peer in self.each():
            answer = peer.ask("raise x")
            self.assertEqual((answer["1"], answer["4"]), (500, 1))
            first, *stack = answer["0"].splitlines()
            self.assertEqual(first, "ValueError: no good: ? x")
            self.assertIn("modes.py", "".join(stack))
            answer = peer.ask("wrong")
            self.assertEqual(answer["1"], 500)
            self.assertIn("must return an Outcome", answer["0"])
            answer = peer.ask("unspeakable")
            self.assertEqual(answer["1"], 500)
            self.assertIn("UnicodeEncodeError", answer["0"])
            self.assertEqual(peer.ask("echo x")["0"], "x")

    def test_a_reply_that_the_daemon_would_refuse_is_a_failure(self) -> None:
        for peer in self.each(1, str(4096)):
            answer = peer.ask("large 5000")
            self.assertEqual(answer["1"], 500)
            self.assertIn("at most 4096 bytes: 50", answer["0"])
            self.assertEqual(len(peer.ask("large 4000")["0"]), 4000)

    def test_large_empty_and_binary_bodies(self) -> None:
        for peer in self.each():
            large = "ü" * (5 * MIB)
            self.assertEqual(peer.ask("echo " + large)["0"], large)
            binary = bytes(range(256)) * (10 * MIB // 256)
            self.assertEqual(peer.ask(binary)["0"], binary)
            self.assertEqual(peer.ask(b"")["0"], b"")
            self.assertEqual(peer.ask("echo ")["0"], "")

    def test_frames_in_dribbles_and_heaps(self) -> None:
        for peer in self.each(100):
            for byte in frame(task("echo slow", 1)):
                peer.pipe.sendall(bytes([byte]))
            self.assertEqual(peer.receive()["0"], "slow")
            heap = b"".join(frame(task(f"echo {n}", n)) for n in range(100))
            peer.pipe.sendall(heap[:-5])
            peer.pipe.sendall(heap[-5:])
            answers = {answer["4"]: answer["0"] for answer in (peer.receive() for _ in range(100))}
            self.assertEqual(answers, {n: str(n) for n in range(100)})

    def test_many_at_once(self) -> None:
        for peer in self.each(8):
            for n in range(8):
                peer.send("together", n)
            self.assertEqual({peer.receive()["4"] for _ in range(8)}, set(range(8)))

    def test_a_slow_one_holds_up_no_other(self) -> None:
        for peer in self.each(2):
            peer.begin("stuck", 1)
            for n in range(2, 200):
                self.assertEqual(peer.ask("echo x", n)["4"], n)
            peer.tell("__cancel__ 1")
            self.assertEqual(peer.receive(), {"0": "gave up", "1": 429, "4": 1})

    def test_notes_go_out_before_the_answer(self) -> None:
        for peer in self.each():
            peer.send("emit 300", 5)
            for n in range(300):
                emit = {"0": f"part {n}", "1": 103, "2": {"n": n}, "3": "parts", "4": 5}
                self.assertEqual(peer.receive(), emit)
            self.assertEqual(peer.receive()["1"], 200)
            self.assertEqual(peer.ask("progress"), {"0": "1 of 2", "1": 102, "4": 1})
            self.assertEqual(peer.receive()["1"], 200)
            fields = {"level": "debug", "target": "tests", "n": 1, "many": "[1, 2]"}
            self.assertEqual(peer.ask("log"), {"0": "noted", "1": 101, "2": fields, "4": 1})
            self.assertEqual(peer.receive()["1"], 200)
            fields = {"level": "warn", "target": "shop", "degrees": 90}
            self.assertEqual(peer.ask("logging"), {"0": "hot stuff", "1": 101, "2": fields, "4": 1})
            self.assertEqual(peer.receive()["1"], 200)

    def test_cancel(self) -> None:
        for peer in self.each():
            peer.begin("stuck", 3)
            peer.tell("__cancel__ 77\n__cancel__ \n__cancel__ x\n__cancel__ 3")
            self.assertEqual(peer.receive(), {"0": "gave up", "1": 429, "4": 3})
            # One that overtakes its message: stdin and the pipe have no common order.
            peer.tell("__cancel__ 4")
            peer.send("stuck", 4)
            answer = peer.receive()
            while answer["1"] == 102:  # asyncio does not even begin what is cancelled by then
                answer = peer.receive()
            self.assertEqual(answer["1"], 429)
            self.assertEqual(peer.ask("echo on", 5)["0"], "on")

    def test_a_cancellation_that_nobody_catches_answers_429(self) -> None:
        with Peer("async", "1") as peer:
            peer.begin("uncaught", 3)
            peer.tell("__cancel__ 3")
            answer = peer.receive()
            self.assertEqual((answer["1"], answer["4"]), (429, 3))
            first, *stack = answer["0"].splitlines()
            self.assertEqual(first, "cancelled")
            self.assertIn("modes.py", "".join(stack))
            self.assertEqual(peer.ask("echo on", 4)["0"], "on")

    def test_quit_when_idle(self) -> None:
        for peer in self.each(3):
            peer.ask("echo x")
            peer.tell("__quit__")
            self.assertEqual(peer.ended(), 0)

    def test_quit_when_busy(self) -> None:
        for peer in self.each(2):
            peer.begin("stuck", 1)
            peer.send("sleep 0.2", 2)
            peer.tell("__quit__")
            self.assertEqual(peer.receive(), {"0": "", "1": 200, "4": 2})
            peer.tell("__cancel__ 1")
            self.assertEqual(peer.receive()["1"], 429)
            self.assertEqual(peer.ended(), 0)

    def test_the_end_of_the_pipe_and_of_stdin(self) -> None:
        for peer in self.each():
            peer.send("sleep 0.1")
            peer.pipe.shutdown(1)  # for writing
            self.assertEqual(peer.receive()["1"], 200)
            self.assertEqual(peer.ended(), 0)
        for peer in self.each():
            peer.send("sleep 0.1")
            self.assertIsNotNone(peer.process.stdin)
            peer.process.stdin.close()
            peer.process.stdin = None
            self.assertEqual(peer.receive()["1"], 200)
            self.assertEqual(peer.ended(), 0)

    def test_a_daemon_that_is_gone_is_no_error(self) -> None:
        for peer in self.each():
            peer.send("sleep 0.1")
            peer.input.close()
            peer.pipe.close()
            self.assertEqual(peer.process.wait(30), 0, peer.stderr())

    def test_what_a_worker_does_not_know_it_ignores(self) -> None:
        for peer in self.each():
            peer.tell("__context_switch__\n\n__unheard__ of")
            self.assertEqual(peer.ask("echo x", 1, _8={"new": [1]}, more=b"\xff")["0"], "x")

    def test_a_hostile_input_ends_the_connection(self) -> None:
        for concurrency in (1, 2):
            for peer in self.each(concurrency):
                peer.pipe.sendall(frame({"0": "m"}))
                self.assertEqual(peer.ended(), 1)
                self.assertIn('no "1"', peer.stderr())
            for peer in self.each(concurrency):
                peer.pipe.sendall(b"\x7f\xff\xff\xff")
                self.assertEqual(peer.ended(), 1)
                self.assertIn("at most 67108864 bytes", peer.stderr())

    def test_a_handler_that_exits_answers_and_ends_the_worker(self) -> None:
        for concurrency in (1, 2):
            for peer in self.each(concurrency):
                self.assertEqual(peer.ask("exit")["1"], 500)
                self.assertEqual(peer.ended(), 3)

    def test_child_processes_can_not_read_the_control_lines(self) -> None:
        with Peer("plain", "1") as peer:
            self.assertEqual(peer.ask("child")["0"], b"")
            peer.tell("__quit__")
            self.assertEqual(peer.ended(), 0)

    # -- version 1 --

    def test_version_1(self) -> None:
        for kind in KINDS:
            with self.subTest(kind), Peer(kind, "8", version=1) as peer:
                # Ahead of the answers, as `pipeline` does it; the answers are in order.
                v1 = [{k: v for k, v in task(f"echo {n}", n).items() if k < "4"} for n in range(200)]
                peer.pipe.sendall(b"".join(map(frame, v1)))
                for n in range(200):
                    self.assertEqual(peer.receive(), {"0": str(n), "1": 201})
                self.assertEqual(peer.ask("progress"), {"0": "1 of 2", "1": -1})
                self.assertEqual(peer.receive(), {"0": "", "1": 200})
                self.assertEqual(peer.ask("log"), {"0": "", "1": 200})
                self.assertEqual(peer.ask("logging"), {"0": "", "1": 200})
                answer = peer.ask("emit 1")
                self.assertEqual(answer["1"], 500)
                self.assertIn("version 2", answer["0"])
                peer.tell("__quit__")
                self.assertEqual(peer.ended(), 0)
                stderr = peer.stderr()
                self.assertIn("debug: noted", stderr)
                self.assertIn("WARNING shop: hot stuff", stderr)

    def test_version_1_gives_up_by_itself_and_yields_when_told(self) -> None:
        for kind in KINDS:
            with self.subTest(kind), Peer(kind, "1", version=1) as peer:
                began = time.monotonic()
                peer.begin("stuck", 1, _3={"TimeoutMilliseconds": "100"})
                self.assertEqual(peer.receive(), {"0": "gave up", "1": 429})
                self.assertGreater(time.monotonic() - began, 0.09)
                for timeout in ("-1", "soon"):
                    answer = peer.ask("echo x", _3={"TimeoutMilliseconds": timeout})
                    self.assertEqual(answer["0"], "x")
                peer.ask("done")
                peer.begin("stuck")
                peer.tell("__context_switch__")
                self.assertEqual(peer.receive()["0"], "gave up")
