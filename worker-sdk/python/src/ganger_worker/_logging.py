"""Python's `logging`, over the pipe: records of a task become the daemon's."""

from __future__ import annotations

import logging
import sys

from ._task import current_task

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
}
_TAKEN = frozenset(("level", "self", "target"))
"""Names that a record's own parts have: such an extra gets an underscore."""
_LEVELS = ((40, "error"), (30, "warn"), (20, "info"), (10, "debug"))


class LogHandler(logging.Handler):
    """Sends records of the current task to the daemon, which adds pool, worker and correlation id;
    `extra` becomes its fields. Records outside of a task, or after its answer, go to stderr, which the
    daemon logs too.

    :func:`ganger_worker.run` installs one at the root logger, unless that has handlers already.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            task = current_task()
            if task is None or not task._port.is_open(task):
                print(f"{record.levelname} {record.name}: {text}", file=sys.stderr, flush=True)
                return
            extra = {
                f"{key}_" if key in _TAKEN else key: value
                for key, value in vars(record).items()
                if key not in _STANDARD
            }
            task.log(level_name(record.levelno), text, target=record.name, **extra)
        except Exception:
            self.handleError(record)


def level_name(number: int) -> str:
    """The daemon's name for a level of `logging`."""
    return next((name for least, name in _LEVELS if number >= least), "trace")


def install(level: int) -> None:
    """At the root logger, as `logging.basicConfig` would: only where nothing is set up."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(LogHandler())
        root.setLevel(level)
