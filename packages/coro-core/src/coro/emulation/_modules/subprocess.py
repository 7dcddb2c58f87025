"""Emulated `subprocess`: the pipes of a Popen object wait through the poller.

Everything else it needs (waitpid, selectors, os.read, time.sleep) is emulated where it comes from.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

from coro.emulation._modules import buffered as _buffered
from coro.emulation._modules import os as _os
from coro.emulation._plan import Plan

__all__ = ["plan"]


def _open(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **kwargs: Any) -> Any:
    if isinstance(file, int) and not args:
        return _buffered.open_pipe(file, mode, buffering, **kwargs)
    return open(file, mode, buffering, *args, **kwargs)


def plan(p: Plan) -> None:
    """What to replace."""
    p.replace(subprocess, "io", _buffered.io_view(open=_open))
    # These hold functions of os for the time when modules are torn down.
    safe = getattr(subprocess, "_del_safe", None)
    if safe is not None and getattr(safe, "waitpid", None) is os.waitpid:
        p.replace(safe, "waitpid", _os.waitpid)
