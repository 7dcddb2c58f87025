"""Notifiers: other sources of events that the loop watches beside its descriptors and timers.

The idea. A loop that has nothing to run waits in the kernel. A foreign event loop in the same OS thread (a user
interface's) wants to wait there, too, and only one of them can. So each source is a `Notifier` that can look for its
events without waiting and, if it is able to, wait for a limited time or until a descriptor becomes readable. The
kernel's poller is one such source, and it can be watched from outside as one descriptor. A notifier that can watch
that descriptor waits for both at once, and nothing is ever polled in vain; others take turns with the kernel in short
waits.

Notifiers are called by the loop itself, between threads: they wake threads (`Notifier.wake`, `schedule`, `coro.spawn`)
and never block otherwise; an attempt raises YieldFromMain. A notifier that raises is taken off the list, and the
exception goes to the exception notifier, with a note that says which notifier it was. Threads that wait for it go on
waiting: its program may repair it and add it again, or interrupt them.

Cost: nothing without notifiers; with them a call of each `poll()` in every pass of the loop.
"""

from __future__ import annotations

import abc
import time
from typing import Any

from coro._runtime import scheduler
from coro._runtime.output import one_line

__all__ = ["Notifier", "add_notifier", "notifiers", "remove_notifier", "timed_wait_seconds"]

#: How long sources wait in turn that cannot wait together, in seconds.
timed_wait_seconds = 0.01

#: Characters of a notifier's ``repr`` in the note about its failure.
MOST_NAME = 80

_notifiers: list[Notifier] = []


class Notifier(abc.ABC):
    """A source of events. Subclasses implement ``poll``, and ``timed_wait`` or ``wait_with`` if they can wait.

    ``priority``: sources with a higher number are looked at first; the kernel's descriptors have 0.
    """

    priority: int = 0

    @abc.abstractmethod
    def poll(self) -> bool | None:
        """Look for events without waiting, and wake the threads they concern.

        Returns True if there were events, False if not, and None if no thread waits for events of this source: then the
        loop need not wait for it.
        """

    def timed_wait(self, seconds: float) -> bool | None:
        """Wait for events, at most so many seconds, and wake the threads they concern. Returns what ``poll`` returns.

        It must release the interpreter lock meanwhile. A source that cannot wait does not implement this, and is polled
        every ``timed_wait_seconds``.
        """
        raise NotImplementedError

    def wait_with(self, fd: int, seconds: float) -> bool | None:
        """Wait for events of this source, or until descriptor ``fd`` can be read, at most so many seconds.

        Returns what ``poll`` returns, for this source's own events. A source that cannot watch a descriptor does not
        implement this.
        """
        raise NotImplementedError

    def wait(self) -> Any:
        """Block the calling thread until ``wake`` is called for it; returns the value passed there.

        Raises YieldFromMain outside threads, and whatever interrupts the thread. While threads wait here the loop does
        not take them for deadlocked.
        """
        return scheduler._suspend_outside(self)

    @staticmethod
    def wake(thread: scheduler.coro, value: Any = None) -> bool:
        """Let a thread that is in ``wait`` go on, with this value. Returns False if it is about to run or dead."""
        return scheduler._wake(thread, value)


def notifiers() -> list[Notifier]:
    """The notifiers in use, the highest priority first."""
    return list(_notifiers)


def add_notifier(notifier: Notifier) -> None:
    """Have the loop watch this source, from its next pass on, until ``remove_notifier``.

    When one of its methods raises, it is removed, and the exception goes to the exception notifier with a note that
    names it. Threads in its ``wait()`` go on waiting until somebody wakes or interrupts them.

    Raises TypeError for something that is no Notifier, ValueError for one that is in use already, WrongThreadError in
    another OS thread than the loop's.
    """
    scheduler._check_os_thread()
    if not isinstance(notifier, Notifier):
        raise TypeError(f"expected a Notifier, not {type(notifier).__name__}: {notifier!r}")
    if notifier in _notifiers:
        raise ValueError("this notifier is in use already; call remove_notifier() first")
    _notifiers.append(notifier)
    _notifiers.sort(key=lambda n: -n.priority)
    scheduler._set_poll_hook(_poll)


def remove_notifier(notifier: Notifier) -> None:
    """Have the loop watch this source no longer.

    Raises ValueError when it is not in use, WrongThreadError in another OS thread than the loop's.
    """
    scheduler._check_os_thread()
    if notifier not in _notifiers:
        raise ValueError("this notifier is not in use; call add_notifier() first")
    _notifiers.remove(notifier)
    if not _notifiers:
        scheduler._set_poll_hook(None)


def _ask(notifier: Notifier, method: str, *args: Any) -> Any:
    """Call a method of a notifier; one that fails is reported and dropped."""
    try:
        try:
            return getattr(notifier, method)(*args)
        except NotImplementedError:
            if method == "poll":
                raise
            return NotImplemented
    except Exception as exc:
        _notifiers[:] = [other for other in _notifiers if other is not notifier]
        if not _notifiers:
            scheduler._set_poll_hook(None)
        exc.add_note(
            f"The notifier {_named(notifier)} has failed in {method}() and was removed from the loop; add_notifier() "
            "puts it back."
        )
        scheduler._notify()
        return None


def _named(notifier: Notifier) -> str:
    try:
        return one_line(repr(notifier))[:MOST_NAME]
    except Exception:
        return type(notifier).__name__


def _poll(wait: int) -> None:
    """In place of the kernel's poll: look everywhere in the order of priority, then wait if nothing was found."""
    looked = happened = False
    active = []
    for notifier in notifiers():
        if notifier.priority < 0 and not looked:
            scheduler._poll_kernel(0)
            looked = True
        found = _ask(notifier, "poll")
        if found is not None:
            active.append(notifier)
            happened |= bool(found)
    # Whatever they said, threads may be runnable now.
    if scheduler._poll_kernel(0) or happened or wait == 0:
        return
    if not active:
        scheduler._poll_kernel(wait)
        return
    seconds = wait / 1e9
    if len(active) == 1:
        fd = scheduler._begin_watch()
        if fd == -2:
            return
        if fd >= 0:
            try:
                scheduler._note_sleep(True)
                waited = _ask(active[0], "wait_with", fd, seconds) is not NotImplemented
            finally:
                scheduler._note_sleep(False)
                scheduler._end_watch()
            if waited:
                scheduler._poll_kernel(0)
                return
    deadline = time.monotonic() + seconds
    for notifier in active:
        short = min(timed_wait_seconds, deadline - time.monotonic())
        if short <= 0:
            return
        if notifier not in _notifiers:
            continue
        scheduler._note_sleep(True)
        try:
            waited = _ask(notifier, "timed_wait", short) not in (NotImplemented, False, None)
        finally:
            scheduler._note_sleep(False)
        if waited:
            break
    scheduler._poll_kernel(max(0, round(min(timed_wait_seconds, deadline - time.monotonic()) * 1e9)))
