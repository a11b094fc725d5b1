"""Beginnings and ends that the daemon has not asked for: warm-up, forks, exits, and a host that stops."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import unittest
from typing import Any

from .peer import DEADLINE_SECONDS, MODES, Peer

KINDS = ("plain", "async")


class Ending(unittest.TestCase):
    def each(self, concurrency: int) -> Any:
        for kind in KINDS:
            with self.subTest(kind), Peer(kind, str(concurrency)) as peer:
                yield peer

    def test_a_forked_child_answers_nothing_and_takes_nothing(self) -> None:
        for concurrency in (1, 2):
            for peer in self.each(concurrency):
                for how, code in {"exit": 7, "return": 0, "raise": 1, "note": 1}.items():
                    # Were one to answer, or to end the pipe for both, this would not be all.
                    ended = peer.ask(f"fork {how}")
                    self.assertEqual((ended["1"], ended["0"]), (101, f"the child has ended: {code}"))
                    self.assertEqual(peer.receive(), {"0": "", "1": 200, "4": 1})
                peer.tell("__quit__")
                self.assertEqual(peer.ended(), 0)
                stderr = peer.stderr()
                self.assertEqual(stderr.count("info: said by a child"), 4)
                self.assertIn("ValueError: in a child", stderr)
                self.assertIn("has forked can't emit", stderr)

    def test_an_exit_harms_no_neighbour(self) -> None:
        for peer in self.each(3):
            peer.begin("stuck", 1)
            peer.send("exit", 2)
            answer = peer.receive()
            self.assertEqual((answer["1"], answer["4"]), (500, 2))
            # The daemon does not know yet. Its pipe is open still, and this one is not begun.
            peer.send("echo x", 3)
            peer.tell("__cancel__ 1")
            self.assertEqual(peer.receive(), {"0": "gave up", "1": 429, "4": 1})
            answer = peer.receive()
            self.assertEqual((answer["1"], answer["4"]), (300, 3))
            self.assertEqual(peer.ended(), 3)

    def test_a_host_that_stops_finishes_what_is_in_hand(self) -> None:
        for peer in self.each(3):
            peer.begin("stuck", 1)
            self.assertEqual(peer.ask("stop", 2)["1"], 200)
            peer.send("echo x", 3)
            peer.tell("__cancel__ 1")
            self.assertEqual(peer.receive()["1"], 429)
            self.assertEqual(peer.receive()["1"], 300)
            self.assertEqual(peer.ended(), 0)
        for peer in self.each(1):
            self.assertEqual(peer.ask("stop")["1"], 200)
            self.assertEqual(peer.ended(), 0)

    def test_what_is_held_until_the_end_goes_back_when_it_is_cancelled(self) -> None:
        for end in ("stop", "exit"):
            for peer in self.each(4):
                peer.begin("stuck", 1)
                peer.ask(end, 2)
                peer.send("echo x", 3)
                peer.tell("__cancel__ 3")
                answer = peer.receive()
                self.assertEqual((answer["1"], answer["4"]), (300, 3))
                # Stdin and the pipe have no common order.
                peer.tell("__cancel__ 4")
                peer.send("echo x", 4)
                answer = peer.receive()
                self.assertEqual((answer["1"], answer["4"]), (300, 4))
                peer.tell("__cancel__ 1")
                self.assertEqual(peer.receive(), {"0": "gave up", "1": 429, "4": 1})
                self.assertEqual(peer.ended(), {"stop": 0, "exit": 3}[end])

    def test_warm_up_comes_before_the_pipe(self) -> None:
        for peer in self.each(1):
            self.assertEqual(peer.ask("warmth")["0"], "warm, stdin held 0 bytes")
        for kind in KINDS:
            name = secrets.token_hex(16)
            path = f"/tmp/CoreFxPipe_{name}"
            with self.subTest(kind), socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
                try:
                    listener.listen(1)
                    listener.setblocking(False)
                    worker = subprocess.run(
                        [sys.executable, str(MODES), kind, "1"],
                        input=f"{name}\n".encode(),
                        env={**os.environ, "WARM_UP": "exit"},
                        timeout=DEADLINE_SECONDS,
                    )
                    self.assertEqual(worker.returncode, 9)
                    with self.assertRaises(BlockingIOError):
                        listener.accept()
                finally:
                    os.unlink(path)

    def test_what_is_said_after_the_answer_goes_to_stderr(self) -> None:
        for peer in self.each(2):
            self.assertEqual(peer.ask("linger", 1)["1"], 200)
            self.assertEqual(peer.ask("late", 2)["1"], 200)
            peer.tell("__quit__")
            self.assertEqual(peer.ended(), 0)
            self.assertIn("warn: said late n=1", peer.stderr())

    def test_no_emit_comes_after_the_answer(self) -> None:
        with Peer("plain", "2") as peer:
            self.assertEqual(peer.ask("linger", 1)["1"], 200)
            self.assertEqual(peer.ask("late", 2)["1"], 200)
            peer.tell("__quit__")
            self.assertEqual(peer.ended(), 0)
            self.assertIn("refused: emit must come before", peer.stderr())
