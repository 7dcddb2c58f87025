"""Small names of the classic coro that programs still use, each in terms of what does the work now.

Nothing in coro itself needs this file. Newer code is better off with what each text names. Cost: nothing until called,
but for the folder scan behind ``__versions__``, which therefore happens when that is first asked for.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from coro import signal_handler
from coro._clock import ticks
from coro._runtime import scheduler
from coro.tb import _short

__all__ = [
    "UNAME",
    "get_module_name",
    "get_refcnt",
    "signalfd_handler",
    "sigterm_handler",
    "tick_updater",
]

#: The name of the operating system as uname(2) tells it: "Linux", "FreeBSD", "Darwin".
UNAME: str = os.uname().sysname


#: How many references an object has, one of them for the call: the standard function under its old name.
get_refcnt = sys.getrefcount


def get_module_name(path: str) -> str:
    """The short form of a source file's path that reports use: the last folder and the file name.

    TypeError when it is no text.
    """
    if not isinstance(path, str):
        raise TypeError(f"expected the path of a source file as text, not {type(path).__name__}: {path!r}")
    return _short(path)


def sigterm_handler(signum: int | None = None, frame: object = None) -> None:
    """End the loop with exit code 0: what SIGTERM and SIGINT do under ``event_loop`` unless told otherwise.

    ``signum`` and ``frame`` are there because handlers of ``signal.signal`` and of ``coro.signal_handler.register`` get
    them. Both are ignored.
    """
    scheduler.set_exit(0)


def signalfd_handler(sig: int, callback: signal_handler.Handler) -> None:
    """``coro.signal_handler.register(sig, callback)``, under the name it had on Linux. Raises what that raises."""
    signal_handler.register(sig, callback)


def tick_updater() -> NoReturn:
    """Call ``update_time_relation`` every ``tick_update_interval`` seconds, for ever: the function of a thread.

    The loop does the same without a thread, so there is no need to spawn it. YieldFromMain outside a thread.
    """
    while True:
        scheduler.sleep_absolute(ticks.rdtsc() + ticks.from_duration(ticks.tick_update_interval))
        ticks.update_time_relation()


def versions() -> dict[str, str]:
    """The distributions named coro-… that are installed, with their versions: what ``coro.__versions__`` shows."""
    from importlib.metadata import distributions

    found = ((d.metadata["Name"], d.version) for d in distributions())
    return {name: version for name, version in sorted(found) if name and name.lower().startswith("coro-")}
