"""Fibonacci numbers on request.

Somebody waits for each answer. So a request that makes no sense is answered, too, with the header
`error`; as a dead letter it would leave its caller waiting.
"""

from ganger_worker import Outcome, Task, reply, run

N_MAX = 10_000  # the number has 2 090 digits


def fibonacci(n: int) -> int:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def answer(task: Task) -> Outcome:
    try:
        n = int(task.text)
    except ValueError:
        return refusal("the body must be a whole number")
    if not 0 <= n <= N_MAX:
        return refusal(f"the number must be within 0..={N_MAX}")
    return reply(str(fibonacci(n)))


def refusal(reason: str) -> Outcome:
    return reply(headers={"error": reason})


run(answer)
