"""A million parked threads: resident memory, the time to start them all, the time to wake and end them all.

Cost: about five seconds and 2 GB.
"""

from __future__ import annotations

import gc
import time
from typing import Any

from _common import Figures, main, resident


def coro(threads: int) -> Figures:
    import coro

    crowd: list[Any] = [None] * threads
    figures: Figures = {"count": threads}

    def first() -> None:
        gc.collect()
        began, cpu = time.perf_counter(), time.process_time()
        for i in range(threads):
            crowd[i] = coro.spawn(coro._yield)
        coro.yield_slice()
        figures["start"] = time.perf_counter() - began
        figures["resident"] = resident()
        began = time.perf_counter()
        for thread in crowd:
            thread.schedule()
        last = crowd[-1]
        crowd.clear()
        del thread
        last.join()
        figures["end"] = time.perf_counter() - began
        figures["cpu"] = time.process_time() - cpu
        figures["wall"] = figures["start"] + figures["end"]

    coro.set_latency_warning(0)
    coro.run(first)
    return figures


main({"coro": coro})
