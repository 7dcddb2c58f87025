"""The classic names of the protocol: `http_file`, `latch`, `header_set`, the two exceptions, and what `push` needs.

Programs written for Shrapnel's coro.http find here what they imported from ``coro.http.protocol``. New code reads a
body with ``request.read_some`` and answers with ``respond`` or by returning something. Cost: an object per request that
uses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

import coro
from coro.http import h1
from coro.http._content import Compressor, choose
from coro.http.exceptions import HTTP_Upgrade, ProtocolError
from coro.http.headers import header_set

if TYPE_CHECKING:
    from coro.http._connection import http_request

__all__ = ["HTTP_Protocol_Error", "HTTP_Upgrade", "error_page", "header_set", "http_file", "latch"]

#: The classic name of the base of protocol errors.
HTTP_Protocol_Error = ProtocolError

#: The page that ``request.error`` sends.
DEFAULT_ERROR_MESSAGE = """<!DOCTYPE html>
<html><head><title>Error</title></head>
<body><h1>Error</h1>
<p>Code {code}: {message}.</p>
<p>{reason}</p>
</body></html>
"""

#: Bytes that ``push`` holds back.
BUFFERED = 8000


def error_page(code: int, reason: str | None = None) -> str:
    """The page for a status code; ``reason`` is escaped."""
    return DEFAULT_ERROR_MESSAGE.format(
        code=code, message=escape(h1.phrase(code)) or "unknown", reason=escape(reason or "")
    )


class latch:
    """An event that happens once: ``wait`` returns at once when it has happened."""

    def __init__(self) -> None:
        self._event = coro.event()
        self._args: Any = ()
        self.done = False

    def wake_all(self, args: Any = ()) -> None:
        """It has happened; everybody who waits gets ``args``."""
        self.done = True
        self._args = args
        self._event.set()

    def wait(self) -> Any:
        """Wait for it; returns the ``args`` of ``wake_all``."""
        self._event.wait()
        return self._args


class http_file:
    """The body of a message as a file. ``source`` has ``read_some(n)``: at most so many bytes, ``b""`` at the end."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._rest = b""
        self.done_cv = latch()

    def _piece(self, n: int = 8000) -> bytes:
        if self._rest:
            piece, self._rest = self._rest[:n], self._rest[n:]
            return piece
        piece = bytes(self._source.read_some(n))
        if not piece and not self.done_cv.done:
            self.done_cv.wake_all("done")
        return piece

    def _pieces(self, size: int) -> Iterator[bytes]:
        left = size
        while not size or left > 0:
            piece = self._piece(min(left, 8000) if size else 8000)
            if not piece:
                return
            left -= len(piece)
            yield piece

    def read(self, size: int = 0, join: bool = True) -> Any:
        """``size`` bytes, fewer at the end of the body; 0: all of it. ``join=False``: a generator of pieces. Raises
        what ``request.read_some`` raises."""
        if not join:
            return self._pieces(size)
        return b"".join(self._pieces(size))

    def readline(self) -> bytes:
        """Through the next line feed; ``b""`` at the end."""
        found = bytearray()
        while True:
            piece = self._piece()
            if not piece:
                return bytes(found)
            line, feed, rest = piece.partition(b"\n")
            found += line + feed
            if feed:
                self._rest = rest + self._rest
                return bytes(found)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def wait(self) -> None:
        """Wait until somebody has read the whole body."""
        self.done_cv.wait()

    def abort(self, info: str = "aborted") -> None:
        """Release everybody who waits."""
        self.done_cv.wake_all(info)


class classic_output:
    """What ``push`` and ``done`` of a request do: the head before the first piece, pieces gathered into blocks."""

    def __init__(self, request: http_request) -> None:
        self._request = request
        self._held: list[bytes] = []
        self._size = 0
        self._compressor: Compressor | None = None

    def set_deflate(self) -> Compressor | None:
        request = self._request
        coding = choose(request.request_headers.get_one("accept-encoding"), ("gzip", "deflate"))
        if request.started or coding is None:
            return None
        request.reply_headers.set_one("content-encoding", coding)
        request.reply_headers["vary"] = "accept-encoding"
        request.reply_headers.remove("content-length")
        self._compressor = Compressor(coding)
        return self._compressor

    def push(self, data: Any, flush: bool) -> None:
        data = data.encode() if isinstance(data, str) else bytes(data)
        if self._compressor is not None:
            data = self._compressor.compress(data)
            if flush:
                data += self._compressor.flush()
        if not self._request.started:
            self._request.start(self._request.reply_code)
        self._held.append(data)
        self._size += len(data)
        if flush or self._size >= BUFFERED:
            self._send()

    def _send(self) -> None:
        held, self._held, self._size = b"".join(self._held), [], 0
        self._request.send(held)

    def done(self) -> None:
        request = self._request
        if not request.started:
            if request.reply_headers.get("content-length") is None and self._compressor is None:
                request.respond(request.reply_code, (), b"")
                return
            request.start(request.reply_code)
        if self._compressor is not None:
            self._held.append(self._compressor.finish())
        self._send()
        request.finish()
