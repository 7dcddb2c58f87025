"""Emulated locks of files: `fcntl.flock`, `fcntl.lockf`, `os.lockf`, and `fcntl.fcntl` with F_SETLKW.

First the lock is asked for without waiting. If somebody has it, the calling coro thread waits, see `_kernel_waits`. Who
has it may be another thread of this process (flock(2): each open file has locks of its own) or another process.

Threads that want the same lock of the same file stand in a line, and only the first of them waits in the kernel: a
thousand threads cost one OS thread. Lines are apart for shared and exclusive locks, and for each range of bytes, so
nobody waits for a lock that is not in the way.

Cost: what the call costs, if the lock is free. Otherwise an OS thread for the time of the wait.

Rejected: asking every few milliseconds. Whoever asks never gets a lock for which others wait in the kernel all the
time, and a program that waits for a day would never let the machine rest.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from typing import Any

from coro.emulation import _blocking, _kernel_waits
from coro.emulation._plan import Plan

__all__ = ["plan"]

_flock: Any = fcntl.flock
_lockf: Any = fcntl.lockf
_fcntl: Any = fcntl.fcntl
_os_lockf: Any = getattr(os, "lockf", None)
#: What waits, with the command of its kind that does not.
_SETLK = {fcntl.F_SETLKW: fcntl.F_SETLK}
with contextlib.suppress(AttributeError):
    _SETLK[fcntl.F_OFD_SETLKW] = fcntl.F_OFD_SETLK
#: What the kernel says of a lock that somebody has, fcntl(2).
_TAKEN = (errno.EAGAIN, errno.EACCES)


class _Line:
    __slots__ = ("lock", "threads")

    def __init__(self) -> None:
        self.lock = _blocking.Lock()
        self.threads = 0


_lines: dict[tuple[Any, ...], _Line] = {}


@contextlib.contextmanager
def _first_of(key: tuple[Any, ...]) -> Iterator[None]:
    """Wait until the calling thread is the first of those that want this."""
    line = _lines.get(key)
    if line is None:
        line = _lines[key] = _Line()
    line.threads += 1
    try:
        with line.lock:
            yield
    finally:
        line.threads -= 1
        if not line.threads:
            del _lines[key]


def _lock(fd: int, what: tuple[Any, ...], ask: Callable[[], Any], wait: Callable[[], Any]) -> Any:
    """Take a lock: at once, or when those before have it."""
    try:
        outcome = ask()
    except OSError as e:
        if e.errno not in _TAKEN:
            raise
    else:
        _blocking.fair()
        return outcome
    found = os.fstat(fd)
    with _first_of((found.st_dev, found.st_ino, *what)):
        try:
            return ask()
        except OSError as e:
            if e.errno not in _TAKEN:
                raise
        return wait()


def _descriptor(file: Any) -> int | None:
    """The descriptor of a file; None: the original says what is wrong with it."""
    if not isinstance(file, int):
        method = getattr(file, "fileno", None)
        file = method() if method is not None else None
    return file if isinstance(file, int) and file >= 0 else None


def _is_waiting(command: Any, *kinds: int) -> bool:
    return isinstance(command, int) and command & ~fcntl.LOCK_NB in kinds and not command & fcntl.LOCK_NB


def flock(fd: Any, operation: int, /) -> None:
    """Perform the lock operation on a file; see fcntl.flock. Suspends only the calling coro thread."""
    number = _descriptor(fd) if _is_waiting(operation, fcntl.LOCK_SH, fcntl.LOCK_EX) else None
    if number is None or not _blocking.in_thread_of_loop():
        _flock(fd, operation)
        return
    _lock(
        number,
        ("flock", operation),
        lambda: _flock(number, operation | fcntl.LOCK_NB),
        lambda: _kernel_waits.flock(number, operation),
    )


def _place(fd: int, whence: int) -> int:
    """Where a range begins that is counted from the file's position."""
    try:
        return os.lseek(fd, 0, os.SEEK_CUR) if whence == os.SEEK_CUR else 0
    except OSError:
        return 0


def lockf(fd: Any, cmd: int, len: int = 0, start: int = 0, whence: int = 0, /) -> None:
    """Lock a range of a file with fcntl(2); see fcntl.lockf. Suspends only the calling coro thread."""
    number = _descriptor(fd) if _is_waiting(cmd, fcntl.LOCK_SH, fcntl.LOCK_EX) else None
    if number is None or not _blocking.in_thread_of_loop():
        return _lockf(fd, cmd, len, start, whence)  # type: ignore[no-any-return]
    kind = fcntl.F_RDLCK if cmd == fcntl.LOCK_SH else fcntl.F_WRLCK

    def wait() -> None:
        lock = _kernel_waits.lock_of(kind, whence, start, len)
        _kernel_waits.record_lock(number, fcntl.F_SETLKW, lock, fcntl.F_SETLK)

    return _lock(  # type: ignore[no-any-return]
        number,
        ("lockf", kind, len, start, whence, _place(number, whence)),
        lambda: _lockf(number, cmd | fcntl.LOCK_NB, len, start, whence),
        wait,
    )


def os_lockf(fd: int, command: int, length: int, /) -> None:
    """Apply, test or remove a POSIX lock on an open file; see os.lockf. Suspends only the calling coro thread."""
    if command != os.F_LOCK or not isinstance(fd, int) or not _blocking.in_thread_of_loop():
        return _os_lockf(fd, command, length)  # type: ignore[no-any-return]

    def wait() -> None:
        lock = _kernel_waits.lock_of(fcntl.F_WRLCK, os.SEEK_CUR, 0, length)
        _kernel_waits.record_lock(fd, fcntl.F_SETLKW, lock, fcntl.F_SETLK)

    return _lock(  # type: ignore[no-any-return]
        fd,
        ("lockf", fcntl.F_WRLCK, length, 0, os.SEEK_CUR, _place(fd, os.SEEK_CUR)),
        lambda: _os_lockf(fd, os.F_TLOCK, length),
        wait,
    )


def emulated_fcntl(fd: Any, cmd: int, arg: Any = 0, /) -> Any:
    """Perform the operation on a file; see fcntl.fcntl. F_SETLKW and F_OFD_SETLKW suspend only the calling coro
    thread."""
    ask = _SETLK.get(cmd) if isinstance(cmd, int) and isinstance(arg, (bytes, bytearray)) else None
    number = None if ask is None else _descriptor(fd)
    if ask is None or number is None or not _blocking.in_thread_of_loop():
        return _fcntl(fd, cmd, arg)
    lock = bytes(arg)
    return _lock(
        number,
        ("fcntl", cmd, lock, _place(number, os.SEEK_CUR)),
        lambda: _fcntl(number, ask, lock),
        lambda: _kernel_waits.record_lock(number, cmd, lock, ask),
    )


def plan(p: Plan) -> None:
    """What to replace."""
    p.replace(fcntl, "flock", flock)
    p.replace(fcntl, "lockf", lockf)
    p.replace(fcntl, "fcntl", emulated_fcntl)
    p.replace(os, "lockf", os_lockf)
