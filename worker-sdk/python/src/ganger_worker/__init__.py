"""Write workers for ganger.

A worker is a handler and a call of :func:`run`::

    from ganger_worker import Outcome, Task, reply, run

    def handle(task: Task) -> Outcome:
        return reply(task.text.upper())

    run(handle)

A handler returns an :class:`Outcome`, made by :func:`done`, :func:`reply`, :func:`retry`,
:func:`reject` or :func:`requeue`; None is the same as ``done()``. One that raises has failed: the
message is tried again by the pool's rules, and the worker goes on. A handler may be an ``async def``;
then it gets an :class:`AsyncTask`. :mod:`ganger_worker.testing` runs a handler without a daemon.
"""

from ._frames import ProtocolError
from ._logging import LogHandler
from ._outcome import Outcome, Status, done, reject, reply, requeue, retry
from ._run import AsyncHandler, Handler, run, serve
from ._task import AsyncTask, Task, current_task
from ._version import __version__

__all__ = [
    "AsyncHandler",
    "AsyncTask",
    "Handler",
    "LogHandler",
    "Outcome",
    "ProtocolError",
    "Status",
    "Task",
    "__version__",
    "current_task",
    "done",
    "reject",
    "reply",
    "requeue",
    "retry",
    "run",
    "serve",
]
