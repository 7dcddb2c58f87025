"""What a piece of code leaves behind: ``no_leaks()``.

A census before and one after, and the difference is named: living threads, sockets, descriptors, timers, stack slots,
handlers, and a few settings of the process. Threads and descriptors are known one by one, so each is named with what
can be found out about it (where the thread is blocked, what the descriptor is); of sockets and timers the scheduler
only knows how many there are. Where something was made is told when ``tracemalloc`` was tracing at that moment
(``python -X tracemalloc=10``).

A census is some 50 us and a directory listing. Only when something seems to be left the collector runs, since garbage
is no leak, and other threads get a few turns to end.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import tracemalloc
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from coro import offload
from coro._clock import ticks
from coro._introspection import reports
from coro._net.sock import get_live_sockets
from coro._poll.events import event_map
from coro._runtime import scheduler

__all__ = ["LeakError", "no_leaks"]

#: Turns that other threads get to end before they count as left, and seconds for workers.
TURNS = 5
PATIENCE = 10.0


class LeakError(AssertionError):
    """Something was left behind. ``leaks`` lists the things, as lines of text."""

    def __init__(self, leaks: list[str]) -> None:
        super().__init__(leaks)
        self.leaks = leaks

    def __str__(self) -> str:
        return "left behind:\n" + "\n".join(f"  {leak}" for leak in self.leaks)


def _descriptors() -> dict[int, str]:
    """The open descriptors and what they are; none where the system has no /proc (or /dev/fd without names)."""
    found = {}
    try:
        numbers = os.listdir("/proc/self/fd")
    except OSError:
        return {}
    for number in numbers:
        try:
            found[int(number)] = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # the one that listed them
            continue
    return found


def _handlers() -> dict[Any, str]:
    """Handlers that wait for events of the kernel (threads that do are no handlers)."""
    if not scheduler.coro_is_running():
        return {}
    return {
        (key.ident, key.filter): f"handler {target.target!r} for {key!r}"
        for key, target in event_map.items()
        if not isinstance(target.target, scheduler.coro)
    }


@dataclass
class Census:
    """What there is at a moment."""

    threads: dict[int, Any] = field(default_factory=dict)
    descriptors: dict[int, str] = field(default_factory=dict)
    handlers: dict[Any, str] = field(default_factory=dict)
    sockets: int = 0
    timers: int = 0
    slots: int = 0
    objects: int = 0
    running: bool = False
    recursion_limit: int = 0
    virtual_clock: bool = False
    notifier: Any = None

    def add(self, other: Census, before: Census) -> None:
        """Take over what came about between two other censuses: it is somebody else's affair."""
        self.descriptors.update({n: d for n, d in other.descriptors.items() if before.descriptors.get(n) != d})
        self.threads.update({n: t for n, t in other.threads.items() if n not in before.threads})
        self.handlers.update({n: t for n, t in other.handlers.items() if n not in before.handlers})
        for name in ("sockets", "timers", "slots", "objects"):
            setattr(self, name, getattr(self, name) + getattr(other, name) - getattr(before, name))


def _notifier() -> Any:
    present = scheduler.set_exception_notifier(None)
    scheduler.set_exception_notifier(present)
    return present


def census() -> Census:
    """Count everything."""
    counted = scheduler._counters()
    return Census(
        threads={t.id: t for t in scheduler._all_threads()},
        descriptors=_descriptors(),
        handlers=_handlers(),
        sockets=get_live_sockets(),
        timers=counted["timers"],
        slots=sum(scheduler._slot_owners()),
        objects=scheduler.get_live_coros(),
        running=scheduler.coro_is_running(),
        recursion_limit=sys.getrecursionlimit(),
        virtual_clock=ticks.virtual_is_installed(),
        notifier=_notifier(),
    )


def first_census() -> Census:
    """The census before something begins. In a thread others run once: at its first poll a loop opens descriptors."""
    if isinstance(scheduler.current(), scheduler.coro):
        scheduler.yield_slice()
    return census()


def _made(thing: Any) -> str:
    """Where an object was made, if tracemalloc was tracing."""
    traceback = tracemalloc.get_object_traceback(thing) if tracemalloc.is_tracing() else None
    if traceback is None:
        return ""
    return "; made at " + ", called from ".join(f"{f.filename}:{f.lineno}" for f in reversed(traceback))


def _thread_leaks(before: Census, after: Census, daemons: bool) -> list[str]:
    me = scheduler.current()
    found = []
    for number, t in after.threads.items():
        if number not in before.threads and t is not me and not t.dead and (daemons or not t.daemon):
            found.append(f"thread {t!r}, {_state(t)}{_made(t)}")
    return found


def _state(t: Any) -> str:
    if not t.started:
        return "which has not run yet"
    return f"which waits {reports.describe_wait(t)} at {reports.where(t)}"


def differences(before: Census, after: Census, *, daemons: bool = False, strict: bool = False) -> list[str]:
    """What is there after and was not before, as lines of text."""
    found = _thread_leaks(before, after, daemons)
    for number, what in sorted(after.descriptors.items()):
        if before.descriptors.get(number) != what:
            found.append(f"descriptor {number}: {what}")
    if after.sockets > before.sockets and (strict or not after.descriptors):
        found.append(f"{after.sockets - before.sockets} more socket objects ({after.sockets}, before {before.sockets})")
    found += [text for key, text in after.handlers.items() if key not in before.handlers]
    if not any(number in after.threads and t is not scheduler.current() for number, t in before.threads.items()):
        # Threads from before may sleep at one time and not at another; without any the numbers tell something.
        of_threads = sum(_thread_timers(t) for n, t in after.threads.items() if n not in before.threads)
        if after.timers - of_threads > before.timers:
            found.append(f"{after.timers - of_threads - before.timers} more timers, of no living thread")
    if not after.running:
        if before.running:
            found.append("no event loop runs any more, but one did")
        if after.slots > before.slots:
            found.append(f"{after.slots - before.slots} more threads are bound to stack slots, outside any loop")
    elif not before.running:
        found.append("an event loop runs, and none did before")
    if strict and after.objects > before.objects:
        found.append(f"{after.objects - before.objects} more thread objects ({after.objects}, before {before.objects})")
    if after.recursion_limit != before.recursion_limit:
        found.append(f"the recursion limit is {after.recursion_limit}, it was {before.recursion_limit}")
    if after.virtual_clock and not before.virtual_clock:
        found.append("a virtual clock is installed")
    if after.notifier is not before.notifier:
        found.append(f"the exception notifier is {after.notifier!r}, it was {before.notifier!r}")
    return found


def _thread_timers(t: Any) -> int:
    waits = t.waiting_for
    return 1 if waits is not None and waits[0] == "sleep" else 0


def let_workers_end() -> None:
    """Whoever is interrupted in `in_thread` leaves a worker behind, which still has open what its function has opened.
    It gets some seconds to come to its end."""
    limit = time.monotonic() + PATIENCE
    while offload.statistics()["busy"] and time.monotonic() < limit:
        time.sleep(0.001)


def find(before: Census, *, daemons: bool = False, strict: bool = False) -> list[str]:
    """What was left since ``before``, after everything has had its chance to go away. Lets other threads run when it is
    called in one."""
    found = differences(before, census(), daemons=daemons, strict=strict)
    if not found:
        return found
    let_workers_end()
    gc.collect()
    in_thread = isinstance(scheduler.current(), scheduler.coro)
    for _ in range(TURNS):
        if in_thread:
            scheduler.yield_slice()
        found = differences(before, census(), daemons=daemons, strict=strict)
        if not found or not in_thread:
            break
    return found


class no_leaks:
    """``with coro.testing.no_leaks():``: LeakError when the block leaves something behind.

    Looked at are threads that were made inside and still live, descriptors, sockets, handlers, timers that belong to no
    living thread, and whether a loop runs, a virtual clock is installed, or the recursion limit or the exception
    notifier was changed; outside loops stack slots too. Inside a loop, others get a turn when the block is entered, and
    a few when it is left, so that threads about to end can do so.
    Timers are only judged when no thread but the present one was there before.

    ``daemons``: daemon threads that still live count as well (default: they do not, for they end with the loop).
    ``strict``: count objects, too: dead threads and closed sockets that somebody still refers to.

    Nothing is checked when an exception leaves the block. LeakError (an AssertionError) lists each leak, with the place
    where it was made if ``tracemalloc`` was tracing then. Descriptors are known only where there is /proc; elsewhere
    socket objects are counted in their place.
    """

    def __init__(self, *, daemons: bool = False, strict: bool = False) -> None:
        self._daemons = daemons
        self._strict = strict
        self._before: Census | None = None

    def __enter__(self) -> no_leaks:
        gc.collect()
        self._before = first_census()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        before, self._before = self._before, None
        if before is None or exc is not None:
            return
        found = find(before, daemons=self._daemons, strict=self._strict)
        if found:
            raise LeakError(found)
