"""Trying again, with growing pauses: ``coro.retry``.

Names and defaults are those of the package stamina: pauses grow by ``wait_exp_base`` from ``wait_initial`` to
``wait_max``, with up to ``wait_jitter`` seconds by chance on top, so that clients which failed together do not come
back together. Pauses are ``coro.sleep``: other threads run meanwhile, and under ``coro.testing``'s virtual clock they
take no time.

Three forms, for a function, a call, and a block, see the class. Rejected: retrying on any exception by default, which
repeats programming errors.
"""

from __future__ import annotations

import functools
import random as _random
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import ParamSpec, TypeVar

from coro._clock import ticks
from coro._runtime import scheduler
from coro._runtime.arguments import seconds, whole
from coro.exceptions import TimeoutError

__all__ = ["Attempt", "retry"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class retry:
    """A rule for trying again. As a decorator, as a call, and for a block::

        @coro.retry(on=OSError, attempts=5)
        def fetch(url): ...

        page = coro.retry(on=OSError, budget=30).call(fetch, url)

        for attempt in coro.retry(on=(OSError, coro.TimeoutError)):
            with attempt, coro.timeout(5):
                page = fetch(url)

    on: the exception class or classes after which to try again, or a function that is given the exception and says
    whether to. Whatever else is raised leaves at once; so do interruptions (a shutdown, the limit of a block outside)
    but for ``coro.TimeoutError``, and SystemExit and its like. attempts: how many at most, the first included; None for
    any number. budget: seconds from the first attempt on; no pause is begun that would end later. None for any time.
    Neither breaks an attempt off: put ``coro.timeout`` inside for that.

    wait_initial, wait_max, wait_exp_base, wait_jitter: the pause after attempt number n is ``wait_initial *
    wait_exp_base ** (n - 1)`` seconds plus a random part of ``wait_jitter``, and at most ``wait_max``. random: a
    function that returns a float from 0 to 1.

    When there is no further attempt the last exception is raised, with a note of how many there were. A rule keeps no
    state and may be shared. TypeError or ValueError for impossible parameters.
    """

    def __init__(
        self,
        *,
        on: type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool],
        attempts: int | None = 10,
        budget: float | None = 45.0,
        wait_initial: float = 0.1,
        wait_max: float = 5.0,
        wait_jitter: float = 1.0,
        wait_exp_base: float = 2.0,
        random: Callable[[], float] = _random.random,
    ) -> None:
        classes = on if isinstance(on, tuple) else (on,)
        if not all(isinstance(c, type) and issubclass(c, BaseException) for c in classes) and not (
            callable(on) and not isinstance(on, type)
        ):
            raise TypeError(f"expected exception classes as `on`, or a function of the exception, not {on!r}")
        self.on = on
        self.attempts = None if attempts is None else whole(attempts, "attempts", 1)
        self.budget = None if budget is None else seconds(budget, "budget")
        self.wait_initial = seconds(wait_initial, "wait_initial")
        self.wait_max = seconds(wait_max, "wait_max")
        self.wait_jitter = seconds(wait_jitter, "wait_jitter")
        if not isinstance(wait_exp_base, (int, float)) or isinstance(wait_exp_base, bool):
            raise TypeError(f"wait_exp_base is a number, not {type(wait_exp_base).__name__}: {wait_exp_base!r}")
        if not wait_exp_base >= 1:
            raise ValueError(f"wait_exp_base is at least 1, not {wait_exp_base!r}")
        self.wait_exp_base = wait_exp_base
        self._random = random

    def call(self, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call ``function(*args, **kwargs)`` until it succeeds and return its result; the last failure is raised."""
        try:
            for attempt in self:
                with attempt:
                    return function(*args, **kwargs)
        finally:
            del attempt  # it has the failure, whose traceback has this frame
        raise AssertionError("unreachable: the last attempt returns or raises")

    def __call__(self, function: Callable[_P, _T], /) -> Callable[_P, _T]:
        """As a decorator: the function, with each call of it tried again by this rule."""
        if not callable(function):
            raise TypeError(f"expected a function to decorate, not {type(function).__name__}: {function!r}")

        @functools.wraps(function)
        def tried_again(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            return self.call(function, *args, **kwargs)

        return tried_again

    def __iter__(self) -> Iterator[Attempt]:
        """Attempts, each for one ``with`` block, until one block is left without an exception."""
        began = ticks.get_now()
        attempt = Attempt(self, began, 1)
        while True:
            yield attempt
            if attempt.pause is None:
                return
            scheduler.sleep(attempt.pause)
            attempt = Attempt(self, began, attempt.number + 1)

    def pause_after(self, number: int) -> float:
        """Seconds to wait after the attempt with this number (the first is 1); by chance, see ``wait_jitter``."""
        try:
            grown = self.wait_initial * self.wait_exp_base ** (number - 1)
        except OverflowError:
            grown = self.wait_max
        return min(self.wait_max, grown + self.wait_jitter * self._random())

    def _again(self, exc: BaseException) -> bool:
        if not isinstance(exc, (Exception, TimeoutError)):
            return False
        if isinstance(self.on, (type, tuple)):
            return isinstance(exc, self.on)
        return bool(self.on(exc))

    def __repr__(self) -> str:
        return f"<retry on {self.on!r}, {self.attempts} attempts within {self.budget} s>"


class Attempt:
    """One attempt of a ``coro.retry``: ``with attempt:`` holds back what the block raises if there is to be another.
    ``number`` counts from 1; ``exception`` is what the block has raised, ``pause`` the seconds until the next one."""

    __slots__ = ("_began", "_rule", "exception", "number", "pause")

    def __init__(self, rule: retry, began: int, number: int) -> None:
        self._rule = rule
        self._began = began
        self.number = number
        self.exception: BaseException | None = None
        self.pause: float | None = None

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        rule = self._rule
        if exc is None or not rule._again(exc):
            return False
        self.exception = exc
        spent = (ticks.get_now() - self._began) / ticks.ticks_per_sec
        pause = rule.pause_after(self.number)
        if self.number == rule.attempts or (rule.budget is not None and spent + pause > rule.budget):
            exc.add_note(f"coro.retry gave up after {self.number} attempts in {spent:.3g} s")
            return False
        self.pause = pause
        return True

    def __repr__(self) -> str:
        return f"<attempt {self.number} of {self._rule.attempts}>"
