"""What happens when a loop has nothing to run: the place where the test kit acts, and ``wait_all_blocked()``.

The scheduler asks one hook before a poll that would wait, after a poll without waiting has shown that the kernel has
nothing either. The hook asks the *watchers* here, by rank: threads in ``wait_all_blocked()``, then the virtual clock,
then whoever looks for deadlocks. A watcher says how long the poll may wait, or 0 when it gave somebody something to do.

Without watchers there is no hook, and the loop pays nothing; with them a poll that would wait costs a second system
call and some microseconds. Everything here runs in main, where nothing may block.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from coro._runtime import scheduler
from coro._runtime.arguments import number_of_seconds

__all__ = ["wait_all_blocked"]


class Facts(NamedTuple):
    """What an idle loop waits for."""

    wait: int  #: ns that the poll would wait
    next_timer: int | None  #: ns to the next timer, or to the end of the grace period
    descriptors: int  #: counted threads that wait for descriptors, and handlers
    offloaded: int  #: jobs in worker OS threads
    os_threads: int  #: besides the loop's and our workers: they may call coro.post()
    quiet: float  #: seconds of real time since a thread last ran
    ending: bool
    awaited: bool  #: is a thread in wait_all_blocked(), whose cushion is not over?

    @property
    def hopeless(self) -> bool:
        """Can nothing but a timer wake a thread: no event of the kernel, no worker, no other OS thread?"""
        others = self.os_threads > known_os_threads
        return not (self.descriptors or self.offloaded or others or self.awaited or self.ending)


#: A watcher gets the facts and returns ns that the poll may wait, or 0: look again.
Watcher = Callable[[Facts], int]

BLOCKED, CLOCK, DEADLOCK = range(3)  # ranks

#: OS threads that were there before a test began and will hardly wake anybody: pytest-timeout's, say.
known_os_threads = 0
#: Seconds of quiet before they are taken for what they seem to be.
DOUBT = 0.5

_watchers: list[tuple[int, Watcher]] = []
_switches = -1
_since = 0.0


def add_watcher(rank: int, watcher: Watcher) -> None:
    """Have ``watcher`` asked, after those of lower rank."""
    _watchers.append((rank, watcher))
    _watchers.sort(key=lambda entry: entry[0])
    scheduler._set_idle_hook(_asked)


def remove_watcher(watcher: Watcher) -> None:
    """Ask it no more; harmless when it is not asked."""
    _watchers[:] = [entry for entry in _watchers if entry[1] != watcher]
    if not _watchers:
        scheduler._set_idle_hook(None)


def _asked(wait: int) -> int:
    global _switches, _since
    following, descriptors, offloaded, os_threads, switches, ending = scheduler._idle_facts()
    now = time.monotonic()
    if switches != _switches:
        _switches, _since = switches, now
    awaited = _watchers[0][0] == BLOCKED
    facts = Facts(wait, following, descriptors, offloaded, os_threads, now - _since, ending, awaited)
    for rank, watcher in _watchers[:]:
        if wait == 0 and rank > BLOCKED:  # those in wait_all_blocked() go on together
            break
        wait = min(wait, watcher(facts))
    return wait


def rest(facts: Facts, cushion: float) -> int:
    """How long the poll may wait until it has been quiet for ``cushion`` seconds; 0: it has been."""
    missing = cushion - facts.quiet
    return 0 if missing <= 0 else max(round(min(missing, 1e9) * 1e9), 1)


def when_hopeless(facts: Facts, act: Watcher) -> int:
    """What ``act`` answers once nothing but a timer can wake a thread; until then, how long to wait."""
    if not facts.hopeless:
        return facts.wait
    return (rest(facts, DOUBT) if facts.os_threads else 0) or act(facts)


class _Waiter:
    """One call of wait_all_blocked(): what its thread waits for, and the watcher."""

    def __init__(self, thread: Any, cushion: float) -> None:
        self.thread = thread
        self.cushion = cushion
        self.done = False

    def watch(self, facts: Facts) -> int:
        wait = rest(facts, self.cushion)
        if wait:
            return wait
        self.done = True
        remove_watcher(self.watch)
        scheduler._wake(self.thread)
        return 0

    def __repr__(self) -> str:
        return "<all other threads to be blocked>"


def wait_all_blocked(cushion: float = 0.0) -> None:
    """Wait until every other thread of the loop is blocked: no thread can run, and the kernel has no event for the
    loop.

    Threads that sleep, or wait for a descriptor or a worker OS thread, count as blocked. With ``cushion``, in seconds
    of real time, nothing may have run for that long. Use it for peers outside this process, whose answers take a
    moment. Several threads may wait; those with the same cushion continue together.

    Raises YieldFromMain outside a thread, ValueError for a negative cushion.
    """
    cushion = number_of_seconds(cushion, "the cushion")
    if cushion < 0:
        raise ValueError(f"expected a cushion of 0 or more seconds, not {cushion!r}")
    waiter = _Waiter(scheduler._running_thread(), cushion)
    add_watcher(BLOCKED, waiter.watch)
    try:
        while not waiter.done:
            scheduler._suspend(waiter)
    finally:
        remove_watcher(waiter.watch)
