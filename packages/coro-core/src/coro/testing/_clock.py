"""A clock that moves when a test says so, or jumps to the next timer by itself when everybody is blocked.

All of coro's time is read from the tick clock, which has a virtual mode (see ``coro._clock.ticks``); this file turns
that into a context manager and moves it. Sleeping, limits, ``coro.now``, ``get_now()`` and ``get_usec()`` follow; the
modules ``time`` and ``datetime``, kernel timers and other processes do not.

A hundred thousand virtual seconds cost as much as the threads that run in them. Rejected: replacing the functions of
``time``, which would only reach code that looks them up through the module.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from coro._clock import ticks
from coro._introspection import reports
from coro._runtime import scheduler
from coro._runtime.arguments import number_of_seconds
from coro.exceptions import DeadlockError
from coro.testing import _idle

__all__ = ["virtual_clock"]

#: Seconds; the reading of the clock is kept in nanoseconds, as a number of 62 bits.
_FARTHEST = 4.6e9


class virtual_clock:
    """``with coro.testing.virtual_clock() as clock:``: time stands still inside the block until something moves it.

    ``autojump``: with False (the default) only ``advance()`` and ``run_for()`` move the clock. With True it jumps to
    the next timer whenever all threads are blocked. With a number of seconds it jumps when nothing has run for so much
    real time, which gives peers outside the process time to answer. May be set inside the block.

    ``start`` is the reading of the tick clock at the beginning, in seconds (default: the present one). The time of day
    (``coro.get_usec()``, ``coro.now_usec``) starts from its present value and moves with the clock. At the end of the
    block the real clock is back. Limits that were set before the block continue as if it had not been there. Timers
    that were set inside and are still pending expire at odd times, so end such threads before.

    While the clock stands still, a loop in which only timers are left can never continue. DeadlockError is then raised
    in the thread that entered the block (or in the oldest thread, if the block was entered outside the loop).

    RuntimeError when a virtual clock is installed already; ValueError for a negative ``autojump`` or ``start``.
    """

    def __init__(self, *, autojump: bool | float = False, start: float | None = None) -> None:
        self._threshold: float | None = None
        self.autojump = autojump
        if start is not None:
            start = number_of_seconds(start, "start")
            if not 0 <= start <= _FARTHEST:
                raise ValueError(f"expected a start of 0 to {_FARTHEST:.0f} seconds, not {start!r}")
        self._start = start
        self._owner: Any = None
        self._begin = 0
        self._active = False
        #: How often the clock has jumped by itself.
        self.jumps = 0

    @property
    def autojump(self) -> bool | float:
        """Whether the clock jumps by itself: False, True, or the seconds of real time without activity before it
        jumps."""
        return False if self._threshold is None else self._threshold or True

    @autojump.setter
    def autojump(self, value: bool | float) -> None:
        if value is False:
            self._threshold = None
        elif value is True:
            self._threshold = 0.0
        elif (cushion := number_of_seconds(value, "autojump")) >= 0:
            self._threshold = cushion
        else:
            raise ValueError(f"expected True, False or a number of seconds of at least 0, not {value!r}")

    @property
    def elapsed(self) -> float:
        """Virtual seconds since the block was entered."""
        return (ticks.monotonic_ns() - self._begin) / 1e9

    def __enter__(self) -> virtual_clock:
        ticks.install_virtual(None if self._start is None else round(self._start * 1e9))
        self._active = True
        self._begin = ticks.monotonic_ns()
        scheduler._refresh_now()
        thread = scheduler.current()
        self._owner = thread if isinstance(thread, scheduler.coro) else None
        _idle.add_watcher(_idle.CLOCK, self._watch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _idle.remove_watcher(self._watch)
        self._active = False
        self._owner = None
        ticks.remove_virtual()
        scheduler._refresh_now()

    def advance(self, seconds: float) -> None:
        """Move the clock by ``seconds``. What is due by then happens when the caller waits next (or calls
        ``coro.yield_slice()``).

        Timers that are passed over expire all at once, in the order of their times. RuntimeError outside the block,
        ValueError for a negative number: time never goes back.
        """
        if not self._active:
            raise RuntimeError("this virtual clock is not in use; call advance() inside its with block")
        ticks.advance_virtual(_nanoseconds(seconds))
        scheduler._refresh_now()

    def run_for(self, seconds: float) -> None:
        """Move the clock by ``seconds`` from timer to timer. Before each step, all threads run until they wait.

        A thread that sleeps a second in a loop runs ten times in ``run_for(10)``. Errors as for ``advance()``, and
        YieldFromMain outside a thread.
        """
        if not self._active:
            raise RuntimeError("this virtual clock is not in use; call run_for() inside its with block")
        until = ticks.monotonic_ns() + _nanoseconds(seconds)
        before, self._threshold = self._threshold, None
        try:
            _idle.wait_all_blocked()
            while True:
                left = until - ticks.monotonic_ns()
                if left <= 0:
                    return
                following = scheduler._idle_facts()[0]
                ticks.advance_virtual(left if following is None else min(left, following))
                scheduler._refresh_now()
                _idle.wait_all_blocked()
        finally:
            self._threshold = before

    def _watch(self, facts: _idle.Facts) -> int:
        if facts.next_timer is None or facts.offloaded:
            return facts.wait
        if self._threshold is None and not facts.ending:
            return _idle.when_hopeless(facts, self._deadlock)
        wait = _idle.rest(facts, self._threshold or 0.0)
        if wait == 0:
            ticks.advance_virtual(facts.next_timer)
            self.jumps += 1
        return wait

    def _deadlock(self, facts: _idle.Facts) -> int:
        counted = [t for t in scheduler._all_threads() if not t.daemon]
        if not counted:
            return facts.wait
        thread = self._owner if self._owner in counted else counted[0]
        lines = [f"  {t!r} waits {reports.describe_wait(t)}\n    at {reports.where(t)}" for t in counted]
        thread.raise_exception(
            DeadlockError(
                f"all {len(counted)} threads that the loop waits for are blocked and only timers are left, but the "
                f"virtual clock stands still and nobody is left to call advance(); use virtual_clock(autojump=True) if "
                f"it is to jump by itself:\n" + "\n".join(lines),
                tuple((t, reports.describe_wait(t)) for t in counted),
            )
        )
        return 0


def _nanoseconds(seconds: float) -> int:
    number = number_of_seconds(seconds, "a step of the clock, which never goes back,")
    if number < 0:
        raise ValueError(f"expected a step of 0 or more seconds, not {seconds!r}: time never goes back")
    if number > _FARTHEST:
        raise ValueError(f"expected a step of at most {_FARTHEST:.0f} seconds, not {seconds!r}")
    return round(number * 1e9)
