"""Emulated `ctypes`: each thread has an errno of its own, as each OS thread has.

ctypes keeps what a C function has left in errno (``use_errno=True``) for the OS thread, until somebody asks for it with
``get_errno()``. The scheduler is told where, and exchanges the number at switches of threads that have one. Nothing
else is replaced.

Cost: a look at a zero per switch, and 50 ns for a thread whose number is another.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from coro._runtime import scheduler
from coro.emulation import _blocking
from coro.emulation._plan import Plan

__all__ = ["note_loop", "plan", "undo"]

#: The numbers of all OS threads that ever had a loop: the scheduler may look at one after the OS thread has ended.
_kept: list[Any] = []


def _share(module: types.ModuleType) -> None:
    vars(module)["get_errno"]()  # ctypes makes the object at the first call
    _kept.append(scheduler._share_ctypes_errno(True))


def _share_if_in_loop(module: types.ModuleType) -> Any:
    if _blocking.in_thread_of_loop():
        _share(module)
    return vars(module)["get_errno"]


def note_loop() -> None:
    """A loop has begun in this OS thread."""
    module = sys.modules.get("_ctypes")
    if module is not None:
        _share(module)


def undo() -> None:
    """From now on all threads have one errno."""
    scheduler._share_ctypes_errno(False)


def plan(p: Plan) -> None:
    """What to replace."""
    p.replace_in_each("_ctypes", "get_errno", _share_if_in_loop)
