"""The import lock under emulation: a fork waits until no other thread has it.

`_imp.acquire_lock` knows OS threads, so all coro threads could have it at once, and a fork would give the child a
module that another thread was about to change. Here it has one coro thread as its owner, besides what it was. importlib
takes it for short pieces that wait for nothing; so waiting is rare.

Taking and releasing it is compiled, in `_blocking`: a debugger that follows an import does not come through here.

Cost: a tenth of a microsecond for each module that is loaded.

Rejected: one of our locks in its place. The loop itself imports, too, and cannot wait.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from coro.emulation import _blocking
from coro.emulation._plan import Plan

__all__ = ["plan"]

_module: Any = importlib.import_module("_imp")
_fork: Any = getattr(os, "fork", None)
_forkpty: Any = getattr(os, "forkpty", None)


def fork() -> int:
    """Fork a child process; see os.fork. Waits until no other thread is in the midst of an import."""
    if _blocking.in_thread_of_loop():
        _blocking.wait_for_imports()
    return _fork()  # type: ignore[no-any-return]


def forkpty() -> tuple[int, int]:
    """Fork a new process with a new pseudo-terminal; see os.forkpty. Waits as fork() does."""
    if _blocking.in_thread_of_loop():
        _blocking.wait_for_imports()
    return _forkpty()  # type: ignore[no-any-return]


def plan(p: Plan) -> None:
    """What to replace."""
    p.replace(_module, "acquire_lock", _blocking.acquire_lock)
    p.replace(_module, "release_lock", _blocking.release_lock)
    p.replace(os, "fork", fork)
    p.replace(os, "forkpty", forkpty)
