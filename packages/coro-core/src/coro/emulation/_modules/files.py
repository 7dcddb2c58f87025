"""Emulated `open`: files over pipes, terminals and sockets wait through the poller; regular files are what they were.

_blocking.open asks first what a path or descriptor stands for, one system call of stat(2). Anything but a FIFO, a
socket or a character device goes to the original. For those, the steps of the original are those of `_pyio.open`, the
standard library's own description of it in Python, with a raw file and buffers that suspend the calling coro thread. A
FIFO is opened by os.open as the emulation has it, because that waits for somebody at the other end. What an `opener`
will come with is not known before it has: then the original is stopped, and the steps are made with what has come.

`io.FileIO` looks at the same things, and makes a raw file that waits, or one of its own.

The standard streams exist already. sys.stdout and sys.stderr stay the objects that they are: they get other buffers,
over raw files that wait, until the emulation is uninstalled or the process ends. Of sys.stdin something may have been
read that only its buffer has.

Cost: about a microsecond more for a regular file.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import io
import sys
import types
from collections.abc import Callable
from typing import Any

from coro.emulation import _blocking
from coro.emulation._modules import buffered as _buffered
from coro.emulation._modules import os as _os
from coro.emulation._modules import thread as _thread
from coro.emulation._plan import Plan

__all__ = ["give_back_standard_streams", "make_open", "plan", "take_over_standard_streams"]

_FileIO: Any = io.FileIO
_BufferedWriter: Any = io.BufferedWriter


def _open_raw(file: Any, mode: str, closefd: bool, opener: Any) -> _buffered.WaitingFile:
    if opener is None and not isinstance(file, int):
        opener = _os.open_file
    return _buffered.WaitingFile(file, mode, closefd, opener)


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


class _FileName(_buffered.Name):
    """Of the class that stands for `io.FileIO`."""

    __call__ = _blocking.make_raw


def _make_name() -> Any:
    members = {"_native": _FileIO, "__module__": _FileIO.__module__, "__doc__": _FileIO.__doc__}
    return _FileName("FileIO", (_buffered.WaitingFile,), members)


#: (text stream, the buffer that it had): of those that wait meanwhile.
_taken_over: list[tuple[io.TextIOWrapper, Any]] = []


def _exchange_buffer(stream: io.TextIOWrapper, make: Callable[[Any], Any]) -> Any:
    """Give a text stream the buffer that `make` makes of the one that it has; returns the old one."""
    options: Any = {
        "encoding": stream.encoding,
        "errors": stream.errors,
        "newline": "\n",  # that of the standard streams
        "line_buffering": stream.line_buffering,
        "write_through": stream.write_through,
    }
    stream.flush()
    new = make(stream.buffer)
    old = stream.detach()
    stream.__init__(new, **options)  # type: ignore[misc]
    return old


class _ErrorFile(_buffered.WaitingFile):
    """Standard error. Libraries write there what ends their threads. For daemons of a program that has ended that is no
    news: they would not get that far as OS threads."""

    def write(self, data: Any, /) -> Any:
        """As for any file."""
        if _thread.is_left_behind():
            return memoryview(data).nbytes
        return super().write(data)


def _waiting_buffer(old: Any) -> Any:
    raw = old if type(old) is _FileIO else old.raw
    kind = _ErrorFile if raw.fileno() == 2 else _buffered.WaitingFile
    waiting: Any = kind(raw.fileno(), "w", closefd=False)
    waiting.name = raw.name
    return waiting if raw is old else _buffered.BufferedWriter(waiting)


def take_over_standard_streams() -> None:
    """Have sys.stdout and sys.stderr wait for whoever reads them."""
    for stream in (sys.__stdout__, sys.__stderr__):
        if type(stream) is not io.TextIOWrapper:
            continue
        with contextlib.suppress(OSError, ValueError):  # it is closed, or what was to be flushed cannot be
            buffer: Any = stream.buffer
            raw = buffer.raw if type(buffer) is _BufferedWriter else buffer
            if type(raw) is _FileIO and not raw.closefd:
                _taken_over.append((stream, _exchange_buffer(stream, _waiting_buffer)))


@atexit.register
def give_back_standard_streams() -> None:
    """Let them be what they were. At the end of the process the modules that ours live by go away."""
    while _taken_over:
        stream, buffer = _taken_over.pop()
        with contextlib.suppress(OSError, ValueError):
            _exchange_buffer(stream, lambda _, buffer=buffer: buffer)  # type: ignore[misc]


def plan(p: Plan) -> None:
    """What to replace."""
    _blocking.know_open(_os.open_file)
    p.replace(io, "FileIO", _make_name())
    new: Any = _blocking.open
    p.replace(io, "open", new)
    p.replace(builtins, "open", new)
