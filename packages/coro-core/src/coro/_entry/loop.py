"""Starting and ending loops: ``event_loop``, ``run``, and the signal handlers that belong to them.

The loop itself is in ``_runtime/scheduler.pyx``; here is what happens once per loop, so nothing in this file is hot.
The handlers of SIGINT and SIGTERM only note that the loop is to end, and the loop, woken by the signal, ends every
thread in order. What happens to a thread that does not let it is in ``_runtime/escalation.py``.
"""

from __future__ import annotations

import atexit
import gc
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from coro import optional
from coro._clock import ticks
from coro._introspection import failures, reports
from coro._runtime import escalation, others, scheduler
from coro._runtime.arguments import number_of_seconds
from coro._runtime.output import print_stderr, write_stderr
from coro.exceptions import Interrupted, Shutdown

__all__ = ["event_loop", "run", "set_print_exit_string", "event_loop_is_running"]

#: Seconds that threads have to end after a signal.
GRACE = 5.0

_P = ParamSpec("_P")
_T = TypeVar("_T")

scheduler._without_loop(optional.with_timeout, optional.sleep_relative)

_print_exit_string = True
_event_loop_runs = False
_one_has_run = False  # a loop, in this process or the one it was forked from
_installed: _Signals | None = None  # those of the loop that runs


def set_print_exit_string(val: bool) -> None:
    """Say whether ``event_loop`` prints ``Exiting...`` when it ends: ``val`` is a bool, True at first. ``run`` never
    prints it."""
    global _print_exit_string
    _print_exit_string = bool(val)


class _EventLoopIsRunning:
    """Is a loop running that was started with ``event_loop`` or ``run``? As a truth value,
    ``if coro.event_loop_is_running:``, and when it is called."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return _event_loop_runs

    def __call__(self) -> bool:
        """True or False."""
        return _event_loop_runs

    def __repr__(self) -> str:
        return f"<coro.event_loop_is_running: {_event_loop_runs}>"


event_loop_is_running = _EventLoopIsRunning()


class _Signals:
    """SIGINT and SIGTERM for the time of one loop, and SIGINFO, which tells on stderr what runs, where there is one.

    Does nothing outside the main OS thread, where Python allows no handlers, and for signals that the program handles
    itself."""

    def __init__(self) -> None:
        self.interrupted = False
        self._before: dict[int, tuple[Any, Any]] = {}  # what was there, what we put there

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        ours = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
        for signum, default in ours.items():
            if signal.getsignal(signum) is default:
                self._before[signum] = signal.signal(signum, self._handle), self._handle
        info = getattr(signal, "SIGINFO", None)
        if info is not None and signal.getsignal(info) is signal.SIG_DFL:
            from coro.signal_handler import _print_running

            self._before[info] = signal.signal(info, _print_running), _print_running

    def restore(self) -> None:
        for signum, (handler, ours) in self._before.items():
            if signal.getsignal(signum) == ours:
                signal.signal(signum, handler)
        self._before.clear()

    def _handle(self, signum: int, frame: Any) -> None:
        again = self.interrupted
        if signum == signal.SIGINT:
            self.interrupted = True
            if escalation.is_wanted():
                scheduler._request_end(0, 0.0)
                escalation.watch(0.0)
                escalation.interrupt()
                return
        grace = 0.0 if again else GRACE
        scheduler._request_end(0, grace)
        escalation.asked(signum, grace)


def _run_loop(timeout: float, thread: Any, signals: _Signals | None) -> tuple[str, Any]:
    global _event_loop_runs, _installed, _one_has_run
    if scheduler.coro_is_running():
        scheduler._loop(timeout)  # raises what is wrong with that
    _one_has_run = True
    others.look_at_loaded()
    ticks.update_time_relation()
    gc.callbacks.append(scheduler._note_collection)
    if signals is not None:
        signals.install()
    _event_loop_runs, _installed = True, signals
    try:
        return scheduler._loop(timeout, thread)
    finally:
        _clean_up()
        reports.report_refused()
        failures.tell_left_out()


def _clean_up() -> None:
    """There is no loop any more: it has ended, or ran in an OS thread that did not come along in a fork."""
    global _event_loop_runs, _installed
    _event_loop_runs, signals, _installed = False, _installed, None
    if signals is not None:
        signals.restore()
    escalation.reset()
    scheduler._discard_exit()  # a signal that came after the loop's last look ends no later loop
    if scheduler._note_collection in gc.callbacks:
        gc.callbacks.remove(scheduler._note_collection)


def _tell_of_threads_without_a_loop() -> None:
    """At the end of the process: who has forgotten coro.run() sees a program that does nothing, and no error."""
    if _one_has_run or getattr(sys, "last_value", None) is not None:  # or the program has failed before it came to that
        return
    threads = [t for t in scheduler._all_threads() if not t.daemon]
    if threads:
        first = threads[0].name
        which = f"thread {first!r} was" if len(threads) == 1 else f"{len(threads)} threads ({first!r}, ...) were"
        write_stderr(
            f"coro: {which} spawned and never ran, because no event loop did: call coro.run(function), or "
            "coro.event_loop() after coro.spawn()\n"
        )


atexit.register(_tell_of_threads_without_a_loop)


def _check_timeout(timeout: float) -> float:
    seconds = number_of_seconds(timeout, "the longest poll")
    if not seconds > 0:
        raise ValueError(f"the longest poll must be more than 0 seconds, not {timeout!r}")
    return seconds


def event_loop(timeout: float = 30) -> None:
    """Run threads until all have ended. Daemon threads are not waited for. Returns None; may be called again.

    ``timeout`` is how many seconds a single poll of the kernel may wait. It is only a safety net.

    Raises ``SystemExit(code)`` after ``set_exit(code)``, and with code 0 after SIGINT or SIGTERM; DeadlockError if all
    threads but daemons wait and nothing can wake one (see ``set_deadlock``); LoopError inside a running loop;
    WrongThreadError while a loop runs in another OS thread; TypeError or ValueError if the timeout is no number above
    0.
    """
    timeout = _check_timeout(timeout)
    wanted = getattr(sys.modules["coro"], "install_signal_handlers", True)  # documented as a switch of the package
    reason, code = _run_loop(timeout, None, _Signals() if wanted else None)
    if reason == "deadlock":
        raise code
    if _print_exit_string:
        print_stderr("Exiting...")
    if reason == "exit":
        raise SystemExit(code)


def _tell_error(thread: Any) -> None:
    """run() is going to raise something else than what main failed with: that must be heard of, once."""
    error = thread.exception
    if error is None or scheduler._main_was_told() or isinstance(error, (Shutdown, SystemExit, KeyboardInterrupt)):
        return
    try:
        raise error
    except BaseException:
        scheduler._notify()


def run(main: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run a new loop, with ``main(*args, **kwargs)`` in its first thread. Return what ``main`` returns, or raise what
    it raises.

    When ``main`` ends, all other threads get Shutdown and have 5 seconds to end. Other ways to end:

    * ``set_exit(code)`` in any thread, or SIGTERM (code 0): ``run`` raises ``SystemExit(code)``.
    * SIGINT: the loop ends in the same way, and ``run`` raises ``KeyboardInterrupt``. A second SIGINT skips the 5
      seconds.

    A thread that does not give way gets Shutdown at the second signal, or a second after the 5 seconds. The third
    signal ends the process.

    If ``main`` has failed before that, the exception notifier is told of its exception. If a thread forks, ``run`` also
    returns in the child, when that thread has ended, with its value or exception.

    Raises DeadlockError, LoopError and WrongThreadError as ``event_loop`` does, and TypeError if ``main`` cannot be
    called.
    """
    if scheduler.coro_is_running():
        scheduler._loop(30.0)  # raises what is wrong with that
    signals = _Signals()
    thread = scheduler._spawn_main(main, args, kwargs)
    try:
        try:
            reason, code = _run_loop(30.0, thread, signals)
        except BaseException:
            _tell_error(scheduler._take_successor() or thread)
            raise
        thread = scheduler._take_successor() or thread
        if signals.interrupted or reason in ("exit", "deadlock"):
            _tell_error(thread)
        if signals.interrupted:
            raise KeyboardInterrupt
        if reason == "exit":
            raise SystemExit(code)
        if reason == "deadlock":
            raise code
        if thread.exception is not None:
            if isinstance(thread.exception, Interrupted):
                raise thread.exception from None
            raise thread.exception
        return thread.result  # type: ignore[no-any-return]
    finally:
        del thread
