"""Emulated `_thread`: starting threads, their handles, and what is told when they end.

A thread that a coro thread starts is a coro thread; everybody else gets an OS thread as ever. Either way the caller
sees the same objects: a thread's handle (3.13 and newer) or its sentinel lock (before) is one of ours.

Everything that ends with a thread is kept in its record, found by the id of the coro thread while it lives.
"""

from __future__ import annotations

import _thread as _native
import contextvars
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from coro import offload
from coro._runtime import scheduler
from coro._sync.local import LocalValues
from coro.emulation import _blocking
from coro.emulation._plan import Plan
from coro.exceptions import Shutdown

__all__ = [
    "ThreadHandle",
    "end_dead",
    "is_left_behind",
    "not_daemons",
    "note_end",
    "plan",
    "start_new_thread",
    "start_thread_object",
]

# Beyond every number that Linux gives to a thread (PID_MAX_LIMIT is 2**22, see proc(5)).
_NATIVE_IDS = 1 << 22

_start_native: Any = _native.start_new_thread
_start_joinable_native: Any = getattr(_native, "start_joinable_thread", None)
_count_native: Any = _native._count
_current_frames_native: Any = sys._current_frames
_current_exceptions_native: Any = sys._current_exceptions
_get_ident_native: Any = _native.get_ident
_native_id: Any = getattr(_native, "get_native_id", None)
_sentinel_native: Any = getattr(_native, "_set_sentinel", None)
_set_name_native: Any = getattr(_native, "set_name", None)
_get_name_native: Any = getattr(_native, "_get_name", None)
_name_limit: int | None = getattr(_native, "_NAME_MAXLEN", None)  # bytes
_start_code: Any = threading.Thread.start.__code__
_inherit_context: bool = bool(getattr(sys.flags, "thread_inherit_context", 0))


class _Record:
    """What is to be told when an emulated thread ends."""

    __slots__ = ("daemon", "handle", "sentinel", "thread")

    def __init__(self, handle: ThreadHandle | None, daemon: bool) -> None:
        self.handle = handle
        self.sentinel: _blocking.Sentinel | None = None
        self.thread: scheduler.coro | None = None
        self.daemon = daemon

    def end(self) -> None:
        if self.sentinel is not None and self.sentinel.locked():
            self.sentinel.release()
        if self.handle is not None:
            self.handle._set_done()

    def wait(self) -> None:
        """Wait for the end of the thread, which is no daemon."""
        if self.handle is not None:
            self.handle.join()
        elif self.sentinel is not None:
            self.sentinel.acquire()
            self.sentinel.release()
        else:
            _blocking.sleep_thread(0)  # it has not begun


_records: dict[int, _Record] = {}
_program_has_ended = False


def note_end(ended: bool) -> None:
    """The main thread of the program has ended, or another one begins."""
    global _program_has_ended
    _program_has_ended = ended


def not_daemons() -> list[_Record]:
    """What there is of other threads than the calling and the main one that the program waits for at its end. It may
    have hidden their objects from threading.enumerate(), as debuggers do with their own."""
    passed_over = (scheduler.current().id, _blocking.get_main())
    return [record for number, record in list(_records.items()) if not record.daemon and number not in passed_over]


def is_left_behind() -> bool:
    """Is the calling thread a daemon of a program that has ended? As an OS thread it would not run any more. Here it
    is unwound, so that it gives back what it has, but what it says of that is for nobody."""
    if not _program_has_ended or not _blocking.in_thread_of_loop():
        return False
    record = _records.get(scheduler.current().id)
    return record is not None and record.daemon


def end_dead() -> None:
    """Tell the ends of threads that were given up without running to their end."""
    running = scheduler.coro_is_running()
    for number, record in list(_records.items()):
        if not running or (record.thread is not None and record.thread.dead):
            del _records[number]
            record.end()


def _after_fork_in_child() -> None:
    me: Any = scheduler.current()
    for number, record in list(_records.items()):
        if number != me.id:
            del _records[number]
            record.end()
    if me.id in _records:
        # The thread that forked is the main thread of the child. A loop does not wait for daemons: something else has
        # to keep it running.
        _blocking.set_main(me.id, me.id)
        if me.daemon:
            scheduler.spawn(me.join, thread_name="child of a daemon thread")


def _run(record: _Record, function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        function(*args, **kwargs)
    except (SystemExit, Shutdown):
        pass
    except BaseException as exc:
        _blocking.write_unraisable(exc, function)
    finally:
        del function, args, kwargs
        _records.pop(scheduler.current().id, None)
        record.thread = None
        record.end()


def _spawn(record: _Record, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None) -> int:
    def make() -> scheduler.coro:
        return scheduler.new(_run, record, function, args, kwargs, thread_name=name, daemon=record.daemon)

    thread = make() if _inherit_context else contextvars.Context().run(make)
    record.thread = thread
    _records[thread.id] = record
    if record.handle is not None:
        record.handle._begin(thread.id)
    try:
        thread.start()
    except BaseException:
        del _records[thread.id]
        record.thread = None
        record.end()
        raise
    return thread.id


def start_new_thread(
    function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, /
) -> int:
    """Start a new thread and return its identifier: a coro thread where a coro thread calls."""
    if not _blocking.in_thread_of_loop():
        return int(_start_native(function, args, *(() if kwargs is None else (kwargs,))))
    if not callable(function):
        raise TypeError("first arg must be callable")
    if not isinstance(args, tuple):
        raise TypeError("2nd arg must be a tuple")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise TypeError("optional 3rd arg must be a dictionary")
    sys.audit("_thread.start_new_thread", function, args, kwargs)
    return _spawn(_Record(None, True), function, args, dict(kwargs or {}), None)


def start_thread_object(function: Any, args: tuple[Any, ...]) -> int:
    """What threading.Thread.start() calls before 3.13: the thread object says whether it is a daemon."""
    if not _blocking.in_thread_of_loop():
        return int(_start_native(function, args))
    owner = _thread_object(function)
    if owner is None:
        return _spawn(_Record(None, True), function, args, {}, None)
    return _spawn(_Record(None, bool(owner.daemon)), function, args, {}, str(owner.name))


def _thread_object(function: Any) -> threading.Thread | None:
    """The object whose start() has come here; None: it cannot be seen. Debuggers and profilers put a callable of their
    own around the method that is to run; then it is what start(), in a frame below, works for."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, threading.Thread):
        return owner
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _start_code:
            found = frame.f_locals.get("self")
            return found if isinstance(found, threading.Thread) else None
        frame = frame.f_back
    return None


def start_joinable_thread(function: Any, handle: Any = None, daemon: bool = True) -> Any:
    """Start a new thread and return its handle (3.13 and newer)."""
    if not callable(function):
        raise TypeError("thread function must be callable")
    if handle is not None and type(handle) is not ThreadHandle:
        raise TypeError("'handle' must be a _ThreadHandle")
    if handle is None:
        handle = ThreadHandle()
    if handle._state != _NEW:
        raise RuntimeError("thread already started")
    if not _blocking.in_thread_of_loop():
        handle._native = _native_handle()
        handle._state = _RUNNING
        try:
            _start_joinable_native(function, handle=handle._native, daemon=daemon)
        except BaseException:
            handle._native = None
            handle._state = _NEW
            raise
        return handle
    sys.audit("_thread.start_joinable_thread", function, 1 if daemon else 0, handle)
    owner = _thread_object(function)
    try:
        _spawn(_Record(handle, bool(daemon)), function, (), {}, None if owner is None else str(owner.name))
    except BaseException:
        handle._state = _NEW
        raise
    return handle


_native_handle: Any = getattr(_native, "_ThreadHandle", None)
_make_native_handle: Any = getattr(_native, "_make_thread_handle", None)
_NEW, _RUNNING, _DONE = range(3)


class ThreadHandle:
    """A thread that can be joined, be it a coro thread or an OS thread."""

    __slots__ = ("__weakref__", "_gate", "_ident", "_native", "_state")

    def __init__(self) -> None:
        self._state = _NEW
        self._ident = 0
        self._native: Any = None
        self._gate = _blocking.Lock()

    def _begin(self, ident: int) -> None:
        self._ident = ident
        self._state = _RUNNING
        self._gate.acquire(False)

    @property
    def ident(self) -> int:
        """The thread's ident."""
        return int(self._native.ident) if self._native is not None else self._ident

    def is_done(self) -> bool:
        """Has the thread ended?"""
        return bool(self._native.is_done()) if self._native is not None else self._state == _DONE

    def _set_done(self) -> None:
        if self._native is not None:
            self._native._set_done()
        elif self._state == _NEW:
            raise RuntimeError("thread not started")
        elif self._state != _DONE:
            self._state = _DONE
            if self._gate.locked():
                self._gate.release()

    def join(self, timeout: float | None = None, /) -> None:
        """Wait for the end of the thread, at most so many seconds."""
        if self._state == _NEW:
            raise RuntimeError("thread not started")
        if self.ident == _blocking.get_ident() and not self.is_done():
            raise RuntimeError("Cannot join current thread")
        if self._native is not None:
            self._join_native(timeout)
            return
        seconds = -1.0 if timeout is None or timeout < 0 else timeout
        if self._state != _DONE and self._gate.acquire(True, seconds):
            self._gate.release()

    def _join_native(self, timeout: float | None) -> None:
        if not _blocking.in_thread_of_loop() or self.is_done():
            self._native.join(*(() if timeout is None else (timeout,)))
            return
        offload.in_thread(self._native.join, *(() if timeout is None else (timeout,)))

    def __repr__(self) -> str:
        return f"<_ThreadHandle object: ident={self.ident}>"


def make_thread_handle(ident: int) -> ThreadHandle:
    """The handle of a thread that runs already (3.13 and newer)."""
    handle = ThreadHandle()
    handle._begin(ident)
    return handle


def set_sentinel() -> Any:
    """A lock that is released when the calling thread has ended (before 3.13)."""
    record = _records.get(scheduler.current().id) if _blocking.in_thread_of_loop() else None
    if record is None:
        return _sentinel_native()
    record.sentinel = _blocking.Sentinel()
    return record.sentinel


def _of_all(of_os_threads: dict[Any, Any], own: Any, of_parked: Callable[[Any], Any]) -> dict[int, Any]:
    """What there is of each thread, by ident: OS threads, the calling thread, and all others of the loop."""
    me = scheduler.current()
    del of_os_threads[_get_ident_native()]  # in which the calling thread runs
    for thread in scheduler._all_threads():
        is_main = thread.id == _blocking.get_main()
        ident = threading.main_thread().ident if is_main else thread.id
        of_os_threads[ident] = own if thread is me else of_parked(thread)
    return of_os_threads


def current_frames() -> dict[int, Any]:
    """Return a dict mapping each thread's ident to its current stack frame; see sys._current_frames. Has all threads of
    the loop when one of them calls."""
    frames: dict[Any, Any] = _current_frames_native()
    if not _blocking.in_thread_of_loop():
        return frames
    found = _of_all(frames, sys._getframe(1), lambda thread: thread.get_frame())
    return {ident: frame for ident, frame in found.items() if frame is not None}


def current_exceptions() -> dict[int, Any]:
    """Return a dict mapping each thread's ident to the exception that it handles; see sys._current_exceptions. Has all
    threads of the loop when one of them calls."""
    exceptions: dict[Any, Any] = _current_exceptions_native()
    if not _blocking.in_thread_of_loop():
        return exceptions

    def handled(thread: Any) -> Any:
        exc = scheduler._handled_exception(thread)
        if sys.version_info >= (3, 12):
            return exc
        return (None, None, None) if exc is None else (type(exc), exc, exc.__traceback__)

    return _of_all(exceptions, exceptions.get(_get_ident_native()), handled)


def get_native_id() -> int:
    """The system's number of the calling thread. A coro thread other than the main one has none: it gets a number
    beyond all those, which is its own."""
    if _blocking.in_thread_of_loop():
        number = scheduler.current().id
        if number != _blocking.get_main():
            return _NATIVE_IDS + number
    return int(_native_id())


def count() -> int:
    """How many threads of the program's run that `_thread` started."""
    return int(_count_native()) - offload.statistics()["workers"] + len(_records)


def set_name(name: str) -> None:
    """Name the calling thread (3.14 and newer): an OS thread for tools outside, a coro thread for coro's reports."""
    if not _in_other_than_main():
        _set_name_native(name)
    elif not isinstance(name, str):
        raise TypeError(f"set_name() argument 'name' must be str, not {type(name).__name__}")
    else:
        scheduler.current().set_name(name)


def get_name() -> str:
    """The name of the calling thread as the system would keep it (3.14 and newer): coro's reports have all of it."""
    if not _in_other_than_main():
        return str(_get_name_native())
    encoded = scheduler.current().name.encode(sys.getfilesystemencoding(), "replace")
    return os.fsdecode(encoded.partition(b"\0")[0][:_name_limit])


def _in_other_than_main() -> bool:
    return _blocking.in_thread_of_loop() and scheduler.current().id != _blocking.get_main()


def replacements() -> dict[str, Any]:
    """Every name of `_thread` with what stands for it."""
    return {
        "start_new_thread": start_new_thread,
        "start_new": start_new_thread,
        "start_joinable_thread": start_joinable_thread,
        "allocate_lock": _blocking.Lock,
        "allocate": _blocking.Lock,
        "LockType": _blocking.Lock,
        "lock": _blocking.Lock,
        "RLock": _blocking.RLock,
        "_local": LocalValues,
        "get_ident": _blocking.get_ident,
        "get_native_id": get_native_id,
        "_set_sentinel": set_sentinel,
        "_ThreadHandle": ThreadHandle,
        "_make_thread_handle": make_thread_handle,
        "_count": count,
        "set_name": set_name,
        "_get_name": get_name,
    }


def plan(p: Plan) -> None:
    """What to replace."""
    for name, new in replacements().items():
        p.replace(_native, name, new)
    p.replace(sys, "_current_frames", current_frames)
    p.replace(sys, "_current_exceptions", current_exceptions)
