"""Emulated `time.sleep`, which is compiled (in `_blocking`), and `sys.setswitchinterval`: how long a coro thread may
have the CPU to itself."""

from __future__ import annotations

import sys
import time
from typing import Any

from coro.emulation import _blocking
from coro.emulation._plan import Plan

__all__ = ["plan"]

_setswitchinterval: Any = sys.setswitchinterval


def setswitchinterval(interval: float, /) -> None:
    """Set the ideal time that a thread, of either kind, runs while others could; see sys.setswitchinterval."""
    _setswitchinterval(interval)
    _blocking.set_longest_slice(sys.getswitchinterval())


def plan(p: Plan) -> None:
    """What to replace."""
    p.replace(time, "sleep", _blocking.sleep)
    p.replace(sys, "setswitchinterval", setswitchinterval)
    _blocking.set_longest_slice(sys.getswitchinterval())
