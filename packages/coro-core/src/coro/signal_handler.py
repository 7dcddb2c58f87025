"""Signals handled in threads: ``register(signum, handler)``.

A thin layer over the SIGNAL filter of ``coro.set_handler``, where a signal is a byte that Python's own handler writes
into a pipe of the poller (``signal.set_wakeup_fd``). So nothing is masked, children inherit nothing but the default
action, and a handler is an ordinary thread that may wait. Cost: one pipe for the process, a thread for each call.

Rejected: signalfd(2) with a blocked signal (children inherit the mask, other libraries see the signal vanish).
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from coro import tb
from coro._poll.descriptors import py_kevent
from coro._poll.events import event_map, remove_handler, set_handler
from coro._poll.filters import EV, EVFILT
from coro._runtime import scheduler
from coro._runtime.output import one_line, write_stderr
from coro.exceptions import SimultaneousError

__all__ = ["print_running_thread", "register", "register_signal_handler", "unregister"]

Handler = Callable[[int], object]

_CANNOT = {getattr(signal, name) for name in ("SIGKILL", "SIGSTOP") if hasattr(signal, name)}


class _Registration:
    """What the poller calls: hands the number on. Its name in reports is that of the handler."""

    __slots__ = ("__qualname__", "handler")

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        name = getattr(handler, "__qualname__", None)
        self.__qualname__ = name if isinstance(name, str) else type(handler).__qualname__

    def __call__(self, event: py_kevent) -> None:
        self.handler(event.ident)

    def __repr__(self) -> str:
        return f"<signal handler {self.handler!r}>"


def _number(signum: int) -> int:
    number = signum if isinstance(signum, int) and not isinstance(signum, bool) else None
    if number is None:
        raise TypeError(f"expected the number of a signal, not {type(signum).__name__}: {signum!r}")
    if number not in signal.valid_signals() or number in _CANNOT:
        raise ValueError(f"expected a signal that can be caught (signal.SIGHUP, ...), not {signum!r}")
    return int(number)


def register(signum: int, handler: Handler, once_only: bool = False) -> None:
    """Call ``handler(signum)`` in a thread of its own whenever a signal comes.

    signum: the signal. handler: called with the number as its only argument, in a copy of the caller's context. It runs
    in a thread like any other: it may wait, and what it raises goes to the exception notifier and changes nothing. It
    never runs twice at the same time. Signals that come while it runs lead to one more call when it has returned, so
    after every signal a call begins. once_only: call it for the first signal only; then the action of the signal is
    again what it was before.

    May be called before the loop starts; signals that come until then are handled when it does. A registration holds
    until ``unregister`` or the end of the loop, and keeps no loop from ending.

    Raises SimultaneousError when the signal has a handler or a waiting thread already, which stays; TypeError when the
    handler cannot be called or ``signum`` is no number; ValueError for a signal that does not exist or cannot be caught
    (SIGKILL, SIGSTOP), and outside the main OS thread of the process; WrongThreadError in another OS thread than the
    loop's.
    """
    number = _number(signum)
    if not callable(handler):
        raise TypeError(f"expected a function of the signal number, not {type(handler).__name__}: {handler!r}")
    flags = EV.ADD | EV.ONESHOT if once_only else EV.ADD
    try:
        set_handler((number, EVFILT.SIGNAL), _Registration(handler), flags)
    except SimultaneousError as e:
        other = e.other.handler if isinstance(e.other, _Registration) else e.other
        raise SimultaneousError(e.co, other, e.event) from None


#: The same under its old name.
register_signal_handler = register


def unregister(signum: int) -> None:
    """End the registration of ``signum``. The action of the signal is again what it was before. A call that has begun
    goes on.

    Raises KeyError when ``register`` has set no handler for the signal; TypeError, ValueError and WrongThreadError as
    ``register`` does.
    """
    number = _number(signum)
    for key, target in event_map.items():
        if key.filter == EVFILT.SIGNAL and key.ident == number and isinstance(target.target, _Registration):
            remove_handler((number, EVFILT.SIGNAL))
            return
    raise KeyError(signum)


def print_running_thread(signum: int | None = None) -> Callable[[], None]:
    """Make a signal write to stderr which thread is running, and where: for programs that hang or use all the CPU.

    signum: the signal. None means SIGINFO (Ctrl-T on the terminal), which the BSDs and macOS have and Linux has not. A
    loop does this for SIGINFO by itself, unless the program handles it or has set ``coro.install_signal_handlers`` to
    False. Unlike handlers of ``register``, this works while a thread keeps the loop busy.

    Returns a function that restores the earlier action. Raises ValueError for None where there is no SIGINFO, for a
    signal that cannot be caught, and outside the main OS thread.
    """
    if signum is None:
        signum = getattr(signal, "SIGINFO", None)
        if signum is None:
            raise ValueError("this system has no SIGINFO; choose a signal, for instance signal.SIGUSR1")
    number = _number(signum)
    before = signal.signal(number, _print_running)

    def restore() -> None:
        if signal.getsignal(number) is _print_running:
            signal.signal(number, signal.SIG_DFL if before is None else before)

    return restore


def _print_running(signum: int, frame: FrameType | None) -> None:
    """Runs between two bytecodes of whatever runs: it must raise nothing and never wait."""
    with contextlib.suppress(Exception):
        thread: Any = scheduler.current() if scheduler._in_loop_os_thread() else None
        who = f"thread {thread.id} ({one_line(thread.name)})" if thread is not None else "no thread"
        at = "[]" if frame is None else tb.stack_string(frame)
        write_stderr(f"{signal.Signals(signum).name}: {who} at {at}\n")
