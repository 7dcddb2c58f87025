"""Which time scale to use, and a description of it: `best()` and `describe()`.

All scales show the same time of day; they differ in what counts.  The processor's counter is the cheapest and the
finest; where coro-core does not trust it, a scale of the system's is as good as what coro-core counts by, and says what
it is.

Cost: `describe()` takes about a millisecond, which it spends on measuring what a reading costs.
"""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any, NamedTuple

from coro._clock import ticks
from coro.clocks import _wall, mach_time, posix_time, tsc_time

__all__ = ["Description", "best", "describe"]


def _pair() -> tuple[int, int]:
    """A tick and CLOCK_MONOTONIC in ns at the same moment, the best of eight."""
    found = []
    for _ in range(8):
        before = time.monotonic_ns()
        tick = ticks.rdtsc()
        after = time.monotonic_ns()
        found.append((after - before, tick, (before + after) // 2))
    return min(found)[1:]


_first_rate = ticks.describe().ticks_per_sec
_first_pair = _pair()


class Description(NamedTuple):
    """What `describe()` returns."""

    #: Name of the scale: "tsc_time", "posix_time" or "mach_time".
    scale: str
    #: What it counts by: "tsc", "cntvct", "monotonic", "mach", or "virtual over" one of them.
    source: str
    #: Why this and no other.
    why: str
    #: Ticks a second.
    ticks_per_sec: int
    #: A tick in nanoseconds.
    resolution_ns: float
    #: What a reading costs from C, in nanoseconds; from Python a call comes on top.
    cost_ns: float
    #: Possible error of the rate, in parts per 10**9 (1000 is 1 us a second).
    error_ppb: int
    #: By how much the rate has been corrected since this package was imported, in parts per 10**9.
    drift_ppb: int
    #: Nanoseconds by which ticks, at the present rate, are ahead of CLOCK_MONOTONIC since then.
    ahead_ns: int
    #: Suspends of the machine that were noticed.
    suspends: int
    #: Microseconds by which time servers have the system's clock behind; 0 when none was asked.
    correction_usec: int


def best() -> ModuleType:
    """The time scale to use on this machine: one of the modules `tsc_time`, `posix_time`, `mach_time`."""
    if ticks.describe().source.removeprefix("virtual over ") != "monotonic":
        return tsc_time
    return mach_time if mach_time.available() else posix_time


def describe(scale: ModuleType | None = None) -> Description:
    """What a time scale counts by and why, and how well.

    scale: one of the three modules; None for `best()`.

    Raises TypeError for anything else, OSError for a scale that this machine does not have.
    """
    chosen: Any = best() if scale is None else scale
    if chosen not in (tsc_time, posix_time, mach_time):
        raise TypeError(f"expected one of the modules tsc_time, posix_time, mach_time, got {chosen!r}")
    info = chosen.describe()
    core = ticks.describe()
    own = chosen is tsc_time
    why = info.why
    if scale is None and not own:
        why += f"; the processor's counter is not used: {core.why}"
    drift = ahead = 0
    if own and not ticks.virtual_is_installed():
        drift = (core.ticks_per_sec - _first_rate) * 10**9 // _first_rate
        tick, ns = _pair()
        ahead = (tick - _first_pair[0]) * 10**9 // core.ticks_per_sec - (ns - _first_pair[1])
    return Description(
        scale=chosen.__name__.rpartition(".")[2],
        source=info.source,
        why=why,
        ticks_per_sec=info.ticks_per_sec,
        resolution_ns=1e9 / info.ticks_per_sec,
        cost_ns=min(chosen._cost(1000) for _ in range(20)),  # the best: the rest is what else ran
        error_ppb=info.error_ppb,
        drift_ppb=drift,
        ahead_ns=ahead,
        suspends=ticks.suspends,
        correction_usec=_wall.measured_usec(),
    )
