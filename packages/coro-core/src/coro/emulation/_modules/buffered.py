"""Buffered files over something that suspends: one thread at a time, by a lock that knows coro threads.

The buffers of `io` have a lock of their own, whose owner is an OS thread. When the raw file below one suspends a coro
thread in the middle of a read, another coro thread that uses the same buffer looks like the owner coming back, and gets
"reentrant call". The classes here take an emulated lock around each call, so that the second thread waits.

WaitingFile is the raw file of a pipe or terminal: it waits for readiness before each system call.

A program may put a buffer of `io` over a raw file of its own, which suspends in whatever it calls. So the names in `io`
stand for the classes here, too. isinstance() takes both kinds for the same, and over a FileIO or BytesIO, which suspend
nobody, the original is made.

Cost: one uncontended lock per call of a method.
"""

from __future__ import annotations

import abc
import fcntl
import io
import os
import re
import select
import types
import warnings
from collections.abc import Callable
from typing import Any

from coro.emulation import _blocking
from coro.emulation._plan import Plan

__all__ = [
    "BufferedRWPair",
    "BufferedRandom",
    "BufferedReader",
    "BufferedWriter",
    "Name",
    "WaitingFile",
    "io_view",
    "open_pipe",
    "plan",
    "waits",
]

_fcntl: Any = fcntl.fcntl
_FileIO: Any = io.FileIO
_PIPE_BUF = getattr(select, "PIPE_BUF", 512)  # a pipe that is writable takes so much without waiting, pipe(7)


def _guarded(name: str, base: Any) -> Callable[..., Any]:
    method = getattr(base, name)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._coro_lock:
            return method(self, *args, **kwargs)

    call.__name__ = name
    call.__qualname__ = f"{base.__name__}.{name}"
    call.__doc__ = method.__doc__
    call.__wrapped__ = method  # type: ignore[attr-defined]
    return call


def _one_at_a_time(base: Any, names: tuple[str, ...]) -> Any:
    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        self._coro_lock = _blocking.RLock()
        base.__init__(self, *args, **kwargs)

    members: dict[str, Any] = {name: _guarded(name, base) for name in names}
    members["__init__"] = initialise
    members["__repr__"] = lambda self: base.__repr__(self).replace("<", "<_io.", 1)
    members["__module__"] = __name__
    members["__doc__"] = f"io.{base.__name__}, used by one coro thread at a time."
    return type(base.__name__, (base,), members)


_READ = ("read", "read1", "readinto", "readinto1", "readline", "peek")
_WRITE = ("write", "flush")
_PLACE = ("seek", "truncate", "close", "detach")

BufferedReader: Any = _one_at_a_time(io.BufferedReader, _READ + _PLACE)
BufferedWriter: Any = _one_at_a_time(io.BufferedWriter, _WRITE + _PLACE)
BufferedRandom: Any = _one_at_a_time(io.BufferedRandom, _READ + _WRITE + _PLACE)


class BufferedRWPair(io.BufferedRWPair):
    """io.BufferedRWPair, whose two halves are used by one coro thread at a time each: one may read while another
    writes."""

    def __init__(self, reader: Any, writer: Any, buffer_size: int = io.DEFAULT_BUFFER_SIZE) -> None:
        super().__init__(reader, writer, buffer_size)
        self._reading = _blocking.RLock()
        self._writing = _blocking.RLock()


def _pair_method(name: str, lock: str) -> Any:
    method = getattr(io.BufferedRWPair, name)

    def call(self: Any, *args: Any) -> Any:
        with getattr(self, lock):
            return method(self, *args)

    call.__name__ = name
    call.__doc__ = method.__doc__
    call.__wrapped__ = method  # type: ignore[attr-defined]
    return call


for _name in ("read", "read1", "readinto", "readinto1", "peek"):
    setattr(BufferedRWPair, _name, _pair_method(_name, "_reading"))
for _name in ("write", "flush"):
    setattr(BufferedRWPair, _name, _pair_method(_name, "_writing"))


class Name(abc.ABCMeta):
    """Of the classes that stand for those of `io`. Invariant: what is an instance of the original is one of it."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        native: Any = cls.__dict__.get("_native")
        raws = args[:2] or (kwargs.get("raw"),)
        if native is not None and all(type(raw) in (_FileIO, io.BytesIO, int) for raw in raws):
            return native(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    @property
    def __signature__(cls) -> Any:
        native: Any = cls.__dict__.get("_native")
        if native is None:
            raise AttributeError("__signature__")
        import inspect

        return inspect.signature(native)

    def __instancecheck__(cls, instance: Any) -> bool:
        native: Any = cls.__dict__.get("_native")
        return super().__instancecheck__(instance) if native is None else isinstance(instance, native)

    def __subclasscheck__(cls, subclass: Any) -> bool:
        native: Any = cls.__dict__.get("_native")
        return super().__subclasscheck__(subclass) if native is None else issubclass(subclass, native)


def _name_for(native: Any, guarded: Any) -> Any:
    members = {"_native": native, "__module__": native.__module__, "__doc__": native.__doc__}
    return Name(native.__name__, (guarded,), members)


def plan(p: Plan) -> None:
    """What to replace."""
    for guarded in (BufferedReader, BufferedWriter, BufferedRandom, BufferedRWPair):
        native: Any = getattr(io, guarded.__name__)
        p.replace(io, guarded.__name__, _name_for(native, guarded))


def waits(fd: int, writing: bool) -> bool:
    """Is a system call on a descriptor that is not ready to wait? Not in non-blocking mode, and the wrong end of a pipe
    is never ready."""
    flags = _fcntl(fd, fcntl.F_GETFL)
    wrong = os.O_RDONLY if writing else os.O_WRONLY
    return not flags & os.O_NONBLOCK and flags & os.O_ACCMODE != wrong


class WaitingFile(_FileIO):  # type: ignore[misc]
    """A descriptor that may not be ready: reading and writing suspend a coro thread until it is."""

    def __repr__(self) -> str:
        text = str(super().__repr__())
        return re.sub("^<(WaitingFile|_ErrorFile|FileIO) ", "<_io.FileIO ", text)

    def _wait(self, writing: bool) -> None:
        fd = self.fileno()
        while _blocking.in_thread_of_loop() and not _blocking.poll_now(
            fd, select.POLLOUT if writing else select.POLLIN
        ):
            if not (self.writable() if writing else self.readable()) or not waits(fd, writing):
                return
            _blocking.wait_fd(fd, writing)  # another thread may be quicker

    def read(self, size: int | None = -1, /) -> Any:
        """Read at most ``size`` bytes with one call of the system, everything until the end for -1 or None."""
        if size is None or size < 0:
            return self.readall()
        self._wait(False)
        return super().read(size)

    def readinto(self, buffer: Any, /) -> Any:
        """Read into a buffer with one call of the system."""
        self._wait(False)
        return super().readinto(buffer)

    def readall(self) -> Any:
        """Read until the end; None if nothing is there in non-blocking mode."""
        parts: list[bytes] = []
        while True:
            data = self.read(65536)
            if not data:
                return b"".join(parts) if parts or data is not None else None
            parts.append(data)

    def write(self, data: Any, /) -> Any:
        """Write all of it, in the pieces that the pipe takes without waiting. What others write stands before or behind
        it."""
        if not _blocking.in_thread_of_loop() or not os.get_blocking(self.fileno()):
            return super().write(data)
        lock = self.__dict__.get("_writing") or self.__dict__.setdefault("_writing", _blocking.RLock())
        with lock, memoryview(data).cast("B") as view:
            return self._write_all(view)

    def _write_all(self, view: memoryview) -> Any:
        done = 0
        kind = os.fstat(self.fileno()).st_mode & 0o170000 if len(view) > _PIPE_BUF else 0
        if kind == 0o140000:  # a socket
            return self._send(view)
        if kind == 0o100000:  # a regular file
            return super().write(view)
        while done < len(view) or not done:
            self._wait(True)
            done += super().write(view[done : done + _PIPE_BUF]) or 0
            if not len(view):
                break
        return done

    def _send(self, view: memoryview) -> int:
        """To a socket, which takes a message in one piece or not at all."""
        done = 0
        while done < len(view):
            self._wait(True)
            done += _blocking.send_now(self.fileno(), view, done, 0) or 0
        return done


def open_pipe(fd: int, mode: str = "r", buffering: int = -1, **text: Any) -> Any:
    """io.open() for a descriptor of a pipe, in binary or text mode."""
    if buffering == 1 and "b" in mode:
        warnings.warn(
            "line buffering (buffering=1) isn't supported in binary mode, the default buffer size will be used",
            RuntimeWarning,
            stacklevel=4,
        )
    raw_mode = mode.replace("b", "").replace("t", "")
    raw = WaitingFile(fd, raw_mode, text.pop("closefd", True))
    result: Any = raw
    try:
        if buffering != 0:
            size = io.DEFAULT_BUFFER_SIZE if buffering in (-1, 1) else buffering
            if "+" in raw_mode:
                result = BufferedRandom(raw, size)
            elif "r" in raw_mode:
                result = BufferedReader(raw, size)
            else:
                result = BufferedWriter(raw, size)
        elif "b" not in mode:
            raise ValueError("can't have unbuffered text I/O")
        if "b" not in mode:
            result = io.TextIOWrapper(result, line_buffering=buffering == 1, **text)
            result.mode = mode
        return result
    except BaseException:
        raw.close()
        raise


def io_view(**changed: Any) -> types.ModuleType:
    """A stand-in for the module `io` with some names changed, for modules that build buffers over what suspends."""
    view = types.ModuleType("io", io.__doc__)
    view.__dict__["__getattr__"] = lambda name: getattr(io, name)
    view.__dict__.update(changed)
    return view
