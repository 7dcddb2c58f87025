"""What ends a program whose running thread never waits, when it has been asked to end.

The handlers of SIGINT and SIGTERM ask the loop to end, and a thread that computes for ever never lets the loop do so.
So each request counts, until the loop has ended:

1. The first one has an OS thread watch. When the time that the orderly end has is over, and the loop stands still for
   STILL seconds, Shutdown is raised in the thread that runs, once in each.
2. The second one does not wait for that time: Shutdown is raised in the thread that runs then, when it has run for
   PROMPT seconds.
3. The third one ends the process by the signal's default action, and says so.

Shutdown is raised by a pending call of the interpreter, or by the signal handler itself: at the next bytecode of the
main OS thread, and only if the same thread runs since then. So a program whose threads give way now and then sees no
difference. Code in C has to return first.

Cost: nothing before the first signal; then an OS thread that wakes every PROMPT seconds until the loop has ended.
Rejected: an alarm (programs use SIGALRM), PyThreadState_SetAsyncExc (it would hit whichever thread runs by then).
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import time
from typing import NoReturn

from coro._runtime import scheduler
from coro._runtime.folders import private_folder
from coro._runtime.output import one_line, write_stderr
from coro.exceptions import Shutdown

__all__ = ["asked", "insist", "interrupt", "is_wanted", "reset", "wanted_at", "watch"]

#: Seconds that a thread may run on after the time for the orderly end.
STILL = 1.0
#: The same after a second request, and between two looks.
PROMPT = 0.1
WORDS = "this program was asked to end, and this thread has not given way since then"

# Taken here, before an emulation may replace them.
_start_os_thread = _thread.start_new_thread
_new_lock = _thread.allocate_lock
_monotonic = time.monotonic
_set_handler = signal.signal

_count = 0
_stood: tuple[int, int, int] | None = None
_watch: _Watch | None = None


class _Watch:
    """One OS thread's work: looks at the loop until ``ended`` is released."""

    def __init__(self, seconds: float) -> None:
        self.deadline = _monotonic() + seconds
        self.urgent: tuple[int, int, int] | None = None  # what ran, and is not to go on
        self.ended = _new_lock()
        self.ended.acquire()

    def run(self) -> None:
        """Body of the OS thread."""
        raised_in: set[int] = set()
        before, since = scheduler._progress(), _monotonic()
        try:
            while not self.ended.acquire(timeout=PROMPT):
                now, found = _monotonic(), scheduler._progress()
                if found != before:
                    before, since = found, now
                elif found[2] and (found == self.urgent or (now >= self.deadline and now - since >= STILL)):
                    if found[2] not in raised_in:
                        raised_in.add(found[2])
                        scheduler._raise_shutdown_in(found[2], found[0], WORDS)
        finally:
            scheduler._count_own_os_threads(-1)


def watch(seconds: float) -> None:
    """See to it that the thread that runs gives way when ``seconds`` are over, which the orderly end has."""
    global _watch
    if _watch is not None:
        _watch.deadline = min(_watch.deadline, _monotonic() + seconds)
    else:
        _watch = _Watch(seconds)
        scheduler._count_own_os_threads(1)
        try:
            _start_os_thread(_watch.run, ())
        except RuntimeError:
            scheduler._count_own_os_threads(-1)  # the system gives no OS thread; further requests do without


def asked(signum: int, seconds: float) -> None:
    """In a signal handler: the signal asks the program to end, which may take ``seconds``. Shutdown at the second one,
    perhaps; does not return from the third one."""
    global _count
    _count += 1
    if _count > 2:
        _end_process(signum)
    watch(seconds)
    if _count == 2:
        interrupt()


def interrupt() -> None:
    """In a signal handler: as at a second request. Shutdown if the running thread has run for long."""
    if scheduler._has_run_for() >= PROMPT:
        raise Shutdown(WORDS)
    if _watch is not None:
        _watch.urgent = scheduler._progress()


def insist(signum: int) -> None:
    """In a signal handler of a program that may go on after it: requests count as long as the loop stands still."""
    global _count, _stood
    found = scheduler._progress()
    _count = _count + 1 if found == _stood else 1
    _stood = found
    if _count > 2:
        _end_process(signum)
    if _count == 2 and scheduler._has_run_for() >= PROMPT:
        raise Shutdown(WORDS)


def wanted_at(pid: int) -> str:
    """The path of a file that a user makes to say that the next SIGINT to a process of the same user is to interrupt
    the thread that runs. OSError when there can be none."""
    return os.path.join(private_folder(), f"{pid}.interrupt")


def is_wanted() -> bool:
    """In the handler of SIGINT: has the user made that file for this process? Removes it."""
    try:
        os.unlink(wanted_at(os.getpid()))
    except OSError:
        return False
    return True


def reset() -> None:
    """The loop has ended, or the program goes on after all."""
    global _count, _watch
    _count = 0
    found, _watch = _watch, None
    if found is not None:
        with contextlib.suppress(RuntimeError):
            found.ended.release()


def _end_process(signum: int) -> NoReturn:
    thread = scheduler.current()
    running = f"thread {thread.id} ({one_line(thread.name)}) runs" if thread.id > 0 else "no thread runs"
    write_stderr(f"{signal.Signals(signum).name} for the third time: the process ends at once, while {running}\n")
    _set_handler(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    os._exit(128 + signum)  # the signal is blocked


def _after_fork_in_child() -> None:
    global _count, _watch
    if _watch is not None:
        scheduler._count_own_os_threads(-1)  # that OS thread has not come along
    _count, _watch = 0, None
