"""The import lock under emulation: a fork waits until no other thread has it.

`_imp.acquire_lock` knows OS threads, so all coro threads could have it at once, and a fork would give the child a
module that another thread was about to change. Here it has one coro thread as its owner, besides what it was. importlib
takes it for short pieces that wait for nothing; so waiting is rare.

Cost: half a microsecond for each module that is loaded.

Rejected: one of our locks in its place. The loop itself imports, too, and cannot wait.
"""

from __future__ import annotations

import importlib
import os
from collections import deque
from typing import Any

from coro.emulation import _blocking
from coro.emulation._plan import Plan

__all__ = ["plan"]

_module: Any = importlib.import_module("_imp")
_acquire: Any = _module.acquire_lock
_release: Any = _module.release_lock
_fork: Any = getattr(os, "fork", None)
_forkpty: Any = getattr(os, "forkpty", None)


class _Owner:
    """The coro thread that has the import lock, and those that wait until none has it."""

    def __init__(self) -> None:
        self.ident = 0
        self.depth = 0
        self.process = os.getpid()
        self.waiting: deque[Any] = deque()

    def wait(self) -> int:
        """Wait until no other thread is the owner. Returns the ident of the calling one."""
        me: int = _blocking.get_ident()
        while self.ident not in (0, me):
            if self.process != os.getpid():  # the owner stayed in the parent
                self.__init__()  # type: ignore[misc]
                break
            bell = _blocking.Lock()
            bell.acquire()
            self.waiting.append(bell)
            try:
                bell.acquire()
            finally:
                if bell in self.waiting:
                    self.waiting.remove(bell)
                elif self.ident == 0:
                    self.ring()  # for the case that this thread was interrupted and does not come round
        return me

    def ring(self) -> None:
        """Let the first that waits look again."""
        if self.waiting:
            self.waiting.popleft().release()


_owner = _Owner()


def acquire_lock() -> None:
    """Acquires the interpreter's import lock for the current thread; see _imp.acquire_lock."""
    if _blocking.in_thread_of_loop():
        _owner.ident = _owner.wait()
        _owner.depth += 1
    _acquire()


def release_lock() -> None:
    """Release the interpreter's import lock; see _imp.release_lock. RuntimeError if it is not held."""
    _release()
    if _owner.depth and _owner.ident == _blocking.get_ident() and _blocking.in_thread_of_loop():
        _owner.depth -= 1
        if not _owner.depth:
            _owner.ident = 0
            _owner.ring()


def fork() -> int:
    """Fork a child process; see os.fork. Waits until no other thread is in the midst of an import."""
    if _blocking.in_thread_of_loop():
        _owner.wait()
    return _fork()  # type: ignore[no-any-return]


def forkpty() -> tuple[int, int]:
    """Fork a new process with a new pseudo-terminal; see os.forkpty. Waits as fork() does."""
    if _blocking.in_thread_of_loop():
        _owner.wait()
    return _forkpty()  # type: ignore[no-any-return]


def plan(p: Plan) -> None:
    """What to replace."""
    p.replace(_module, "acquire_lock", acquire_lock)
    p.replace(_module, "release_lock", release_lock)
    p.replace(os, "fork", fork)
    p.replace(os, "forkpty", forkpty)
