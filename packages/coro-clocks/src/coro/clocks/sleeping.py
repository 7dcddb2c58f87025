"""`sleep_until`: sleeping until a time of day, and staying right when the clock is set meanwhile.

A thread waits on ticks, for as long as the present relation of ticks and the time of day says, and is woken early
when that relation changes: by a simulated step, by an answer of a time server, or because somebody has set the system's
clock.  The last is told by the kernel where it can (Linux: timerfd with TFD_TIMER_CANCEL_ON_SET, which reports the end
of a suspend as well); one daemon thread waits on that descriptor for all sleepers, and exists while there are some.
Elsewhere each sleeper compares the clocks once a second.  It never returns early: the time of day is looked at again
after each wait, against the system's clock too.

Cost: a sleeper costs a thread that waits, and a wake-up once a minute (`LONGEST`); the first one a descriptor and the
watching thread.  Rejected: a timerfd for each sleeper (a descriptor each), polling the clock on Linux.
"""

from __future__ import annotations

import os
import time
from datetime import datetime
from typing import Any

import coro
from coro._clock import ticks
from coro._runtime import scheduler
from coro.clocks import _timerfd, _wall, mach_time, posix_time, tsc_time

__all__ = ["sleep_until", "wall_usec"]

#: Seconds between two looks at the system's clock: with the kernel telling of changes, and without.
LONGEST = 60.0
LONGEST_BLIND = 1.0
#: Microseconds by which the time of day may differ from the system's before it is taken over anew.
TOLERANCE = 1000

_TIMES = (tsc_time.Time, posix_time.Time, mach_time.Time)


class _Watch:
    """The thread that waits for the system's clock to be set; `sleepers` counts those who need it."""

    def __init__(self) -> None:
        self.sleepers = 0
        self.thread: Any = None
        self.pid = 0
        self.sees = False

    def enter(self) -> None:
        if self.pid != os.getpid():  # after a fork the thread and the sleepers are the parent's
            self.sleepers, self.thread, self.pid, self.sees = 0, None, os.getpid(), False
        self.sleepers += 1
        if self.thread is None or self.thread.dead:
            self.thread = coro.spawn(self.run, daemon=True, thread_name="clock watch")

    def leave(self) -> None:
        self.sleepers -= 1
        if self.sleepers == 0 and self.thread is not None:
            self.thread.shutdown()
            self.thread = None
            self.sees = False

    def run(self) -> None:
        me = coro.current()
        try:
            fd = _timerfd.open_watch()
        except OSError:  # not this system, or no descriptor to be had: the sleepers look for themselves
            return
        try:
            changed = _timerfd.arm(fd)
            self.sees = True
            while True:
                if changed:
                    _wall.renew()
                coro.wait_for(fd, coro.EFILT.READ)
                changed = _timerfd.was_set(fd)
                changed = _timerfd.arm(fd) or changed
        finally:
            if self.thread is me:
                self.sees = False
            os.close(fd)


_watch = _Watch()


def wall_usec() -> int:
    """The present time of day of this process in POSIX microseconds."""
    return tsc_time.now_raw_posix_usec()


def _target(when: Any) -> int:
    """A time of day as POSIX microseconds."""
    if isinstance(when, _TIMES):
        return when.as_posix_usec()
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise ValueError(f"expected a datetime with a time zone, got {when!r}; add one with .astimezone()")
        when = when.timestamp()
    if isinstance(when, (int, float)):
        return tsc_time.uPosix_from_posix_fsec(when).as_posix_usec()
    raise TypeError(f"expected POSIX seconds, a Time object or a datetime, got {type(when).__name__}")


def _agree() -> None:
    """Take the system's time of day over anew if it is not what ticks say."""
    if ticks.virtual_is_installed():
        return
    system = time.time_ns() // 1000 + ticks.correction
    if abs(system - ticks.get_usec()) > TOLERANCE:
        _wall.renew()


def sleep_until(when: Any) -> None:
    """Block until the time of day is `when` or later, however the clock is set meanwhile.

    when: POSIX seconds (int or float), a Time object of `coro.clocks`, or a `datetime` with a time zone.

    A clock that is set forward past `when` ends the sleep at once, one that is set back prolongs it; a time that has
    come already does not block at all.  The time of day is this process's, with what time servers and `set_time` say.
    Outside a coro thread and without a running loop the whole process sleeps, and looks at the clock once a second.

    Raises TypeError and ValueError for what is no time, OverflowError for an infinity, YieldFromMain outside a thread
    while the loop runs, and what interrupts the thread.
    """
    target = _target(when)
    _agree()
    if wall_usec() >= target:
        return
    if not coro.coro_is_running():
        while (left := target - wall_usec()) > 0:
            coro.sleep_relative(min(left / 1e6, LONGEST_BLIND))
            _agree()
        return
    _watch.enter()
    try:
        while (left := target - wall_usec()) > 0:
            _wait(min(left / 1e6, LONGEST if _watch.sees or ticks.virtual_is_installed() else LONGEST_BLIND))
            _agree()
    finally:
        _watch.leave()


def _wait(seconds: float) -> None:
    """Wait so long, or until the time of day changes."""
    limit = scheduler.timeout(seconds)
    try:
        with limit:
            _wall.changed.wait()
    except coro.TimeoutError:
        if not limit.expired:
            raise
