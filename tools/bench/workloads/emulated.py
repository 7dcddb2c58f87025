"""The standard library's threads, locks, queues, sockets and `select`, under emulation and under gevent's patches.

The same program text runs everywhere; only what happens before its imports differs. Two threads take turns, so an
operation is a wait with the switch to the other thread, but for `lock`, where nobody waits, and `crowd`, where a
hundred threads want one lock. Cost: `count` operations.
"""

from __future__ import annotations

from collections.abc import Callable

from _common import Figures, Stopwatch, main

#: Who want the one lock of `crowd`.
CROWD = 100


def lock(count: int) -> Callable[[], int]:
    from threading import Lock

    mine = Lock()

    def work() -> int:
        for _ in range(count):
            with mine:
                pass
        return count

    return work


def crowd(count: int) -> Callable[[], int]:
    from threading import Lock, Thread
    from time import sleep

    mine = Lock()

    def member() -> None:
        for _ in range(count // CROWD):
            with mine:
                sleep(0)

    def work() -> int:
        members = [Thread(target=member) for _ in range(CROWD)]
        for thread in members:
            thread.start()
        for thread in members:
            thread.join()
        return count // CROWD * CROWD

    return work


def _in_turns(count: int, ask: Callable[[], object], answer: Callable[[], object]) -> Callable[[], int]:
    """`ask` here and `answer` in another thread, half of `count` times each."""
    from threading import Thread

    rounds = count // 2

    def other() -> None:
        for _ in range(rounds):
            answer()

    def work() -> int:
        thread = Thread(target=other)
        thread.start()
        for _ in range(rounds):
            ask()
        thread.join()
        return 2 * rounds

    return work


def queue(count: int) -> Callable[[], int]:
    from queue import Queue

    there: Queue[int] = Queue()
    back: Queue[int] = Queue()

    def ask() -> None:
        there.put(1)
        back.get()

    def answer() -> None:
        back.put(there.get())

    return _in_turns(count, ask, answer)


def event(count: int) -> Callable[[], int]:
    from threading import Event

    there, back = Event(), Event()

    def ask() -> None:
        there.set()
        back.wait()
        back.clear()

    def answer() -> None:
        there.wait()
        there.clear()
        back.set()

    return _in_turns(count, ask, answer)


def socket(count: int) -> Callable[[], int]:
    import socket

    here, there = socket.socketpair()
    message = bytes(64)

    def ask() -> None:
        here.sendall(message)
        here.recv(64)

    def answer() -> None:
        there.sendall(there.recv(64))

    return _in_turns(count, ask, answer)


def select(count: int) -> Callable[[], int]:
    import select
    import socket

    here, there = socket.socketpair()
    message = bytes(64)

    def ask() -> None:
        here.sendall(message)
        select.select([here], [], [])
        here.recv(64)

    def answer() -> None:
        select.select([there], [], [])
        there.sendall(there.recv(64))

    return _in_turns(count, ask, answer)


def _measured(what: str, count: int) -> Figures:
    """Once for the loops and caches that the first use makes, then for the figures."""
    program = globals()[what]
    program(count // 100)()
    watch = Stopwatch()
    work = program(count)
    watch.start()
    count = work()
    watch.stop()
    return watch.figures(count)


def coro(what: str, count: int) -> Figures:
    import coro

    coro.install_thread_emulation()
    coro.set_latency_warning(0)
    return coro.run(_measured, what, count)


def gevent(what: str, count: int) -> Figures:
    from gevent import monkey

    monkey.patch_all()
    return _measured(what, count)


def threads(what: str, count: int) -> Figures:
    """A tenth: most operations are a switch by the kernel."""
    return _measured(what, count // 10)


main({"coro": coro, "gevent": gevent, "threads": threads})
