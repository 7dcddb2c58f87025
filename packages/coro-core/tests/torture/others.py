"""What keeps account of the stack of each OS thread, and what calls Python back, from many emulated threads:
`python others.py --seconds 60 --threads 50 --seed 1`. Ends with status 0 and a line of counters, or with status 1 and
what went wrong. Needs greenlet, pybind11 with a C++ compiler, and cffi.

Each thread does one thing after the other, chosen at random: greenlets that switch to and fro, asyncio with greenlets,
calls of pybind11 that nest and fail, sorting by qsort(3) with cffi and ctypes, transactions of sqlite3 in one file.
Callbacks take locks, compute for longer than a thread may have the CPU, raise, and wait.

Checked: each result is what it would be in an OS thread. A wait is refused by NoSwitchError in greenlets and below
pybind11, always there and nowhere else. No transaction is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import os
import random
import sqlite3
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import cffi
import greenlet
import pybind11_support

import coro
from coro import NoSwitchError

done: Counter[str] = Counter()
failures: list[str] = []
lock = threading.Lock()


def busy(rng: random.Random) -> None:
    """Compute and take a free lock now and then, sometimes for longer than 5 ms."""
    end = time.perf_counter() + rng.choice((0, 0, 0.0005, 0.007))
    while True:
        with threading.Lock():
            sum(range(50))
        if time.perf_counter() >= end:
            return


def refused(how) -> bool:
    """Is this wait refused?"""
    try:
        how()
    except NoSwitchError:
        return True
    return False


def a_wait(rng: random.Random):
    taken = threading.Lock()
    taken.acquire()
    return rng.choice((lambda: time.sleep(0.0005), lambda: taken.acquire(timeout=0.0005), threading.Event().wait))


# -- Greenlets


def greenlets(rng: random.Random) -> None:
    count, rounds = rng.randrange(1, 6), rng.randrange(1, 6)

    def inner(first):
        total = first
        for _ in range(rounds):
            busy(rng)
            if rng.random() < 0.2:
                assert refused(a_wait(rng)), "a wait in a greenlet"
            total += main.switch(total)
        if fails:
            raise KeyError(total)
        return total

    fails = rng.random() < 0.3
    main = greenlet.getcurrent()
    several = [greenlet.greenlet(inner) for _ in range(count)]
    totals = [each.switch(n) for n, each in enumerate(several)]
    for _ in range(rounds - 1):
        time.sleep(rng.choice((0, 0.001)))
        for n in rng.sample(range(count), count):
            totals[n] = several[n].switch(1)
    for n, each in enumerate(several):
        if fails:
            try:
                each.switch(1)
            except KeyError as exc:
                assert exc.args == (n + rounds,)
            else:
                raise AssertionError("the exception of a greenlet did not arrive")
        else:
            assert each.switch(1) == n + rounds, totals
        assert each.dead


def greenlets_and_asyncio(rng: random.Random) -> None:
    def query(n):
        busy(rng)
        first = greenlet.getcurrent().parent.switch(asyncio.sleep(rng.choice((0, 0.001)), n))
        busy(rng)
        return greenlet.getcurrent().parent.switch(asyncio.sleep(0, first + 1))

    async def spawn(n):
        inside = greenlet.greenlet(query)
        result = inside.switch(n)
        while not inside.dead:
            result = inside.switch(await result)
        return result

    async def main():
        return await asyncio.gather(*(spawn(n) for n in range(3)))

    assert asyncio.run(main()) == [1, 2, 3]


# -- Calls back


def pybind11(rng: random.Random) -> None:
    import coro_pybind11_test as pb

    def callback(n):
        busy(rng)
        if depth and rng.random() < 0.3:
            return pb.apply(lambda: callback(n))
        if rng.random() < 0.2:
            assert refused(a_wait(rng)), "a wait below pybind11"
        if n == fails_at:
            raise KeyError(n)
        return n

    depth, count = rng.random() < 0.5, rng.randrange(1, 6)
    fails_at = rng.randrange(20)
    try:
        assert pb.each(callback, count) == sum(range(count))
    except KeyError:
        assert fails_at < count
    text = "x" * rng.randrange(100)
    assert pb.Caller(lambda got: got + "y").call(text) == text + "y"
    assert pb.value(lambda: 7) == 7 and pb.plain(3) == 4
    assert not refused(lambda: time.sleep(0.0001)), "a wait after a call of pybind11"


ffi = cffi.FFI()
ffi.cdef("void qsort(void *, size_t, size_t, int (*)(const void *, const void *));")
by_cffi, by_ctypes = ffi.dlopen(None), ctypes.CDLL(None)
compares = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))


def wait_now_and_then() -> None:
    if random.random() < 0.1:
        time.sleep(random.choice((0, 0.0005)))


@ffi.callback("int(const void *, const void *)")
def compare(a, b):
    wait_now_and_then()
    return ffi.cast("int *", a)[0] - ffi.cast("int *", b)[0]


@compares
def compare_too(a, b):
    wait_now_and_then()
    return a[0] - b[0]


def sorting(rng: random.Random) -> None:
    numbers = [rng.randrange(100) for _ in range(rng.randrange(2, 30))]
    array = ffi.new("int[]", numbers)
    by_cffi.qsort(array, len(numbers), 4, compare)
    assert list(array) == sorted(numbers)
    array = (ctypes.c_int * len(numbers))(*numbers)
    by_ctypes.qsort(array, len(numbers), 4, compare_too)
    assert list(array) == sorted(numbers)


class Bank:
    """A file with accounts, whose sum is always the same."""

    def __init__(self, path: str) -> None:
        self.path = path
        with contextlib.closing(self.connect()) as connection, connection:
            connection.execute("create table accounts (number integer primary key, amount integer)")
            connection.executemany("insert into accounts values (?, 100)", [(n,) for n in range(10)])
            connection.execute("create table log (thread integer)")
        self.moved = 0

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=120, isolation_level=None)
        connection.create_function("slow", 1, lambda n: wait_now_and_then() or n)
        return connection

    def move(self, rng: random.Random) -> None:
        a, b = rng.sample(range(10), 2)
        with contextlib.closing(self.connect()) as connection:
            connection.execute("begin immediate")
            connection.execute("update accounts set amount = slow(amount) - 1 where number = ?", (a,))
            wait_now_and_then()
            connection.execute("update accounts set amount = slow(amount) + 1 where number = ?", (b,))
            if rng.random() < 0.3:
                connection.execute("rollback")
                return
            connection.execute("insert into log values (?)", (threading.get_ident(),))
            connection.execute("commit")
        self.moved += 1

    def check(self) -> None:
        with contextlib.closing(self.connect()) as connection:
            assert connection.execute("select sum(amount) from accounts").fetchone() == (1000,)
            assert connection.execute("select count(*) from log").fetchone() == (self.moved,)


def worker(number: int, seed: int, end: float, jobs) -> None:
    rng = random.Random(f"{seed} {number}")
    while time.monotonic() < end and not failures:
        job = rng.choice(jobs)
        try:
            job(rng)
        except BaseException:
            failures.append(f"thread {number} in {job.__name__}:\n{traceback.format_exc()}")
            raise
        done[job.__name__] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bank = Bank(os.path.join(folder, "bank"))
        jobs = (greenlets, greenlets_and_asyncio, pybind11, sorting, bank.move)
        end = time.monotonic() + options.seconds
        threads = [
            threading.Thread(target=worker, args=(n, options.seed, end, jobs)) for n in range(options.threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        bank.check()
    print(dict(sorted(done.items())))
    if failures:
        print("\n".join(failures))
        sys.exit(1)


if __name__ == "__main__":
    if pybind11_support.missing():
        sys.exit(pybind11_support.missing())
    sys.path.insert(0, pybind11_support.folder())
    coro.set_latency_warning(0)
    coro.install_thread_emulation()
    coro.run(main)
