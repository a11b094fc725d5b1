"""What a handler says became of its message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum


class Status(IntEnum):
    """The protocol's numbers. A handler needs none of them: see the functions below."""

    IGNORE_MESSAGE = -1
    HELLO = 100
    LOG = 101
    PROGRESS = 102
    EMIT = 103
    DONE = 200
    DONE_WITH_REPLY = 201
    REQUEUE = 300
    REJECT = 400
    RETRY = 429
    UNKNOWN_ERROR = 500


@dataclass(frozen=True)
class Outcome:
    """An answer. Make one by :func:`done`, :func:`reply` and so on; by hand, to answer a status that
    the pool's configuration gives a meaning (``[pools.statuses]``).
    """

    status: int
    message: object = ""
    """The reply, or the reason of a failure. A reply that is neither text nor bytes is sent as JSON."""
    headers: Mapping[str, object] | None = None
    """Of the reply."""
    queue: str | None = None
    """Where the reply goes, if not to the message's own reply-to."""
    after_ms: int | None = None
    """After how many milliseconds to try again, if not after the pool's own wait."""


_DONE = Outcome(int(Status.DONE))


def done() -> Outcome:
    """The work is done: the message leaves its queue."""
    return _DONE


def reply(
    message: object = "",
    *,
    headers: Mapping[str, object] | None = None,
    queue: str | None = None,
) -> Outcome:
    """The work is done, and this is its result: published to the message's reply-to or to `queue`,
    before the message leaves its own. With ``queue=task.queue`` a long task hands on what is left.

    Text and bytes go as they are, anything else as JSON, with the header ``content-type:
    application/json`` unless `headers` has one. What JSON lacks is this message's failure.
    """
    return Outcome(int(Status.DONE_WITH_REPLY), message, headers, queue)


def retry(reason: object = "", *, after: float | timedelta | None = None) -> Outcome:
    """It failed for now: try again after so many seconds, or after the pool's own wait. An attempt
    is charged; after the last one the message is a dead letter with this reason.
    """
    if isinstance(after, timedelta):
        after = after.total_seconds()
    if after is None:
        return Outcome(int(Status.RETRY), reason)
    if not after >= 0:
        raise ValueError(f"after must be 0 or more seconds: {after}")
    return Outcome(int(Status.RETRY), reason, after_ms=round(after * 1000))


def reject(reason: object = "") -> Outcome:
    """It can never work: the message becomes a dead letter with this reason, now."""
    return Outcome(int(Status.REJECT), reason)


def requeue(reason: object = "") -> Outcome:
    """Not here, not now: hand it out again after a short wait. No attempt is charged."""
    return Outcome(int(Status.REQUEUE), reason)
