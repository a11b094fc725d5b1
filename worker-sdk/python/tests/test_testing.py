"""The harness, by which handlers are tested without a daemon, and what is seen best through it."""

from __future__ import annotations

import asyncio
import functools
import threading
import unittest
from datetime import timedelta
from typing import Any

from ganger_worker import (
    AsyncHandler,
    AsyncTask,
    Handler,
    Outcome,
    ProtocolError,
    Task,
    current_task,
    done,
    reply,
    retry,
    run,
)
from ganger_worker.testing import Message, Note, work


def shout(task: Task) -> Outcome:
    task.emit("heard", task.text)
    task.progress("half way")
    task.log("info", "shouting", volume=11)
    return reply(task.text.upper(), headers={"loud": True}, queue="answers")


class Harness(unittest.TestCase):
    def test_results_in_the_order_of_the_messages(self) -> None:
        bodies = [f"message {n}" for n in range(500)]
        for concurrency in (1, 16):
            results = work(shout, bodies, concurrency=concurrency)
            self.assertEqual([r.message for r in results], [body.upper() for body in bodies])
        last = results[-1]
        self.assertEqual((last.status, last.headers, last.queue), (201, {"loud": True}, "answers"))
        self.assertEqual(last.emits, [Note("message 499", {}, "heard")])
        self.assertEqual(last.progress, ["half way"])
        self.assertEqual(last.logs, [Note("shouting", {"level": "info", "volume": 11}, None)])

    def test_everything_of_a_message_reaches_the_handler(self) -> None:
        seen: list[Task] = []

        def handle(task: Task) -> None:
            seen.append(task)

        sent = Message(b"\xff", "c", "q", {"a": "b"}, 3, 100, {"row_id": 7})
        self.assertEqual(work(handle, [sent])[0].status, 200)
        [task] = seen
        self.assertEqual((task.message, task.bytes, task.correlation_id), (b"\xff", b"\xff", "c"))
        self.assertEqual((task.queue, task.headers, task.attempt), ("q", {"a": "b"}, 3))
        self.assertEqual((task.milliseconds_left, task.properties), (100, {"row_id": 7}))
        with self.assertRaises(UnicodeDecodeError):
            _ = task.text
        self.assertIn("Task 0 of 'q'", repr(task))

    def test_cancellation(self) -> None:
        def handle(task: Task) -> Outcome:
            return retry("gave up", after=timedelta(minutes=1)) if task.wait_cancelled(30) else done()

        [result] = work(handle, [Message(cancel_after=0.01)])
        self.assertEqual((result.message, result.retry_after_ms), ("gave up", 60_000))

    def test_version_1(self) -> None:
        results = work(lambda task: reply(task.text), ["a", "b"], protocol=1, concurrency=4)
        self.assertEqual([r.message for r in results], ["a", "b"])

    def test_what_the_worker_raises_is_raised(self) -> None:
        def leave(task: Task) -> None:
            raise SystemExit(4)

        with self.assertRaises(SystemExit):
            work(leave, ["a", "b"])

    def test_a_handler_that_stands_still_is_told(self) -> None:
        stand_still = threading.Event()

        def handle(task: Task) -> None:
            stand_still.wait(30)

        with self.assertRaises(TimeoutError):
            try:
                work(handle, ["a"], timeout=0.1)
            finally:
                stand_still.set()


class Handlers(unittest.TestCase):
    def test_async_handlers_are_known_in_each_form(self) -> None:
        async def handle(prefix: str, task: AsyncTask) -> Outcome:
            await asyncio.sleep(0)
            return reply(prefix + task.text)

        class Object:
            async def __call__(self, task: AsyncTask) -> Outcome:
                return await handle("object ", task)

            async def method(self, task: AsyncTask) -> Outcome:
                return await handle("method ", task)

        handlers: list[AsyncHandler] = [
            functools.partial(handle, "partial "),
            Object(),
            Object().method,
        ]
        for handler, name in zip(handlers, ("partial", "object", "method"), strict=True):
            self.assertEqual(work(handler, ["x"])[0].message, f"{name} x")

    def test_the_current_task_is_known_and_only_while_it_lasts(self) -> None:
        def handle(task: Task) -> Outcome:
            return reply(str(current_task() is task))

        async def handle_async(task: AsyncTask) -> Outcome:
            await asyncio.sleep(0.001)
            return reply(str(current_task() is task))

        handlers: list[Handler | AsyncHandler] = [handle, handle_async]
        for handler in handlers:
            results = work(handler, ["x"] * 8, concurrency=4)
            self.assertEqual({r.message for r in results}, {"True"})
        self.assertIsNone(current_task())

    def test_bad_arguments_are_told(self) -> None:
        numbers: list[Any] = [0, -1, 1.5, True]
        for concurrency in numbers:
            with self.assertRaisesRegex(ValueError, "concurrency must be a whole number from 1"):
                run(shout, concurrency=concurrency)
        with self.assertRaisesRegex(TypeError, "must be callable"):
            run("shout")  # type: ignore[arg-type]
        for after in (-1, float("nan")):
            with self.assertRaisesRegex(ValueError, "after must be 0 or more seconds"):
                retry(after=after)

    def test_no_emit_goes_nowhere(self) -> None:
        [result] = work(lambda task: task.emit("", "x"), ["a"])
        self.assertEqual(result.status, 500)
        self.assertIn("emit needs the name of a queue", str(result.message))

    def test_hostile_messages_are_raised(self) -> None:
        with self.assertRaises(ProtocolError):
            work(shout, [Message(headers={"a": 5})])  # type: ignore[dict-item]


class Traces(unittest.TestCase):
    """With OpenTelemetry's API, which the tests' environment has and the library does without."""

    TRACE = "0af7651916cd43dd8448eb211c80319c"

    def test_a_handler_runs_in_the_context_of_its_message(self) -> None:
        from opentelemetry import trace

        def trace_id() -> str:
            return f"{trace.get_current_span().get_span_context().trace_id:032x}"

        async def handle_async(task: AsyncTask) -> Outcome:
            await asyncio.sleep(0)
            return reply(trace_id())

        traced = Message(headers={"traceparent": f"00-{self.TRACE}-b7ad6b7169203331-01"})
        handlers: list[Handler | AsyncHandler] = [lambda task: reply(trace_id()), handle_async]
        for handler in handlers:
            results = work(handler, [traced, Message(), traced, Message()])
            self.assertEqual([r.message for r in results], [self.TRACE, "0" * 32] * 2)
