"""A rate limiter: ``coro.rate_limiter``, so many a second.

A token bucket: it holds at most ``burst`` tokens, ``rate`` of them come in ``per`` seconds, and whoever wants to do
something takes one or waits until it is there. The fraction of a token that has come is computed when somebody asks, so
an idle limiter costs nothing and no timer.

Threads stand in the line of a mutex, and only the first sleeps. So they are served in the order in which they came,
and one that is interrupted leaves the next one at the head, with all tokens still there.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Literal, NamedTuple, Self, SupportsFloat

from coro._clock import ticks
from coro._runtime import scheduler
from coro._runtime.arguments import seconds, whole
from coro._sync.locks import mutex

__all__ = ["RateLimiterStatistics", "rate_limiter"]

#: What a sum of floats may be short of; a millionth of a token is none.
_NEARLY = 1e-6


class RateLimiterStatistics(NamedTuple):
    """State of a rate limiter; debugging information."""

    #: Tokens to be had now.
    tokens: float
    #: Threads that wait.
    waiting: int
    #: Tokens taken so far.
    taken: int


class rate_limiter:
    """At most ``rate`` of something in ``per`` seconds, on average::

        limiter = coro.rate_limiter(10)           # ten a second
        for url in urls:
            limiter.acquire()
            fetch(url)

    rate: a number above 0, of tokens in ``per`` seconds (1). burst: how many may be taken at once after a pause, an int
    of at least 1; None for ``rate``, rounded up. It is full at first. ``with limiter:`` takes one token. The names are
    those of aiolimiter and of golang.org/x/time/rate. TypeError or ValueError for impossible parameters.
    """

    def __init__(self, rate: float, per: float = 1.0, burst: int | None = None) -> None:
        if isinstance(rate, bool) or not isinstance(rate, (int, float)):
            raise TypeError(f"rate is a number of tokens, not {type(rate).__name__}: {rate!r}")
        if not 0 < rate <= sys.float_info.max:
            raise ValueError(f"rate is a number of tokens above 0, not {rate!r}")
        self.rate = rate
        self.per = seconds(per, "per")
        if not 0 < self.per < float("inf"):
            raise ValueError(f"per is a number of seconds above 0, not {per!r}")
        self.burst = max(1, -int(-rate // 1)) if burst is None else whole(burst, "burst", 1)
        self._tokens = float(self.burst)
        self._at = ticks.get_now()
        self._line = mutex()
        self._taken = 0

    def _fill(self) -> None:
        now = ticks.get_now()
        # Never less than none: a virtual clock may have been ahead of the real one.
        come = max(0.0, (now - self._at) / ticks.ticks_per_sec * self.rate / self.per)
        self._tokens = min(float(self.burst), self._tokens + come)
        self._at = now

    def _take(self, n: int) -> bool:
        self._fill()
        if self._tokens + _NEARLY < n:
            return False
        self._tokens -= n
        self._taken += n
        return True

    def acquire(self, n: int = 1, timeout: SupportsFloat | None = None, *, blocking: bool = True) -> bool:
        """Take ``n`` tokens, waiting until it is this thread's turn and they have come; returns True. With
        ``blocking=False`` nothing is waited for, and False means that they are not to be had now.

        timeout: a number of seconds, 0 to try only, None for ever; ``coro.TimeoutError`` when it is over, and nothing
        was taken. TypeError when ``n`` is not an int; ValueError when it is negative or above ``burst``, and for a
        timeout beside ``blocking=False``; TypeError or ValueError for a timeout that is not a number; YieldFromMain
        outside a thread if it would have to wait; WrongThreadError in another OS thread than the loop's.
        """
        scheduler._check_os_thread()
        whole(n, "the number of tokens", 0, self.burst)
        limit = scheduler._CallLimit(timeout, "rate_limiter.acquire()")
        if timeout is not None and not blocking:
            raise ValueError("blocking=False and a timeout contradict each other: leave one of them out")
        self._forget_the_lost()
        if self._line.owner is None and self._take(n):
            return True
        if not blocking:
            return False
        with limit:
            self._wait(n)
        return True

    def _forget_the_lost(self) -> None:
        """The thread at the head of the line may have died without leaving it: in a fork, or left behind by a loop that
        has ended. So have all behind it then."""
        if self._line.owner is not None and self._line.owner.dead:
            self._line = mutex()

    def _wait(self, n: int) -> None:
        with self._line:
            while not self._take(n):
                scheduler.sleep(max(1e-6, (n - self._tokens) * self.per / self.rate))

    def statistics(self) -> RateLimiterStatistics:
        """Figures for debugging."""
        self._fill()
        self._forget_the_lost()
        waiting = len(self._line) + (self._line.owner is not None)
        return RateLimiterStatistics(self._tokens, waiting, self._taken)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return f"<rate_limiter of {self.rate:g} in {self.per:g} s, {self.statistics().waiting} waiting>"
