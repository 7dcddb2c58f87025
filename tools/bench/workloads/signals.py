"""From a signal to its handler while the loop waits in the kernel with nothing due for an hour: the median of `count`,
in microseconds.

Another OS thread sends the signals, the next one when the one before was handled. Cost: 3 ms a signal.
"""

from __future__ import annotations

import os
import queue
import signal
import statistics
import threading
import time
from collections.abc import Callable

from _common import Figures, main

SIGNAL = signal.SIGUSR1


class _Sender:
    """Sends the signals and takes the time; `handle` is the handler, `done` is called after the last one."""

    def __init__(self, count: int, done: Callable[[], object]) -> None:
        self.count, self.done = count, done
        self.handled: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.delays: list[float] = []
        self.thread = threading.Thread(target=self._run)

    def handle(self, *_: object) -> None:
        self.handled.put(time.perf_counter())

    def _run(self) -> None:
        for _ in range(self.count):
            time.sleep(0.002)
            sent = time.perf_counter()
            os.kill(os.getpid(), SIGNAL)
            self.delays.append(self.handled.get() - sent)
        self.done()

    def figures(self) -> Figures:
        delay = statistics.median(self.delays) * 1e6
        return {"delay": delay, "greatest": max(self.delays) * 1e6, "cpu": 0, "wall": 0, "count": self.count}


def coro(count: int) -> Figures:
    import coro
    from coro import signal_handler

    def first() -> Figures:
        me = coro.current()
        sender = _Sender(count, lambda: coro.post(me.schedule))
        signal_handler.register(SIGNAL, sender.handle)
        sender.thread.start()
        coro.sleep_relative(3_600)
        return sender.figures()

    figures: Figures = coro.run(first)
    return figures


async def _watched(count: int) -> Figures:
    import asyncio

    loop, over = asyncio.get_running_loop(), asyncio.Event()
    sender = _Sender(count, lambda: loop.call_soon_threadsafe(over.set))
    loop.add_signal_handler(SIGNAL, sender.handle)
    sender.thread.start()
    await over.wait()
    return sender.figures()


def asyncio(count: int) -> Figures:
    import asyncio

    return asyncio.run(_watched(count))


def uvloop(count: int) -> Figures:
    import uvloop

    return uvloop.run(_watched(count))


main({"coro": coro, "uvloop": uvloop, "asyncio": asyncio})
