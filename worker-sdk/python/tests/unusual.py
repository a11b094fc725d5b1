"""What a handler might return or publish, though it is neither text nor bytes, or can't be sent."""

from __future__ import annotations

from typing import Any

from ganger_worker import Outcome, reject, reply

circular: list[object] = []
circular.append(circular)
UNUSUAL: dict[str, Outcome] = {
    "object": reply({"a": [1, "ü", None]}),
    "typed": reply([1], headers={"Content-Type": "text/x"}),
    "number": reply(5),
    "none": reply(None),
    "array": reply(bytearray(b"\xff")),
    "headers": reply(
        "x",
        headers={"a": {"b": [1]}, "big": 1 << 70, "n": 1.5, 7: True},  # type: ignore[dict-item]
    ),
    "reason": reject(ValueError("odd \ud800")),
    "set": reply({1, 2}),
    "nan": reply(float("nan")),
    "circle": reply(circular),
    "surrogate": reply({"a": "\ud800"}),
    "name": reply("x", headers={"\ud800": "x"}),
    "value": reply("x", headers={"h": "\ud800"}),
    "unknown": reply("x", headers={"h": object()}),
    "no-map": reply("x", headers=[1]),  # type: ignore[arg-type]
    "many": reply("x", headers={str(n): "" for n in range(10_001)}),
    "queue": reply("x", queue=5),  # type: ignore[arg-type]
    "status": Outcome("200"),  # type: ignore[arg-type]
    "note": Outcome(102),
    "after": Outcome(429, after_ms=-1),
    "fraction": Outcome(429, after_ms=1.5),  # type: ignore[arg-type]
}


PUBLISHED: dict[str, Any] = {
    "object": {"queue": "parts", "message": {"a": 1}},
    "queue": {"queue": 5, "message": "x"},
    "set": {"queue": "parts", "message": {1}},
}
