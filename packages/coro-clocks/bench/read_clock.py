"""Readings of the clock: the best scale from C, and time.monotonic_ns() without the loop around it."""

from __future__ import annotations

import time

from _common import Figures, Stopwatch, main


def coro(count: int) -> Figures:
    from coro.clocks import best

    watch = Stopwatch()
    watch.start()
    best()._cost(count)
    watch.stop()
    return watch.figures(count)


def monotonic_ns(count: int) -> Figures:
    calls = range(count)
    read = time.monotonic_ns
    watch, empty = Stopwatch(), Stopwatch()
    watch.start()
    for _ in calls:
        read()
    watch.stop()
    empty.start()
    for _ in calls:
        pass
    empty.stop()
    return {"cpu": watch.cpu - empty.cpu, "wall": watch.wall - empty.wall, "count": count}


if __name__ == "__main__":
    main({"coro": coro, "time.monotonic_ns": monotonic_ns})
