"""Start `threads` threads that each sleep a random time below a second, and wait until all have ended.

Everything counts: starting them, the timers, waking, ending. Cost: a second and the CPU time that is measured.
"""

from __future__ import annotations

import random

from _common import Figures, Stopwatch, main


def _times(threads: int) -> list[float]:
    choose = random.Random(1)
    return [choose.random() for _ in range(threads)]


def coro(threads: int) -> Figures:
    import coro

    watch = Stopwatch()
    times = _times(threads)

    def first() -> None:
        watch.start()
        for thread in [coro.spawn(coro.sleep_relative, seconds) for seconds in times]:
            thread.join()
        watch.stop()

    coro.set_latency_warning(0)
    coro.run(first)
    return watch.figures(threads)


def gevent(threads: int) -> Figures:
    import gevent

    watch = Stopwatch()
    times = _times(threads)
    watch.start()
    gevent.joinall([gevent.spawn(gevent.sleep, seconds) for seconds in times])
    watch.stop()
    return watch.figures(threads)


async def _tasks(threads: int) -> Figures:
    import asyncio

    watch = Stopwatch()
    times = _times(threads)
    watch.start()
    await asyncio.gather(*[asyncio.create_task(asyncio.sleep(seconds)) for seconds in times])
    watch.stop()
    return watch.figures(threads)


def asyncio(threads: int) -> Figures:
    import asyncio

    return asyncio.run(_tasks(threads))


def uvloop(threads: int) -> Figures:
    import uvloop

    return uvloop.run(_tasks(threads))


main({"coro": coro, "gevent": gevent, "asyncio": asyncio, "uvloop": uvloop})
