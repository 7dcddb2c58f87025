"""One thread hands items to another, one at a time: push, pop, and the switches between them.

The queues are unbounded, and the sender waits for a token that comes back the same way, so that each item is a complete
hand-over and not part of a batch. An operation is one push with its pop; there are two in each round trip. Cost:
`items` operations.
"""

from __future__ import annotations

from _common import Figures, Stopwatch, main


def coro(items: int) -> Figures:
    import coro

    watch = Stopwatch()
    there, back = coro.fifo(), coro.fifo()
    rounds = range(items // 2)

    def answer() -> None:
        push, pop = back.push, there.pop
        for _ in rounds:
            push(pop())

    def first() -> None:
        coro.spawn(answer)
        push, pop = there.push, back.pop
        watch.start()
        for _ in rounds:
            push(1)
            pop()
        watch.stop()

    coro.run(first)
    return watch.figures(len(rounds) * 2)


def gevent(items: int) -> Figures:
    import gevent
    from gevent.queue import Queue

    watch = Stopwatch()
    there, back = Queue(), Queue()
    rounds = range(items // 2)

    def answer() -> None:
        put, get = back.put, there.get
        for _ in rounds:
            put(get())

    def first() -> None:
        put, get = there.put, back.get
        watch.start()
        for _ in rounds:
            put(1)
            get()
        watch.stop()

    gevent.joinall([gevent.spawn(answer), gevent.spawn(first)])
    return watch.figures(len(rounds) * 2)


def asyncio(items: int) -> Figures:
    import asyncio

    watch = Stopwatch()
    rounds = range(items // 2)

    async def both() -> None:
        there: asyncio.Queue[int] = asyncio.Queue()
        back: asyncio.Queue[int] = asyncio.Queue()

        async def answer() -> None:
            for _ in rounds:
                back.put_nowait(await there.get())

        answering = asyncio.create_task(answer())
        watch.start()
        for _ in rounds:
            there.put_nowait(1)
            await back.get()
        watch.stop()
        await answering

    asyncio.run(both())
    return watch.figures(len(rounds) * 2)


def trio(items: int) -> Figures:
    import math

    import trio

    watch = Stopwatch()
    rounds = range(items // 2)

    async def both() -> None:
        send_there, receive_there = trio.open_memory_channel[int](math.inf)
        send_back, receive_back = trio.open_memory_channel[int](math.inf)

        async def answer() -> None:
            for _ in rounds:
                send_back.send_nowait(await receive_there.receive())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            watch.start()
            for _ in rounds:
                send_there.send_nowait(1)
                await receive_back.receive()
            watch.stop()

    trio.run(both)
    return watch.figures(len(rounds) * 2)


def threads(items: int) -> Figures:
    from queue import SimpleQueue
    from threading import Thread

    watch = Stopwatch()
    there: SimpleQueue[int] = SimpleQueue()
    back: SimpleQueue[int] = SimpleQueue()
    rounds = range(items // 20)  # a tenth: each hand-over is a switch by the kernel

    def answer() -> None:
        for _ in rounds:
            back.put(there.get())

    other = Thread(target=answer)
    other.start()
    watch.start()
    for _ in rounds:
        there.put(1)
        back.get()
    watch.stop()
    other.join()
    return watch.figures(len(rounds) * 2)


main({"coro": coro, "gevent": gevent, "asyncio": asyncio, "trio": trio, "threads": threads})
