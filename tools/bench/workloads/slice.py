"""N threads that all want to go on running: each gives up its turn and gets it back after everybody else
had theirs.

coro: `yield_slice`, which lets the kernel be polled in between. The peers: their `sleep(0)`, with the same
meaning. Cost: `turns` turns altogether, a fraction of a second to two.
"""

from __future__ import annotations

from _common import Figures, Stopwatch, main


def coro(threads: int, turns: int) -> Figures:
    import coro

    watch = Stopwatch()
    rounds = range(turns // threads)

    def member() -> None:
        pause = coro.yield_slice
        for _ in rounds:
            pause()

    def first() -> None:
        members = [coro.spawn(member) for _ in range(threads)]
        watch.start()
        for thread in members:
            thread.join()
        watch.stop()

    coro.run(first)
    return watch.figures(len(rounds) * threads)


def gevent(threads: int, turns: int) -> Figures:
    import gevent

    watch = Stopwatch()
    rounds = range(turns // threads)

    def member() -> None:
        pause = gevent.sleep
        for _ in rounds:
            pause(0)

    members = [gevent.spawn(member) for _ in range(threads)]
    watch.start()
    gevent.joinall(members)
    watch.stop()
    return watch.figures(len(rounds) * threads)


async def _tasks(threads: int, turns: int, watch: Stopwatch) -> Figures:
    import asyncio

    rounds = range(turns // threads)

    async def member() -> None:
        pause = asyncio.sleep
        for _ in rounds:
            await pause(0)

    members = [asyncio.create_task(member()) for _ in range(threads)]
    watch.start()
    await asyncio.gather(*members)
    watch.stop()
    return watch.figures(len(rounds) * threads)


def asyncio(threads: int, turns: int) -> Figures:
    import asyncio

    return asyncio.run(_tasks(threads, turns, Stopwatch()))


def uvloop(threads: int, turns: int) -> Figures:
    import uvloop

    return uvloop.run(_tasks(threads, turns, Stopwatch()))


def trio(threads: int, turns: int) -> Figures:
    import trio

    watch = Stopwatch()
    rounds = range(turns // threads)

    async def member() -> None:
        pause = trio.sleep
        for _ in rounds:
            await pause(0)

    async def first() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(threads):
                nursery.start_soon(member)
            watch.start()
        watch.stop()

    trio.run(first)
    return watch.figures(len(rounds) * threads)


main({"coro": coro, "gevent": gevent, "uvloop": uvloop, "asyncio": asyncio, "trio": trio})
