"""Emulated `queue.SimpleQueue`; the other queues of that module are made of `threading` and need nothing.

put() appends, and rings the bell of the getter that has waited longest: a lock that the getter holds and waits for. No
lock is held while that happens, so put() may be called from finalisers and signal handlers, as that of the original.
"""

from __future__ import annotations

import _queue
import queue
from collections import deque
from time import monotonic
from typing import Any, Generic, TypeVar

from coro.emulation import _blocking
from coro.emulation._plan import Plan

__all__ = ["SimpleQueue", "plan"]

_T = TypeVar("_T")


class SimpleQueue(Generic[_T]):
    """Simple, unbounded, reentrant FIFO queue, for coro threads and OS threads."""

    def __init__(self) -> None:
        self._items: deque[_T] = deque()
        self._bells: deque[_blocking.Lock] = deque()

    def put(self, item: _T, block: bool = True, timeout: float | None = None) -> None:
        """Put the item on the queue. Never blocks; the arguments are for compatibility with Queue.put()."""
        self._items.append(item)
        self._ring()

    def put_nowait(self, item: _T) -> None:
        """put(item)"""
        self.put(item)

    def _ring(self) -> None:
        try:
            self._bells.popleft().release()
        except IndexError:
            pass

    def get(self, block: bool = True, timeout: float | None = None) -> _T:
        """Remove and return an item. queue.Empty when there is none: at once unless ``block``, else after ``timeout``
        seconds (None: never). ValueError for a negative timeout."""
        if block and timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            try:
                return self._items.popleft()
            except IndexError:
                if not block:
                    raise _queue.Empty from None
            left = -1.0 if deadline is None else max(0.0, deadline - monotonic())
            bell = _blocking.Lock()
            bell.acquire()
            self._bells.append(bell)
            if self._items:
                self._ring()  # an OS thread has put something between the two looks
            rung = False
            try:
                rung = bell.acquire(True, left)
            finally:
                if not rung:
                    self._withdraw(bell)
            if not rung and not self._items:
                raise _queue.Empty

    def _withdraw(self, bell: _blocking.Lock) -> None:
        try:
            self._bells.remove(bell)
        except ValueError:
            if self._items:
                self._ring()  # it was rung for us: for somebody else, then

    def get_nowait(self) -> _T:
        """get(block=False)"""
        return self.get(False)

    def empty(self) -> bool:
        """Is the queue empty at this moment?"""
        return not self._items

    def qsize(self) -> int:
        """The number of items at this moment."""
        return len(self._items)


def plan(p: Plan) -> None:
    """What to replace."""
    new: Any = SimpleQueue
    p.replace(_queue, "SimpleQueue", new)
    p.replace(_queue, "Empty", _queue.Empty)  # no other: in a copy of the module it is what a SimpleQueue raises
    p.replace(queue, "SimpleQueue", new)
