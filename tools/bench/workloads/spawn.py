"""Start, run and end threads of an empty function, a batch at a time, and wait for the batch.

Cost: `count` threads in batches of `batch`; the clock includes creation, the run, the end and the joining.
"""

from __future__ import annotations

from _common import Figures, Stopwatch, main


def nothing() -> None:
    """What the threads do."""


async def anothing() -> None:
    """What the tasks do."""


def coro(batch: int, count: int) -> Figures:
    import coro

    watch = Stopwatch()

    def first() -> None:
        spawn = coro.spawn
        for _ in range(2):
            for thread in [spawn(nothing) for _ in range(batch)]:
                thread.join()
        watch.start()
        for _ in range(count // batch):
            for thread in [spawn(nothing) for _ in range(batch)]:
                thread.join()
        watch.stop()

    coro.run(first)
    return watch.figures(count // batch * batch)


def gevent(batch: int, count: int) -> Figures:
    import gevent

    watch = Stopwatch()
    spawn = gevent.spawn
    for _ in range(2):
        gevent.joinall([spawn(nothing) for _ in range(batch)])
    watch.start()
    for _ in range(count // batch):
        gevent.joinall([spawn(nothing) for _ in range(batch)])
    watch.stop()
    return watch.figures(count // batch * batch)


async def _tasks(batch: int, count: int) -> Figures:
    import asyncio

    watch = Stopwatch()
    create = asyncio.create_task
    for _ in range(2):
        await asyncio.gather(*[create(anothing()) for _ in range(batch)])
    watch.start()
    for _ in range(count // batch):
        await asyncio.gather(*[create(anothing()) for _ in range(batch)])
    watch.stop()
    return watch.figures(count // batch * batch)


def asyncio(batch: int, count: int) -> Figures:
    import asyncio

    return asyncio.run(_tasks(batch, count))


def uvloop(batch: int, count: int) -> Figures:
    import uvloop

    return uvloop.run(_tasks(batch, count))


main({"coro": coro, "gevent": gevent, "uvloop": uvloop, "asyncio": asyncio})
