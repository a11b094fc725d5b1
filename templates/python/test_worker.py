"""The handler in a real worker, without a daemon."""

import unittest

from ganger_worker.testing import Message, work

from worker import greet


class Greeting(unittest.TestCase):
    def test_whoever_is_named_is_greeted(self) -> None:
        [result] = work(greet, [Message("world")])
        self.assertEqual((result.status, result.message), (201, "Hello, world!"))

    def test_nobody_is_rejected(self) -> None:
        [result] = work(greet, [Message("")])
        self.assertEqual((result.status, result.message), (400, "nobody to greet"))


if __name__ == "__main__":
    unittest.main()
