"""What may be sent. Bodies and headers that programs read go exactly as they are or not at all; reasons,
progress and log records, which people read, are made text whatever they hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ._frames import encode, framed
from ._outcome import Outcome, Status

HEADERS_MAX = 10_000
_FRAME_OVERHEAD_BYTES = 64
_INTEGER_MIN, _INTEGER_MAX = -(1 << 63), (1 << 64) - 1
_REASONS = frozenset((Status.REQUEUE, Status.REJECT, Status.RETRY, Status.UNKNOWN_ERROR, 503))


def outcome_frame(outcome: object, id: int | None, frame_bytes_max: int) -> bytes:
    """An answer; raises TypeError or ValueError for one that the daemon would refuse."""
    if not isinstance(outcome, Outcome):
        raise TypeError(
            "a handler must return an Outcome, such as done() or reply(…), or None: "
            f"{type(outcome).__name__}"
        )
    status = outcome.status
    if not isinstance(status, int) or not -(1 << 63) <= status < 1 << 63:
        raise TypeError(f"an answer's status must be a whole number: {status!r}")
    if status == Status.IGNORE_MESSAGE or Status.HELLO <= status < Status.DONE:
        raise ValueError(f"an answer's status must be one that ends the message: {status}")
    after_ms = outcome.after_ms
    if after_ms is not None and not (isinstance(after_ms, int) and 0 <= after_ms <= _INTEGER_MAX):
        raise ValueError(f"after_ms must be a whole number from 0: {after_ms!r}")
    message, headers = outcome.message, outcome.headers
    if status in _REASONS:
        message = readable(message, frame_bytes_max)
    else:
        message, headers = _body(message, headers)
    data = encode(message, status, _headers(headers), _queue(outcome.queue), id, after_ms)
    return framed(data, frame_bytes_max)


def note_frame(
    status: int,
    message: object,
    headers: Mapping[str, object] | None,
    queue: object,
    id: int | None,
    frame_bytes_max: int,
) -> bytes:
    """An emit, a log record or a progress note, judged alike."""
    if status == Status.EMIT:
        message, headers = _body(message, headers)
    else:
        message = readable(message, frame_bytes_max)
    return framed(encode(message, status, _headers(headers), _queue(queue), id), frame_bytes_max)


def readable(message: object, frame_bytes_max: int) -> str | bytes:
    """For people: never an error, and never longer than a frame."""
    room = frame_bytes_max // 2 - _FRAME_OVERHEAD_BYTES
    if isinstance(message, (bytes, bytearray, memoryview)):
        return bytes(message[:room])
    if message is None:
        return ""
    if not isinstance(message, str):
        try:
            message = str(message)
        except Exception as error:
            message = f"{type(message).__name__}, whose text raises {type(error).__name__}"
    data = message.encode(errors="replace")
    return data[:room].decode(errors="ignore")


def field(value: object, frame_bytes_max: int) -> object:
    """A log record's field: a number stays one."""
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return value if _INTEGER_MIN <= value <= _INTEGER_MAX else str(value)
    return readable(value, frame_bytes_max)


def _body(
    message: object, headers: Mapping[str, object] | None
) -> tuple[str | bytes, Mapping[str, object] | None]:
    """Text and bytes as they are; JSON, with its content type, of anything else that JSON has."""
    if isinstance(message, (str, bytes)):
        return message, headers
    if message is None:
        return "", headers
    if isinstance(message, (bytearray, memoryview)):
        return bytes(message), headers
    text = _json(message, "a message")
    if headers is None:
        return text, {"content-type": "application/json"}
    if isinstance(headers, Mapping) and not any(str(name).lower() == "content-type" for name in headers):
        headers = {**headers, "content-type": "application/json"}
    return text, headers


def _headers(headers: object) -> Mapping[str, object] | None:
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers must be a mapping of names to values: {type(headers).__name__}")
    if len(headers) > HEADERS_MAX:
        raise ValueError(f"a message must have at most {HEADERS_MAX} headers: {len(headers)}")
    return {_name(name): _value(name, value) for name, value in headers.items()}


def _name(name: object) -> str:
    return name if isinstance(name, str) else str(name)


def _value(name: object, value: object) -> object:
    """The daemon reads it in its text form; what MessagePack lacks goes as JSON."""
    if value is None or isinstance(value, (str, bytes, bool, float)):
        return value
    if isinstance(value, int):
        return value if _INTEGER_MIN <= value <= _INTEGER_MAX else str(value)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return _json(value, f"the header {name!r}")


def _json(value: object, what: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{what} must be text, bytes or what JSON has: {error}") from error


def _queue(queue: object) -> str | None:
    if queue is not None and not isinstance(queue, str):
        raise TypeError(f"a queue's name must be text: {queue!r}")
    return queue
