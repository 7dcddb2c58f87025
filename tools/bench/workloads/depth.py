"""A ring of threads that are all `depth` Python calls down when they switch.

Few threads stay in their stack slots; a thousand share them, so that each switch copies one stack away and another one
back. What is wanted is the ratio of deep to shallow: frames of Python functions should cost next to nothing while they
are only carried along. Cost: `hops` hops.
"""

from __future__ import annotations

from _common import Figures, Stopwatch, main


def coro(threads: int, depth: int, hops: int) -> Figures:
    import coro

    watch = Stopwatch()
    turns = hops // threads
    ring: list[coro.coro] = []

    def hop(number: int) -> None:
        wake = ring[(number + 1) % threads].schedule
        _yield = coro._yield
        _yield()
        rounds = range(turns)
        if number == 0:
            watch.start()
        for _ in rounds:
            wake()
            _yield()
        if number == 0:
            watch.stop()

    def member(number: int, level: int) -> None:
        if level <= 1:
            hop(number)
        else:
            member(number, level - 1)

    def first() -> None:
        ring.extend(coro.new(member, i, depth) for i in range(threads))
        for thread in ring:
            thread.start()
        coro.yield_slice()
        ring[0].schedule()
        ring[0].join()

    coro.run(first)
    return watch.figures(turns * threads)


main({"coro": coro})
