"""The classic client: one connection, requests sent without waiting for the responses before (``client``, ``request``).

RFC 9112 section 9.3.2: responses come in the order of the requests. Any number of threads may use one client, or one
thread may have many requests on their way. A mutex keeps a request together, body included, and puts it into the queue
in the same hold, so the order of sending is the order of the queue. One reader hands the responses out.

When the connection breaks, each request that has no response gets the same error, with its cause chained. A place among
the ``inflight`` ones is given back when the response is there, not when the request is out.

Cost: two locks and an event for a request; a head and its body in memory for those that are not taken with GET_file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Literal, Self, overload

from coro._entry.connect import connect
from coro._runtime import scheduler
from coro._sync.conditions import event
from coro._sync.locks import mutex, semaphore
from coro.http import h1
from coro.http.exceptions import ConnectionClosed, HTTPError, LimitError
from coro.http.headers import header_set

__all__ = ["client", "request", "response_file"]

BLOCK = 65_536
#: Bytes of a response that ``content`` takes; GET_file has no limit.
MOST_CONTENT = 256 * 1024 * 1024


class response_file:
    """The body of a response as a file, read by the thread that asked for it. What is behind it on the connection waits
    until it was read to its end, or given up with ``abort``, which closes the connection."""

    def __init__(self, owner: client) -> None:
        self._owner = owner
        self._held = b""
        self._ended = False
        #: Set when the whole body has been read, or nobody will.
        self.done_cv = event()

    def _more(self) -> bytes:
        if self._ended:
            return b""
        try:
            piece = self._owner._next_piece()
        except BaseException:
            self._end()
            raise
        if not piece:
            self._end()
        return piece

    def _end(self) -> None:
        self._ended = True
        self.done_cv.set()

    @overload
    def read(self, size: int = 0, join: Literal[True] = True) -> bytes: ...
    @overload
    def read(self, size: int, join: Literal[False]) -> Iterator[bytes]: ...
    def read(self, size: int = 0, join: bool = True) -> bytes | Iterator[bytes]:
        """``size`` bytes, fewer only at the end; 0 for all of them. With ``join`` False an iterator of pieces."""
        pieces = self._pieces(size or None)
        return b"".join(pieces) if join else pieces

    def _pieces(self, left: int | None) -> Iterator[bytes]:
        while left is None or left > 0:
            piece, self._held = self._held or self._more(), b""
            if not piece:
                return
            if left is not None:
                piece, self._held = piece[:left], piece[left:]
                left -= len(piece)
            yield piece
        if not self._held:
            # Whoever has read the last byte has read the body: look whether there is more without being asked.
            self._held = self._more()

    def readline(self) -> bytes:
        """The bytes through the next LF; ``b""`` at the end."""
        out: list[bytes] = []
        while piece := self._held or self._more():
            line, newline, self._held = piece.partition(b"\n")
            out.append(line + newline)
            if newline:
                break
            self._held = b""
        return b"".join(out)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def wait(self) -> None:
        """Wait until somebody has read all of it."""
        self.done_cv.wait()

    def abort(self, info: str = "aborted") -> None:
        """Give up what was not read, and with it the connection."""
        if not self._ended:
            self._end()
            self._owner._fail(ConnectionClosed(f"the body of a response was given up: {info}"))


class request:
    """A request of a ``client`` and its response.

    ``method``, ``uri``, ``qheaders`` and ``qcontent`` are what was sent. Once ``wait()`` has returned: ``response``
    (the status line), ``version`` ("1.1"), ``reply_code`` (an int), ``reason``, ``rheader`` (a ``header_set``), and
    ``content``, or ``rfile`` for a request of ``GET_file``.
    """

    def __init__(
        self, method: str, uri: str, headers: header_set, content: Any = None, *, as_file: bool = False
    ) -> None:
        self.method = method
        self.uri = uri
        self.qheaders = headers
        self.qcontent = content
        self.response: str | None = None
        self.version: str | None = None
        self.reply_code: int | None = None
        self.reason: str | None = None
        self.rheader: Any = None
        self.rfile: response_file | None = None
        self.content: bytes | None = None
        self._as_file = as_file
        self._counted = False  # it holds a place among the client's inflight ones
        self._ready = event()
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<request {self.method} {self.uri}: {self.reply_code or 'no response yet'}>"

    def wait(self) -> None:
        """Wait for the response; for a request of GET_file, for its head. Raises what the connection ended with:
        ConnectionClosed, or RemoteError for a response that is not HTTP."""
        self._ready.wait()
        if self._error is not None:
            raise type(self._error)(*self._error.args) from self._error

    def abort(self) -> None:
        """Do not wait any more: whoever waits gets ConnectionClosed. The response is read and thrown away."""
        self._done(ConnectionClosed(f"{self.method} {self.uri} was aborted"))

    def _done(self, error: BaseException | None = None) -> None:
        if not self._ready.is_set():
            self._error = error
            self._ready.set()


class client:
    """A connection to one server, for many requests at a time::

        c = client("127.0.0.1", 8080)
        first = c.send_request("GET", "/a", header_set())
        second = c.GET("/b", accept="text/html")    # waits
        first.wait()
        print(first.reply_code, first.content, second.content)

    host, port: where to connect, at once. conn: a connected stream to use instead. inflight: how many requests may be
    without a response; the next one waits. Raises what ``coro.connect`` raises.

    Requests are sent as they are: no redirects, cookies, decompression or second attempts; see ``Client`` for those.
    """

    def __init__(self, host: str, port: int = 80, conn: Any = None, inflight: int = 100) -> None:
        self.host = host
        self.port = port
        self.inflight = semaphore(inflight)
        self.conn = connect(host, port) if conn is None else conn
        self._codec = h1.Connection(h1.CLIENT)
        self._sending = mutex()
        self._pending: deque[request] = deque()
        self._error: BaseException | None = None
        self._more = event()
        self._reader = scheduler.spawn(self._read, thread_name=f"http client of {host}:{port}", daemon=True)

    def __repr__(self) -> str:
        state = "closed" if self._error is not None else f"{len(self._pending)} requests without a response"
        return f"<http client of {self.host}:{self.port}: {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- requests

    def send_request(self, method: str, uri: str, headers: Any, content: Any = None, force: bool = False) -> request:
        """Send a request and return it without waiting for its response.

        method, uri: as they stand in the request line. headers: a ``header_set``, mapping or pairs; Host is added.
        content: bytes, or an iterable of them; with a Content-Length among the headers it must have so many, else it is
        sent chunked. force: do not wait for a place among the ``inflight`` ones.

        LocalError (an HTTP_Protocol_Error) for malformed arguments and for content of another length; the latter ends
        the connection. ConnectionClosed when it has ended.
        """
        return self._send(request(method, uri, self._fields(headers), content), force)

    def GET(self, uri: str, **headers: Any) -> request:
        """Send a GET, wait, and return the request with its ``content``. Headers are keywords, ``accept="text/html"``,
        with underscores for dashes."""
        return self._waited("GET", uri, None, headers)

    def PUT(self, uri: str, content: Any, **headers: Any) -> request:
        """The same with PUT and ``content``."""
        return self._waited("PUT", uri, content, headers)

    def POST(self, uri: str, content: Any, **headers: Any) -> request:
        """The same with POST and ``content``."""
        return self._waited("POST", uri, content, headers)

    def GET_file(self, uri: str, **headers: Any) -> request:
        """Send a GET and wait for the head of its response. The body is in ``rfile``; it has to be read before later
        responses arrive."""
        fields = self._fields(header_set().from_keywords(headers))
        sent = self._send(request("GET", uri, fields, as_file=True), False)
        sent.wait()
        return sent

    def close(self) -> None:
        """Close the connection. Requests without a response get ConnectionClosed. Closing twice is no error."""
        self._fail(ConnectionClosed("this client was closed"))

    def _waited(self, method: str, uri: str, content: Any, headers: dict[str, Any]) -> request:
        sent = self.send_request(method, uri, header_set().from_keywords(headers), content)
        sent.wait()
        return sent

    def _fields(self, headers: Any) -> header_set:
        return headers if isinstance(headers, header_set) else header_set(headers or ())

    def _send(self, req: request, force: bool) -> request:
        fields = req.qheaders.copy()
        content = req.qcontent
        if "host" not in fields:
            shown = f"[{self.host}]" if ":" in self.host else self.host
            fields.set_one("host", shown if self.port == 80 else f"{shown}:{self.port}")
        if isinstance(content, str):
            content = content.encode("utf-8")
        if isinstance(content, (bytes, bytearray, memoryview)):
            fields.set_one("content-length", str(len(content)))
        elif content is not None and "content-length" not in fields:
            fields.set_one("transfer-encoding", "chunked")
        if not force:
            self.inflight.acquire()
        queued = False
        try:
            with self._sending:
                if self._error is not None:
                    raise ConnectionClosed("the connection of this client has ended") from self._error
                head = self._codec.request(req.method.encode("ascii"), req.uri.encode("ascii"), fields)
                # From here on the codec expects a response, and so do we.
                req._counted = not force
                self._pending.append(req)
                queued = True
                self._more.set()
                try:
                    self._send_all(head, content)
                except BaseException as e:
                    # Half a request cannot be taken back.
                    self._fail(e if isinstance(e, HTTPError) else ConnectionClosed("a request was cut short"), e)
                    if isinstance(e, OSError):
                        raise ConnectionClosed(f"the connection ended while a request was sent: {e}") from e
                    raise
        except BaseException:
            if not queued and not force:
                self.inflight.release()
            raise
        return req

    def _send_all(self, head: bytes, content: bytes | Iterable[bytes] | None) -> None:
        send, codec = self.conn.send, self._codec
        if content is None:
            send(head + codec.end())
        elif isinstance(content, (bytes, bytearray, memoryview)):
            send(head + codec.data(content) + codec.end())
        else:
            send(head)
            for block in content:
                if block:
                    send(codec.data(block))
            send(codec.end())

    # -- the reader

    def _read(self) -> None:
        try:
            while True:
                while not self._pending:
                    self._more.clear()
                    self._more.wait()
                self._read_response(self._pending[0])
                if self._error is not None:
                    return
                answered = self._pending.popleft()
                if answered._counted:
                    self.inflight.release()
                if not self._codec.keep_alive:
                    self._fail(ConnectionClosed("the server closes the connection after this response"))
                    return
        except (HTTPError, OSError, EOFError) as e:
            self._fail(e if isinstance(e, HTTPError) else ConnectionClosed(f"the connection ended: {e}"), e)
        finally:
            self._fail(ConnectionClosed("the reader of this client has ended"))

    def _read_response(self, req: request) -> None:
        head = self._event()
        while isinstance(head, h1.InformationalResponse):
            head = self._event()
        if not isinstance(head, h1.Response):
            raise ConnectionClosed("the server closed the connection without a response")
        req.version = f"{head.version[0]}.{head.version[1]}"
        req.reply_code = head.status
        req.reason = bytes(head.reason).decode("latin-1")
        req.response = f"HTTP/{req.version} {req.reply_code} {req.reason}"
        req.rheader = head.headers
        if req._as_file:
            file = req.rfile = response_file(self)
            req._done()
            file.wait()
            return
        pieces: list[bytes] = []
        size = 0
        while piece := self._next_piece():
            size += len(piece)
            if size > MOST_CONTENT:
                raise LimitError(f"the response is larger than {MOST_CONTENT} bytes; use GET_file", 413, MOST_CONTENT)
            pieces.append(piece)
        req.content = b"".join(pieces)
        req._done()

    def _next_piece(self) -> bytes:
        """The next bytes of the present body, ``b""`` behind its end."""
        while True:
            got = self._event()
            if isinstance(got, h1.EndOfMessage):
                return b""
            if not isinstance(got, h1.Data):
                raise ConnectionClosed("the server closed the connection inside a response")
            if got.data:
                return bytes(got.data)

    def _event(self) -> Any:
        codec = self._codec
        while (got := codec.next_event()) is h1.NEED_DATA:
            try:
                codec.feed(self.conn.recv(BLOCK))
            except (OSError, EOFError) as e:
                raise (self._error or ConnectionClosed(f"the connection ended: {e}")) from e
        return got

    def _fail(self, error: BaseException, cause: BaseException | None = None) -> None:
        """The end: everybody who waits gets ``error``. Only the first one counts."""
        if self._error is not None:
            return
        if cause is not None and cause is not error:
            error.__cause__ = cause
        self._error = error
        pending = list(self._pending)
        self._pending.clear()
        self.conn.close()
        for req in pending:
            if req._counted:
                self.inflight.release()
            req._done(error)
            if req.rfile is not None:
                req.rfile._end()
        if self._reader is not scheduler.current() and not self._reader.dead:
            self._reader.shutdown()
