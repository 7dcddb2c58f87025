# cython: language_level=3, nonecheck=True
"""WSGI (PEP 3333): `WSGIHandler(app)` is a handler for `coro.http.server` that calls a WSGI application.

    coro.http.serve(WSGIHandler(app), ("127.0.0.1", 8000))

Each request is answered in its connection's thread, and blocks nobody else: with `coro.install_thread_emulation()`
applications made for blocking sockets and `time.sleep` wait as threads of coro do, thousands at a time.

What comes as a whole is sent as a whole: an application that returns a list costs one system call. Others are sent
block by block, and nothing is held back (PEP 3333, "Buffering and Streaming"). ``wsgi.input`` reads from the connection
when the application reads; its end is marked (``wsgi.input_terminated``), also for a body in chunks.

Cost: about 1.5 us a request besides the application and the server.
"""

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from coro.http import h1
from coro.http.exceptions import LocalError

from libc.stdint cimport int64_t

from coro.capi cimport require_abi
from coro.http._connection cimport WITH_DATE, WITH_LENGTH, WITH_ODDITIES, WITH_SERVER, connection, http_request
from coro.http._gateway cimport Environs

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
# Addresses of a server whose environs are kept.
DEF MOST_ADDRESSES = 16


cdef class InputStream:
    """InputStream(request)\n--\n\n\
    ``wsgi.input``: the body of a request, read from the connection when it is asked for."""
    cdef object request
    cdef bytes rest                     # what was received and is not all read: it is from ``at`` on
    cdef Py_ssize_t at
    cdef bint ended

    def __cinit__(self, request):
        self.request = request
        self.rest = b""

    cdef bytes more(self):
        cdef bytes piece
        if self.ended:
            return b""
        piece = self.request.read_some(65536)
        if not piece:
            self.ended = True
        return piece

    def read(self, size=-1):
        """At most ``size`` bytes, all if it is negative or None; ``b""`` at the end. Fewer only at the end."""
        cdef Py_ssize_t have = len(self.rest) - self.at
        cdef Py_ssize_t wanted = sys.maxsize if size is None or size < 0 else size
        cdef bytes piece, data
        if have >= wanted:
            self.at += wanted
            return self.rest[self.at - wanted:self.at]
        pieces = [self.rest[self.at:]]
        self.rest = b""
        self.at = 0
        while have < wanted and (piece := self.more()):
            pieces.append(piece)
            have += len(piece)
        data = b"".join(pieces)
        if have > wanted:
            self.rest = data[wanted:]
            return data[:wanted]
        return data

    def readline(self, size=-1):
        """Through the next line feed, at most ``size`` bytes if it is not negative; ``b""`` at the end."""
        cdef Py_ssize_t left = sys.maxsize if size is None or size < 0 else size
        cdef Py_ssize_t n, end
        cdef list pieces = []
        while True:
            n = min(len(self.rest) - self.at, left)
            end = self.rest.find(b"\n", self.at, self.at + n)
            if end >= 0:
                n = left = end + 1 - self.at
            pieces.append(self.rest[self.at:self.at + n])
            self.at += n
            left -= n
            if left == 0:
                break
            self.rest = self.more()
            self.at = 0
            if not self.rest:
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readlines(self, hint=-1):
        """All lines; if ``hint`` is positive, no more after so many bytes."""
        lines, have = [], 0
        for line in self:
            lines.append(line)
            have += len(line)
            if hint is not None and 0 < hint <= have:
                break
        return lines

    def __iter__(self):
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


cdef extern from *:
    """
    #include <strings.h>
    #define coro_is_length(name) (PyUnicode_IS_COMPACT_ASCII(name) \\
        && strncasecmp((const char *)PyUnicode_1BYTE_DATA(name), "content-length", 14) == 0)
    /* The number that a str of one to eighteen digits stands for, else -1. */
    static int64_t coro_digits(PyObject *text) {
        const Py_UCS1 *p;
        Py_ssize_t n = PyUnicode_GET_LENGTH(text);
        int64_t value = 0;
        if (!PyUnicode_IS_COMPACT_ASCII(text) || n < 1 || n > 18) {
            return -1;
        }
        for (p = PyUnicode_1BYTE_DATA(text); n > 0; n--, p++) {
            if (*p < '0' || *p > '9') {
                return -1;
            }
            value = value * 10 + (*p - '0');
        }
        return value;
    }
    """
    bint is_length "coro_is_length"(object name)            # of 14 characters
    int64_t digits "coro_digits"(object text)


cdef class _Answer:
    """``start_response`` for one request, and what became of it."""
    cdef http_request request
    cdef int status
    cdef str reason                     # None: the usual one
    cdef list headers
    cdef int kinds                      # WITH_*: which of the server's fields are among them
    cdef bint begun
    cdef Py_ssize_t announced           # the Content-Length, -1 without one

    def __call__(self, status, headers, exc_info=None):
        cdef Py_ssize_t n
        cdef int64_t length
        cdef bint has_hops = False
        if exc_info is not None:
            try:
                if self.begun:
                    raise exc_info[1].with_traceback(exc_info[2])
            finally:
                exc_info = None
        elif self.status:
            raise AssertionError("start_response() was called before: a second call needs exc_info (PEP 3333)")
        found = usual.get(status) if type(status) is str else None
        if found is not None:
            self.status = found
            self.reason = None
        else:
            self.take_status(status)
        self.headers = headers if type(headers) is list else list(headers)
        self.announced = -1
        self.kinds = 0
        for pair in self.headers:
            name, value = pair
            if type(name) is not str or type(value) is not str:
                self.status = 0
                raise TypeError(f"expected names and values of headers as str, not {name!r}: {value!r}")
            n = len(<str>name)
            if n == 14 and is_length(name):
                length = digits(value)
                if length < 0 or self.announced >= 0:
                    self.kinds |= WITH_ODDITIES
                    length = int(value)
                self.announced = length
                self.kinds |= WITH_LENGTH
            elif (n < 8 or n == 10 or n > 15) and n < 19:
                lower = name.lower()
                if lower in HOP_BY_HOP:
                    has_hops = True
                elif lower == "date":
                    self.kinds |= WITH_DATE
                elif lower == "server":
                    self.kinds |= WITH_SERVER
        if has_hops:
            # PEP 3333 forbids them, and applications that pass on what another server has answered send them all the
            # same; this connection is not theirs.
            self.headers = [pair for pair in self.headers if pair[0].lower() not in HOP_BY_HOP]
        return self.write

    cdef int take_status(self, object status) except -1:
        """A status line that was not met before, or not with its usual phrase."""
        if not isinstance(status, str) or not status[:3].isdigit() or status[3:4] not in ("", " ") or status < "200":
            raise ValueError(f"expected a status such as '200 OK', a str, not {status!r}")
        self.status = int(status[:3])
        self.reason = status[4:]
        if self.reason == h1.phrase(self.status):
            self.reason = None
            if len(usual) < MOST_STATUSES:
                usual[status] = self.status
        return 0

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
        if (self.reason is not None or (self.announced >= 0 and self.announced != len(body))
                or (self.announced < 0 and self.request.h1.is_head and not body)):
            # An answer to HEAD may announce a length and send nothing, and without a body nobody knows its length.
            self.write(body)
            self.request.finish()
            return 0
        self.begun = True
        if self.request.respond_whole(self.status, headers, self.kinds, body):
            return 0
        if self.announced >= 0:
            headers = [pair for pair in headers if len(pair[0]) != 14 or pair[0].lower() != "content-length"]
        self.request.respond(self.status, headers, body)
        return 0


cdef class _OfConnection:
    """What a handler keeps of one request of a connection for the next."""
    cdef object handler
    cdef bint is_tls
    cdef object remote
    cdef Environs environs
    cdef object address, port


cdef class WSGIHandler:
    """WSGIHandler(app, *, root_path="", multiprocess=False)\n--\n\n\
    A handler that calls a WSGI application for each request.

    root_path: where the application is mounted; it is taken from the paths and becomes SCRIPT_NAME. multiprocess:
    whether other processes serve it, too, for ``wsgi.multiprocess``.
    """

    cdef readonly object app
    cdef readonly str root_path
    cdef dict base
    cdef dict environs              # (whether it is TLS, address of the server) -> Environs
    cdef dict __dict__
    cdef object __weakref__

    def __init__(self, app, *, str root_path="", multiprocess=False):
        if not callable(app):
            raise TypeError(f"expected a WSGI application, a callable of an environ and start_response, not {app!r}")
        self.app = app
        self.root_path = root_path.rstrip("/")
        self.environs = {}
        self.base = {
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

    cdef Environs environs_of(self, connection conn):
        """What makes environs for requests to this connection's own address."""
        cdef object local = conn.local
        if local is None:
            try:
                local = conn.conn.getsockname()
            except (OSError, AttributeError):
                local = ""
        if isinstance(local, tuple):
            name, port = str(local[0]), str(local[1])
        else:                           # a UNIX socket; neither may be empty (PEP 3333)
            name, port = "localhost", "443" if conn.is_tls else "80"
        known = self.environs.get((conn.is_tls, name, port))
        if known is not None:
            return <Environs>known
        base = {**self.base, "wsgi.url_scheme": "https" if conn.is_tls else "http", "SERVER_NAME": name,
                "SERVER_PORT": port}
        if conn.is_tls:
            base["HTTPS"] = "on"
        if len(self.environs) >= MOST_ADDRESSES:
            self.environs.clear()
        made = self.environs[conn.is_tls, name, port] = Environs(base, self.root_path)
        return made

    cdef _OfConnection of_connection(self, connection conn):
        """What is the same for all requests of a connection."""
        cdef _OfConnection known = _OfConnection.__new__(_OfConnection)
        cdef object remote = conn.remote
        known.handler = self
        known.is_tls = conn.is_tls
        known.remote = remote
        known.environs = self.environs_of(conn)
        if isinstance(remote, tuple):
            known.address = str(remote[0])
            if len(remote) > 1:
                known.port = str(remote[1])
        else:
            known.address = remote if isinstance(remote, str) else ""
        conn.wsgi_base = known
        return known

    def __call__(self, http_request request not None):
        cdef _Answer answer = _Answer.__new__(_Answer)
        cdef connection conn = request.connection
        cdef _OfConnection known
        cdef dict values
        cdef object body
        if type(conn.wsgi_base) is _OfConnection:
            known = <_OfConnection>conn.wsgi_base
            if known.is_tls != conn.is_tls or known.remote is not conn.remote or known.handler is not self:
                known = self.of_connection(conn)
        else:
            known = self.of_connection(conn)
        values = known.environs.environ(request, known.address, known.port, InputStream.__new__(InputStream, request))
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
