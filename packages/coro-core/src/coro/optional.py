"""``with_timeout`` and ``sleep_relative`` for code that may also run without a loop.

``coro.with_timeout`` and ``coro.sleep_relative`` decide at the moment of the call: inside a loop the scheduler does the
work, without one they come here. The time limit is then a SIGALRM timer, which works in the main OS thread only.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from coro._runtime import scheduler
from coro._runtime.arguments import number_of_seconds
from coro.exceptions import TimeoutError, YieldFromMain

__all__ = ["sleep_relative", "with_timeout"]

#: Seconds; more than the system takes at once as an alarm or a sleep is less than for ever.
_LONGEST = 1e8

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Alarm(BaseException):
    """One time limit: the handler of SIGALRM and what it raises."""

    def __call__(self, signum: int, frame: object) -> None:
        raise self


def with_timeout(timeout: float, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call ``function(*args, **kwargs)`` with a limit of ``timeout`` seconds, loop or no loop.

    Raises ``coro.TimeoutError`` when the time is over; 0 and less do so at once if the function takes a signal check
    at all. Without a loop: YieldFromMain outside the main OS thread, TypeError or ValueError for a limit that is no
    number.
    """
    if scheduler.coro_is_running():
        return scheduler.with_timeout(timeout, function, *args, **kwargs)
    seconds = number_of_seconds(timeout)
    if threading.current_thread() is not threading.main_thread():
        raise YieldFromMain(
            "without a loop with_timeout needs SIGALRM, which works in the main OS thread only; use coro.run(function)"
        )
    limit = min(max(seconds, 1e-6), _LONGEST)
    earlier, interval = signal.getitimer(signal.ITIMER_REAL)
    if isinstance(signal.getsignal(signal.SIGALRM), _Alarm) and 0 < earlier <= limit:
        return function(*args, **kwargs)  # a limit outside this one is over first
    mine = _Alarm()
    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, mine)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, limit)
            return function(*args, **kwargs)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _Alarm as exc:
        if exc is not mine:
            raise
        late = TimeoutError(f"coro.with_timeout({limit:g}) ran out, outside a loop")
        late.seconds = timeout
        raise late from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if earlier:
            left = max(earlier - (time.monotonic() - began), 1e-6)
            signal.setitimer(signal.ITIMER_REAL, left, interval)


def sleep_relative(delta: float, /) -> None:
    """Sleep for ``delta`` seconds, loop or no loop; 0 or less returns at once without a loop."""
    if scheduler.coro_is_running():
        scheduler.sleep_relative(delta)
        return
    left = number_of_seconds(delta)
    while left > 0:
        time.sleep(min(left, _LONGEST))
        left -= _LONGEST
