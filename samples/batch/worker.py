"""Counts primes: hours of work in turns of half a second.

When the daemon asks for the worker back (its turn is over, or the daemon stops), the worker answers
with a message to its own queue: the same job, with how far it has come. The daemon stores that and
takes the old message away in one transaction, so no step is lost or counted twice. What identifies
the caller goes along, and the last step answers it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import isqrt

from ganger_worker import Outcome, Task, reject, reply, run

BATCH = 20_000  # numbers between two looks at the clock: some milliseconds
BELOW_MAX = 10**12


@dataclass
class Job:
    """`{"below": 1000}` is a new one."""

    below: int
    next: int = 2
    found: int = 0

    @classmethod
    def of(cls, text: str) -> Job:
        """ValueError, or TypeError, if it is none."""
        job = cls(**json.loads(text))
        if not all(type(number) is int for number in asdict(job).values()):
            raise ValueError("all of it must be whole numbers")
        if not 2 <= job.below <= BELOW_MAX or job.next < 2:
            raise ValueError(f"below must be within 2..={BELOW_MAX}, next from 2 on")
        return job

    def step(self) -> None:
        stop = min(self.next + BATCH, self.below)
        self.found += count_primes(self.next, stop)
        self.next = stop


def count_primes(start: int, stop: int) -> int:
    """From start on and below stop, by a sieve of that piece alone."""
    is_prime = bytearray(b"\x01") * (stop - start)
    for factor in range(2, isqrt(stop - 1) + 1):
        first = max(factor * factor, -(-start // factor) * factor) - start
        is_prime[first::factor] = bytes(len(range(first, len(is_prime), factor)))
    return sum(is_prime)


def count(task: Task) -> Outcome:
    try:
        job = Job.of(task.text)
    except (TypeError, ValueError) as error:
        return reject(f"no job: {error}")
    while job.next < job.below:
        job.step()  # one at least in each turn, or it would never end
        task.progress(f"{job.next} of {job.below}")
        if task.cancelled and job.next < job.below:
            return reply(json.dumps(asdict(job)), queue=task.queue)
    return reply(str(job.found))


run(count)
