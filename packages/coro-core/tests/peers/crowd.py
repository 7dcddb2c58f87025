"""What the programs of this folder share: a crowd of emulated threads that use a client library, and the proof that
the loop goes on.

Importing this module installs the emulation, and an EmulationWarning is an error. `run(work, supervise)` starts 200
threads, each with a number of its own, and calls `supervise` meanwhile, which makes sure, by what the server says, that
all of them wait in the server at the same time, lets some ticks pass, and then opens the gate. Were the loop blocked by
one of them, there would be no ticks and the gate would never open.
"""

from __future__ import annotations

import collections
import hashlib
import sys
import threading
import time
import traceback
import warnings

import coro

__all__ = ["THREADS", "main", "payload", "run", "ticks", "until"]

THREADS = 200

#: Seconds after which somebody is taken for stuck.
LIMIT = 60

warnings.simplefilter("error", coro.emulation.EmulationWarning)
coro.install_thread_emulation()
# On a machine with much else to do a thread may seem to hold the CPU for long.
coro.set_latency_warning(0)


def payload(number, size):
    """Bytes that no other number gives, nor another place of the same."""
    blocks = (hashlib.sha256(b"%d/%d" % (number, place)).digest() for place in range(size // 32 + 1))
    return b"".join(blocks)[:size]


class _Ticker:
    """Ticks every few milliseconds for as long as the program runs, if it is let."""

    def __init__(self):
        self.count = 0
        self.longest = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        last = time.monotonic()
        while True:
            time.sleep(0.005)
            now = time.monotonic()
            self.longest = max(self.longest, now - last)
            last = now
            self.count += 1


_ticker = None


def ticks(number=20):
    """Wait until the loop has come round so often."""
    wanted = _ticker.count + number
    until(lambda: _ticker.count >= wanted, "the ticker does not tick")


def until(condition, text):
    """Wait until the condition holds; other threads run meanwhile. AssertionError, with the text, if it takes long."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, text
        time.sleep(0.01)


def run(work, supervise=None, threads=THREADS):
    """Call work(0) to work(threads - 1) in a thread each, and supervise() here; everything has to succeed."""
    problems = []

    def guarded(number):
        try:
            work(number)
        except BaseException:
            problems.append(traceback.format_exc())

    # Daemons: the program is not to wait for those that are stuck.
    crowd = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(threads)]
    for thread in crowd:
        thread.start()
    problem = None
    if supervise is not None:
        try:
            supervise()
        except BaseException:
            problem = traceback.format_exc()
    deadline = time.monotonic() + LIMIT
    for thread in crowd if problem is None else ():
        thread.join(max(0.0, deadline - time.monotonic()))
    stuck = sum(thread.is_alive() for thread in crowd)
    if problems or problem or stuck:
        if problem:
            print(problem, file=sys.stderr)
        print(f"{stuck} of {threads} threads still run, {len(problems)} failed:", file=sys.stderr)
        for text, times in collections.Counter(problems).most_common(3):
            print(f"{times} times:\n{text}", file=sys.stderr)
        sys.stderr.flush()
        raise SystemExit(1)


def main(program):
    """Run the program; the last line of output says how often the loop came round, and its longest pause."""

    def in_thread():
        global _ticker
        _ticker = _Ticker()
        program()
        print(f"{_ticker.count} ticks, at most {_ticker.longest:.3f} s apart")

    coro.run(in_thread)
