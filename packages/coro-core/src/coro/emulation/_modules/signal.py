"""Emulated `signal`: Python-level handlers run in the main thread of the emulated program.

CPython runs them in the main OS thread, between two bytecodes: with a loop there, that may be in the loop itself or on
the stack of any coro thread. The handler that is really installed finds out. If the main thread runs, the handler is
called at once. If it is blocked in an emulated call, that call is interrupted, the handler runs there, and the call
goes on unless the handler has raised. Otherwise a coro thread of its own runs the handler.

SIGINT with Python's own handler comes under this, too: it raises KeyboardInterrupt in the main thread, as without
coro, wherever that is blocked. Where no coro thread is the main thread, SIGINT ends the loop.

sigwait() and its variants look for a pending signal without waiting, and wait for a descriptor that tells of one, see
signalfd(2). For as long as they wait the signals are blocked for the OS thread, as they are in one that waits for them.

SIGTERM, unless the program has a handler, does what it does to a program with OS threads: it ends the process, at once
and even while C code blocks it. Children of `multiprocessing` are ended like that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Iterator
from time import monotonic
from typing import Any

from coro._poll import events
from coro._runtime import escalation, scheduler
from coro._sync.local import ThreadLocal
from coro.emulation import _blocking, _kernel_waits
from coro.emulation._plan import Plan

__all__ = ["give_back", "handler_has_run", "let_sigterm_end", "plan", "take_over"]

_signal: Any = signal.signal
_getsignal: Any = signal.getsignal
_set_wakeup_fd: Any = signal.set_wakeup_fd
_handlers: dict[int, Any] = {}
_pausing: list[scheduler.coro] = []


def handler_has_run(handler: Any, signum: int, frame: Any) -> None:
    """Call a handler, and end pause() in whichever thread."""
    try:
        handler(signum, frame)
    finally:
        for thread in _pausing:
            scheduler._wake(thread)
        _pausing.clear()


def _call(handler: Any) -> Any:
    def call(signum: int, frame: Any) -> None:
        handler_has_run(handler, signum, frame)

    return call


def _dispatch(signum: int, frame: Any) -> None:
    handler = _handlers.get(signum)
    if handler is None:
        return
    main = _blocking.get_main()
    if not scheduler._in_loop_os_thread() or (main and scheduler.current().id == main):
        handler_has_run(handler, signum, frame)
    elif handler is signal.default_int_handler:
        _interrupt(main, signum)
    elif not main or not _blocking.interrupt_main(_call(handler), signum):
        scheduler.post(handler_has_run, handler, signum, None)


def _interrupt(main: int, signum: int) -> None:
    """Python's own handler of SIGINT is to run, and not the main thread runs."""
    try:
        thread = scheduler.get_thread_by_id(main)
    except KeyError:
        scheduler._request_end(0, 5.0)
        escalation.asked(signum, 5.0)
        return
    if not _blocking.interrupt_main(_call(signal.default_int_handler), signum):
        thread.raise_exception(KeyboardInterrupt())
    escalation.insist(signum)


def _is_ours(handler: Any) -> bool:
    """Is it a function that has to run in the main thread?"""
    return callable(handler) and not isinstance(handler, signal.Handlers)


def _only_in_main(name: str) -> None:
    """Libraries find out in this way whether they run in the main thread."""
    main = _blocking.get_main()
    if main and _blocking.in_thread_of_loop() and scheduler.current().id != main:
        raise ValueError(f"{name} only works in main thread of the main interpreter")


def emulated_signal(signalnum: int, handler: Any, /) -> Any:
    """Set the action for the given signal; see signal.signal. ValueError in another than the main thread."""
    _only_in_main("signal")
    before = _signal(signalnum, _dispatch if _is_ours(handler) else handler)
    number = int(signalnum)
    if before is _dispatch:
        before = _handlers.pop(number, None)
    if _is_ours(handler):
        _handlers[number] = handler
    return before


def getsignal(signalnum: int, /) -> Any:
    """Return the current action for the given signal; see signal.getsignal."""
    found = _getsignal(signalnum)
    return _handlers.get(int(signalnum)) if found is _dispatch else found


def pause() -> None:
    """Wait until a signal handler has run."""
    if not _blocking.in_thread_of_loop():
        _pause()
        return
    me = scheduler.current()
    assert isinstance(me, scheduler.coro)
    _pausing.append(me)
    try:
        while me in _pausing:
            _blocking.wait_for_wake(signal)
    finally:
        if me in _pausing:
            _pausing.remove(me)


_pause: Any = getattr(signal, "pause", None)


_of_the_loop: dict[int, Any] = {}


def take_over() -> None:
    """Handlers that are installed already come under the emulation; in the main OS thread only."""
    for signum in signal.valid_signals():
        handler = _getsignal(signum)
        if not _is_ours(handler) or handler is _dispatch:
            continue
        if type(handler).__module__ == "builtins" and (getattr(handler, "__module__", None) or "").startswith("coro."):
            if signum != signal.SIGINT:
                continue
            try:
                _signal(signum, _dispatch)
            except ValueError:
                return
            _of_the_loop[int(signum)] = handler
            _handlers[int(signum)] = signal.default_int_handler
            continue
        try:
            _signal(signum, _dispatch)
        except ValueError:
            return
        _handlers[int(signum)] = handler


def let_sigterm_end() -> None:
    """A loop runs now: take away its own handler of SIGTERM."""
    handler = _getsignal(signal.SIGTERM)
    if (getattr(handler, "__module__", None) or "") == "coro._entry.loop":
        with contextlib.suppress(ValueError):  # not the main OS thread
            _signal(signal.SIGTERM, signal.SIG_DFL)
            _of_the_loop[int(signal.SIGTERM)] = handler


def give_back() -> None:
    """Install the program's handlers directly."""
    of_the_loop = _of_the_loop.pop(int(signal.SIGTERM), None)
    if of_the_loop is not None and scheduler.coro_is_running() and _getsignal(signal.SIGTERM) is signal.SIG_DFL:
        with contextlib.suppress(ValueError):
            _signal(signal.SIGTERM, of_the_loop)
    for number, handler in list(_handlers.items()):
        handler = _of_the_loop.get(number, handler) if scheduler.coro_is_running() else handler
        if _getsignal(number) is _dispatch:
            try:
                _signal(number, handler)
            except ValueError:
                return
    _handlers.clear()
    _of_the_loop.clear()


def set_wakeup_fd(fd: int, /, *, warn_on_full_buffer: bool = True) -> int:
    """Set the descriptor that is written to when a signal comes; see signal.set_wakeup_fd.

    The loop lives by a descriptor of its own there, and hands on what comes: at its next poll, so a little later than
    without coro. What is returned is what the program has set. ValueError in another than the main thread."""
    _only_in_main("set_wakeup_fd")
    if scheduler._in_loop_os_thread():
        found = events._set_wakeup_fd(fd, bool(warn_on_full_buffer))
        if found is not None:
            return found
    return int(_set_wakeup_fd(fd, warn_on_full_buffer=warn_on_full_buffer))


def raise_signal(signalnum: int, /) -> None:
    """Send a signal to the executing process; see signal.raise_signal."""
    _raise_signal(signalnum)
    _blocking.fair()


_masks = ThreadLocal()
_NONE: Any = object()


def pthread_sigmask(how: int, mask: Any, /) -> set[Any]:
    """Fetch and/or change the signal mask of the calling thread; see signal.pthread_sigmask.

    The main thread's is that of the OS thread. Another coro thread only remembers its own: it never handles signals,
    and to block them for the OS thread would block them for all."""
    main = _blocking.get_main()
    if not main or not _blocking.in_thread_of_loop() or scheduler.current().id == main:
        return _mask_of_os_thread(how, mask)
    before: set[Any] = getattr(_masks, "mask", _NONE)
    if before is _NONE:
        before = _mask_of_os_thread(signal.SIG_BLOCK, ())
    given = {_by_name(number) for number in mask}
    if how == signal.SIG_BLOCK:
        after = before | given
    elif how == signal.SIG_UNBLOCK:
        after = before - given
    elif how == signal.SIG_SETMASK:
        after = given
    else:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    _masks.mask = after
    return before


#: Signals that are blocked for the OS thread because somebody waits for them -> how many do.
_awaited: dict[int, int] = {}


def _mask_of_os_thread(how: int, mask: Any) -> set[Any]:
    """pthread_sigmask() for what the program itself has blocked."""
    if not _awaited:
        return _pthread_sigmask(how, mask)  # type: ignore[no-any-return]
    given = set(mask)
    before: set[Any] = _pthread_sigmask(how, given) - _awaited.keys()
    if how != signal.SIG_UNBLOCK:
        for number in given & _awaited.keys():
            del _awaited[number]  # blocked for good
    _pthread_sigmask(signal.SIG_BLOCK, _awaited.keys())
    return before


@contextlib.contextmanager
def _blocked_for_wait(signals: set[int]) -> Iterator[None]:
    before = _pthread_sigmask(signal.SIG_BLOCK, signals)
    mine = {number for number in signals if number in _awaited or number not in before}
    for number in mine:
        _awaited[number] = _awaited.get(number, 0) + 1
    try:
        yield
    finally:
        over = []
        for number in mine & _awaited.keys():
            _awaited[number] -= 1
            if not _awaited[number]:
                del _awaited[number]
                over.append(number)
        _pthread_sigmask(signal.SIG_UNBLOCK, over)


#: Seconds between two looks where the system has no descriptor for signals.
_LOOK = 0.02


def _await_signal(signals: set[int], timeout: float | None) -> Any:
    """What sigtimedwait() finds in at most so many seconds."""
    found = _sigtimedwait(signals, 0)
    if found is not None:
        return found
    deadline = None if timeout is None else monotonic() + timeout
    with _blocked_for_wait(signals):
        try:
            fd = _kernel_waits.signal_descriptor(signals)
        except OSError:
            fd = -1
        try:
            while True:
                found = _sigtimedwait(signals, 0)
                left = None if deadline is None else deadline - monotonic()
                if found is not None or (left is not None and left <= 0):
                    return found
                if fd >= 0:
                    _blocking.wait_fd(fd, False, left)
                else:
                    _blocking.sleep_thread(_LOOK if left is None else min(left, _LOOK))
        finally:
            if fd >= 0:
                os.close(fd)


def sigtimedwait(sigset: Any, timeout: float, /) -> Any:
    """Like sigwaitinfo(), but with a timeout in seconds; see signal.sigtimedwait. Suspends only the calling coro
    thread."""
    if not _blocking.in_thread_of_loop() or not isinstance(timeout, (int, float)) or not timeout > 0:
        return _sigtimedwait(sigset, timeout)
    return _await_signal(set(sigset), timeout)


def sigwaitinfo(sigset: Any, /) -> Any:
    """Wait synchronously for a signal of the set, and return what is known of it; see signal.sigwaitinfo. Suspends only
    the calling coro thread."""
    if not _blocking.in_thread_of_loop():
        return _sigwaitinfo(sigset)
    return _await_signal(set(sigset), None)


def sigwait(sigset: Any, /) -> Any:
    """Wait for a signal of the set, and return its number; see signal.sigwait. Suspends only the calling coro
    thread."""
    if not _blocking.in_thread_of_loop():
        return _sigwait(sigset)
    return _by_name(_await_signal(set(sigset), None).si_signo)


def _by_name(number: int) -> int:
    if number not in signal.valid_signals():
        raise ValueError(f"signal number {number} out of range [1; {signal.NSIG - 1}]")
    try:
        return signal.Signals(number)
    except ValueError:
        return number


_sigwait: Any = getattr(signal, "sigwait", None)
_sigwaitinfo: Any = getattr(signal, "sigwaitinfo", None)
_sigtimedwait: Any = getattr(signal, "sigtimedwait", None)
_pthread_sigmask: Any = getattr(signal, "pthread_sigmask", None)
_raise_signal: Any = signal.raise_signal


def plan(p: Plan) -> None:
    """What to replace."""
    p.replace(signal, "pthread_sigmask", pthread_sigmask)
    p.replace(signal, "set_wakeup_fd", set_wakeup_fd)
    p.replace(signal, "signal", emulated_signal)
    p.replace(signal, "getsignal", getsignal)
    p.replace(signal, "pause", pause)
    if _sigtimedwait is not None:
        p.replace(signal, "sigwait", sigwait)
        p.replace(signal, "sigwaitinfo", sigwaitinfo)
        p.replace(signal, "sigtimedwait", sigtimedwait)
    p.replace(signal, "raise_signal", raise_signal)
