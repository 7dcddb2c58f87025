"""Emulated waiting of `os`: for children, and for pipes and terminals.

A child's end is awaited with a pidfd (pidfd_open(2)), of which any number of threads may have one. Where that does not
tell (any child, stopped children), a worker OS thread waits with WNOWAIT, which reaps nothing: the child is reaped by
the calling thread afterwards, so a worker whose thread was interrupted takes nothing away.

os.read and os.write look first whether the descriptor is ready, one system call of poll(2); files always are.
"""

from __future__ import annotations

import os
import select
from typing import Any

from coro.emulation import _blocking
from coro.emulation._modules import buffered as _buffered
from coro.emulation._modules import select as _select
from coro.emulation._plan import Plan

__all__ = ["plan"]

_waitpid: Any = os.waitpid
_wait3: Any = getattr(os, "wait3", None)
_wait4: Any = getattr(os, "wait4", None)
_waitid: Any = getattr(os, "waitid", None)
_read: Any = os.read
_write: Any = os.write
_readv: Any = getattr(os, "readv", None)
_system: Any = os.system
_register_at_fork: Any = os.register_at_fork
_PIPE_BUF = getattr(select, "PIPE_BUF", 512)


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
    if not _blocking.poll_now(fd, select.POLLOUT if writing else select.POLLIN):
        if not _buffered.waits(fd, writing):
            return False  # the original says why
        _blocking.wait_fd(fd, writing)
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
    for function in (waitpid, wait, wait3, wait4, waitid, read, readv, write, system, register_at_fork):
        p.replace(os, function.__name__, function)
