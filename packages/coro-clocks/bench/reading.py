"""What reading the time costs: `python packages/coro-clocks/bench/reading.py`.

Compares time.monotonic_ns() with a reading of each scale, from C and from Python.  Where the processor's counter is
used, a reading from C has to cost at most half of time.monotonic_ns(); with --check the exit status says whether it
does.  Each figure is the best of many short batches, because what else the machine does can only add to it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import coro
from coro.clocks import best, describe, mach_time, posix_time, tsc_time

BATCHES = 200
CALLS = 2000


def per_call(function: Callable[[], object]) -> float:
    """Nanoseconds a call takes, without the loop around it."""
    calls = range(CALLS)
    with_call = without = float("inf")
    for _ in range(BATCHES):
        begin = time.perf_counter_ns()
        for _ in calls:
            function()
        middle = time.perf_counter_ns()
        for _ in calls:
            pass
        end = time.perf_counter_ns()
        with_call = min(with_call, middle - begin)
        without = min(without, end - middle)
    return (with_call - without) / CALLS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="fail unless the counter is cheap enough")
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {describe()}")
    reference = per_call(time.monotonic_ns)
    print(f"{'time.monotonic_ns()':36} {reference:7.1f} ns")
    counter = float("inf")
    for scale in (tsc_time, posix_time, mach_time):
        if scale is mach_time and not mach_time.available():
            continue
        name = scale.__name__.rpartition(".")[2]
        from_c = min(scale._cost(CALLS) for _ in range(BATCHES))
        if scale is tsc_time:
            counter = from_c
        print(f"{name + ' from C':36} {from_c:7.1f} ns  {from_c / reference:5.2f}")
        for function in (scale.now_raw_tsc, scale.now_raw_posix_usec, scale.now_posix_usec):
            cost = per_call(function)
            print(f"{name + '.' + function.__name__ + '()':36} {cost:7.1f} ns  {cost / reference:5.2f}")
    for function in (coro.get_now, coro.get_usec):
        cost = per_call(function)
        print(f"{'coro.' + function.__name__ + '()':36} {cost:7.1f} ns  {cost / reference:5.2f}")
    if options.check and best() is tsc_time and counter > 0.5 * reference:
        print(f"expected a reading of the counter within {0.5 * reference:.1f} ns, got {counter:.1f} ns")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
