"""``coro.set_watchdog``: be told where the program stands when it does not get on.

The latency warning comes after the fact, names the thread, and knows only where it waited last. The watchdog speaks
while it happens, and needs neither the loop nor the GIL for that; see ``_runtime/watchdog.h`` for how. It is off until
asked for, because it is an OS thread, and because a signal, however harmless, interrupts system calls.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from coro._runtime import scheduler
from coro._runtime.arguments import number_of_seconds

__all__ = ["set_watchdog"]

#: A shorter limit would report the cyclic collector and page faults.
SHORTEST = 0.01
LONGEST = 86400.0

_seconds = 0.0
_file: Any = None  # kept, so that its descriptor stays open


def set_watchdog(seconds: float, *, file: Any = None, signum: int | None = None) -> float:
    """Report when the loop makes no progress for ``seconds``; 0, the default, switches reports off. Returns the limit
    set before.

    No progress means that a thread runs and does not wait (it computes, or it is stuck in a lock or a system call that
    coro does not know), or that the loop cannot run (another OS thread holds the GIL). A loop with nothing to do is not
    reported. The report has the thread's number and name, its stack of Python functions and, where the C library can
    tell (glibc, macOS), the file of the C code that it has called. It is written to the descriptor of ``file``
    (default: stderr) at the limit, at twice the limit, at four times, and so on.

    At the limit, and not before, the watchdog sends the signal ``signum`` to the loop's OS thread (default: SIGURG,
    which programs ignore by default). The kernel restarts most system calls that it interrupts. It restarts none that
    sleeps, polls or selects, and no call on a socket with a time limit (signal(7)). On Linux, a thread in such a call
    gets no signal. Then the report has its Python functions, but not the file of the C code. On other systems such a
    call ends early, with EINTR.

    Raises TypeError when ``seconds`` is not a number or ``file`` has no ``fileno()``; ValueError when it is below 0 or
    not between 0.01 and 86400, and for a signal that the program handles itself or that cannot be caught; OSError when
    the system gives no OS thread.
    """
    global _seconds, _file
    seconds = number_of_seconds(seconds)
    if seconds != 0 and not SHORTEST <= seconds <= LONGEST:
        raise ValueError(f"expected 0 or {SHORTEST} to {LONGEST:.0f} seconds, not {seconds!r}")
    if signum is None:
        signum = signal.SIGURG
    elif isinstance(signum, bool) or not isinstance(signum, int):
        raise TypeError(f"expected the number of a signal, not {signum!r}")
    if signum not in signal.valid_signals() or signum in (signal.SIGKILL, signal.SIGSTOP):
        raise ValueError(f"expected a signal that can be caught, not {signum!r}")
    if file is None:
        file = sys.__stderr__
    fd = 2 if file is None else file if isinstance(file, int) else None
    if fd is None:
        if not callable(getattr(file, "fileno", None)):
            raise TypeError(f"expected an open file or descriptor, not {type(file).__name__}: {file!r}")
        fd = file.fileno()
    failed = scheduler._set_watchdog(seconds, fd, signum)
    if failed == -1:
        raise ValueError(f"the program has a handler for signal {signum} already; choose another with signum=")
    if failed:
        raise OSError(
            failed, f"the system gives no OS thread for the watchdog: {os.strerror(failed)}; "
            "go on without it, or free memory"
        )
    before, _seconds = _seconds, seconds
    _file = file if seconds else None
    return before


def _after_fork_in_child() -> None:
    global _seconds
    _seconds = 0.0
    scheduler._watchdog_after_fork()
