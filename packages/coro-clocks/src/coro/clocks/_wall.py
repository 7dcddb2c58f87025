"""The time of day of this process: how far it is from the system's, and who has to know when it changes.

coro-core links its ticks to the system's time of day plus one correction (`coro._clock.ticks.set_correction`).  Here
that correction is the sum of two parts which come and go independently: what time servers have measured, and what a
simulation adds.  Whoever waits for a time of day waits on `changed`, which every change wakes.

Cost: a change is one reading of two clocks and one wake-up for each waiting thread.
"""

from __future__ import annotations

from coro._clock import ticks
from coro._runtime import scheduler
from coro._sync.conditions import condition_variable

__all__ = ["changed", "correct", "measured_usec", "notify", "renew", "set_time", "simulated_usec", "step_time"]

#: Threads that wait for a time of day.
changed = condition_variable()

_measured = 0
_simulated = 0


def notify() -> None:
    """Wake whoever waits for a time of day; from any OS thread."""
    if not len(changed):
        return
    if scheduler._in_loop_os_thread():
        changed.wake_all()
    else:
        scheduler.post(changed.wake_all)


def _apply() -> None:
    ticks.set_correction(_measured + _simulated)
    notify()


def measured_usec() -> int:
    """Microseconds by which time servers have the system's clock behind; 0 when none was asked."""
    return _measured


def simulated_usec() -> int:
    """Microseconds that a simulation adds; 0 without one."""
    return _simulated


def correct(usec: int) -> None:
    """Time servers have found the system's clock this many microseconds behind."""
    global _measured
    _measured = usec
    _apply()


def renew() -> None:
    """Link ticks and the time of day anew: somebody may have set the clock."""
    ticks.update_time_relation()
    notify()


def set_time(posix_usec: int) -> None:
    """Simulate that it is this POSIX microsecond; 0 ends the simulation."""
    global _simulated
    before = _simulated
    _simulated = 0 if posix_usec == 0 else posix_usec - (ticks.get_usec() - _simulated)
    _undo_unless_applied(before)


def step_time(usec: int) -> None:
    """Simulate a step of the time of day."""
    global _simulated
    before = _simulated
    _simulated += usec
    _undo_unless_applied(before)


def _undo_unless_applied(before: int) -> None:
    global _simulated
    try:
        _apply()
    except OverflowError:
        _simulated = before
        raise
