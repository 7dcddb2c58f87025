"""Resident bytes per parked thread, `depth` Python calls deep (the thread's own function is the first call).

A smaller crowd of the same function is parked, woken and ended first, so that what a library learns or
keeps for reuse is in place, as it would be in a process that has run for a while; the list that holds the
crowd exists before the clock, too. Cost: `threads` threads at once; 100 000 greenlets take about 600 MB.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from _common import Figures, Stopwatch, finish, main, resident

WARM = 200


def _nested(depth: int, park: Callable[[], Any]) -> Callable[[], Any]:
    """A function that calls `park` from `depth` calls down, itself being the first."""

    def call(level: int = depth) -> Any:
        return park() if level <= 1 else call(level - 1)

    return call


def _figures(before: int, after: int, threads: int, watch: Stopwatch) -> Figures:
    return {
        "bytes": (after - before) / threads,
        "resident": after,
        "count": threads,
        "cpu": watch.cpu,
        "wall": watch.wall,
    }


def coro(threads: int, depth: int) -> Figures:
    import coro

    crowd: list[Any] = [None] * threads
    work = _nested(depth, coro._yield)
    watch = Stopwatch()

    def park(count: int) -> None:
        for i in range(count):
            crowd[i] = coro.spawn(work)
        coro.yield_slice()

    def first() -> None:
        park(WARM)
        for i in range(WARM):
            crowd[i].schedule()
        coro.yield_slice()
        crowd[:WARM] = [None] * WARM
        gc.collect()
        before = resident()
        watch.start()
        park(threads)
        watch.stop()
        gc.collect()
        # From inside: ending the crowd takes longer than the measurement and is no part of it.
        finish(_figures(before, resident(), threads, watch))

    coro.set_latency_warning(0)
    coro.run(first)
    raise AssertionError("finish() does not return")


def greenlet(threads: int, depth: int) -> Figures:
    from greenlet import getcurrent
    from greenlet import greenlet as Greenlet

    crowd: list[Any] = [None] * threads
    work = _nested(depth, getcurrent().switch)
    watch = Stopwatch()

    def park(count: int) -> None:
        for i in range(count):
            crowd[i] = Greenlet(work)
            crowd[i].switch()

    park(WARM)
    for i in range(WARM):
        crowd[i].switch()
    crowd[:WARM] = [None] * WARM
    gc.collect()
    before = resident()
    watch.start()
    park(threads)
    watch.stop()
    gc.collect()
    return _figures(before, resident(), threads, watch)


def gevent(threads: int, depth: int) -> Figures:
    import gevent

    crowd: list[Any] = [None] * threads
    hub = gevent.get_hub()
    work = _nested(depth, hub.switch)
    watch = Stopwatch()

    def park(count: int) -> None:
        for i in range(count):
            crowd[i] = gevent.spawn(work)
        gevent.sleep(0)

    park(WARM)
    for i in range(WARM):
        hub.loop.run_callback(crowd[i].switch)
    gevent.sleep(0)
    crowd[:WARM] = [None] * WARM
    gc.collect()
    before = resident()
    watch.start()
    park(threads)
    watch.stop()
    gc.collect()
    return _figures(before, resident(), threads, watch)


def asyncio(threads: int, depth: int) -> Figures:
    import asyncio

    crowd: list[Any] = [None] * threads
    watch = Stopwatch()

    async def call(level: int) -> None:
        if level <= 1:
            await asyncio.get_running_loop().create_future()
        else:
            await call(level - 1)

    async def park(count: int) -> None:
        for i in range(count):
            crowd[i] = asyncio.create_task(call(depth))
        await asyncio.sleep(0)

    async def first() -> Figures:
        await park(WARM)
        for i in range(WARM):
            crowd[i].cancel()
        await asyncio.gather(*crowd[:WARM], return_exceptions=True)
        crowd[:WARM] = [None] * WARM
        gc.collect()
        before = resident()
        watch.start()
        await park(threads)
        watch.stop()
        gc.collect()
        # From inside: cancelling the crowd takes longer than the measurement and is no part of it.
        finish(_figures(before, resident(), threads, watch))

    return asyncio.run(first())


main({"coro": coro, "greenlet": greenlet, "gevent": gevent, "asyncio": asyncio})
