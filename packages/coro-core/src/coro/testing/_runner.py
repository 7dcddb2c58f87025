"""Running one test in a loop of its own: what ``coro_test``, ``run_in_loop`` and the pytest plugin share.

A ``Watch`` belongs to one loop and its main thread, in which the test runs. It makes what goes wrong elsewhere the
test's own affair, so that the failure is found where people look for it:

* An exception that leaves another thread is kept (through the exception notifier) and raised when the test is over.
* A deadlock is raised inside the test, where it is blocked, before the loop would end for it: its clean-up then still
  has a loop to run in. OS threads that exist when the test begins (a time keeper of the test runner) are not expected
  to wake anybody, after half a second of silence.
* The time limit is real time, whatever clock the test has, so an OS thread keeps it. It tells main, which raises
  TimeLimitExceeded where the test is blocked; if the loop does not come round within a second because some thread
  computes, the exception is raised in the code that runs.
* SIGINT becomes a KeyboardInterrupt inside the test, where it is blocked, instead of an ordered end of the loop. A
  second one is raised in whatever code runs.

Cost: one OS thread for each test, 60 us.
"""

from __future__ import annotations

import ctypes
import functools
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, overload

from coro._entry import loop
from coro._introspection import reports
from coro._runtime import scheduler
from coro._runtime.arguments import number_of_seconds
from coro._runtime.output import one_line
from coro.exceptions import Interrupted
from coro.testing import _frames, _idle, _leaks

__all__ = ["ThreadCrashed", "TimeLimitExceeded", "coro_test", "run_in_loop"]

#: Seconds a test may take unless it says otherwise.
DEFAULT_TIMEOUT = 60.0
#: Seconds that a computing thread has to come back to the loop when the time is over.
PATIENCE = 1.0

_T = TypeVar("_T")
_C = TypeVar("_C", bound=Callable[..., Any])


class TimeLimitExceeded(Interrupted):
    """A test took longer than its time limit; raised inside the test. The text says where every thread was then, unless
    one of them computed and had to be stopped by force."""

    def __str__(self) -> str:
        return super().__str__() or "the test took longer than its limit, and this code would not wait for anything"


class ThreadCrashed(AssertionError):
    """An exception ended a thread other than the test's. That exception is the cause (``__cause__``) of this one. The
    text has the tracebacks of all such threads."""


class Watch:
    """Looks after the main thread of one loop. Entered and left by that thread, inside the loop.

    ``timeout``: seconds or None. ``terminate``: SIGTERM becomes a KeyboardInterrupt, too (else it ends the process).
    """

    def __init__(self, timeout: float | None, terminate: bool = False) -> None:
        self.timeout = timeout
        self.thread: Any = None
        self.crashes: list[tuple[str, BaseException]] = []
        self._terminate = terminate
        self._over = threading.Event()
        self._answered = threading.Event()
        self._os_thread = 0
        self._keeper: threading.Thread | None = None
        self._notifier: Any = None
        self._signals: dict[int, Any] = {}
        self._interrupts = 0
        self._known = 0

    def __enter__(self) -> Watch:
        self.thread = scheduler._running_thread()
        self._os_thread = threading.get_ident()
        self._notifier = scheduler.set_exception_notifier(self._note_crash)
        self._known = _idle.known_os_threads
        _idle.known_os_threads = scheduler._idle_facts()[3]
        _idle.add_watcher(_idle.DEADLOCK, self._look_for_deadlock)
        if threading.current_thread() is threading.main_thread():
            self._take_signal(signal.SIGINT, signal.default_int_handler, self._interrupted)
            self._take_signal(signal.SIGTERM, signal.SIG_DFL, self._interrupted if self._terminate else signal.SIG_DFL)
        if self.timeout is not None:
            self._keeper = threading.Thread(target=self._watch_time, name="coro test time limit", daemon=True)
            # Counted here, where the loop cannot look meanwhile, not by the thread itself.
            scheduler._count_own_os_threads(+1)
            self._keeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._answered.set()
        if self._keeper is not None:
            self._keeper.join()
            scheduler._count_own_os_threads(-1)
        for signum, handler in self._signals.items():
            signal.signal(signum, handler)
        _idle.remove_watcher(self._look_for_deadlock)
        _idle.known_os_threads = self._known
        scheduler.set_exception_notifier(self._notifier)
        if exc is not None and self.crashes:
            exc.add_note(self.describe_crashes())

    # -- threads that fail

    def raise_crashes(self) -> None:
        """ThreadCrashed if an exception has left another thread since the last call."""
        if self.crashes:
            raised = ThreadCrashed(self.describe_crashes())
            first = self.crashes[0][1]
            self.crashes = []
            raise raised from first

    def describe_crashes(self) -> str:
        """The tracebacks of the threads that have failed."""
        for _, error in self.crashes:
            _frames.shorten(error)
        return "\n".join(
            f"thread {name} was ended by an exception:\n{''.join(traceback.format_exception(error))}"
            for name, error in self.crashes
        )

    def _note_crash(self) -> None:
        me = scheduler.current()
        error = sys.exc_info()[1]
        if error is not None:
            self.crashes.append((f"{me.id} ({one_line(me.name)})", error))

    def _look_for_deadlock(self, facts: _idle.Facts) -> int:
        if facts.next_timer is not None or self.thread.dead:
            return facts.wait
        return _idle.when_hopeless(facts, self._report_deadlock)

    def _report_deadlock(self, facts: _idle.Facts) -> int:
        report = reports.deadlock(False)
        if report is None or not any(t is self.thread for t, _ in report.threads):
            return facts.wait
        self.thread.raise_exception(report)
        return 0

    # -- the time limit; the first two run in the OS thread that keeps it

    def _watch_time(self) -> None:
        while not self._over.wait(self.timeout):
            self._time_is_over()

    def _time_is_over(self) -> None:
        self._answered.clear()
        scheduler._post_internal(self._strike)
        if not self._answered.wait(PATIENCE) and not self._over.is_set():
            error = ctypes.py_object(TimeLimitExceeded)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._os_thread), error)

    def _strike(self) -> None:
        """In main."""
        self._answered.set()
        if self._over.is_set() or self.thread.dead:
            return
        places = [f"  {t!r} {_place(t)}" for t in scheduler._all_threads()]
        text = f"the test took longer than its limit of {self.timeout:g} seconds; its threads:\n" + "\n".join(places)
        self.thread.raise_exception(TimeLimitExceeded(text))

    # -- signals

    def _take_signal(self, signum: int, default: Any, handler: Any) -> None:
        """Install a handler in place of the loop's own, or of Python's; one that the user installed stays."""
        before = signal.getsignal(signum)
        if before is default or isinstance(getattr(before, "__self__", None), loop._Signals):
            self._signals[signum] = signal.signal(signum, handler)

    def _interrupted(self, signum: int, frame: Any) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            raise KeyboardInterrupt
        scheduler._post_internal(self._pass_on_interrupt)

    def _pass_on_interrupt(self) -> None:
        """In main."""
        if not self.thread.dead:
            self.thread.raise_exception(KeyboardInterrupt)


def _place(t: Any) -> str:
    if not t.started:
        return "has not run yet"
    return f"waits {reports.describe_wait(t)}\n    at {reports.where(t)}"


def run_test(
    function: Callable[..., _T], args: tuple[Any, ...], kwargs: dict[str, Any], timeout: float | None, leaks: bool
) -> _T:
    """Run a function in a new loop under a Watch; its result."""

    def main() -> _T:
        with Watch(timeout) as watch:
            before = _leaks.first_census()
            result = function(*args, **kwargs)
            watch.raise_crashes()
            if leaks:
                found = _leaks.find(before)
                watch.raise_crashes()
                if found:
                    raise _leaks.LeakError(found)
        return result

    return loop.run(main)


def run_in_loop(function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> _T:
    """Run ``function(*args, **kwargs)`` as ``coro_test`` runs a test, with its defaults; returns what it returns."""
    return run_test(function, args, kwargs, DEFAULT_TIMEOUT, True)


@overload
def coro_test(test: _C, /) -> _C: ...
@overload
def coro_test(*, timeout: float | None = ..., leaks: bool = ...) -> Callable[[_C], _C]: ...
def coro_test(test: Any = None, /, *, timeout: float | None = DEFAULT_TIMEOUT, leaks: bool = True) -> Any:
    """Decorator: run a test function, or each test of a ``unittest.TestCase`` class, in a loop of its own.

        @coro_test
        def test_echo(): ...

        @coro_test(timeout=5)
        class EchoTest(unittest.TestCase): ...

    ``timeout``: seconds of real time after which TimeLimitExceeded is raised inside the test; None for no limit.
    ``leaks``: look for what the test leaves behind, see ``no_leaks`` (LeakError).

    The test fails with ThreadCrashed when an exception ends another thread, and with DeadlockError, raised where it is
    blocked, when nobody is left to wake it. Threads that still run when it ends get Shutdown. Of a class, ``setUp``,
    ``tearDown`` and clean-ups run in the same loop and thread as the test. TypeError for something that is neither;
    ValueError for a timeout that is not above 0.
    """
    if timeout is not None:
        timeout = number_of_seconds(timeout, "the time limit")
        if timeout <= 0:
            raise ValueError(f"expected a time limit of more than 0 seconds, or None for no limit, not {timeout!r}")
    if test is None:
        return functools.partial(_decorated, timeout=timeout, leaks=leaks)
    return _decorated(test, timeout, leaks)


def _decorated(test: Any, timeout: float | None, leaks: bool) -> Any:
    if isinstance(test, type):
        return _test_case(test, timeout, leaks)
    if not callable(test):
        raise TypeError(f"expected a function or a unittest.TestCase class, not {test!r}")

    @functools.wraps(test)
    def in_loop(*args: Any, **kwargs: Any) -> Any:
        return run_test(test, args, kwargs, timeout, leaks)

    return in_loop


def _test_case(cls: Any, timeout: float | None, leaks: bool) -> Any:
    import unittest

    if not issubclass(cls, unittest.TestCase):
        raise TypeError(f"expected a unittest.TestCase class, not {cls!r}; decorate the methods of other classes")
    plain_run = cls.run

    @functools.wraps(plain_run)
    def run(self: Any, result: Any = None) -> Any:
        def main() -> Any:
            with Watch(timeout) as watch:
                before = _leaks.first_census()

                def check() -> None:
                    # The first clean-up registered is the last one run: tearDown and the test's own are over.
                    watch.raise_crashes()
                    found = _leaks.find(before) if leaks else []
                    watch.raise_crashes()
                    if found:
                        raise _leaks.LeakError(found)

                self.addCleanup(check)
                return plain_run(self, result)

        return loop.run(main)

    cls.run = run
    return cls
