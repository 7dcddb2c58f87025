"""Shutdown at the k-th suspension, for every k: `python script.py --slots 3`. One worker performs every step once, from
the same seed each time; at its k-th blocking call it is told to end while it is suspended there. Whatever k is, its
`finally` blocks run, the loop ends, and nothing is left: no thread object, no slot bound, no scope entered.

A Shutdown that strikes inside a finaliser or a weak reference's callback cannot leave it (Python reports it as
unraisable); the script then runs to its end, which is as good.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import workload

import coro
from coro._runtime import scheduler

BLOCKING = {"_yield", "yield_slice", "sleep_relative"}


class CountingCoro:
    """Stands in for the module `coro` inside the workload and counts one thread's blocking calls."""

    def __init__(self):
        self.victim = None
        self.count = 0
        self.at = 0
        self.coro = self  # for coro.coro.join

    def note(self):
        if coro.current() is self.victim:
            self.count += 1
            if self.count == self.at:
                coro.spawn(self.victim.shutdown)

    def join(self, thread):
        self.note()
        thread.join()

    def __getattr__(self, name):
        function = getattr(coro, name)
        if name not in BLOCKING:
            return function

        def counted(*args):
            self.note()
            return function(*args)

        return counted


class Script(workload.Worker):
    """Every step once, in order."""

    def __init__(self, world, counting):
        super().__init__(world, 0)
        self.counting = counting

    def __call__(self):
        self.counting.victim = self.thread = coro.current()
        workload.VAR.set(self.number)
        self.world.workers[self.thread.id] = self
        try:
            for name in workload.STEPS:
                if name not in workload.COSTLY:
                    getattr(self, name)(0)
            return "done"
        finally:
            del self.world.workers[self.thread.id]

    def suspend(self):
        """Without partners that could wake a _yield()."""
        if self.rng.random() < 0.7:
            workload.coro.yield_slice()
        else:
            workload.coro.sleep_relative(0.00001)


def once(counting, k, unraisable):
    """Run the script with Shutdown at suspension k; False when it has fewer."""
    counting.count, counting.at, counting.victim = 0, k, None
    world = workload.World("script")
    threads_before = coro.get_live_coros()

    def main():
        thread = coro.spawn(Script(world, counting), thread_name="script")
        thread.join()
        outcome = thread.result, type(thread.exception)
        del thread
        counting.victim = None
        gc.collect()  # the traceback may be part of a cycle that holds generators, whose finally blocks would block
        return outcome

    result, exception = coro.run(main)
    reached = counting.count >= k
    struck = exception is coro.Shutdown
    assert struck or result == "done", f"k={k}: ended with {result!r} {exception!r}"
    assert struck or not reached or unraisable, f"k={k}: the Shutdown was lost"
    assert world.scopes == 0, f"k={k}: {world.scopes} scopes were not left"
    assert not world.workers
    del exception, main
    gc.collect()
    assert coro.get_live_coros() == threads_before, f"k={k}: {coro.get_live_coros()} thread objects"
    assert not any(scheduler._slot_owners()), f"k={k}: {scheduler._slot_owners()}"
    return reached


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slots", type=int, default=3)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args(argv)
    coro.set_stack_slots(options.slots)
    coro.set_latency_warning(0)
    problems = []
    coro.set_exception_notifier(lambda: problems.append(sys.exc_info()[1]))
    unraisable = []
    sys.unraisablehook = lambda u: unraisable.append(type(u.exc_value))
    counting = workload.coro = CountingCoro()
    k = options.first
    swallowed = 0
    while once(counting, k, unraisable):
        assert set(unraisable) <= {coro.Shutdown, coro.NoSwitchError}, f"k={k}: unraisable {unraisable}"
        swallowed += coro.Shutdown in unraisable
        unraisable.clear()
        wrong = [p for p in problems if not isinstance(p, workload.Planned)]
        assert not wrong, f"k={k}: {wrong!r}"
        problems.clear()
        k += options.every
    print(f"Shutdown at each of {k - 1} suspensions, {swallowed} of them inside finalisers")


if __name__ == "__main__":
    main()
