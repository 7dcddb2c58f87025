"""WSGI (PEP 3333): `WSGIHandler(app)` is a handler for `coro.http.server` that calls a WSGI application.

    coro.http.serve(WSGIHandler(app), ("127.0.0.1", 8000))

Each request is answered in its connection's thread, and blocks nobody else: with `coro.install_thread_emulation()`
applications made for blocking sockets and `time.sleep` wait as threads of coro do, thousands at a time.

What comes as a whole is sent as a whole: an application that returns a list costs one system call. Others are sent
block by block, and nothing is held back (PEP 3333, "Buffering and Streaming"). ``wsgi.input`` reads from the connection
when the application reads; its end is marked (``wsgi.input_terminated``), also for a body in chunks.

Cost: about 3 us a request besides the application and the server.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from coro.http import h1
from coro.http._connection import http_request
from coro.http._gateway import environ
from coro.http.exceptions import LocalError

__all__ = ["FileWrapper", "InputStream", "WSGIHandler"]

#: Lists of blocks up to this many bytes are joined and sent at once.
JOIN = 65536
#: Headers that belong to one connection, which an application may not set (RFC 9110, section 7.6.1; PEP 3333).
HOP_BY_HOP = frozenset({"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"})

_Headers = list[tuple[str, str]]


class InputStream:
    """``wsgi.input``: the body of a request, read from the connection when it is asked for."""

    __slots__ = ("_ended", "_rest", "_request")

    def __init__(self, request: http_request) -> None:
        self._request = request
        self._rest = b""
        self._ended = False

    def _more(self) -> bytes:
        if self._ended:
            return b""
        piece = self._request.read_some(65536)
        if not piece:
            self._ended = True
        return piece

    def read(self, size: int | None = -1) -> bytes:
        """At most ``size`` bytes, all if it is negative or None; ``b""`` at the end. Fewer only at the end."""
        pieces = [self._rest]
        have = len(self._rest)
        whole = size is None or size < 0
        self._rest = b""
        while (whole or have < (size or 0)) and (piece := self._more()):
            pieces.append(piece)
            have += len(piece)
        data = b"".join(pieces)
        if not whole and size is not None and have > size:
            self._rest = data[size:]
            return data[:size]
        return data

    def readline(self, size: int | None = -1) -> bytes:
        """Through the next line feed, at most ``size`` bytes if it is not negative; ``b""`` at the end."""
        pieces: list[bytes] = []
        have = 0
        piece = self._rest
        limit = sys.maxsize if size is None or size < 0 else size
        while True:
            end = piece.find(b"\n", 0, max(0, limit - have)) + 1
            if end or have + len(piece) >= limit:
                end = end or limit - have
                pieces.append(piece[:end])
                self._rest = piece[end:]
                return b"".join(pieces)
            pieces.append(piece)
            have += len(piece)
            self._rest = b""
            piece = self._more()
            if not piece:
                return b"".join(pieces)

    def readlines(self, hint: int | None = -1) -> list[bytes]:
        """All lines; if ``hint`` is positive, no more after so many bytes."""
        lines, have = [], 0
        for line in self:
            lines.append(line)
            have += len(line)
            if hint is not None and 0 < hint <= have:
                break
        return lines

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")


class FileWrapper:
    """``wsgi.file_wrapper``: an iterable over a file's blocks. A file of the system's is sent with sendfile(2)."""

    def __init__(self, filelike: Any, block_size: int = 65536) -> None:
        self.filelike = filelike
        self.block_size = block_size
        if hasattr(filelike, "close"):
            self.close = filelike.close

    def __iter__(self) -> Iterator[bytes]:
        return iter(lambda: self.filelike.read(self.block_size), b"")

    def size(self) -> int | None:
        """How many bytes are left in a regular file, which can be sent by the system; None otherwise."""
        try:
            descriptor = self.filelike.fileno()
            status = os.fstat(descriptor)
            at: int = self.filelike.tell()
        except (AttributeError, OSError, ValueError):
            return None
        return max(0, status.st_size - at) if stat.S_ISREG(status.st_mode) else None


class _Answer:
    """``start_response`` for one request, and what became of it."""

    __slots__ = ("begun", "headers", "reason", "request", "status")

    def __init__(self, request: http_request) -> None:
        self.request = request
        self.status = 0
        self.reason: str | None = None
        self.headers: _Headers = []
        self.begun = False

    def __call__(self, status: str, headers: _Headers, exc_info: Any = None, /) -> Callable[[bytes], object]:
        if exc_info is not None:
            try:
                if self.begun:
                    raise exc_info[1].with_traceback(exc_info[2])
            finally:
                exc_info = None
        elif self.status:
            raise AssertionError("start_response() was called before: a second call needs exc_info (PEP 3333)")
        if not isinstance(status, str) or not status[:3].isdigit() or status[3:4] not in ("", " ") or status < "200":
            raise ValueError(f"expected a status such as '200 OK', a str, not {status!r}")
        for name, value in headers:
            if type(name) is not str or type(value) is not str:
                raise TypeError(f"expected names and values of headers as str, not {name!r}: {value!r}")
            if len(name) < 19 and name.lower() in HOP_BY_HOP:
                raise ValueError(f"the header {name} belongs to the connection, which is the server's (PEP 3333)")
        self.status = int(status[:3])
        reason = status[4:]
        self.reason = None if reason == h1.phrase(self.status) else reason
        self.headers = headers
        return self.write

    def begin(self) -> None:
        """Send the head."""
        if not self.status:
            raise AssertionError("the application did not call start_response() before its first block (PEP 3333)")
        self.begun = True
        self.request.start(self.status, self.headers, self.reason)

    def write(self, data: bytes) -> None:
        """The function that ``start_response`` returns."""
        if not isinstance(data, bytes):
            raise TypeError(f"expected a block of the answer as bytes, not {type(data).__name__}: {data!r}")
        if not self.begun:
            self.begin()
        if data:
            self.request.send(data)

    def length(self) -> int:
        """The announced length, -1 if there is none."""
        for name, value in self.headers:
            if len(name) == 14 and name.lower() == "content-length":
                return int(value)
        return -1

    def whole(self, body: bytes) -> None:
        """Everything there is, in one call."""
        if not self.status:
            self.begin()
        announced = self.length()
        if self.reason is not None or (announced >= 0 and announced != len(body)):
            # A head request may announce a length and send nothing.
            self.write(body)
            return
        if announced >= 0:
            headers = [pair for pair in self.headers if pair[0].lower() != "content-length"]
        else:
            headers = self.headers
        self.begun = True
        self.request.respond(self.status, headers, body)


class WSGIHandler:
    """A handler that calls a WSGI application for each request.

    root_path: where the application is mounted; it is taken from the paths and becomes SCRIPT_NAME. multiprocess:
    whether other processes serve it, too, for ``wsgi.multiprocess``.
    """

    def __init__(self, app: Callable[..., Iterable[bytes]], *, root_path: str = "", multiprocess: bool = False) -> None:
        if not callable(app):
            raise TypeError(f"expected a WSGI application, a callable of an environ and start_response, not {app!r}")
        self.app = app
        self.root_path = root_path.rstrip("/")
        self._base = {
            "wsgi.version": (1, 0),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": multiprocess,
            "wsgi.run_once": False,
            "wsgi.file_wrapper": FileWrapper,
            "wsgi.input_terminated": True,
            "SERVER_SOFTWARE": "coro",
            "SCRIPT_NAME": self.root_path,
            "GATEWAY_INTERFACE": "CGI/1.1",
        }

    def _of_connection(self, request: http_request) -> dict[str, Any]:
        """What is the same for all requests of a connection."""
        base = dict(self._base)
        base["wsgi.url_scheme"] = request.scheme
        if request.is_tls:
            base["HTTPS"] = "on"
        local = request.connection.local
        if local is None:
            try:
                local = request.connection.conn.getsockname()
            except (OSError, AttributeError):
                local = ""
        if isinstance(local, tuple):
            base["SERVER_NAME"], base["SERVER_PORT"] = str(local[0]), str(local[1])
        else:
            base["SERVER_NAME"], base["SERVER_PORT"] = str(local) or "localhost", ""
        remote = request.remote
        if isinstance(remote, tuple):
            base["REMOTE_ADDR"] = str(remote[0])
            if len(remote) > 1:
                base["REMOTE_PORT"] = str(remote[1])
        else:
            base["REMOTE_ADDR"] = remote if isinstance(remote, str) else ""
        return base

    def __call__(self, request: http_request) -> None:
        connection = request.connection
        try:
            scheme, remote, base = connection.wsgi_base
            if scheme != request.scheme or remote is not connection.remote:
                raise AttributeError
        except AttributeError:
            base = self._of_connection(request)
            connection.wsgi_base = (request.scheme, connection.remote, base)
        values = environ(request, base, self.root_path)
        values["wsgi.input"] = InputStream(request)
        answer = _Answer(request)
        result = self.app(values, answer)
        try:
            if (type(result) is list or type(result) is tuple) and not answer.begun:
                if len(result) == 1:
                    body = result[0]
                    if type(body) is bytes:
                        answer.whole(body)
                        if not request.finished:
                            request.finish()
                        return
                elif sum(map(len, result)) <= JOIN:
                    answer.whole(b"".join(result))
                    if not request.finished:
                        request.finish()
                    return
            self._stream(request, answer, result)
        finally:
            close = getattr(result, "close", None)
            if close is not None:
                close()

    def _stream(self, request: http_request, answer: _Answer, result: Iterable[bytes]) -> None:
        if type(result) is FileWrapper and not answer.begun and (size := result.size()) is not None and answer.status:
            announced = answer.length()
            if announced < 0:
                answer.headers = [*answer.headers, ("Content-Length", str(size))]
                announced = size
            if announced > size:
                raise LocalError(f"the application announces {announced} bytes of a file that has {size}")
            answer.begin()
            request.sendfile(result.filelike, result.filelike.tell(), announced)
        else:
            for block in result:
                # The head waits for the first block with something in it: until then exc_info may replace it.
                if block or answer.begun:
                    answer.write(block)
            if not answer.begun:
                answer.whole(b"")
        if not request.finished:
            request.finish()
