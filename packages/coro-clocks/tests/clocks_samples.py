"""Whole objects of the compiled classes, for what is done to all of them (test_half_made.py)."""

from __future__ import annotations

from collections.abc import Callable

from coro.clocks import posix_time, tsc_time

SAMPLES: dict[str, Callable[[], object]] = {
    f"coro.clocks.{module.__name__.rpartition('.')[2]}.{name}": getattr(module, f"now_{function}")
    for module in (posix_time, tsc_time)
    for name, function in (("TSC", "tsc"), ("Posix", "posix_sec"), ("uPosix", "posix_usec"), ("fPosix", "posix_fsec"))
}
