"""Emulated `time.sleep`."""

from __future__ import annotations

import operator
import time
from typing import Any

from coro.emulation import _blocking
from coro.emulation._plan import Plan

__all__ = ["plan", "sleep"]

_sleep: Any = time.sleep
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


def plan(p: Plan) -> None:
    """What to replace."""
    p.replace(time, "sleep", sleep)
