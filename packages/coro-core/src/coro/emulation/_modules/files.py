"""Emulated `open`: files over pipes, terminals and sockets wait through the poller; regular files are what they were.

_blocking.open asks first what a path or descriptor stands for, one system call of stat(2). Anything but a FIFO, a
socket or a character device goes to the original. For those, the steps of the original are those of `_pyio.open`, the
standard library's own description of it in Python, with a raw file and buffers that suspend the calling coro thread. A
FIFO is opened in a worker OS thread, because that waits for somebody at the other end.

Cost: about a microsecond more for a regular file.
"""

from __future__ import annotations

import builtins
import io
import types
from typing import Any

from coro.emulation import _blocking
from coro.emulation._modules import buffered as _buffered
from coro.emulation._plan import Plan

__all__ = ["make_open", "plan"]


def _open_raw(file: Any, mode: str, closefd: bool, opener: Any) -> _buffered.WaitingFile:
    if isinstance(file, int):
        return _buffered.WaitingFile(file, mode, closefd, opener)
    from coro.offload import in_thread

    return in_thread(_buffered.WaitingFile, file, mode, closefd, opener)


def make_open() -> Any:
    """`_pyio.open` with our classes in the place of those that it names."""
    import _pyio  # type: ignore[import-not-found]

    theirs: Any = getattr(_pyio.open, "__func__", _pyio.open)
    names = {
        **vars(_pyio),
        "FileIO": _open_raw,
        "BufferedReader": _buffered.BufferedReader,
        "BufferedWriter": _buffered.BufferedWriter,
        "BufferedRandom": _buffered.BufferedRandom,
        "TextIOWrapper": io.TextIOWrapper,
    }
    return types.FunctionType(theirs.__code__, names, "open", theirs.__defaults__)


def plan(p: Plan) -> None:
    """What to replace."""
    new: Any = _blocking.open
    p.replace(io, "open", new)
    p.replace(builtins, "open", new)
