"""A ring of N threads: each wakes the next one and suspends itself; the time of one hop.

coro: `schedule` of the next thread, then `_yield`. greenlet: a switch straight to the next one, with no
scheduler at all, which is the least a Python program can do with it. All members have run before the clock
starts; member 0 holds the clock, so every hop counted is complete. The loops count as timeit's do, by repeat():
a range makes an int object for each hop, a sixth of our figure, which is no part of a switch. Cost: `hops` hops,
a fraction of a second.
"""

from __future__ import annotations

from itertools import repeat

from _common import Figures, Stopwatch, main


def coro(threads: int, hops: int) -> Figures:
    import coro

    watch = Stopwatch()
    turns = hops // threads
    ring: list[coro.coro] = []

    def member(number: int) -> None:
        following = ring[(number + 1) % threads]
        _yield = coro._yield
        _yield()
        wake = following.schedule
        rounds = repeat(None, turns)
        if number == 0:
            watch.start()
        for _ in rounds:
            wake()
            _yield()
        if number == 0:
            watch.stop()

    def first() -> None:
        ring.extend(coro.new(member, i) for i in range(threads))
        for thread in ring:
            thread.start()
        coro.yield_slice()
        # The token goes round once so that every member reaches its loop, then the ring runs by itself.
        ring[0].schedule()
        ring[0].join()

    coro.run(first)
    return watch.figures(turns * threads)


def greenlet(threads: int, hops: int) -> Figures:
    from greenlet import getcurrent
    from greenlet import greenlet as Greenlet

    watch = Stopwatch()
    turns = hops // threads
    ring: list[Greenlet] = []
    home = getcurrent()

    def member(number: int) -> None:
        following = ring[(number + 1) % threads]
        home.switch()
        switch = following.switch
        rounds = repeat(None, turns)
        if number == 0:
            watch.start()
        for _ in rounds:
            switch()
        if number == 0:
            watch.stop()

    ring.extend(Greenlet(member, home) for _ in range(threads))
    for number, member_ in enumerate(ring):
        member_.switch(number)
    ring[0].switch()
    return watch.figures(turns * threads)


main({"coro": coro, "greenlet": greenlet})
