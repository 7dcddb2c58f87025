"""A call with a time limit that is not reached, while `pending` others wait: insert a timer, call, cancel it.

The pending ones belong to as many sleeping threads, at random times from one to two hours ahead. Cost: `calls` calls,
and starting the sleepers.
"""

from __future__ import annotations

import random

from _common import Figures, Stopwatch, finish, main


def trivial() -> None:
    """What is called with a time limit."""


def _times(pending: int) -> list[float]:
    choose = random.Random(1)
    return [3600 + 3600 * choose.random() for _ in range(pending)]


def coro(pending: int, calls: int) -> Figures:
    import coro

    watch = Stopwatch()

    def first() -> None:
        for seconds in _times(pending):
            coro.spawn(coro.sleep_relative, seconds)
        coro.yield_slice()
        with_timeout = coro.with_timeout
        rounds = range(calls)
        for _ in range(1000):
            with_timeout(10, trivial)
        watch.start()
        for _ in rounds:
            with_timeout(10, trivial)
        watch.stop()
        # From inside: ending the sleepers takes longer than the measurement and is no part of it.
        finish(watch.figures(calls))

    coro.set_latency_warning(0)
    coro.run(first)
    raise AssertionError("finish() does not return")


def gevent(pending: int, calls: int) -> Figures:
    import gevent

    watch = Stopwatch()
    sleepers = [gevent.spawn(gevent.sleep, seconds) for seconds in _times(pending)]
    gevent.sleep(0)
    rounds = range(calls)
    Timeout = gevent.Timeout
    for _ in range(1000):
        with Timeout(10):
            trivial()
    watch.start()
    for _ in rounds:
        with Timeout(10):
            trivial()
    watch.stop()
    assert len(sleepers) == pending
    return watch.figures(calls)


def asyncio(pending: int, calls: int) -> Figures:
    import asyncio

    watch = Stopwatch()

    async def first() -> None:
        sleepers = [asyncio.create_task(asyncio.sleep(seconds)) for seconds in _times(pending)]
        await asyncio.sleep(0)
        rounds = range(calls)
        timeout = asyncio.timeout
        for _ in range(1000):
            async with timeout(10):
                trivial()
        watch.start()
        for _ in rounds:
            async with timeout(10):
                trivial()
        watch.stop()
        assert len(sleepers) == pending
        # From inside: cancelling the sleepers takes longer than the measurement and is no part of it.
        finish(watch.figures(calls))

    asyncio.run(first())
    raise AssertionError("finish() does not return")


main({"coro": coro, "gevent": gevent, "asyncio": asyncio})
