"""The published vectors: proto-spec/vectors."""

from __future__ import annotations

import json
import tomllib
import unittest
from pathlib import Path
from typing import Any

from ganger_worker import ProtocolError, Task, __version__
from ganger_worker._frames import Splitter, decode, done, encode, framed

HERE = Path(__file__).resolve().parent
VECTORS = HERE.parents[2] / "proto-spec" / "vectors"


def vectors(name: str) -> list[dict[str, Any]]:
    file = json.loads((VECTORS / f"{name}.json").read_text())
    assert file["format"] == 1 and file["vectors"]
    found: list[dict[str, Any]] = file["vectors"]
    return found


def body(meaning: dict[str, str]) -> str | bytes:
    return meaning["text"] if "text" in meaning else bytes.fromhex(meaning["hex"])


def property_value(meaning: dict[str, Any]) -> object:
    if "integer" in meaning:
        return int(meaning["integer"])
    return meaning["boolean"] if "boolean" in meaning else body(meaning)


class Vectors(unittest.TestCase):
    def test_inputs_mean_what_they_should(self) -> None:
        for vector in vectors("input-v1") + vectors("input-v2"):
            with self.subTest(vector["name"]):
                meaning = vector["meaning"]
                task = Task(decode(bytes.fromhex(vector["bytes"])), None)  # type: ignore[arg-type]
                self.assertEqual(task.message, body(meaning["message"]))
                self.assertEqual(task.correlation_id, meaning["correlation_id"])
                self.assertEqual(task.queue, meaning["queue"])
                self.assertEqual(list(task.headers.items()), [tuple(h) for h in meaning["headers"]])
                self.assertEqual(task.id, meaning["id"] and int(meaning["id"]))
                self.assertEqual(task.attempt, meaning["attempt"])
                self.assertEqual(task.milliseconds_left, meaning["milliseconds_left"])
                properties = [(name, property_value(v)) for name, v in meaning["properties"]]
                self.assertEqual(list(task.properties.items()), properties)

    def test_hostile_inputs_are_refused(self) -> None:
        for vector in vectors("input-hostile"):
            with self.subTest(vector["name"]), self.assertRaises(ProtocolError):
                decode(bytes.fromhex(vector["bytes"]))

    def test_what_the_vectors_lack_is_refused_too(self) -> None:
        start = "85a130a16da131a0a132a171a133"
        for name, data in {
            "empty": "",
            "bin for a key": "85c40130a16da131a0a132a171a13380a13401",
            "header of a number": f"{start}81a16101a13401",
            "headers in a list": f"{start}90a13401",
            "true for an id": f"{start}80a134c3",
            "0xc1": f"{start}80a134c1",
            "nested too deep": f"{start}80a178" + "91" * 64 + "c0",
            "nested much too deep": f"{start}80a178" + "91" * 100_000 + "c0",
            "claims 4 GiB": f"{start}80a178c6ffffffff",
            "claims 4 G entries": "dfffffffff",
        }.items():
            with self.subTest(name), self.assertRaises(ProtocolError):
                decode(bytes.fromhex(data))

    def test_unknown_keys_may_hold_anything(self) -> None:
        start = "86a130a16da131a0a132a171a13380a13401a178"
        repeated = "87a130a16da131a0a132a171a13380a13401a178c0a178c0"
        for data in (start + "820102c0c3", start + "c70305616263", repeated):
            with self.subTest(data):
                self.assertEqual(decode(bytes.fromhex(data))[4], 1)

    def test_outputs_are_written_byte_for_byte(self) -> None:
        written = 0
        for vector in vectors("output-v1") + vectors("output-v2"):
            if vector["form"] != "canonical":
                continue
            with self.subTest(vector["name"]):
                meaning = vector["meaning"]
                headers = meaning["headers"]
                data = encode(
                    body(meaning["message"]),
                    meaning["status"],
                    None if headers is None else dict(headers),
                    meaning["reply_queue"],
                    meaning["id"] and int(meaning["id"]),
                    meaning["retry_after_ms"],
                )
                self.assertEqual(data.hex(), vector["bytes"])
                written += 1
        self.assertGreater(written, 20)

    def test_the_short_way_to_the_usual_answer_writes_the_same(self) -> None:
        for id in (None, 0, 127, 128, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32, (1 << 64) - 1):
            self.assertEqual(done(id), framed(encode("", 200, id=id), 100))

    def test_framing_however_the_stream_is_cut(self) -> None:
        for vector in vectors("framing"):
            stream = bytes.fromhex(vector["stream"])
            for size in (1, 2, 3, 5, 7, len(stream) or 1):
                with self.subTest(vector["name"], size=size):
                    splitter = Splitter(vector["frame_bytes_max"])
                    frames: list[str] = []
                    for at in range(0, len(stream), size):
                        frames += (f.hex() for f in splitter.feed(stream[at : at + size]))
                    self.assertEqual(frames, vector["frames"])
                    self.assertEqual(splitter.broken is not None, vector["error"] is not None)
                    if splitter.broken is None:
                        self.assertEqual(splitter.rest.hex(), vector["rest"])

    def test_the_version_is_one(self) -> None:
        project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
        self.assertEqual(project["version"], __version__)
