"""Queues of work: ``coro.queue``, ``coro.lifo_queue`` and ``coro.priority_queue``, with the methods of queue.Queue.

For programs that count what has been done (``task_done`` and ``join``), that want the newest or the smallest value
first, or that come from threading or gevent. Where none of that is needed, ``coro.fifo`` and ``coro.channel`` do the
same in a third of the time.

A queue is a container between two semaphores: the values there are, and the room there is. So a wait is theirs: first
come, first served; and a get or put that is interrupted gives back its unit. Nothing switches between a unit taken and
the container changed.

What differs from the standard library: a ``timeout`` that is over raises coro.TimeoutError, as everywhere in coro; 0
tries. ``get_nowait`` and ``put_nowait`` raise queue.Empty and queue.Full as there.

Cost: about a microsecond for each operation. A priority_queue keeps a sorted list: log2(n) comparisons and a move of
memory to put, none to get. Rejected: a heap, which has lost a value when a comparison raises, and gives values of equal
rank in no order.
"""

from __future__ import annotations

import queue as standard
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, SupportsFloat, TypeVar

from coro._runtime.arguments import whole
from coro._runtime.scheduler import _CallLimit, _check_os_thread, no_switch
from coro._sync.conditions import inverted_semaphore
from coro._sync.locks import semaphore
from coro.exceptions import QueueShutDown

__all__ = ["QueueStatistics", "lifo_queue", "priority_queue", "queue"]

_T = TypeVar("_T")


#: All there are, for children that are forked.
_queues: weakref.WeakValueDictionary[int, queue[Any]] = weakref.WeakValueDictionary()


class QueueStatistics(NamedTuple):
    """State of a queue; debugging information."""

    #: Values inside.
    items: int
    #: How many fit; 0: any number.
    maxsize: int
    #: Threads that wait for a value.
    getters_waiting: int
    #: Threads that wait for room.
    putters_waiting: int
    #: Values that were put in and for which ``task_done`` was not called.
    unfinished: int
    #: ``shutdown`` was called.
    is_shutdown: bool


class queue(Generic[_T]):
    """A queue of work with the methods of ``queue.Queue``: first in, first out::

        jobs = coro.queue(maxsize=100)

        def worker():
            while True:
                job = jobs.get()
                try:
                    job.run()
                finally:
                    jobs.task_done()

        jobs.put(job)        # waits while a hundred are inside
        jobs.join()          # waits until all of them are done

    ``maxsize`` (an int) is how many values fit: ``put`` waits for room. 0 or less is no limit. ``len(q)`` is the number
    of values. Raises TypeError if ``maxsize`` is not an int.
    """

    def __init__(self, maxsize: int = 0) -> None:
        self.maxsize = whole(maxsize, "maxsize")
        self._items = semaphore(0)
        self._room = semaphore(maxsize) if maxsize > 0 else None
        self._unfinished = inverted_semaphore()
        self._shut = False
        self._begin()
        _queues[id(self)] = self

    # The container; lifo_queue and priority_queue have others.

    def _begin(self) -> None:
        self._stored: deque[_T] | list[_T] = deque()

    def _insert(self, item: _T) -> None:
        self._stored.append(item)

    def _remove(self) -> _T:
        return self._stored.popleft()  # type: ignore[union-attr]

    # -- putting and getting

    def put(self, item: _T, block: bool = True, timeout: SupportsFloat | None = None) -> None:
        """Put the value ``item`` in. Waits if there is no room; with ``block=False`` it acts like put_nowait().

        ``timeout`` is a number of seconds, 0 to try only, None for ever; ``coro.TimeoutError`` when it is over
        (``queue.Queue`` raises Full), and nothing was put in. ``coro.QueueShutDown`` once the queue is shut down, also
        while the thread waits. TypeError or ValueError when the timeout is not a number; YieldFromMain outside a thread
        if it would have to wait.
        """
        limit = None if timeout is None else _CallLimit(timeout, "queue.put()")
        self._refuse_if_shut()
        if self._room is not None:
            if not block:
                if not self._room.acquire(blocking=False):
                    raise standard.Full(f"there is no room in {self!r} now; put() waits for some")
            else:
                _acquire(self._room, limit)
        self._put_now(item)

    def _put_now(self, item: _T) -> None:
        """Room was found for the value."""
        self._refuse_if_shut()
        self._unfinished.acquire()  # refuses other OS threads, so it comes before any change
        try:
            self._insert(item)
        except BaseException:  # of a comparison
            self._unfinished.release()
            if self._room is not None:
                self._room.release()
            raise
        self._items.release()

    def put_nowait(self, item: _T) -> None:
        """Put the value ``item`` in, without waiting. Raises ``queue.Full`` if there is no room, ``coro.QueueShutDown``
        if the queue is shut down."""
        self.put(item, block=False)

    def get(self, block: bool = True, timeout: SupportsFloat | None = None) -> _T:
        """Take the first value out and return it. Waits if there is none; with ``block=False`` it acts like
        get_nowait().

        ``timeout`` is a number of seconds, 0 to try only, None for ever; ``coro.TimeoutError`` when it is over
        (``queue.Queue`` raises Empty), and nothing was taken. ``coro.QueueShutDown`` when the queue is shut down and
        has no value left, also while the thread waits. TypeError or ValueError when the timeout is not a number;
        YieldFromMain outside a thread if it would have to wait.
        """
        limit = None if timeout is None else _CallLimit(timeout, "queue.get()")
        self._refuse_if_ended()
        if not block:
            if not self._items.acquire(blocking=False):
                raise standard.Empty(f"there is no value in {self!r} to be had now; get() waits for one")
        else:
            _acquire(self._items, limit)
        return self._get_now()

    def _get_now(self) -> _T:
        """There is a value for the caller, or the queue is at its end."""
        self._refuse_if_ended()
        item = self._remove()
        if self._shut and not self._stored:
            self._items.release(len(self._items.waiting))  # nothing is left for them
        if self._room is not None:
            self._room.release()
        return item

    def get_nowait(self) -> _T:
        """Take the first value. ``queue.Empty`` when there is none now, ``coro.QueueShutDown`` when there will be none
        any more."""
        return self.get(block=False)

    def _parts_for_select(self, putting: bool) -> tuple[semaphore | None, Callable[[], None], Callable[..., _T | None]]:
        """For cases of a coro.select: the semaphore whose unit is needed (None: none is), what refuses, what is done
        then."""
        if putting:
            return self._room, self._refuse_if_shut, self._put_now
        return self._items, self._refuse_if_ended, self._get_now

    def _after_fork(self) -> None:
        """In a forked child: threads that are gone may have had a unit and not used it."""
        if not self._shut:
            self._items.release(max(0, len(self._stored) - self._items.avail))
            if self._room is not None:
                self._room.release(max(0, self.maxsize - len(self._stored) - self._room.avail))

    # -- what has been done

    def task_done(self) -> None:
        """Say that the work for one value that was taken is done. ValueError when it was said for all that were put
        in already."""
        if not self._unfinished.value:
            raise ValueError(
                f"task_done() was called more often than there were values in {self!r}; "
                "call it once for each get()"
            )
        self._unfinished.release()

    def join(self, timeout: SupportsFloat | None = None) -> None:
        """Wait until task_done() has been called for each value that was put in.

        ``timeout`` is a number of seconds, 0 to look only, None for ever; ``coro.TimeoutError`` when it is over.
        TypeError or ValueError when it is not a number; YieldFromMain outside a thread if it would have to wait.
        """
        limit = _CallLimit(timeout, "queue.join()")
        _check_os_thread()
        if self._unfinished.value:
            with limit:
                self._unfinished.block_till_zero()

    def shutdown(self, immediate: bool = False) -> None:
        """Let nothing more in, as ``queue.Queue.shutdown`` of Python 3.13: put() raises ``coro.QueueShutDown``, get()
        does when the last value is taken, and so do those who wait. With ``immediate`` the values are dropped, and
        count as done."""
        _check_os_thread()
        self._shut = True
        if immediate:
            dropped, self._stored = self._stored, type(self._stored)()
            self._unfinished.release(min(len(dropped), self._unfinished.value))
        # Those who are let go by these look again and find out.
        if self._room is not None:
            self._room.release(len(self._room.waiting))
        if not self._stored:
            self._items.release(len(self._items.waiting))

    def _refuse_if_shut(self) -> None:
        if self._shut:
            raise QueueShutDown(
                f"nothing can be put into {self!r}: it was shut down; "
                "look at its `is_shutdown` first, or catch this", self
            )

    def _refuse_if_ended(self) -> None:
        if self._shut and not self._stored:
            raise QueueShutDown(
                f"{self!r} was shut down and has no value left; "
                "let the thread that works on it end", self
            )

    # -- looking

    @property
    def is_shutdown(self) -> bool:
        """Was shutdown() called?"""
        return self._shut

    @property
    def unfinished_tasks(self) -> int:
        """For how many values task_done() was not called."""
        return self._unfinished.value

    def qsize(self) -> int:
        """The number of values inside."""
        return len(self._stored)

    def empty(self) -> bool:
        """Is there no value inside?"""
        return not self._stored

    def full(self) -> bool:
        """Is there no room?"""
        return 0 < self.maxsize <= len(self._stored)

    def statistics(self) -> QueueStatistics:
        """Figures for debugging."""
        return QueueStatistics(
            len(self._stored),
            max(self.maxsize, 0),
            len(self._items.waiting),
            0 if self._room is None else len(self._room.waiting),
            self._unfinished.value,
            self._shut,
        )

    def __len__(self) -> int:
        return len(self._stored)

    def __bool__(self) -> bool:
        return True  # an empty queue is one all the same

    def __repr__(self) -> str:
        state = ", shut down" if self._shut else ""
        limit = f" of at most {self.maxsize}" if self.maxsize > 0 else ""
        return f"<{type(self).__name__} with {len(self._stored)}{limit} values{state}, at {id(self):#x}>"


class lifo_queue(queue[_T]):
    """The same as ``coro.queue``, but the newest value comes out first, as in ``queue.LifoQueue``."""

    def _begin(self) -> None:
        self._stored = []

    def _remove(self) -> _T:
        return self._stored.pop()


class priority_queue(queue[_T]):
    """The same as ``coro.queue``, but the smallest value comes out first, as in ``queue.PriorityQueue``; equal ones in
    the order in which they came.

        q = coro.priority_queue()
        q.put((2, "later"))
        q.put((1, "soon"))
        q.get()              # (1, "soon")

    What a comparison (``<``) raises, ``put`` raises, and nothing was put in. A comparison must not block:
    coro.no_switch surrounds it.
    """

    _stored: list[_T]

    def _begin(self) -> None:
        self._stored = []  # the smallest is last
        self._changes = 0

    def _insert(self, item: _T) -> None:
        if self._stored:
            with no_switch():  # in the middle of a search the list must stay as it is
                low = self._place(item)
            self._refuse_if_shut()
        else:
            low = 0
        self._stored.insert(low, item)
        self._changes += 1

    def _place(self, item: _T) -> int:
        """Where the value belongs. A comparison or a finaliser may use this very queue: the search begins anew then."""
        while True:
            changes, stored = self._changes, self._stored
            low, high = 0, len(stored)
            while low < high:
                middle = (low + high) // 2
                if item < stored[middle]:  # type: ignore[operator]
                    low = middle + 1
                else:
                    high = middle
                if self._changes != changes or self._stored is not stored:
                    break
            else:
                return low

    def _remove(self) -> _T:
        self._changes += 1
        return self._stored.pop()


def _after_fork_in_child() -> None:
    for q in list(_queues.values()):
        q._after_fork()


def _acquire(units: semaphore, limit: _CallLimit | None) -> None:
    if limit is None:
        units.acquire()
    elif not units.acquire(blocking=False):
        with limit:
            units.acquire()
