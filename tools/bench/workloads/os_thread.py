"""An OS thread that computes in pure Python beside a loop: how many times slower is it than it would be alone?

The loop is saturated in three ways, by a hundred threads that always have something to do: `yielding` their slices,
`switching` by waking each other (which needs no system call, so nothing but the interpreter's own switch interval lets
the OS thread in), `talking` over sockets. What counts is the CPU time (by the clocks of the two OS threads) that both
got, divided by what the computing one got: 2 is a fair share. Or the loop is `idle`, waiting in the kernel; then the
number of turns the computation makes is compared with that beside an OS thread that sleeps, in alternating slices of
time: 1 is everything. Cost: `seconds`.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable

from _common import Figures, main

THREADS = 100
SLICES = 10


class _Computation:
    """An OS thread that counts until told to stop."""

    def __init__(self) -> None:
        self.stop = False
        self.turns = 0
        self.cpu = 0.0
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        before = time.thread_time()
        while not self.stop:
            self.turns += 1
        self.cpu = time.thread_time() - before

    def turns_during(self, wait: Callable[[float], object], seconds: float) -> int:
        before = self.turns
        wait(seconds)
        return self.turns - before


def _crowd(load: str, other: _Computation) -> Callable[[], None]:
    """Start what keeps the loop busy until the computation is to stop; returns what waits for the end of that."""
    import coro

    def yielding() -> None:
        while not other.stop:
            coro.yield_slice()

    def waking(partner: coro.coro) -> None:
        while not other.stop:
            partner.schedule(coro.current())
            coro._yield()
        partner.schedule()

    def woken() -> None:
        while partner := coro._yield():
            partner.schedule()

    def talking(sock: coro.sock) -> None:
        with sock:
            while sock.recv(100) and not other.stop:
                sock.send(b"x")

    if load == "yielding":
        threads = [coro.spawn(yielding) for _ in range(THREADS)]
    elif load == "switching":
        partners = [coro.spawn(woken) for _ in range(THREADS // 2)]
        coro.yield_slice()
        threads = partners + [coro.spawn(waking, partner) for partner in partners]
    else:
        pairs = [coro.socketpair() for _ in range(THREADS // 2)]
        threads = [coro.spawn(talking, sock) for pair in pairs for sock in pair]
        for one, _ in pairs:
            one.send(b"x")

    def join() -> None:
        for thread in threads:
            thread.join()

    return join


def coro(load: str, seconds: float) -> Figures:
    import coro

    other = _Computation()
    figures: Figures = {"count": 1}

    def idle() -> None:
        other.thread.start()
        ratios = []
        for _ in range(SLICES):
            alone = other.turns_during(time.sleep, seconds / SLICES / 2)
            ratios.append(alone / other.turns_during(coro.sleep_relative, seconds / SLICES / 2))
        figures["slowdown"] = statistics.median(ratios)

    def saturated() -> None:
        join = _crowd(load, other)
        before = time.thread_time()
        other.thread.start()
        coro.sleep_relative(seconds)
        used = time.thread_time() - before
        other.stop = True
        coro.in_thread(other.thread.join)
        join()
        figures["slowdown"] = (used + other.cpu) / other.cpu

    def first() -> None:
        wall = time.perf_counter()
        if load == "idle":
            idle()
            other.stop = True
            coro.in_thread(other.thread.join)
        else:
            saturated()
        figures.update(cpu=other.cpu, wall=time.perf_counter() - wall)

    coro.set_latency_warning(0)
    coro.run(first)
    return figures


main({"coro": coro})
