"""Emulated `time.sleep`, and `sys.setswitchinterval`: how long a coro thread may have the CPU to itself."""

from __future__ import annotations

import operator
import sys
import time
from typing import Any

from coro.emulation import _blocking
from coro.emulation._plan import Plan

__all__ = ["plan", "sleep"]

_sleep: Any = time.sleep
_setswitchinterval: Any = sys.setswitchinterval
_LONGEST = 2.0**63 / 1e9  # seconds; what the original takes


def sleep(seconds: Any, /) -> None:
    """Delay execution of the calling thread for that many seconds; other coro threads run meanwhile, but not while a
    fork is going on."""
    if not _blocking.in_thread_of_loop() or _blocking.is_forking():
        _sleep(seconds)
        return
    if not isinstance(seconds, float):
        seconds = operator.index(seconds)
    if seconds != seconds:
        raise ValueError("Invalid value NaN (not a number)")
    if seconds >= _LONGEST:
        raise OverflowError("timestamp out of range for platform time_t")
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    _blocking.sleep_thread(seconds)


def setswitchinterval(interval: float, /) -> None:
    """Set the ideal time that a thread, of either kind, runs while others could; see sys.setswitchinterval."""
    _setswitchinterval(interval)
    _blocking.set_longest_slice(sys.getswitchinterval())


def plan(p: Plan) -> None:
    """What to replace."""
    p.replace(time, "sleep", sleep)
    p.replace(sys, "setswitchinterval", setswitchinterval)
    _blocking.set_longest_slice(sys.getswitchinterval())
