"""The loggers: where records go. A record is a tuple of any objects; what it looks like is the logger's affair.

None of them ever suspends the calling thread, so that logging is allowed everywhere: in handlers, under no_switch(), in
main, without a loop, and in other OS threads. What that means for files: a write to a regular file goes into the
kernel's cache, which is quicker than making the text, so it is simply done, and nothing is lost. A pipe, a terminal or
a network file system may stop the whole process instead; `Background` is for those, it writes in a worker OS thread,
and drops records when more than its limit wait.

Text is made with `repr`, and no control character of it reaches the file: a record is a line, whatever it contains.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import socket
import sys
import threading
import time
from typing import Any, Protocol

from coro import offload
from coro._runtime import output, scheduler
from coro.exceptions import Interrupted

__all__ = ["Background", "ComboLogger", "FileLogger", "Logger", "StderrLogger", "SysLogger", "text_of"]

#: Bytes that a Background keeps for a file that does not keep up.
MAX_WAITING = 1024 * 1024
#: Seconds that the end of a loop waits for a file that hangs.
LAST_WAIT = 1.0
#: Datagrams beyond this are cut: rsyslog's default for a message, and far below Linux's limit of a datagram.
MAX_DATAGRAM = 8192

_CONTROL = {c: f"\\x{c:02x}" for c in (*range(0x20), 0x7F, *range(0x80, 0xA0))}
_CONTROL.update({0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x2028: "\\u2028", 0x2029: "\\u2029"})


class Logger(Protocol):
    """What ``set_logger`` takes: anything with this method."""

    def log(self, *data: Any) -> None:
        """Take a record, whose items are ``data``. What this raises, ``coro.log.log`` raises."""


def text_of(data: tuple[Any, ...]) -> str:
    """The items of a record as one line: their reprs, separated by spaces, without control characters. Never raises."""
    parts = []
    for item in data:
        try:
            parts.append(repr(item))
        except Exception as exc:
            parts.append(f"<unprintable {type(item).__name__}: repr() raised {type(exc).__name__}>")
    return " ".join(parts).translate(_CONTROL)


class FileLogger:
    """A line for each record, written and flushed at once: local time as ``YYYY-MM-DDTHH:MM:SS``, then the items.

    f: a text file, anything with ``write`` and ``flush`` (see ``Background``), or a path, which is opened for
    appending. Raises OSError when that fails; what ``log`` raises is what the file's ``write`` does.
    """

    def __init__(self, f: Any) -> None:
        if isinstance(f, (str, os.PathLike)):
            f = open(f, "a", encoding="utf-8", errors="backslashreplace")
        if not callable(getattr(f, "write", None)):
            raise TypeError(f"expected a text file or a path, not {type(f).__name__}: {f!r}")
        self.f = f

    def __repr__(self) -> str:
        return f"<FileLogger to {getattr(self.f, 'name', self.f)!r}>"

    def log(self, *data: Any) -> None:
        """Write a record."""
        self.f.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text_of(data)}\n")
        self.f.flush()

    def close(self) -> None:
        """Close the file."""
        self.f.close()


class StderrLogger:
    """Like a FileLogger on the stderr of the time coro was imported; errors are ignored. The default logger."""

    def __repr__(self) -> str:
        return "<StderrLogger>"

    def log(self, *data: Any) -> None:
        """Write a record."""
        f = _original_stderr
        with contextlib.suppress(Exception):
            f.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text_of(data)}\n")
            f.flush()


#: Kept apart from coro.saved_stderr, which redirect_stderr() replaces: that must not lead back here.
_original_stderr: Any = output.saved_stderr


class SysLogger:
    """Records for the system's log daemon: datagrams ``<priority>text NUL`` to a UNIX socket.

    path: of the socket, by default the system's. facility: 16 (local0) to 23 are free for programs; level: 0
    (emergency) to 7 (debug); see RFC 3164. A text longer than 8192 bytes is cut.

    Never waits and never fails because of the daemon. When the daemon has gone or is too slow, records are dropped and
    counted (``lost``), and every record tries to connect again. ValueError for a facility or level out of range.
    """

    def __init__(self, path: str | None = None, facility: int = 16, level: int = 6) -> None:
        if not 0 <= facility <= 23:
            raise ValueError(f"a facility is a number from 0 to 23, not {facility!r}")
        if not 0 <= level <= 7:
            raise ValueError(f"a level is a number from 0 to 7, not {level!r}")
        if path is None:
            path = "/var/run/syslog" if sys.platform == "darwin" else "/dev/log"
        self.path = path
        self.priority = facility * 8 + level
        self.lost = 0
        self._sock: socket.socket | None = None

    def __repr__(self) -> str:
        return f"<SysLogger to {self.path!r}, {self.lost} records lost>"

    def log(self, *data: Any) -> None:
        """Send a record, or count it as lost."""
        text = f"<{self.priority}>{text_of(data)}".encode("utf-8", "backslashreplace")[: MAX_DATAGRAM - 1] + b"\0"
        for _ in range(2):
            try:
                if self._sock is None:
                    self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                    self._sock.setblocking(False)
                    self._sock.connect(self.path)
                self._sock.send(text)
                return
            except OSError as exc:
                if exc.errno in (errno.EAGAIN, errno.ENOBUFS):
                    break  # it is there, and does not keep up
                self.close()  # it has been restarted, or is not there
        self.lost += 1

    def close(self) -> None:
        """Close the socket; the next record opens it again."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None


class ComboLogger:
    """Passes each record to several loggers. If one fails, the others still get the record; the first error is raised
    afterwards."""

    def __init__(self, *loggers: Logger) -> None:
        for logger in loggers:
            if not callable(getattr(logger, "log", None)):
                raise TypeError(f"expected loggers, with a method log(*data), not {type(logger).__name__}: {logger!r}")
        self.loggers = loggers

    def __repr__(self) -> str:
        return f"ComboLogger({', '.join(map(repr, self.loggers))})"

    def log(self, *data: Any) -> None:
        """Pass a record to all loggers."""
        error: Exception | None = None
        for logger in self.loggers:
            try:
                logger.log(*data)
            except Exception as exc:
                error = error or exc
        if error is not None:
            raise error


class Background(io.RawIOBase):
    """A file whose writes happen in a worker OS thread: for pipes, terminals, and file systems that may hang.

        set_logger(FileLogger(Background(sys.stdout)))

    f: the real file, text or binary. limit: bytes (characters of text) that may wait. New records that do not fit are
    dropped and counted in ``lost``; in a text file, a line says so as soon as there is room. Without a loop, and when
    the loop ends, writes happen at once in the calling thread. Errors of the file are counted in ``errors``; the
    records of that write are lost.
    """

    def __init__(self, f: Any, limit: int = MAX_WAITING) -> None:
        if not callable(getattr(f, "write", None)):
            raise TypeError(f"expected a file, not {type(f).__name__}: {f!r}")
        self.f = f
        self.limit = limit
        self.lost = 0
        self.errors = 0
        self._untold = 0
        self._waiting: list[Any] = []
        self._size = 0
        self._thread = False
        self._lock = threading.Lock()  # held by whoever writes to the file, and never by a thread that waits otherwise

    def write(self, data: Any, /) -> int:
        """Queue data for the file; never waits."""
        if self._size + len(data) > self.limit:
            self.lost += 1
            self._untold += 1
            return len(data)
        if self._untold and isinstance(data, str):
            data = f"[{self._untold} records were lost: the log's file is too slow]\n{data}"
            self._untold = 0
        self._waiting.append(data)
        self._size += len(data)
        if not self._thread:
            self._begin()
        return len(data)

    def flush(self) -> None:
        """Does nothing: the writer flushes."""

    def _begin(self) -> None:
        self._thread = True
        try:
            if scheduler._in_loop_os_thread():
                scheduler.spawn(self._work, thread_name="log writer", daemon=True)
                return
            if scheduler._post_internal(self._spawn):
                return
        except Exception:  # the loop is ending
            pass
        self._write_now()

    def _spawn(self) -> None:
        try:
            scheduler.spawn(self._work, thread_name="log writer", daemon=True)
        except Exception:
            self._write_now()

    def _work(self) -> None:
        try:
            while self._waiting:
                chunk, self._waiting = self._waiting, []
                size = sum(map(len, chunk))
                try:
                    offload.in_thread(self._store, chunk)
                except Interrupted:
                    self._waiting = self._take_back(chunk) + self._waiting  # the loop ends
                    raise
                finally:
                    self._size -= size
        finally:
            self._write_now()

    def _take_back(self, chunk: list[Any]) -> list[Any]:
        """What a worker has not written, and will not any more."""
        if not self._lock.acquire(timeout=LAST_WAIT):
            return []
        data = chunk[:]
        chunk.clear()
        self._lock.release()
        return data

    def _write_now(self) -> None:
        chunk, self._waiting = self._waiting, []
        self._size = 0
        self._thread = False
        self._store(chunk)

    def _store(self, chunk: list[Any]) -> None:
        if not self._lock.acquire(timeout=LAST_WAIT):
            self.lost += len(chunk)
            return
        try:
            data = chunk[:]
            chunk.clear()
            if data:
                self.f.write(type(data[0])().join(data))
                self.f.flush()
        except Exception:
            self.errors += 1
        finally:
            self._lock.release()
