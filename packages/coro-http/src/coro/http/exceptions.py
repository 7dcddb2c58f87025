"""Every exception of coro.http, with a sentence each on when it is raised.

Two families tell whose fault it is: `LocalError` is a mistake of the calling program, `RemoteError` one of the peer. A
codec raises nothing else, whatever arrives. Failures of a client's request are `RequestError`; those that are timeouts
are also the built-in TimeoutError. Cost: names only.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any

__all__ = [
    "BombError",
    "ConnectError",
    "ConnectTimeout",
    "ConnectionClosed",
    "DeadlineExceeded",
    "DecodeError",
    "HTTPError",
    "HTTPException",
    "HTTPStatusError",
    "HTTP_Upgrade",
    "HandshakeError",
    "IncompleteError",
    "LifespanError",
    "LimitError",
    "LocalError",
    "PoolTimeout",
    "ProtocolError",
    "ProxyError",
    "ReadError",
    "ReadTimeout",
    "RemoteError",
    "RequestError",
    "TooManyRedirects",
    "TooMuchData",
    "UnknownOpcode",
    "UnsupportedURL",
    "WebSocketClosed",
    "WebSocketError",
    "WebSocketProtocolError",
    "WriteError",
    "WriteTimeout",
]


class HTTPError(Exception):
    """Base of all exceptions of coro.http that tell of a failure."""


# -- the protocol


class ProtocolError(HTTPError):
    """HTTP was not spoken as the standard wants it: by us (`LocalError`) or by the peer (`RemoteError`)."""


class LocalError(ProtocolError):
    """This program asked for something that HTTP has no form for: a header with a line break, more bytes of a body than
    announced, a response before its request. Nothing was sent."""


class RemoteError(ProtocolError):
    """The peer sent something that is not HTTP, or that can be read in two ways. The connection is to be closed.

    ``status`` is the status code for a server's answer.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class IncompleteError(RemoteError):
    """The peer's stream ended inside a message: what came of it is not the whole."""


class LimitError(RemoteError):
    """The peer's message is larger than this side allows. ``limit`` is the figure that was exceeded."""

    def __init__(self, message: str, status: int = 400, limit: int = 0) -> None:
        super().__init__(message, status)
        self.limit = limit


class DecodeError(RemoteError):
    """A compressed body is damaged, or not in the coding that its header names."""


class BombError(LimitError):
    """A compressed body grows beyond what is allowed when it is decompressed."""


class ConnectionClosed(HTTPError):
    """The connection ended before or while the call waited. The cause is chained."""


class HTTP_Upgrade(Exception):
    """Raised by a handler to say that the connection now belongs to another protocol: the server forgets it."""


class HTTPException(Exception):
    """Raised by a handler: the server answers with ``status``, and ``detail`` as text. ``headers`` are pairs that are
    sent, too."""

    def __init__(self, status: int, detail: str | None = None, headers: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail
        self.headers = list(headers)


class LifespanError(HTTPError):
    """An ASGI application refused to start (``lifespan.startup.failed``), or did not answer in time."""


# -- requests of a client


class RequestError(HTTPError):
    """A request got no response."""


class ConnectError(RequestError):
    """No connection to the server, or to its proxy, could be made."""


class ReadError(RequestError):
    """The connection ended before the response was complete."""


class WriteError(RequestError):
    """The connection ended before the request was sent."""


class ConnectTimeout(ConnectError, builtins.TimeoutError):
    """Connecting, TLS included, took longer than the limit for it."""


class ReadTimeout(ReadError, builtins.TimeoutError):
    """The server sent nothing for longer than the limit for it."""


class WriteTimeout(WriteError, builtins.TimeoutError):
    """The server took nothing for longer than the limit for it."""


class PoolTimeout(RequestError, builtins.TimeoutError):
    """No connection of the pool became free within the limit for it."""


class DeadlineExceeded(RequestError, builtins.TimeoutError):
    """The whole request, body included, took longer than its limit."""


class TooManyRedirects(RequestError):
    """The server redirected more often than allowed."""


class ProxyError(ConnectError):
    """The proxy refused to connect, or did not speak its protocol."""


class UnsupportedURL(RequestError, ValueError):
    """The URL has a scheme that this client does not speak, or is none."""


class HTTPStatusError(HTTPError):
    """Raised by ``raise_for_status()`` for a response with a status from 400 on. ``response`` is that response."""

    def __init__(self, message: str, response: Any = None) -> None:
        super().__init__(message)
        self.response = response


# -- WebSocket


class WebSocketError(HTTPError):
    """Base of the errors of WebSocket connections."""


class HandshakeError(WebSocketError):
    """The opening handshake of a WebSocket failed; nothing was switched. For a client that got another answer than 101,
    ``status`` is its status code and ``body`` the beginning of its body; else they are None and empty."""

    def __init__(self, message: str, status: int | None = None, body: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.body = body


class WebSocketProtocolError(WebSocketError, RemoteError):
    """The peer broke the rules of RFC 6455 or RFC 7692. ``code`` is the close code that tells it so, and ``reason`` the
    text beside it."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class TooMuchData(WebSocketProtocolError):
    """A frame or a message is larger than this side allows. ``limit`` is the figure that was exceeded."""

    def __init__(self, reason: str, limit: int = 0) -> None:
        super().__init__(1009, reason)
        self.limit = limit


class UnknownOpcode(WebSocketProtocolError):
    """A frame has an opcode that RFC 6455 does not define: ``opcode``."""

    def __init__(self, opcode: int) -> None:
        super().__init__(1002, f"the unknown opcode {opcode}")
        self.opcode = opcode


class WebSocketClosed(WebSocketError, ConnectionClosed):
    """The WebSocket is closed. ``code`` and ``reason`` are those of the peer's close frame: 1005 when it gave no code,
    1006 when the connection ended without one. The failure that ended it, if there was one, is chained."""

    def __init__(self, code: int = 1006, reason: str = "") -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return f"the WebSocket is closed: {self.code}{' ' + self.reason if self.reason else ''}"
