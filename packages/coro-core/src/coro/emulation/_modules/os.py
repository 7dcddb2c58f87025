"""Emulated waiting of `os`: for children, for pipes and terminals, and for the other end of a FIFO.

A child's end is awaited with a pidfd (pidfd_open(2)), of which any number of threads may have one. Where that does not
tell (any child, stopped children), a worker OS thread waits with WNOWAIT, which reaps nothing: the child is reaped by
the calling thread afterwards, so a worker whose thread was interrupted takes nothing away.

os.read and os.write look first whether the descriptor is ready, one system call of poll(2); files always are. What
moves bytes between two descriptors (os.sendfile, os.splice) is called in non-blocking mode: that it may begin does not
say that it comes to its end.
"""

from __future__ import annotations

import functools
import os
import select
import stat
import sys
from collections.abc import Callable
from typing import Any

from coro.emulation import _blocking, _kernel_waits
from coro.emulation._modules import buffered as _buffered
from coro.emulation._modules import select as _select
from coro.emulation._plan import Plan

__all__ = ["open_file", "plan"]

_waitpid: Any = os.waitpid
_wait3: Any = getattr(os, "wait3", None)
_wait4: Any = getattr(os, "wait4", None)
_waitid: Any = getattr(os, "waitid", None)
_read: Any = os.read
_write: Any = os.write
_readv: Any = getattr(os, "readv", None)
_writev: Any = getattr(os, "writev", None)
_sendfile: Any = getattr(os, "sendfile", None)
_splice: Any = getattr(os, "splice", None)
_eventfd_read: Any = getattr(os, "eventfd_read", None)
_open: Any = os.open
_system: Any = os.system
_register_at_fork: Any = os.register_at_fork
_PIPE_BUF = getattr(select, "PIPE_BUF", 512)
_O_PATH = getattr(os, "O_PATH", 0)
_AT_FDCWD = -2 if sys.platform == "darwin" else -100


def _await_child(pid: int, options: int) -> None:
    """Suspend until waitpid() with these arguments may have something to tell."""
    if pid > 0 and not options & (os.WUNTRACED | os.WCONTINUED):
        try:
            _select.wait_process(pid, None)
            return
        except (AttributeError, OSError):
            pass  # no such system call, no such process (the original says so), or no descriptor left
    from coro.offload import in_thread

    kind, number = (os.P_PID, pid) if pid > 0 else (os.P_ALL, 0) if pid == -1 else (os.P_PGID, abs(pid) or os.getpgrp())
    wanted = os.WEXITED | os.WNOWAIT
    if options & os.WUNTRACED:
        wanted |= os.WSTOPPED
    if options & os.WCONTINUED:
        wanted |= os.WCONTINUED
    in_thread(_waitid, kind, number, wanted)


def _until_found(call: Any, pid: int, options: int) -> Any:
    if options & os.WNOHANG or not _blocking.in_thread_of_loop():
        return call(options)
    while True:
        found = call(options | os.WNOHANG)
        if found[0]:
            return found
        _await_child(pid, options)


def waitpid(pid: int, options: int, /) -> tuple[int, int]:
    """Wait for completion of a given child process; see os.waitpid."""
    return _until_found(lambda flags: _waitpid(pid, flags), pid, options)  # type: ignore[no-any-return]


def wait() -> tuple[int, int]:
    """Wait for completion of a child process; see os.wait."""
    return waitpid(-1, 0)


def wait3(options: int) -> tuple[int, int, Any]:
    """Wait for completion of a child process, with its resource usage; see os.wait3."""
    return _until_found(_wait3, -1, options)  # type: ignore[no-any-return]


def wait4(pid: int, options: int) -> tuple[int, int, Any]:
    """Wait for completion of a given child process, with its resource usage; see os.wait4."""
    return _until_found(lambda flags: _wait4(pid, flags), pid, options)  # type: ignore[no-any-return]


def waitid(idtype: int, id: int, options: int, /) -> Any:
    """Wait for changes of child processes; see os.waitid."""
    if options & os.WNOHANG or not _blocking.in_thread_of_loop():
        return _waitid(idtype, id, options)
    while True:
        found = _waitid(idtype, id, options | os.WNOHANG)
        if found is not None:
            return found
        from coro.offload import in_thread

        in_thread(_waitid, idtype, id, options | os.WNOWAIT)


def _ready(fd: Any, writing: bool) -> bool:
    """Wait until a descriptor in blocking mode is ready; False if the original has to be called as it is."""
    if not isinstance(fd, int) or fd < 0 or not _blocking.in_thread_of_loop():
        return False
    while not _blocking.poll_now(fd, select.POLLOUT if writing else select.POLLIN):
        if not _buffered.waits(fd, writing):
            return False  # the original says why
        _blocking.wait_fd(fd, writing)  # another thread may be quicker
    return True


def read(fd: int, length: int, /) -> bytes:
    """Read from a file descriptor; see os.read."""
    _ready(fd, False)
    return _read(fd, length)  # type: ignore[no-any-return]


def readv(fd: int, buffers: Any, /) -> int:
    """Read into several buffers; see os.readv."""
    _ready(fd, False)
    return _readv(fd, buffers)  # type: ignore[no-any-return]


def write(fd: int, data: Any, /) -> int:
    """Write to a file descriptor; see os.write. More than a pipe takes at once is written in pieces."""
    if not _ready(fd, True):
        return _write(fd, data)  # type: ignore[no-any-return]
    with memoryview(data) as view:
        if view.nbytes <= _PIPE_BUF:
            return _write(fd, view)  # type: ignore[no-any-return]
        mode = os.fstat(fd).st_mode
        if mode & 0o170000 not in (0o010000, 0o140000, 0o020000) or not os.get_blocking(fd):  # FIFO, socket, device
            return _write(fd, view)  # type: ignore[no-any-return]
        with view.cast("B") as plain:
            done = 0
            while done < len(plain):
                if done:
                    _ready(fd, True)
                done += _write(fd, plain[done : done + _PIPE_BUF])
            return done


def writev(fd: int, buffers: Any, /) -> int:
    """Write several buffers; see os.writev. More than a pipe takes at once is written in pieces."""
    if not _ready(fd, True):
        return _writev(fd, buffers)  # type: ignore[no-any-return]
    return write(fd, b"".join(buffers))


def eventfd_read(fd: int) -> int:
    """Read an eventfd value; see os.eventfd_read."""
    _ready(fd, False)
    return _eventfd_read(fd)  # type: ignore[no-any-return]


def _move(source: int, target: int, call: Callable[[], int]) -> int:
    """Move bytes from one descriptor to another: call it in non-blocking mode until it has moved some."""
    ends = source, target
    while True:
        blocking = [fd for fd in ends if os.get_blocking(fd)]
        for fd in blocking:
            os.set_blocking(fd, False)
        try:
            return call()
        except BlockingIOError:
            if _blocking.poll_now(source, select.POLLIN):
                waits_for = target if not _blocking.poll_now(target, select.POLLOUT) else None
            else:
                waits_for = source
            if waits_for not in (*blocking, None):
                raise  # the program has put it into non-blocking mode
        finally:
            for fd in blocking:
                os.set_blocking(fd, True)
        if waits_for is None:
            _blocking.sleep_thread(0.001)  # a pipe may have room, but not for a piece as large as the next one is
        else:
            _blocking.wait_fd(waits_for, waits_for == target)


def sendfile(out_fd: int, in_fd: int, offset: int | None, count: int, *more: Any, **named: Any) -> int:
    """Copy bytes from one descriptor to another; see os.sendfile."""
    known = isinstance(out_fd, int) and isinstance(in_fd, int) and isinstance(count, int) and count > 0
    if more or named or not known or not isinstance(offset, int | None) or not _blocking.in_thread_of_loop():
        return _sendfile(out_fd, in_fd, offset, count, *more, **named)  # type: ignore[no-any-return]
    done = 0
    while done < count:
        at = None if offset is None else offset + done
        try:
            sent = _move(in_fd, out_fd, functools.partial(_sendfile, out_fd, in_fd, at, count - done))
        except OSError:
            if done:
                break
            raise
        if not sent:
            break
        done += sent
    _blocking.fair()
    return done


def splice(
    src: int, dst: int, count: int, offset_src: int | None = None, offset_dst: int | None = None, flags: int = 0
) -> int:
    """Transfer bytes between a pipe and another descriptor; see os.splice."""

    def call() -> int:
        return _splice(src, dst, count, offset_src, offset_dst, flags)  # type: ignore[no-any-return]

    known = isinstance(src, int) and isinstance(dst, int) and isinstance(flags, int)
    if not known or flags & getattr(os, "SPLICE_F_NONBLOCK", 2) or not _blocking.in_thread_of_loop():
        return call()
    return _move(src, dst, call)


def open_file(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """Open a file for low level IO; see os.open. Waiting for a FIFO's other end, or for the carrier of a line, suspends
    only the calling coro thread."""
    if (
        isinstance(flags, int)
        and not flags & (os.O_NONBLOCK | _O_PATH)
        and _blocking.in_thread_of_loop()
        and _waits_for_other_end(path, dir_fd)
    ):
        sys.audit("open", path, None, flags)
        folder = _AT_FDCWD if dir_fd is None else dir_fd
        return _kernel_waits.open_path(folder, os.fsencode(path), flags | os.O_CLOEXEC, mode, path)
    return _open(path, flags, mode, dir_fd=dir_fd)  # type: ignore[no-any-return]


def _waits_for_other_end(path: Any, dir_fd: int | None) -> bool:
    try:
        found = os.stat(path, dir_fd=dir_fd)
    except (OSError, TypeError, ValueError):
        return False
    # Memory devices, /dev/null and so on, have the first number; see null(4).
    return stat.S_ISFIFO(found.st_mode) or (stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) != 1)


def system(command: Any) -> int:
    """Execute the command in a subshell; see os.system. Runs in a worker OS thread."""
    if not _blocking.in_thread_of_loop():
        return _system(command)  # type: ignore[no-any-return]
    from coro.offload import in_thread

    return in_thread(_system, command)  # type: ignore[no-any-return]


def register_at_fork(**hooks: Any) -> None:
    """Register functions that are called around a fork; see os.register_at_fork."""
    _register_at_fork(**hooks)
    enclose_hooks()


def enclose_hooks() -> None:
    """Have no thread give way from before the first hook of a fork that is registered by now until after the last.

    Hooks before a fork run in the opposite order of registration, those after it in that order, so a pair that is
    registered last encloses all others."""
    _register_at_fork(
        before=_blocking.fork_begins, after_in_parent=_blocking.fork_is_over, after_in_child=_blocking.forget_forks
    )


def plan(p: Plan) -> None:
    """What to replace."""
    for function in (waitpid, wait, wait3, wait4, waitid, read, readv, write, writev, system, register_at_fork):
        p.replace(os, function.__name__, function)
    p.replace(os, "sendfile", sendfile)
    p.replace(os, "splice", splice)
    p.replace(os, "eventfd_read", eventfd_read)
    p.replace(os, "open", open_file)
    os.supports_dir_fd.add(open_file)  # shutil.rmtree looks there before it trusts in it
