"""What is counted in instructions: `python counted.py WHAT OPERATIONS`, once with few operations and once with many.

switch: hops of a ring of two threads. evacuated: the same among threads that share stack slots. echo: requests of 64
bytes over a socket pair, both ends in this process (twice send, twice recv, four switches, the share of the polls).
spawn: start, run and end of an empty function. timeout: with_timeout of one. fifo: push in one thread, pop in another.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import coro


def nothing() -> None:
    """What is started and limited."""


def ring(threads: int, hops: int) -> None:
    crowd: list[coro.coro] = []

    def member(number: int) -> None:
        wake = crowd[(number + 1) % threads].schedule
        _yield = coro._yield
        _yield()
        for _ in range(hops // threads):
            wake()
            _yield()

    crowd.extend(coro.spawn(member, number) for number in range(threads))
    coro.yield_slice()
    crowd[0].schedule()
    crowd[0].join()


def switch(count: int) -> None:
    ring(2, count)


def evacuated(count: int) -> None:
    ring(1000, count)


def echo(count: int) -> None:
    one, other = coro.socketpair()
    request = b"x" * 64

    def answer() -> None:
        while data := other.recv(4096):
            other.send(data)

    coro.spawn(answer)
    for _ in range(count):
        one.send(request)
        one.recv(4096)
    one.close()


def spawn(count: int) -> None:
    for _ in range(count // 100):
        for thread in [coro.spawn(nothing) for _ in range(100)]:
            thread.join()


def timeout(count: int) -> None:
    for _ in range(count):
        coro.with_timeout(10, nothing)


def fifo(count: int) -> None:
    there, back = coro.fifo(), coro.fifo()

    def answer() -> None:
        for _ in range(count // 2):
            back.push(there.pop())

    coro.spawn(answer)
    for _ in range(count // 2):
        there.push(1)
        back.pop()


COUNTED: dict[str, Callable[[int], None]] = {
    "switch": switch,
    "evacuated": evacuated,
    "echo": echo,
    "spawn": spawn,
    "timeout": timeout,
    "fifo": fifo,
}

if __name__ == "__main__":
    coro.set_latency_warning(0)
    coro.run(COUNTED[sys.argv[1]], int(sys.argv[2]))
