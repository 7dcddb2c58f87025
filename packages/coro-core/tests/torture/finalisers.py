"""Finalisers in foreign OS threads beside a busy loop: `python finalisers.py --seconds 60 --seed 1`. Ends with status 0
and a line of counters, or with status 1 and what went wrong. Runs under -X dev and PYTHONMALLOC=debug as well.

In the loop, threads sleep, wake each other, talk over sockets and set time limits, and all the time they drop sockets,
timers, threads and locks inside reference cycles. The collector is off in general; two other OS threads collect without
a pause, so that nearly every one of these objects is taken apart there, in the middle of whatever the loop does. What
belongs to the loop's OS thread (poller records, timers, the thread's frames) has to find its way back.

Checked: nothing reaches sys.unraisablehook or the exception notifier, each finaliser's post() arrives, no time limit
fires early or is lost, and at the end threads, sockets, descriptors and timers are as many as at the beginning.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import threading
import time
import traceback

import coro

FAILURES: list[str] = []
LIMIT = 20  # failures after which the run ends


def fail(text):
    FAILURES.append(text)
    if len(FAILURES) >= LIMIT:
        coro.set_exit(1)


class Ring(list):
    """A reference cycle around some objects: only the collector can free it."""

    def __init__(self, *things):
        super().__init__(things)
        self.append(self)


class Posting:
    """Says with its last breath that it has gone, from whichever OS thread that is."""

    made = arrived = refused = foreign = 0

    def __init__(self, loop_thread):
        self.loop_thread = loop_thread
        Posting.made += 1

    def __del__(self):
        if threading.get_ident() != self.loop_thread:
            Posting.foreign += 1
        try:
            coro.post(Posting.note)
        except coro.LoopError:  # the backlog is bounded; that is an answer, too
            Posting.refused += 1

    @classmethod
    def note(cls):
        cls.arrived += 1


class Meddling:
    """A finaliser that does what only the loop's OS thread may: it has to be refused there, and harmless here."""

    def __init__(self, thread, sock):
        self.thread, self.sock = thread, sock

    def __del__(self):
        for call in (self.thread.shutdown, self.sock.close, coro.yield_slice):
            try:
                call()
            except (coro.WrongThreadError, coro.NoSwitchError, coro.YieldFromMain, coro.ScheduleError):
                pass


class Work:
    """The threads of the loop. `turns` counts what they did."""

    def __init__(self, seed, deadline):
        self.random = random.Random(seed)
        self.deadline = deadline
        self.loop_thread = threading.get_ident()
        self.turns = 0

    def goes_on(self):
        self.turns += 1
        return time.monotonic() < self.deadline and not FAILURES

    def drops_sockets(self):
        while self.goes_on():
            a, b = coro.socketpair()
            try:
                coro.with_timeout(0.0005, a.recv, 1)  # the poller knows it now, and so does a timer
                fail("a socket without data was readable")
            except coro.TimeoutError:
                pass
            b.send(b"unread")
            Ring(a, b, coro.tcp_sock(), coro.fd_sock(os.dup(1)), Posting(self.loop_thread))

    def drops_threads(self):
        def keeps(box):
            box.append(coro.current())
            return Ring(*box)

        while self.goes_on():
            dead = coro.spawn(keeps, [Posting(self.loop_thread)])
            dead.join()
            killed = coro.spawn(coro.sleep_relative, 100)
            coro.yield_slice()
            killed.shutdown()
            killed.join()
            never = coro.new(keeps, [])
            never.set_name(Ring(never) and "never")
            Ring(dead, killed, never, coro.new(keeps, Ring(never)), Meddling(coro.new(int), coro.socketpair()[0]))

    def drops_timers(self):
        def holds(limit):
            with coro.timeout(limit):
                yield 1
                yield 2

        while self.goes_on():
            done, fresh = coro.timeout(50), coro.timeout(50)
            with done, coro.shield(1):
                coro.yield_slice()
            generator = holds(1000)
            next(generator)
            Ring(done, fresh, coro.shield(3), coro.no_switch())
            generator.close()
            Ring(generator, Posting(self.loop_thread))
            # A limit that is left open with its generator stays with the thread, which therefore ends.
            coro.spawn(self.leaves_a_limit_open, holds).join()

    @staticmethod
    def leaves_a_limit_open(holds):
        generator = holds(1000)
        next(generator)
        Ring(generator)

    def drops_locks(self):
        while self.goes_on():
            mutex, fifo, event, local = coro.mutex(), coro.fifo(), coro.event(), coro.ThreadLocal()
            semaphore, condition, channel = coro.semaphore(1), coro.condition_variable(), coro.channel(1)
            fifo.push(Ring(fifo, Posting(self.loop_thread)))
            channel.send(Ring(channel))
            local.ring = Ring(local)
            with mutex, semaphore:
                waiter = coro.spawn(mutex.lock)
                coro.yield_slice()
                waiter.shutdown()
            waiter.join()
            Ring(mutex, fifo, event, local, semaphore, condition, channel, waiter)

    def talks(self):
        a, b = coro.socketpair()

        def echo():
            with b:
                while data := b.recv(1000):
                    b.send(data)

        coro.spawn(echo)
        with a:
            while self.goes_on():
                data = self.random.randbytes(self.random.randrange(1, 900))
                a.send(data)
                if coro.with_timeout(60, a.recv_exact, len(data)) != data:
                    fail("an echo came back changed")

    def sleeps(self):
        while self.goes_on():
            wanted = self.random.random() * 0.002
            before = time.monotonic()
            coro.sleep_relative(wanted)
            if time.monotonic() < before + wanted:
                fail("a sleep was too short")

    def wakes_each_other(self, turns=1000):
        def parked():
            while coro._yield():
                pass

        while self.goes_on():
            crowd = [coro.spawn(parked) for _ in range(20)]
            coro.yield_slice()
            for _ in range(turns // 20):
                for thread in crowd:
                    thread.schedule(True)
                coro.yield_slice()
            for thread in crowd:
                thread.schedule(False)
            for thread in crowd:
                thread.join()


def collect_always(stop, counts):
    """What the other OS threads do: collect, and leave some garbage of their own in between."""
    while not stop.is_set():
        for _ in range(50):
            Ring(Ring(), {}, object())
        counts.append(gc.collect())


def guarded(function):
    try:
        function()
    except Exception:
        fail(f"{function.__name__}: {traceback.format_exc()}")


def main(options, baseline, counts):
    work = Work(options.seed, time.monotonic() + options.seconds)
    stop = threading.Event()
    collectors = [threading.Thread(target=collect_always, args=(stop, counts), daemon=True) for _ in range(2)]
    for collector in collectors:
        collector.start()
    kinds = [work.drops_sockets, work.drops_threads, work.drops_timers, work.drops_locks, work.talks, work.sleeps]
    threads = [coro.spawn(guarded, kind) for kind in (*kinds, *kinds, work.wakes_each_other)]
    for thread in threads:
        thread.join()
    stop.set()
    for collector in collectors:
        coro.in_thread(collector.join)
    del threads, thread, kinds, collector, collectors
    for _ in range(3):  # what finalisers posted may hold the next thing
        gc.collect()
        coro.sleep_relative(0.05)
    expect("threads", coro.get_live_coros(), 1)
    expect("sockets", coro.get_live_sockets(), baseline["sockets"])
    expect("timers", coro.statistics().timers, 0)
    expect("posts", Posting.arrived + Posting.refused, Posting.made)
    return work.turns


def expect(what, found, wanted):
    if found != wanted:
        fail(f"{what}: {found} at the end, not {wanted}")


def descriptors():
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def soak(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    gc.disable()
    sys.setswitchinterval(1e-4)  # the collectors cut in wherever they can
    sys.unraisablehook = lambda info: fail(f"unraisable in {info.object!r}: {info.exc_value!r}")
    coro.set_exception_notifier(lambda: fail(f"in a thread: {traceback.format_exc()}"))
    coro.set_latency_warning(0)
    coro.run(int)
    baseline = {"sockets": coro.get_live_sockets(), "descriptors": descriptors()}
    counts: list[int] = []
    turns = coro.run(main, options, baseline, counts)
    gc.collect()
    expect("descriptors", descriptors(), baseline["descriptors"])
    for text in FAILURES:
        print(text, file=sys.stderr)
    print(
        f"{turns} turns, {len(counts)} collections of {sum(counts)} objects, "
        f"{Posting.made} posting finalisers ({Posting.foreign} in other OS threads, {Posting.refused} refused)"
    )
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(soak(sys.argv[1:]))
