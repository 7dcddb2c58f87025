"""From the end of a child process to the wake of the thread that waits for it, `count` times, in microseconds.

Children are forked fifty at a time, each with a thread of its own that waits. When all wait they end one after the
other, each told to by a byte of the pipe that they all read; a child's last deed is to write down the time. Its
dissolution by the kernel is part of the delay. `percent`: which percentile is reported. Cost: about 2 ms a child, most
of it the fork.
"""

from __future__ import annotations

import os
import struct
import time

from _common import Figures, main

BATCH = 50
STAMP = struct.Struct("qq")


def _child(go: int, stamps: int) -> None:
    try:
        os.read(go, 1)
        os.write(stamps, STAMP.pack(os.getpid(), time.monotonic_ns()))
    finally:
        os._exit(0)


def coro(count: int, percent: int) -> Figures:
    import coro

    delays: list[float] = []
    woken: dict[int, int] = {}

    def wait(pid: int) -> None:
        coro.waitpid(pid)
        woken[pid] = time.monotonic_ns()

    def batch(size: int) -> None:
        (go_read, go_write), (stamp_read, stamp_write) = os.pipe(), os.pipe()
        woken.clear()
        threads = []
        for _ in range(size):
            pid = os.fork()
            if not pid:
                _child(go_read, stamp_write)
            threads.append(coro.spawn(wait, pid))
        coro.sleep_relative(0.005)
        for done in range(1, size + 1):
            os.write(go_write, b".")
            while len(woken) < done:
                coro.sleep_relative(0.0005)
        for thread in threads:
            thread.join()
        for _ in range(size):
            pid, ended = STAMP.unpack(os.read(stamp_read, STAMP.size))
            delays.append((woken[pid] - ended) / 1_000)
        for fd in (go_read, go_write, stamp_read, stamp_write):
            os.close(fd)

    def first() -> None:
        for start in range(0, count, BATCH):
            batch(min(BATCH, count - start))

    coro.set_latency_warning(0)
    wall, cpu = time.perf_counter(), time.process_time()
    coro.run(first)
    delays.sort()
    return {
        "delay": delays[min(len(delays) - 1, len(delays) * percent // 100)],
        "greatest": delays[-1],
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "count": count,
    }


main({"coro": coro})
