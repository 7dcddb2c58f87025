"""Torture run: `python run.py --seed 1 --slots 3 --threads 2000`. Ends with status 0 and a line of counters, or with
status 1 and what went wrong. Runs under valgrind, -X dev and PYTHONMALLOC=debug as well.

Checked at the end: no thread object is left, no slot has a thread, nothing is in gc.garbage.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from workload import Worker, World

import coro
from coro._runtime import scheduler


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--slot-size", type=int, default=4 << 20)
    parser.add_argument("--threads", type=int, default=1000, help="how many in all")
    parser.add_argument("--alive", type=int, default=100, help="how many at the same time")
    parser.add_argument("--steps", type=int, default=6, help="of each thread")
    parser.add_argument("--seconds", type=float, default=60, help="start no further thread after that")
    parser.add_argument("--no-tracing", action="store_true")
    parser.add_argument("--cheap", action="store_true", help="without the steps that exhaust recursion")
    return parser.parse_args(argv)


def torture(options, failures):
    world = World(options.seed, may_trace=not options.no_tracing, costly=not options.cheap)
    deadline = time.monotonic() + options.seconds
    started = 0
    alive = set()

    def guarded(worker):
        try:
            return worker()
        except BaseException:
            failures.append(f"worker {worker.number}: {traceback.format_exc()}")
        finally:
            alive.discard(worker)

    def janitor():
        """Wakes who is parked when nobody else does."""
        while True:
            for worker in world.parked[:]:
                if not worker.thread.scheduled:
                    world.parked.remove(worker)
                    worker.thread.schedule(worker.number)
            coro.sleep_relative(0.002)

    keeper = coro.spawn(janitor, daemon=True)
    try:
        while not failures and started < options.threads and (time.monotonic() < deadline or started < 10):
            while len(alive) < options.alive and started < options.threads:
                worker = Worker(world, started, options.steps)
                alive.add(worker)
                coro.spawn(guarded, worker, thread_name=f"worker {started}")
                started += 1
            coro.sleep_relative(0.001)
        while alive and not failures:
            coro.sleep_relative(0.001)
    finally:
        keeper.shutdown()
    if world.scopes and not failures:
        failures.append(f"{world.scopes} scopes were not left")
    return world, started


def main(argv=None):
    options = parse(argv)
    print("torture", *(f"{k}={v}" for k, v in vars(options).items()), sys.version.split()[0], flush=True)
    coro.set_stack_slots(options.slots, options.slot_size)
    coro.set_latency_warning(0)
    coro.set_exception_notifier(lambda: None)
    hook = sys.unraisablehook
    sys.unraisablehook = lambda u: failures.append(f"unraisable: {u.exc_value!r} in {u.object!r}")
    failures = []
    try:
        world, started = coro.run(torture, options, failures)
    finally:
        sys.unraisablehook = hook
    for _ in range(2):
        gc.collect()
    counted = coro.statistics()
    if not failures:
        if coro.get_live_coros():
            failures.append(f"{coro.get_live_coros()} thread objects are left")
        if any(scheduler._slot_owners()):
            failures.append(f"slots are still bound: {scheduler._slot_owners()}")
        if gc.garbage:
            failures.append(f"garbage: {gc.garbage[:5]}")
        if world.parked or world.workers:
            failures.append(f"workers are left: {world.parked} {world.workers}")
    for failure in failures[:3]:
        print(failure, file=sys.stderr)
    print(f"{started} threads, {world.steps} steps, {world.suspensions} suspensions, {counted.switches} switches, "
          f"{counted.evacuations} evacuations, {world.refused} refusals of {world.finalisers} finalisers")  # fmt: skip
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
