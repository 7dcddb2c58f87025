"""A priority queue by time with removal of any entry: ``coro.event_queue``.

A binary heap of (time, serial number, value), and an index from (time, identity of the value) to its entries. Removing
marks the entry and leaves it in the heap; dead ones are thrown out when they are the majority. So insert, pop and
remove are O(log n) amortised, memory is proportional to what is in the queue now, and a workload of timeouts that are
nearly all cancelled does not make it grow. About 260 bytes an entry; 2 to 5 us for an insert and a remove.

The scheduler does not use this: its timers live in a heap of their own in C. This one is for programs.
"""

from __future__ import annotations

import heapq
import operator
from collections import deque
from typing import Any, Generic, SupportsIndex, TypeVar

__all__ = ["event_queue"]

V = TypeVar("V")

#: Below this many dead entries nothing is rebuilt.
_FEW = 16
#: Stands for the value of a removed entry.
_REMOVED: Any = object()


class event_queue(Generic[V]):
    """Values ordered by time, an int from 0 to 2**64 - 1; those of equal time come in the order of their insertion."""

    # Invariants: the entry at the root of the heap is alive; the index names exactly the entries that are alive, those
    # of one key in order of insertion; no value of a removed entry is kept.

    __slots__ = ("_heap", "_index", "_length", "_serial")

    def __init__(self) -> None:
        self._heap: list[list[Any]] = []
        # An entry is a list; a deque holds several of one key, which is rare, and costs 760 bytes.
        self._index: dict[tuple[int, int], list[Any] | deque[list[Any]]] = {}
        self._length = 0
        self._serial = 0

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"<event_queue of {self._length} entries>"

    def insert(self, time: SupportsIndex, value: V) -> None:
        """Add a value. OverflowError for a time outside of 0 to 2**64 - 1, TypeError when it is not an integer."""
        time = _check_time(time)
        entry = [time, self._serial, value]
        self._serial += 1
        known = self._index.setdefault((time, id(value)), entry)
        if isinstance(known, deque):
            known.append(entry)
        elif known is not entry:
            self._index[time, id(value)] = deque((known, entry))
        heapq.heappush(self._heap, entry)
        self._length += 1

    def top(self) -> V:
        """The value with the smallest time. IndexError when the queue is empty."""
        if not self._heap:
            raise IndexError("the event queue is empty; look at its length first")
        value: V = self._heap[0][2]
        return value

    def pop(self) -> V:
        """Remove the value with the smallest time and return it. IndexError when the queue is empty."""
        value = self.top()
        self._forget(heapq.heappop(self._heap), value)
        self._tidy()
        return value

    def remove(self, time: SupportsIndex, value: V) -> int:
        """Remove the first entry that has this time and this very object as its value, and return 0.

        IndexError when there is none; errors for the time as for ``insert``.
        """
        time = _check_time(time)
        known = self._index.get((time, id(value)))
        if known is None:
            raise IndexError(f"no entry of time {time} with the value {value!r} (the same object, not an equal one)")
        entry: list[Any] = known[0] if isinstance(known, deque) else known
        self._forget(entry, value)
        entry[2] = _REMOVED
        self._tidy()
        return 0

    def _forget(self, entry: list[Any], value: V) -> None:
        """Take the first entry of its key out of the index."""
        key = (entry[0], id(value))
        known = self._index[key]
        if isinstance(known, deque):
            known.popleft()
        if known is entry or not known:
            del self._index[key]
        self._length -= 1

    def _tidy(self) -> None:
        """Bury the dead: those at the root always, all when they are the majority."""
        heap = self._heap
        while heap and heap[0][2] is _REMOVED:
            heapq.heappop(heap)
        if len(heap) - self._length > max(_FEW, self._length):
            self._heap = [entry for entry in heap if entry[2] is not _REMOVED]
            heapq.heapify(self._heap)
            self._index = dict(self._index)  # a dictionary does not shrink by deletions
        elif not heap:
            self._index = {}


def _check_time(time: SupportsIndex) -> int:
    number = operator.index(time)
    if not 0 <= number < 1 << 64:
        raise OverflowError(f"expected a time from 0 to 2**64 - 1, not {number}")
    return number
