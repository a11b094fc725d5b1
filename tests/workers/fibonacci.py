"""Answers n with the nth Fibonacci number; below zero the sequence goes on as its rule says."""

import pipe_v1


def fibonacci(n):
    a, b = 0, 1
    for _ in range(abs(n)):
        a, b = b, a + b
    return -a if n < 0 and n % 2 == 0 else a


for body, _, _ in pipe_v1.tasks():
    answer = str(fibonacci(int(body)))
    pipe_v1.note("done", body)
    pipe_v1.reply(answer)
