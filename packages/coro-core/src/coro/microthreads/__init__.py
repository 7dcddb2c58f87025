"""Micro-threads and micro-pipes: small functions over threads, after a proposal made on python-ideas in August 2008.

    from coro import microthreads as mt

    def odd(n):
        mt.take_from(range(1, n, 2))

    def squares():
        for number in mt.iter():
            mt.put(number * number)

    print(list(mt.pipeline(lambda: odd(10), squares)))      # [1, 9, 25, 49, 81]

Three ways to start a function: `start_and_forget`, `start_in_parallel` for its result, `generate` for what it puts into
a pipe. A function that puts its values somewhere, instead of yielding them, may leave the work to any other function by
just calling it. `coro.microthreads.notifiers` lets a foreign event loop, a user interface's say, share the thread.

Cost: a thread and a channel for each producer; a value costs what a channel's put and get cost.
"""

from __future__ import annotations

from coro.microthreads._pipes import (
    PipeClosed,
    ProducerEnded,
    generate,
    iter,
    micro_pipe,
    next,
    pipeline,
    put,
    take_from,
)
from coro.microthreads._threads import ThreadEnded, micro_thread, start_and_forget, start_in_parallel
from coro.parallel import parallel_map

# `iter` and `next` are attributes but not in this list: a star import must not hide the built-in ones.
__all__ = [
    "PipeClosed",
    "ProducerEnded",
    "ThreadEnded",
    "generate",
    "micro_pipe",
    "micro_thread",
    "parallel_map",
    "pipeline",
    "put",
    "start_and_forget",
    "start_in_parallel",
    "take_from",
]
iter = iter
next = next
