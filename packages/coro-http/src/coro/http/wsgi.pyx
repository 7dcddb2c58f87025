# cython: language_level=3
"""WSGI (PEP 3333): `WSGIHandler(app)` is a handler for `coro.http.server` that calls a WSGI application.

    coro.http.serve(WSGIHandler(app), ("127.0.0.1", 8000))

Each request is answered in its connection's thread, and blocks nobody else: with `coro.install_thread_emulation()`
applications made for blocking sockets and `time.sleep` wait as threads of coro do, thousands at a time.

What comes as a whole is sent as a whole: an application that returns a list costs one system call. Others are sent
block by block, and nothing is held back (PEP 3333, "Buffering and Streaming"). ``wsgi.input`` reads from the connection
when the application reads; its end is marked (``wsgi.input_terminated``), also for a body in chunks.

Cost: about 3 us a request besides the application and the server.
"""

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from coro.http import h1
from coro.http._gateway import environ

from coro.http.exceptions import LocalError

from coro.capi cimport require_abi
from coro.http._connection cimport http_request

require_abi()

__all__ = ["FileWrapper", "InputStream", "WSGIHandler"]

#: Lists of blocks up to this many bytes are joined and sent at once.
JOIN = 65536
#: Headers that belong to one connection, which an application may not set (RFC 9110, section 7.6.1; PEP 3333).
HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)

#: Status lines with their usual phrases that were seen: "200 OK" -> 200.
cdef dict usual = {}
DEF MOST_STATUSES = 100


class InputStream:
    """``wsgi.input``: the body of a request, read from the connection when it is asked for."""

    __slots__ = ("_ended", "_rest", "_request")

    def __init__(self, request):
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


cdef class _Answer:
    """``start_response`` for one request, and what became of it."""
    cdef http_request request
    cdef int status
    cdef str reason                     # None: the usual one
    cdef list headers
    cdef bint begun
    cdef Py_ssize_t announced           # the Content-Length, -1 without one

    def __call__(self, status, headers, exc_info=None):
        cdef Py_ssize_t n
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
        self.announced = -1
        for name, value in headers:
            if type(name) is not str or type(value) is not str:
                raise TypeError(f"expected names and values of headers as str, not {name!r}: {value!r}")
            n = len(name)
            if n == 14 and name.lower() == "content-length":
                self.announced = int(value)
            elif (n < 8 or n == 10 or n > 15) and n < 19 and name.lower() in HOP_BY_HOP:
                raise ValueError(f"the header {name} belongs to the connection, which is the server's (PEP 3333)")
        found = usual.get(status)
        if found is None:
            self.status = int(status[:3])
            self.reason = status[4:]
            if self.reason == h1.phrase(self.status):
                self.reason = None
                if len(usual) < MOST_STATUSES:
                    usual[status] = self.status
        else:
            self.status = found
            self.reason = None
        self.headers = headers if type(headers) is list else list(headers)
        return self.write

    cdef int begin(self) except -1:
        """Send the head."""
        if not self.status:
            raise AssertionError("the application did not call start_response() before its first block (PEP 3333)")
        self.begun = True
        self.request.start(self.status, self.headers, self.reason)
        return 0

    def write(self, data):
        """The function that ``start_response`` returns."""
        if not isinstance(data, bytes):
            raise TypeError(f"expected a block of the answer as bytes, not {type(data).__name__}: {data!r}")
        if not self.begun:
            self.begin()
        if data:
            self.request.send(data)

    cdef int whole(self, bytes body) except -1:
        """Everything there is, in one call."""
        cdef list headers = self.headers
        if not self.status:
            self.begin()
        if self.reason is not None or (self.announced >= 0 and self.announced != len(body)):
            # An answer to HEAD may announce a length and send nothing.
            self.write(body)
            self.request.finish()
            return 0
        if self.announced >= 0:
            headers = [pair for pair in headers if len(pair[0]) != 14 or pair[0].lower() != "content-length"]
        self.begun = True
        self.request.respond(self.status, headers, body)
        return 0


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

    def _of_connection(self, http_request request):
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

    def __call__(self, http_request request):
        cdef _Answer answer = _Answer.__new__(_Answer)
        cdef dict values
        cdef object body, connection = request.connection
        known = connection.wsgi_base
        if known is not None and known[0] == request.is_tls and known[1] is connection.remote:
            values = environ(request, <dict>known[2], self.root_path)
        else:
            base = self._of_connection(request)
            connection.wsgi_base = (request.is_tls, connection.remote, base)
            values = environ(request, base, self.root_path)
        values["wsgi.input"] = InputStream(request)
        answer.request = request
        answer.announced = -1
        result = self.app(values, answer)
        if type(result) is list and len(<list>result) == 1 and not answer.begun:
            body = (<list>result)[0]
            if type(body) is bytes:
                answer.whole(body)
                return
        try:
            if (type(result) is list or type(result) is tuple) and not answer.begun and sum(map(len, result)) <= JOIN:
                answer.whole(b"".join(result))
            else:
                self._stream(request, answer, result)
        finally:
            close = getattr(result, "close", None)
            if close is not None:
                close()

    def _stream(self, http_request request, _Answer answer not None, result):
        if type(result) is FileWrapper and not answer.begun and (size := result.size()) is not None and answer.status:
            if answer.announced < 0:
                answer.headers = [*answer.headers, ("Content-Length", str(size))]
                answer.announced = size
            if answer.announced > size:
                raise LocalError(f"the application announces {answer.announced} bytes of a file that has {size}")
            answer.begin()
            request.sendfile(result.filelike, result.filelike.tell(), answer.announced)
        else:
            for block in result:
                # The head waits for the first block with something in it: until then exc_info may replace it.
                if block or answer.begun:
                    answer.write(block)
            if not answer.begun:
                answer.whole(b"")
        if not request.finished:
            request.finish()
