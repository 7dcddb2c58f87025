"""Start, run and end threads of an empty function, a batch at a time, and wait for the batch.

With `parked` threads that do nothing beside them. Cost: `count` threads in batches of `batch`; the clock includes
creation, the run, the end and the joining.
"""

from __future__ import annotations

from _common import Figures, Stopwatch, finish, main


def nothing() -> None:
    """What the threads do."""


async def anothing() -> None:
    """What the tasks do."""


def coro(batch: int, count: int, parked: int = 0) -> Figures:
    import coro

    watch = Stopwatch()

    def first() -> None:
        spawn = coro.spawn
        for _ in range(parked):
            spawn(coro._yield)
        coro.yield_slice()
        for _ in range(2):
            for thread in [spawn(nothing) for _ in range(batch)]:
                thread.join()
        watch.start()
        for _ in range(count // batch):
            for thread in [spawn(nothing) for _ in range(batch)]:
                thread.join()
        watch.stop()
        # From inside: ending the parked ones is no part of it.
        finish(watch.figures(count // batch * batch))

    coro.set_latency_warning(0)
    coro.run(first)
    raise AssertionError("finish() does not return")


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


def trio(batch: int, count: int) -> Figures:
    import trio

    watch = Stopwatch()

    async def some(number: int) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(number):
                nursery.start_soon(anothing)

    async def first() -> None:
        for _ in range(2):
            await some(batch)
        watch.start()
        for _ in range(count // batch):
            await some(batch)
        watch.stop()

    trio.run(first)
    return watch.figures(count // batch * batch)


def threads(batch: int, count: int) -> Figures:
    from threading import Thread

    watch = Stopwatch()
    batches = max(1, count // batch // 20)  # a twentieth: the kernel has to make each of them

    def some() -> None:
        crowd = [Thread(target=nothing) for _ in range(batch)]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join()

    some()
    watch.start()
    for _ in range(batches):
        some()
    watch.stop()
    return watch.figures(batches * batch)


main({"coro": coro, "gevent": gevent, "uvloop": uvloop, "asyncio": asyncio, "trio": trio, "threads": threads})
