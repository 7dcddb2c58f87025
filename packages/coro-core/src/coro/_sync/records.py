"""What the synchronisation modules say about themselves: one frozen record per primitive.

Plain named tuples: made only when somebody asks, so nothing here is on a hot path. They are debugging information; a
number may be out of date as soon as another thread has run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = [
    "BarrierStatistics",
    "BufferStatistics",
    "ConditionStatistics",
    "EventStatistics",
    "LocalStatistics",
    "LockSmithStatistics",
    "MutexStatistics",
    "RWLockStatistics",
    "SemaphoreStatistics",
]


class MutexStatistics(NamedTuple):
    """State of a mutex."""

    #: The thread that holds it, or None.
    owner: Any
    #: How many times the owner has locked it.
    depth: int
    #: How many threads wait for it.
    waiting: int
    #: How many times a thread had to wait for it so far.
    contended: int


class RWLockStatistics(NamedTuple):
    """State of a read-write lock."""

    #: The thread that holds it for writing, or None.
    owner: Any
    #: How many times the owner has locked it for writing.
    depth: int
    #: How many threads hold it for reading.
    readers: int
    readers_waiting: int
    writers_waiting: int
    #: How many times a thread had to wait for it so far.
    contended: int


class SemaphoreStatistics(NamedTuple):
    """State of a semaphore (``value`` are the units to be had) or inverted semaphore (the units out)."""

    value: int
    #: How many threads wait.
    waiting: int
    #: How many times a thread had to wait so far.
    contended: int


class ConditionStatistics(NamedTuple):
    """State of a condition variable."""

    waiting: int
    #: How many waiting threads were woken so far.
    woken: int
    #: How many wake-ups found nobody waiting.
    unheard: int


class EventStatistics(NamedTuple):
    """State of an event (``missing`` is 0 or 1) or latch (``missing`` count-downs)."""

    is_set: bool
    missing: int
    waiting: int


class BarrierStatistics(NamedTuple):
    """State of a barrier."""

    parties: int
    waiting: int
    #: How many times it has let everybody through.
    rounds: int


class BufferStatistics(NamedTuple):
    """State of a fifo or channel."""

    #: Values inside, those that a woken thread is about to take included.
    items: int
    #: How many values fit; None: any number.
    capacity: int | None
    #: Threads that wait for a value.
    takers_waiting: int
    #: Threads that wait for room.
    givers_waiting: int
    #: Values put in so far.
    total: int
    closed: bool


class LocalStatistics(NamedTuple):
    """State of a ThreadLocal, as far as threads of the loop are concerned."""

    #: Threads that have values.
    threads: int
    #: Values of all of them together.
    values: int


class LockSmithStatistics(NamedTuple):
    """State of a manager of named locks."""

    #: Names that are held or wanted.
    names: int
    #: Threads that hold a name.
    holders: int
    #: Threads that wait for a name or for the global lock.
    waiting: int
    #: The thread that has the global lock, or None.
    global_owner: Any
    #: How many times a thread had to wait so far.
    contended: int
    #: How many cycles of waiting threads were found so far, refused ones included.
    deadlocks: int
