"""``Request`` and ``Response`` as programs see them.

A Request is what is about to be sent; hooks and authentication change it in place. A Response has a head from the
start, and a body that is either there (``content``) or still on its connection, which it holds until the last byte is
read or it is closed. Headers, cookies and text are made when somebody asks.

Whatever way a response ends, its connection goes back to the pool or is closed, and its place in the pool is free:
``_finish`` is the one place for that, and a response that nobody closed does it when it is collected.
"""

from __future__ import annotations

import codecs
import json as _json
from collections.abc import Iterator
from http import HTTPStatus
from io import BytesIO, StringIO
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from coro.http._client.charsets import charset_of
from coro.http._client.fast import ResponseState
from coro.http._client.fields import Headers
from coro.http._client.multipart import Body
from coro.http._client.urls import URL
from coro.http.exceptions import HTTPStatusError, LimitError, LocalError

if TYPE_CHECKING:
    from coro.http._client.links import BodySource

__all__ = ["Request", "Response"]

REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Request:
    """A request of a client.

    ``method`` (upper case for the methods of the standard), ``url``, ``headers`` and ``body`` (None, or what
    ``make_body`` made) may be changed until it is sent; ``extensions`` is for hooks.
    """

    __slots__ = ("body", "extensions", "headers", "method", "url")

    def __init__(self, method: str, url: URL, headers: Headers | None = None, body: Body | None = None) -> None:
        self.method = method
        self.url = url
        self.headers = headers if headers is not None else Headers()
        self.body = body
        self.extensions: dict[str, Any] = {}

    @property
    def body_bytes(self) -> bytes | None:
        """The body if it is in memory, None if it is read from somewhere."""
        if self.body is None:
            return b""
        return self.body.content if isinstance(self.body.content, bytes) else None

    @property
    def target_for_digest(self) -> str:
        """The request target that Digest authentication signs."""
        return self.url.target

    def copy(self) -> Request:
        """Another one, with headers of its own and the same body."""
        new = Request(self.method, self.url, self.headers.copy(), self.body)
        new.extensions = self.extensions
        return new

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.url}>"


class Response(ResponseState):
    """A response to a request.

    ``status`` is the code, ``elapsed`` how many seconds passed until the head was there. ``content`` is the body. For a
    response of ``Client.stream`` that is an error until ``read()`` was called, and ``iter_bytes``, ``iter_text``,
    ``iter_lines`` and ``iter_raw`` give the body as it comes.

    It is true for a status below 400.
    """

    __slots__ = ()

    def __init__(
        self,
        status: int,
        headers: Any = (),
        content: bytes | None = b"",
        *,
        request: Request | None = None,
        reason: str | None = None,
    ) -> None:
        self.status = status
        self._headers = headers if isinstance(headers, Headers) else Headers(headers)
        self._content = content
        self._request = request
        self._reason = reason

    @classmethod
    def _of(cls, request: Request, head: Any) -> Self:
        """From a head that came."""
        self = cls.__new__(cls)
        self.status = head.status
        self._head = head
        self._request = request
        return self

    def __repr__(self) -> str:
        return f"<Response {self.status} {self.reason}>"

    def __bool__(self) -> bool:
        return self.status < 400

    # -- the head

    @property
    def headers(self) -> Headers:
        """The fields of the head."""
        headers: Headers | None = self._headers
        if headers is None:
            headers = self._headers = Headers._trusted(self._head.raw_headers)
        return headers

    @property
    def trailers(self) -> Headers:
        """Fields that came behind a chunked body, once that was read."""
        trailers = self._trailers
        if not isinstance(trailers, Headers):
            trailers = self._trailers = Headers() if trailers is None else Headers._trusted(trailers.raw_headers)
        return trailers

    @property
    def request(self) -> Request:
        """The request that it answers."""
        request: Request | None = self._request
        if request is None and self._plan is not None:
            request = self._request = self._plan.request.copy()
        if request is None:
            raise LocalError("this response was not made for a request")
        return request

    @request.setter
    def request(self, request: Request) -> None:
        self._request = request

    @property
    def history(self) -> list[Response]:
        """The responses that redirected here, the first one first."""
        history: list[Response] | None = self._history
        if history is None:
            history = self._history = []
        return history

    @history.setter
    def history(self, history: list[Response]) -> None:
        self._history = history

    @property
    def http_version(self) -> str:
        """``"1.1"`` or ``"1.0"``."""
        return "1.0" if self._head is not None and self._head.version[1] == 0 else "1.1"

    @property
    def status_code(self) -> int:
        """``status``, by its name in requests and httpx."""
        return self.status

    @property
    def reason(self) -> str:
        """The phrase that the server sent, or the usual one if it sent none."""
        reason = self._reason
        if reason is None and self._head is not None:
            reason = self._reason = bytes(self._head.reason).decode("latin-1")
        return reason or _phrase(self.status)

    @property
    def url(self) -> URL:
        """What was asked for, after redirects."""
        return self.request.url

    @property
    def ok(self) -> bool:
        """Whether the status is below 400."""
        return self.status < 400

    @property
    def is_redirect(self) -> bool:
        """Whether it names another place to ask at."""
        return self.status in REDIRECTS and "location" in self.headers

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies that this response sets, by name. The jar of the client has them already."""
        found: dict[str, str] = {}
        for line in self.headers.get_list("set-cookie"):
            name, equals, value = line.partition(";")[0].partition("=")
            if equals:
                found[name.strip()] = value.strip()
        return found

    def raise_for_status(self) -> Self:
        """The response itself; ``HTTPStatusError`` if its status is 400 or more."""
        if self.status >= 400:
            known = self._request is not None or self._plan is not None
            what = f"{self.request.method} {self.request.url}" if known else "the request"
            raise HTTPStatusError(f"{what} was answered with {self.status} {self.reason}", self)
        return self

    # -- the body

    @property
    def content(self) -> bytes:
        """The body. LocalError for a streamed response that was not read with ``read()``."""
        content: bytes | None = self._content
        if content is None:
            raise LocalError("the body has not been read; call read(), or iterate over iter_bytes()")
        return content

    @property
    def encoding(self) -> str:
        """How ``text`` decodes: the charset that the content type names, if it is one of texts on the web, else
        UTF-8. Set it to use another codec of Python's."""
        if self._encoding is None:
            self._encoding = charset_of(self.headers.get("content-type", ""))
        return str(self._encoding)

    @encoding.setter
    def encoding(self, name: str) -> None:
        codecs.lookup(name)
        self._encoding = name

    @property
    def text(self) -> str:
        """The body as text. Bytes that are not in its encoding become U+FFFD."""
        return self.content.decode(self.encoding, "replace")

    def json(self, **options: Any) -> Any:
        """The body as a JSON value. UTF-8, UTF-16 and UTF-32 are told apart by themselves (RFC 8259 section 8.1).
        options: for ``json.loads``. ValueError (``json.JSONDecodeError``) when it is none."""
        return _json.loads(self.content, **options)

    def read(self, limit: int | None = None) -> bytes:
        """Read the rest of the body into ``content`` and return it.

        limit: bytes at most, the client's ``limits.body`` if None. LimitError for more, after which the connection is
        closed; errors of the connection as for ``Client.request``.
        """
        if self._content is None:
            source = self._source
            if source is None or self._used:
                raise LocalError("the body was read in pieces, and is gone")
            self._used = True
            most = source.most if limit is None else limit
            try:
                self._content = _gathered(source, most)
            except BaseException:
                self.close()
                raise
            self._finish()
        return bytes(self._content)

    def iter_bytes(self, size: int | None = None) -> Iterator[bytes]:
        """The body in pieces, decompressed: as they come, at most 64 KiB each; with ``size`` of exactly so many bytes
        but for the last."""
        if size is not None:
            return _resized(self._pieces(False), size)
        return self._pieces(False)

    def iter_raw(self) -> Iterator[bytes]:
        """The body in pieces as they come, not decompressed."""
        return self._pieces(True)

    def iter_text(self) -> Iterator[str]:
        """The body in pieces of text."""
        decoder = codecs.getincrementaldecoder(self.encoding)("replace")
        for piece in self._pieces(False):
            if text := decoder.decode(piece):
                yield text
        if text := decoder.decode(b"", True):
            yield text

    def iter_lines(self, limit: int = 1_048_576) -> Iterator[str]:
        """The body in lines, without their ends (LF, CRLF or CR). limit: characters of a line at most, LimitError for
        more."""
        # The line that has not ended is written into a buffer: a peer that sends a byte at a time must not have us copy
        # all of it each time.
        begun = StringIO()
        after_cr = False
        for text in self.iter_text():
            if after_cr and text.startswith("\n"):
                text = text[1:]
            after_cr = text.endswith("\r") if text else False
            lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
            for number, line in enumerate(lines):
                begun.write(line)
                if begun.tell() > limit:
                    raise LimitError(f"a line of the body is longer than {limit} characters", 413, limit)
                if number < len(lines) - 1:
                    yield begun.getvalue()
                    begun.seek(0)
                    begun.truncate()
        if begun.tell():
            yield begun.getvalue()

    def _pieces(self, raw: bool) -> Iterator[bytes]:
        if self._content is not None:
            if raw and "content-encoding" in self.headers and self._used:
                raise LocalError("the body was decompressed, the bytes that came are gone; use stream() and iter_raw()")
            if self._content:
                yield self._content
            return
        source = self._source
        if source is None or self._used:
            raise LocalError("the body can be read once, and was")
        self._used = True
        done = False
        try:
            while piece := source.read_raw() if raw else source.read_decoded():
                yield piece
            done = True
        finally:
            if done:
                self._finish()
            else:
                self.close()

    def _finish(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            if source.trailers is not None:
                self._trailers = source.trailers
            source.finish()

    def close(self) -> None:
        """Give up what has not been read. The connection is closed unless all of the body came. Closing twice is no
        error."""
        source, self._source = self._source, None
        if source is not None:
            source.finish()

    def __del__(self) -> None:
        # A response of stream() that was dropped would keep its place in the pool for ever.
        if getattr(self, "_source", None) is not None:
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _resized(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    if size < 1:
        raise ValueError(f"expected a size of at least 1 byte, not {size}")
    held = bytearray()
    for piece in pieces:
        held += piece
        whole = len(held) - len(held) % size
        for start in range(0, whole, size):
            yield bytes(held[start : start + size])
        del held[:whole]
    if held:
        yield bytes(held)


def _gathered(source: BodySource, most: int) -> bytes:
    """All of a body. A buffer, and no list of pieces: those may be a byte each, and an object costs forty."""
    first = source.read_decoded()
    size = len(first)
    buffer: BytesIO | None = None
    while size <= most:
        piece = source.read_decoded() if first else b""
        if not piece:
            return first if buffer is None else buffer.getvalue()
        if buffer is None:
            buffer = BytesIO()
            buffer.write(first)
        buffer.write(piece)
        size += len(piece)
    raise LimitError(f"the body is larger than {most} bytes; take it in pieces with stream(), or allow more", 413, most)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
