"""Child processes: prompt ``waitpid``, pipes that suspend only the calling thread, time limits that kill the whole job.

Starting is left to the standard library's ``subprocess``, which forks and executes in C and knows every system's
pitfalls.  Waiting is ours: a child's end is an event of the poller (pidfd_open(2) on Linux, SIGCHLD where that is
missing or refused, EVFILT_PROC of kqueue(2) elsewhere), and our ends of its pipes are ``fd_sock``s.

A job is the process group that its first process leads.  That process is reaped only after the pipes have ended or the
group was killed: until then the system cannot give the number to somebody else, so the signal never hits a stranger.

Signal handlers that raise leave no child and no descriptor behind, wherever they come: starting, reaping and giving up
are each done in one go, see ``_poll/children.pyx``.

Cost: starting blocks the whole OS thread until the program is executed, about a millisecond; everything after that
suspends one thread.  Rejected: SIGCHLD where there is better (one per process, and it merges), polling with WNOHANG
(slow or busy).
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, SupportsFloat

from coro import oserrors
from coro._net.sock import fd_sock
from coro._poll.children import handlers_held, reap, reap_if_ended, waitpid
from coro._poll.events import EVFILT, NOTE, wait_for
from coro._runtime import scheduler
from coro.exceptions import Interrupted, LoopError, Shutdown
from coro.groups import group

__all__ = [
    "DEV_NULL",
    "PIPE",
    "STDOUT",
    "CoroProcess",
    "ProcessTimeout",
    "capture",
    "capture_with_stderr",
    "join",
    "run",
    "spawn_job_bg",
    "waitpid",
]

#: Standard input that is empty, or output that vanishes.
DEV_NULL = subprocess.DEVNULL
#: A new pipe to or from the child.
PIPE = subprocess.PIPE
#: For ``stderr``: where ``stdout`` goes.
STDOUT = subprocess.STDOUT

_READ_SIZE = 65536  # what a pipe holds on Linux, pipe(7)


class _HasFileno(Protocol):
    def fileno(self) -> int: ...


_File = int | _HasFileno
_Command = str | Sequence[str | bytes | os.PathLike[str]]
_Path = str | bytes | os.PathLike[str]


class ProcessTimeout(Exception):
    """The time limit of a job was over, and the job was killed.  ``stdout_output`` and ``stderr_output`` are what it
    had written by then, as bytes."""

    def __init__(self, stdout_output: bytes = b"", stderr_output: bytes = b"") -> None:
        super().__init__(stdout_output, stderr_output)
        self.stdout_output = stdout_output
        self.stderr_output = stderr_output

    def __str__(self) -> str:
        return (
            f"the job was not done in time and was killed; it had written {len(self.stdout_output)} bytes of output "
            f"and {len(self.stderr_output)} of errors (see stdout_output, stderr_output)"
        )


class _Process(Protocol):
    @property
    def pid(self) -> int | None: ...
    @property
    def sentinel(self) -> int: ...
    @property
    def exitcode(self) -> int | None: ...
    def join(self, timeout: float | None = None) -> None: ...


def join(process: _Process, /, timeout: SupportsFloat | None = None) -> int:
    """Wait for the end of a ``multiprocessing.Process``, whatever its start method; returns its exit code.

    Suspends the calling thread only, where ``process.join()`` holds up the loop.  An interrupted call can be repeated.
    ``timeout`` is a number of seconds, 0 to look only, None for ever; coro.TimeoutError when it is over, and the
    process goes on (``process.join(timeout)`` returns None then).  TypeError or ValueError when it is not a number.
    Raises SimultaneousError when another thread waits for the same process, ValueError when it was not started,
    oserrors.ECHILD when it is the child of another process, and what every blocking call raises outside a thread.
    """
    limit = scheduler._CallLimit(timeout, "process.join()")
    if not hasattr(process, "sentinel"):
        raise TypeError(f"expected a multiprocessing.Process, not {type(process).__name__}: {process!r}")
    pid = process.pid
    if pid is None:
        raise ValueError(f"{process!r} was not started; call its start() first")
    if getattr(process, "_parent_pid", None) not in (None, os.getpid()):
        raise oserrors.ECHILD(f"{process!r} is a child of another process, of which this is a fork; wait for it there")
    if process.exitcode is None:
        with limit:
            _await_end(process, pid)
    process.join()
    code = process.exitcode
    assert code is not None
    return code


def _await_end(process: _Process, pid: int) -> None:
    try:
        wait_for(pid, EVFILT.PROC, NOTE.EXIT)
    except (ChildProcessError, ProcessLookupError):
        wait_for(process.sentinel, EVFILT.READ)  # a child of the fork server, which tells us by this pipe


class CoroProcess:
    """A running job, from ``spawn_job_bg``.

    ``pid`` is its first process. ``stdin``, ``stdout`` and ``stderr`` are our ends of its pipes (``fd_sock``), or None.
    Leaving it as a context manager closes the pipes and waits. If an exception leaves the block, the job is killed
    first.
    """

    def __init__(
        self, popen: subprocess.Popen[bytes], pgrp: int, stdin: fd_sock | None, stdout: fd_sock | None, stderr: Any
    ) -> None:
        self._popen = popen
        self._parent = os.getpid()
        self.args = popen.args
        self.pid: int = popen.pid
        #: The process group, or None if it is ours.
        self.pgrp: int | None = None if pgrp < 0 else pgrp or popen.pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr: fd_sock | None = stderr
        #: What waitpid gave, once somebody has waited.
        self.status: int | None = None
        self._reaper: scheduler.coro | None = None
        self._others: list[scheduler.coro] = []

    def __repr__(self) -> str:
        state = "running" if self.status is None else f"ended with {self.returncode}"
        return f"<CoroProcess {self.pid}: {state}, {self.args!r}>"

    @property
    def returncode(self) -> int | None:
        """The exit code; minus the signal's number if a signal ended it; None before ``wait``."""
        return None if self.status is None else os.waitstatus_to_exitcode(self.status)

    def wait(self, timeout: SupportsFloat | None = None) -> int:
        """Wait for the end; returns the status as ``waitpid`` does.  Any number of threads may wait, also afterwards.

        ``timeout`` is a number of seconds, 0 to look only, None for ever; coro.TimeoutError when it is over, and the
        job goes on (``killpg`` or ``abandon`` end it).  TypeError or ValueError when it is not a number.
        oserrors.ECHILD when other code has reaped the process, and in a process that was forked from its parent.
        """
        self._check_parent()
        limit = scheduler._CallLimit(timeout, "CoroProcess.wait()")
        if self.status is None:
            me = scheduler._running_thread()
            if timeout is not None and self._reaper is None:
                self._reap_by(reap_if_ended)
            if self.status is None:
                with limit:
                    self._await_end(me)
        assert self.status is not None
        return self.status

    def _await_end(self, me: scheduler.coro) -> None:
        while self.status is None:
            if self._reaper is None:
                self._reaper = me
                try:
                    self._reap_by(reap)
                finally:
                    self._reaper = None
            else:
                self._others.append(me)
                try:
                    scheduler._suspend(self)
                finally:
                    self._others.remove(me)

    def _reap_by(self, function: Callable[[CoroProcess], None]) -> None:
        try:
            function(self)
        except oserrors.ECHILD:
            self._popen.returncode = 0  # nothing is left to wait for, says subprocess in this case
            raise

    def _check_parent(self) -> None:
        if self._parent != os.getpid():
            raise oserrors.ECHILD(
                f"process {self.pid} is a child of process {self._parent}, of which this is a fork; "
                "wait for it there"
            )

    def kill(self, sig: int = signal.SIGKILL) -> None:
        """Send the signal ``sig`` to the first process. Nothing happens if it has been waited for.

        oserrors.ECHILD in a process that was forked from its parent: there its number may be another's by now."""
        self._check_parent()
        if self.status is None:
            _send(os.kill, self.pid, sig)

    def killpg(self, sig: int = signal.SIGKILL) -> None:
        """Send the signal ``sig`` to all processes of the job, or only to the first if they are in our own process
        group.

        Nothing happens when the first process has been waited for: then the group's number may be another's by now.
        oserrors.ECHILD as for ``kill``."""
        self._check_parent()
        if self.pgrp is None:
            self.kill(sig)
        elif self.status is None:
            _send(os.killpg, self.pgrp, sig)

    def close(self) -> None:
        """Close our ends of the pipes."""
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def abandon(self) -> None:
        """Kill the job, close the pipes, and leave the reaping to a thread in the background.

        Does not block, unless the loop is ending: then it waits for the end itself, which takes milliseconds after the
        kill.  In a process that was forked from the job's parent only the pipes are closed."""
        if self._parent != os.getpid():
            self.close()
            return
        is_reaped = True
        try:
            with handlers_held():
                try:
                    self.killpg()
                except PermissionError:
                    pass  # it runs as somebody else; closed pipes are all we can do to it
                self.close()
                is_reaped = self.status is not None or self._spawn_reaper()
        finally:
            if not is_reaped:
                self._reap_last()

    def _spawn_reaper(self) -> bool:
        """Reap it in the background; False where the loop is ending."""
        try:
            scheduler.spawn(self._reap, thread_name=f"reaper of {self.pid}")
        except LoopError:
            return False
        return True

    def _reap(self) -> None:
        try:
            self.wait()
        except oserrors.ECHILD:
            pass
        except Shutdown:
            self._reap_last()
            raise
        except BaseException:  # of a signal handler that ran here
            if self.status is None and not self._spawn_reaper():
                self._reap_last()
            raise

    def _reap_last(self) -> None:
        """The loop is ending.  What was killed ends at once, unless the kernel cannot let go of it."""
        try:
            with scheduler.shield(1):
                self.wait()
        except (oserrors.ECHILD, Interrupted):
            if self.status is None:
                self._popen.returncode = -signal.SIGKILL  # given up, with no second attempt by a finaliser

    def __enter__(self) -> CoroProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        if exc is not None:
            try:
                self.abandon()
            except BaseException:  # of a signal handler, perhaps before anything was done
                self.abandon()
                raise
            return False
        try:
            self.close()
            self.wait()
        except BaseException:
            try:
                self.abandon()
            except BaseException:  # of a signal handler, perhaps before anything was done
                self.abandon()
                raise
            raise
        return False


def _send(function: Any, number: int, sig: int) -> None:
    try:
        function(number, sig)
    except ProcessLookupError:
        pass  # it has ended; that is what signals are mostly for


def spawn_job_bg(
    command: _Command,
    stdin: _File | None = DEV_NULL,
    stdout: _File | None = DEV_NULL,
    stderr: _File | None = DEV_NULL,
    fd_except: Iterable[int] | None = None,
    cwd: _Path | None = None,
    env: Mapping[str, str] | None = None,
    pgrp: int = 0,
) -> CoroProcess:
    """Start a program in the background.

    ``command`` is a sequence of arguments, or a string that is split as a shell would split it (shlex), though no shell
    sees it.  The program is searched for in PATH.  ``stdin``, ``stdout`` and ``stderr`` are DEV_NULL, PIPE, a
    descriptor, an object with ``fileno()``, or None for ours; ``stderr`` may also be STDOUT.  Only these descriptors
    and those in ``fd_except`` are inherited.  ``cwd`` and ``env`` replace directory and environment.  ``pgrp`` is the
    process group to join, 0 for a new one, -1 for ours.  Returns a CoroProcess, which the caller has to ``wait()`` for.

    Raises OSError when the program cannot be executed, ValueError for an empty command, a string with an open quote or
    an impossible ``pgrp``, TypeError for a command that is neither form.
    Blocks the OS thread until the program is executed.
    """
    if isinstance(command, (bytes, os.PathLike)) or not isinstance(command, Iterable):
        raise TypeError(
            f"expected a command as one str or a sequence of arguments, not {type(command).__name__}: {command!r}"
        )
    args = shlex.split(command) if isinstance(command, str) else list(command)
    if not args:
        raise ValueError("expected a program and its arguments, not an empty command")
    if pgrp < -1:
        raise ValueError(f"pgrp is a process group, 0 for a new one, -1 for ours, not {pgrp}")
    started: list[CoroProcess] = []
    try:
        with handlers_held():
            started.append(
                _start(
                    (stdin, stdout, stderr),
                    pgrp,
                    args=args,
                    cwd=cwd,
                    env=env,
                    pass_fds=tuple(fd_except or ()),
                    process_group=None if pgrp < 0 else pgrp,
                )
            )
        return started[0]
    except BaseException:
        for process in started:  # a signal came meanwhile, and its handler raised
            try:
                process.abandon()
            except BaseException:  # of another one, perhaps before anything was done
                process.abandon()
                raise
        raise


def _start(standard: tuple[_File | None, ...], pgrp: int, **options: Any) -> CoroProcess:
    """Make the pipes and start a program. Must not be torn apart by signal handlers."""
    theirs: list[int] = []
    ours: list[int] = []
    pipes: list[fd_sock | None] = []
    files: list[Any] = []
    try:
        for number, file in enumerate(standard):
            if file != PIPE:
                pipes.append(None)
                files.append(file)
                continue
            r, w = os.pipe()
            keep, give = (w, r) if number == 0 else (r, w)
            ours.append(keep)
            theirs.append(give)
            pipes.append(fd_sock(keep))
            ours.pop()
            files.append(give)
        popen = subprocess.Popen(stdin=files[0], stdout=files[1], stderr=files[2], **options)
    except BaseException:
        for pipe in pipes:
            if pipe is not None:
                pipe.close()
        for fd in ours:
            os.close(fd)
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    return CoroProcess(popen, pgrp, *pipes)


def _collect(pipe: fd_sock, into: list[bytes]) -> None:
    while data := pipe.recv(_READ_SIZE):
        into.append(data)


def _feed(pipe: fd_sock, data: bytes) -> None:
    try:
        pipe.sendall(data)
    except BrokenPipeError:
        pass  # it wants no more
    finally:
        pipe.close()


def _communicate(process: CoroProcess, data: bytes | None, out: list[bytes], err: list[bytes]) -> int:
    if process.stdin is None and process.stderr is None:
        assert process.stdout is not None
        _collect(process.stdout, out)
    else:
        with group() as g:
            for pipe, into in ((process.stdout, out), (process.stderr, err)):
                if pipe is not None:
                    g.spawn(_collect, pipe, into)
            if process.stdin is not None:
                assert data is not None
                g.spawn(_feed, process.stdin, data)
    return process.wait()


def _job(
    command: _Command,
    stderr: int,
    cwd: _Path | None,
    env: Mapping[str, str] | None,
    timeout: float | None,
    pgrp: int,
    data: bytes | None,
) -> tuple[int, bytes, bytes]:
    """Run a command to its end.  However this is left, no process of the job is."""
    out: list[bytes] = []
    err: list[bytes] = []
    scheduler._running_thread()  # refuse before anything is started
    if data is not None and not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"expected bytes as input, not {type(data).__name__}; encode() text first")
    limit = None if timeout is None else scheduler.timeout(timeout)
    process = spawn_job_bg(command, DEV_NULL if data is None else PIPE, PIPE, stderr, None, cwd, env, pgrp)
    try:
        if limit is None:
            status = _communicate(process, data, out, err)
        else:
            with limit:
                status = _communicate(process, data, out, err)
        process.close()
    except BaseException:
        try:
            process.abandon()
        except BaseException:  # of a signal handler, perhaps before anything was done
            process.abandon()
            raise
        if limit is not None and limit.expired:
            raise ProcessTimeout(b"".join(out), b"".join(err)) from None
        raise
    return status, b"".join(out), b"".join(err)


def capture(
    command: _Command,
    tie_out_err: bool = True,
    cwd: _Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 0,
    pgrp: int = 0,
    *,
    input: bytes | None = None,
) -> tuple[int, bytes]:
    """Run the program ``command``. Returns ``(status, output)``, the status as ``waitpid`` gives it.

    Its errors go where its output goes, or nowhere if ``tie_out_err`` is false.  ``input`` is what it reads, by default
    nothing.  ``timeout`` is in seconds, 0 for none.  When it is over, the process group is killed and reaped in the
    background, and ProcessTimeout has what was written so far; every other exception kills the group too.  The other
    parameters are those of ``spawn_job_bg``.  The output ends when all processes that hold it have ended or closed it.
    """
    limit = None if timeout == 0 else timeout
    status, output, _ = _job(command, STDOUT if tie_out_err else DEV_NULL, cwd, env, limit, pgrp, input)
    return status, output


def capture_with_stderr(
    command: _Command,
    cwd: _Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 0,
    pgrp: int = 0,
    *,
    input: bytes | None = None,
) -> tuple[int, bytes, bytes]:
    """Like ``capture``, with the same parameters, but the errors apart: returns ``(status, output, errors)``."""
    return _job(command, PIPE, cwd, env, None if timeout == 0 else timeout, pgrp, input)


def run(
    command: _Command,
    *,
    input: bytes | None = None,
    timeout: float | None = None,
    check: bool = False,
    cwd: _Path | None = None,
    env: Mapping[str, str] | None = None,
    pgrp: int = 0,
) -> subprocess.CompletedProcess[bytes]:
    """Run the program ``command`` like ``subprocess.run(..., capture_output=True)``. Returns the same kind of record.

    ``check`` makes an exit code other than 0 raise ``subprocess.CalledProcessError``.  A ``timeout`` (seconds, None for
    none, 0 for no waiting at all) raises ProcessTimeout, see ``capture``.
    """
    status, out, err = _job(command, PIPE, cwd, env, timeout, pgrp, input)
    done = subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status), out, err)
    if check:
        done.check_returncode()
    return done
