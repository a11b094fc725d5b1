"""What a handler may say, and what is its message's failure instead of the whole worker's."""

from __future__ import annotations

import unittest
from typing import Any

from ganger_worker import Outcome, Task, reply
from ganger_worker.testing import Message, work

from .peer import Peer
from .unusual import UNUSUAL

JSON = {"content-type": "application/json"}
SENT: dict[str, dict[str, Any]] = {
    "object": {"0": '{"a":[1,"ü",null]}', "1": 201, "2": JSON},
    "typed": {"0": "[1]", "1": 201, "2": {"Content-Type": "text/x"}},
    "number": {"0": "5", "1": 201, "2": JSON},
    "none": {"0": "", "1": 201},
    "array": {"0": b"\xff", "1": 201},
    "headers": {"0": "x", "1": 201, "2": {"a": '{"b":[1]}', "big": str(1 << 70), "n": 1.5, "7": True}},
    "reason": {"0": "odd ?", "1": 400},
}
REFUSED = {
    "set": "a message must be text, bytes or what JSON has: ",
    "nan": "a message must be text, bytes or what JSON has: ",
    "circle": "a message must be text, bytes or what JSON has: ",
    "surrogate": "UnicodeEncodeError",
    "name": "UnicodeEncodeError",
    "value": "UnicodeEncodeError",
    "unknown": "the header 'h' must be text, bytes or what JSON has: ",
    "no-map": "headers must be a mapping of names to values: list",
    "many": "at most 10000 headers: 10001",
    "queue": "a queue's name must be text: 5",
    "status": "an answer's status must be a whole number: '200'",
    "note": "an answer's status must be one that ends the message: 102",
    "after": "after_ms must be a whole number from 0: -1",
    "fraction": "after_ms must be a whole number from 0: 1.5",
}


class Answers(unittest.TestCase):
    def test_in_life(self) -> None:
        self.assertEqual({*SENT, *REFUSED}, {*UNUSUAL})
        for kind in ("plain", "async"):
            with self.subTest(kind), Peer(kind, "2") as peer:
                for name, sent in SENT.items():
                    self.assertEqual(peer.ask(f"unusual {name}"), sent | {"4": 1})
                for name, why in REFUSED.items():
                    answer = peer.ask(f"unusual {name}")
                    self.assertEqual(answer["1"], 500, name)
                    self.assertIn(why, answer["0"])
                emit = {"0": '{"a":1}', "1": 103, "2": JSON, "3": "parts", "4": 1}
                self.assertEqual(peer.ask("publish object"), emit)
                self.assertEqual(peer.receive()["1"], 200)
                self.assertEqual(peer.ask("count"), {"0": "5", "1": 102, "4": 1})
                self.assertEqual(peer.receive()["1"], 200)
                for name in ("queue", "set"):
                    self.assertEqual(peer.ask(f"publish {name}")["1"], 500)
                self.assertEqual(peer.ask("echo on")["0"], "on")

    def test_in_the_harness(self) -> None:
        names = list(UNUSUAL)
        results = dict(zip(names, work(lambda task: UNUSUAL[task.text], names), strict=True))
        for name, sent in SENT.items():
            result = results[name]
            self.assertEqual((result.message, result.status), (sent["0"], sent["1"]))
            self.assertEqual(result.headers, sent.get("2"))
        for name, why in REFUSED.items():
            self.assertEqual(results[name].status, 500)
            self.assertIn(why, str(results[name].message))

    def test_the_daemons_limit_is_obeyed(self) -> None:
        env = {"GANGER_FRAME_BYTES_MAX": "1024"}
        for kind in ("plain", "async"):
            for args in ([], ["4096"]):
                with self.subTest(kind), Peer(kind, "1", *args, env=env) as peer:
                    answer = peer.ask("large 1020")
                    self.assertEqual(answer["1"], 500)
                    self.assertIn("at most 1024 bytes: 10", answer["0"])
                    # So is it by what a failure, a reason and a note have to say.
                    answer = peer.ask("raise " + "x" * 900)
                    self.assertEqual(answer["1"], 500)
                    self.assertIn("ValueError: no good", answer["0"])
                    self.assertEqual(peer.ask("progress " + "ü" * 400)["1"], 102)
                    self.assertEqual(peer.receive()["1"], 200)
            with self.subTest(kind), Peer(kind, "1", "1000", env=env) as peer:
                self.assertEqual(peer.ask("large 990")["1"], 500)

    def test_hostile_header_names_are_headers(self) -> None:
        names = ["constructor", "__proto__", "__class__", "self", "level", "length", "toString", ""]

        def handle(task: Task) -> Outcome:
            return reply(repr(task.headers), headers=task.headers)

        [result] = work(handle, [Message(headers={name: "v" for name in names})])
        self.assertEqual(result.headers, {name: "v" for name in names})
        for kind in ("plain", "async"):
            with self.subTest(kind), Peer(kind, "1") as peer:
                for name in names:
                    self.assertIn(repr(name), peer.ask("headers x", _3={name: "v"})["0"])
