"""Setting a time limit and cancelling it, `pending` others being set at the same time: nearly all time limits of a
server end that way.

With `count` 0, no such pair is timed; what counts are the resident bytes per timer that are left when all those pending
have been cancelled. The deadlines are random, hours away. coro: `coro.timeout` blocks; asyncio, uvloop: `call_later`;
gevent: `Timeout`. Cost: half a million timers take 100 to 200 MB.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from typing import Any

from _common import Figures, Stopwatch, main, resident

SEED = 1


def _delays() -> Iterator[float]:
    chance = random.Random(SEED)
    while True:
        yield 3_600 + 100_000 * chance.random()


def _measure(pending: int, count: int, start: Callable[[float], Any], cancel: Callable[[Any], object]) -> Figures:
    """Set `pending` timers, time `count` pairs beside them, cancel all, latest first."""
    delays = _delays()
    warm = [start(next(delays)) for _ in range(1_000)]
    while warm:
        cancel(warm.pop())
    crowd: list[Any] = [None] * pending
    some = [next(delays) for _ in range(count)]
    gc.collect()
    watch, before = Stopwatch(), resident()
    for i in range(pending):
        crowd[i] = start(next(delays))
    full = resident()
    watch.start()
    for delay in some:
        cancel(start(delay))
    watch.stop()
    while crowd:
        cancel(crowd.pop())
    gc.collect()
    left = (resident() - before) / pending
    return watch.figures(count) | {"bytes": left, "bytes_each": (full - before) / pending}


def coro(pending: int, count: int) -> Figures:
    import coro

    def start(delay: float) -> Any:
        scope = coro.timeout(delay)
        scope.__enter__()
        return scope

    def cancel(scope: Any) -> None:
        scope.__exit__(None, None, None)

    coro.set_latency_warning(0)
    figures: Figures = coro.run(_measure, pending, count, start, cancel)
    return figures


def gevent(pending: int, count: int) -> Figures:
    import gevent

    return _measure(pending, count, gevent.Timeout.start_new, lambda timeout: timeout.close())


async def _handles(pending: int, count: int) -> Figures:
    import asyncio

    loop = asyncio.get_running_loop()

    def start(delay: float) -> asyncio.TimerHandle:
        return loop.call_later(delay, print)

    return _measure(pending, count, start, lambda handle: handle.cancel())


def asyncio(pending: int, count: int) -> Figures:
    import asyncio

    return asyncio.run(_handles(pending, count))


def uvloop(pending: int, count: int) -> Figures:
    import uvloop

    return uvloop.run(_handles(pending, count))


main({"coro": coro, "gevent": gevent, "uvloop": uvloop, "asyncio": asyncio})
