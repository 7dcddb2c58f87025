"""Emulated `asyncio`: each thread has a running loop of its own, as each OS thread has.

Everything else that a loop does (wait for descriptors, wake up for another thread) is emulated where it comes from.
From 3.14 on the running loop is part of the state that every switch exchanges. Before, asyncio's C module keeps it for
the OS thread, out of reach; so whoever sets it, in a coro thread, tells the scheduler, and every switch from or to that
thread takes the loop out of the module or puts it back.

Cost: about 0.2 us a switch of a thread in which a loop runs, nothing for others.

Rejected: the loop of each thread in a dictionary of ours. Tasks and futures, in C, look where the module keeps it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from coro._runtime import scheduler
from coro.emulation import _blocking
from coro.emulation._plan import Plan

__all__ = ["plan"]


def make_set_running_loop(module: types.ModuleType) -> Callable[[Any], None]:
    """Stands for the function of one copy of asyncio's C module."""
    get_natively: Any = vars(module)["_get_running_loop"]
    set_natively: Any = vars(module)["_set_running_loop"]

    def _set_running_loop(loop: Any, /) -> None:
        """Set the running event loop of the calling thread; see asyncio._set_running_loop."""
        set_natively(loop)
        if loop is not None and _blocking.in_thread_of_loop():
            scheduler._has_asyncio_loop(get_natively, set_natively)

    return _set_running_loop


def plan(p: Plan) -> None:
    """What to replace."""
    if sys.version_info < (3, 14):
        p.replace_in_each("_asyncio", "_set_running_loop", make_set_running_loop)
