"""The bytes of the protocol: frames, what the daemon sends, what a worker answers."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgpack

FRAME_BYTES_MAX = 64 << 20
"""The longest frame, unless the pool's `frame_bytes_max` says otherwise."""

_DEPTH_MAX = 64
_ID_MAX = (1 << 64) - 1
_KEYS_V2 = ("0", "1", "2", "3", "4", "5", "6", "7")
_length = struct.Struct(">I")


class ProtocolError(Exception):
    """The daemon, or what pretends to be one, has sent what the protocol forbids."""


class Splitter:
    """Cuts a stream of bytes into frames, however they come."""

    __slots__ = ("_buffer", "_frame_bytes_max", "broken")

    broken: ProtocolError | None
    """What was wrong with the length at which the stream has ended."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._buffer = bytearray()
        self._frame_bytes_max = frame_bytes_max
        self.broken = None

    def feed(self, data: bytes) -> Sequence[bytes]:
        """The frames that are whole now. A bad length sets `broken`; what came before it counts."""
        buffer = self._buffer
        if not buffer and len(data) > 4:
            (size,) = _length.unpack_from(data)
            if size == len(data) - 4 and size <= self._frame_bytes_max:
                return (data[4:],)  # just one frame: the usual case
        buffer += data
        frames = []
        start = 0
        with memoryview(buffer) as view:
            while self.broken is None and len(view) - start >= 4:
                (size,) = _length.unpack_from(view, start)
                if not 0 < size <= self._frame_bytes_max:
                    self.broken = self._judge(size)
                    break
                end = start + 4 + size
                if len(view) < end:
                    break
                frames.append(bytes(view[start + 4 : end]))
                start = end
        del buffer[:start]
        return frames

    def _judge(self, size: int) -> ProtocolError:
        if size == 0:
            return ProtocolError("a frame's length must be 1 or more: 0")
        if size > 0x7FFF_FFFF:
            return ProtocolError(f"a frame's length must not have its top bit set: {size:#x}")
        return ProtocolError(
            f"a frame must have at most {self._frame_bytes_max} bytes "
            f"(run's frame_bytes_max): {size}"
        )

    @property
    def rest(self) -> bytes:
        """What is left of a frame that is not whole."""
        return bytes(self._buffer)


def encode(
    message: str | bytes,
    status: int,
    headers: Mapping[str, object] | None = None,
    queue: str | None = None,
    id: int | None = None,
    after_ms: int | None = None,
) -> bytes:
    """An output as a MessagePack map, without its length."""
    output: dict[str, object] = {"0": message, "1": status}
    if headers is not None:
        output["2"] = headers if type(headers) is dict else dict(headers)
    if queue is not None:
        output["3"] = queue
    if id is not None:
        output["4"] = id
    if after_ms is not None:
        output["5"] = after_ms
    data: bytes = msgpack.packb(output)
    return data


def framed(data: bytes, frame_bytes_max: int) -> bytes:
    """With its length in front; ValueError if the daemon would refuse it."""
    size = len(data)
    if size > frame_bytes_max:
        raise ValueError(f"an answer must have at most {frame_bytes_max} bytes: {size}")
    return _length.pack(size) + data


def done(id: int | None) -> bytes:
    """The frame of the answer that most tasks have, without the way through `encode`."""
    if id is None:
        return _DONE_V1
    if id < 128:
        return _done_tiny.pack(11, _DONE, id)
    if 256 <= id < 65536:
        return _done_short.pack(13, _DONE, 0xCD, id)
    if 65536 <= id < 1 << 32:
        return _done_long.pack(15, _DONE, 0xCE, id)
    data: bytes = msgpack.packb(id)
    return _length.pack(10 + len(data)) + _DONE + data


_DONE = bytes.fromhex("83a130a0a131ccc8a134")
_DONE_V1 = _length.pack(8) + bytes.fromhex("82a130a0a131ccc8")
_done_tiny = struct.Struct(">I10sB")
_done_short = struct.Struct(">I10sBH")
_done_long = struct.Struct(">I10sBI")

Fields: TypeAlias = tuple[
    str | bytes, str, str, dict[str, str], int | None, int | None, int | None, dict[str, Any]
]
"""Of a task: keys "0" to "7"."""


def decode(frame: bytes) -> Fields:
    """An input, checked; ProtocolError says what is wrong with it."""
    try:
        task = msgpack.unpackb(frame)
    except ValueError:
        task = _unpack_again(frame)
    except msgpack.UnpackException as error:
        raise _no_map(error) from error
    if type(task) is not dict:
        raise ProtocolError(f"an input must be a map: {type(task).__name__}")
    # What a daemon of this version sends is judged here; all that is out of the ordinary below. Eight
    # keys that are all known are the eight, each once.
    if frame[0] == 0x88 and len(task) == 8:
        try:
            fields = (
                message := task["0"],
                correlation_id := task["1"],
                queue := task["2"],
                headers := task["3"],
                id := task["4"],
                attempt := task["5"],
                left := task["6"],
                properties := task["7"],
            )
        except KeyError:
            pass
        else:
            if (
                (type(message) is str or type(message) is bytes)
                and type(correlation_id) is str
                and type(queue) is str
                and type(headers) is dict
                and not headers
                and type(id) is int
                and id >= 0
                and type(attempt) is int
                and attempt > 0
                and (left is None or (type(left) is int and left >= 0))
                and type(properties) is dict
                and not (properties and _nests(properties))
            ):
                return fields
    _check_keys(frame, task)
    _check_values(task)
    checked: Any = tuple(task.get(key) for key in _KEYS_V2[:7])
    return (*checked, task.get("7") or {})


def _nests(properties: dict[str, Any]) -> bool:
    for value in properties.values():
        if type(value) is dict or type(value) is list:
            return True
    return False


def _unpack_again(frame: bytes) -> Any:
    """With names of any type, which an unknown key may hold."""
    try:
        return msgpack.unpackb(frame, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise _no_map(error) from error


def _no_map(error: Exception) -> ProtocolError:
    reason = str(error) or type(error).__name__
    return ProtocolError(f"an input must be one MessagePack map: {reason}")


def _check_keys(frame: bytes, task: dict[Any, Any]) -> None:
    for key in task:
        if type(key) is not str:
            raise ProtocolError(f"an input's keys must be texts: {key!r}")
    for key in _KEYS_V2[:4]:
        if key not in task:
            raise ProtocolError(f'an input must have the keys "0" to "3": no "{key}"')
    pairs = msgpack.unpackb(frame, strict_map_key=False, object_pairs_hook=_Pairs)
    names = [name for name, _ in pairs]
    for key in _KEYS_V2:
        if names.count(key) > 1:
            raise ProtocolError(f'an input must have each key once: "{key}" is there twice')
    for value in task.values():
        _check_depth(value)


class _Pairs(list[Any]):
    """A map that keeps names that are there twice, and may be a name itself."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def _check_depth(value: object) -> None:
    level = [value]
    for _ in range(_DEPTH_MAX):
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, (list, tuple)):
                inner += each
        if not inner:
            return
        level = inner
    raise ProtocolError(f"an input must be nested at most {_DEPTH_MAX} deep")


def _check_values(task: dict[str, Any]) -> None:
    message = task["0"]
    if type(message) is not str and type(message) is not bytes:
        if message is not None:
            raise _wrong("0", "a text or bytes", message)
        task["0"] = ""
    for key in ("1", "2"):
        if type(task[key]) is not str:
            if task[key] is not None:
                raise _wrong(key, "a text", task[key])
            task[key] = ""
    headers = task["3"]
    if headers:
        if type(headers) is not dict:
            raise _wrong("3", "a map", headers)
        for name, value in headers.items():
            if type(name) is not str or type(value) is not str:
                raise _wrong("3", "a map of texts to texts", (name, value))
    elif headers is None:
        task["3"] = {}
    elif type(headers) is not dict:
        raise _wrong("3", "a map", headers)
    for key, least, most in (("4", 0, _ID_MAX), ("5", 1, _ID_MAX), ("6", 0, _ID_MAX)):
        number = task.get(key)
        if number is not None and not (type(number) is int and least <= number <= most):
            raise _wrong(key, f"a number from {least}", number)
    properties = task.get("7")
    if properties:
        if type(properties) is not dict:
            raise _wrong("7", "a map", properties)
        for value in properties.values():
            if isinstance(value, (dict, list)):
                _check_depth([value])
    elif properties is not None and type(properties) is not dict:
        raise _wrong("7", "a map", properties)


def _wrong(key: str, wanted: str, value: object) -> ProtocolError:
    return ProtocolError(f'an input\'s key "{key}" must hold {wanted}: {value!r:.40}')
