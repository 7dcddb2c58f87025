"""Cycles of locks: a thread waits for what another holds, which waits for what the first one holds.

A program may have such a mistake for years and stand still once, when two threads meet in the wrong order. The report
of a deadlock does not help a server, whose other threads go on. So a warning is given at the moment at which a wait
begins that closes a cycle: only then can one come into being.

Nothing is recorded for it. Which thread waits for what is known to the scheduler, and who holds a lock to the lock. The
locks ask only when they have to wait anyway, and only when a holder itself waits for something that threads hold or
for the end of a thread. Cost of the question: one step for each thread of the chain; without waiting, nothing.

A cycle is found whatever it consists of: mutexes, both sides of an rw_lock, names of a LockSmith, joins. It is looked
for when the wait for a mutex or an rw_lock begins. Not seen: semaphores and queues, which nobody owns, and a cycle that
is closed by a join or a select: these waits would have to ask, too, each time.

Where a lock was taken is not recorded, because every lock() would pay for it. The stacks in the warning show it nearly
always: a thread that waits for a second lock is still inside of the ``with`` of the first.
"""

from __future__ import annotations

import warnings
from typing import Any

from coro import tb
from coro._runtime import scheduler
from coro._runtime.output import one_line
from coro._sync import locks
from coro.exceptions import LockCycleWarning

__all__ = ["find_cycle", "holders_of", "set_lock_cycle_warning"]

#: Cycles that are remembered, so that threads which try again are not reported again.
MOST_TOLD = 256
#: Characters of a thread's name that are shown.
MOST_NAME = 40

_told: dict[frozenset[tuple[int, int]], None] = {}


def holders_of(what: Any) -> tuple[Any, ...]:
    """The threads that hold what a thread can wait for (a lock, a thread that is joined); () when nobody does or it is
    not known."""
    if isinstance(what, scheduler.coro):
        return () if what.dead else (what,)
    owners = getattr(what, "owners", None)
    if owners is None:
        owner = getattr(what, "owner", None)
        owners = () if owner is None else (owner,)
    return tuple(owners)


def waits_for(thread: Any) -> Any:
    """What a thread waits for, if it is something that threads hold."""
    waits = getattr(thread, "waiting_for", None)
    if waits is None or waits[0] not in ("object", "join"):
        return None
    return waits[1]


def find_cycle(thread: Any, what: Any = None) -> list[Any] | None:
    """The cycle of threads, beginning with ``thread``, each of which waits for the next; None when there is none.

    ``what`` is what the thread is about to wait for; None looks at what it waits for now."""
    path = [thread]
    seen = {thread}
    stack = [iter(holders_of(waits_for(thread) if what is None else what))]
    while stack:
        holder = next(stack[-1], None)
        if holder is None:
            stack.pop()
            path.pop()
        elif holder is thread:
            return path
        elif holder not in seen:
            seen.add(holder)
            path.append(holder)
            stack.append(iter(holders_of(waits_for(holder))))
    return None


def _look(lock: Any) -> None:
    """Called by a lock that the running thread is about to wait for."""
    me = scheduler.current()
    try:
        cycle = find_cycle(me, lock)
        if cycle is None:
            return
        waits = [lock, *map(waits_for, cycle[1:])]
        key = frozenset((t.id, id(what)) for t, what in zip(cycle, waits, strict=True))
        if key in _told:
            return
        text = _words(cycle, waits)
    except Exception:
        return  # an object of the program that misbehaves when it is asked for its owner must not break a lock
    if len(_told) >= MOST_TOLD:
        del _told[next(iter(_told))]
    _told[key] = None
    warnings.warn(text, LockCycleWarning, stacklevel=2)


def _words(cycle: list[Any], waits: list[Any]) -> str:
    lines = [
        "a cycle of locks has closed: none of these threads can go on unless one of the waits is interrupted; take the "
        "locks in the same order everywhere"
    ]
    for i, (t, what) in enumerate(zip(cycle, waits, strict=True)):
        held = waits[i - 1]
        holds = "" if isinstance(held, scheduler.coro) else f"holds {_named(held)} and "
        frame = t.get_frame()
        while frame is not None and frame.f_globals is globals():
            frame = frame.f_back
        where = "[]" if frame is None else tb.stack_string(frame)
        lines.append(f"  {_thread(t)} {holds}waits for {_named(what)}\n    at {where}")
    return "\n".join(lines)


def _thread(t: Any) -> str:
    return f"thread {t.id} {one_line(t.name)[:MOST_NAME]!r}"


def _named(what: Any) -> str:
    if isinstance(what, scheduler.coro):
        return f"the end of {_thread(what)}"
    return f"{type(what).__name__} at {id(what):#x}"


def set_lock_cycle_warning(on: bool) -> bool:
    """Say whether a cycle of locks is warned of (LockCycleWarning) when it closes. Returns whether it was before.

    It is at first. A cycle is found at the moment a thread begins to wait for a mutex or an rw_lock, and reported once.
    Joins may be part of it. A cycle that closes when a thread begins to join another, or to select, is not found: only
    ``coro.wait_graph`` and DeadlockError show it.
    TypeError unless ``on`` is a bool. WrongThreadError in another OS thread than the loop's."""
    if not isinstance(on, bool):
        raise TypeError(f"expected True or False, not {type(on).__name__}: {on!r}")
    scheduler._check_os_thread()
    return locks._set_cycle_reporter(_look if on else None) is not None


locks._set_cycle_reporter(_look)
