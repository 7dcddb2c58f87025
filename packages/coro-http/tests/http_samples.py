"""Whole objects of the compiled classes that need arguments, for what is done to all of them (test_half_made.py)."""

from __future__ import annotations

from collections.abc import Callable

from coro.http import _connection, _gateway, _static, _ws_connection, h1, headers, ws, wsgi
from coro.http._client import fast

HEAD = b"GET /a?b HTTP/1.1\r\nHost: a\r\nAccept: b\r\n\r\n"


class Stream:
    """Of nobody: what is sent is gone, and nothing comes."""

    closed = False

    def send(self, data: bytes) -> int:
        return len(data)

    sendall = send

    def recv(self, size: int, flags: int = 0) -> bytes:
        return b""

    def shutdown(self, how: int) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 80

    getpeername = getsockname


def head() -> h1.Head:
    parser = h1.Connection(h1.SERVER)
    parser.feed(HEAD)
    return parser.next_event()


def half_read() -> h1.Connection:
    """A parser in the midst of a chunked body."""
    parser = h1.Connection(h1.SERVER)
    parser.feed(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nwo")
    parser.next_event()
    return parser


def registry() -> _connection.Registry:
    return _connection.Registry(print, lambda request, result: None, lambda request, error: None, connection)


def connection(stream: object = None, address: object = None) -> _connection.connection:
    return _connection.connection(None, Stream(), ("127.0.0.1", 1), registry())


def request() -> _connection.http_request:
    """One that a handler has."""
    found: list[_connection.http_request] = []
    stream = Stream()
    pieces = [HEAD, b""]
    stream.recv = lambda size, flags=0: pieces.pop(0)
    served = _connection.Registry(found.append, lambda r, result: None, lambda r, error: None, connection)
    _connection.connection(None, stream, ("127.0.0.1", 1), served).run()
    return found[0]


def websocket() -> _ws_connection.WebSocket:
    return _ws_connection.WebSocket(Stream(), ws.Codec("server"), early=b"\x81\x85abcd\x09\x07\x0f\x08\x0e")


def codec() -> ws.Codec:
    """In the midst of a message."""
    made = ws.Codec("client")
    made.feed(b"\x01\x03abc\x80\x05ab")
    return made


SAMPLES: dict[str, Callable[[], object]] = {
    "coro.http.h1.Head": head,
    "coro.http.h1.Request": head,
    "coro.http.h1.Data": lambda: h1.Data(b"x"),
    "coro.http.h1.Connection": half_read,
    "coro.http.headers.header_set": lambda: headers.header_set(["a: b", "a: c"]),
    "coro.http.ws.Codec": codec,
    "coro.http.ws.Message": lambda: ws.Message("x"),
    "coro.http.ws.Fragment": lambda: ws.Fragment(b"x", 1, True),
    "coro.http._connection.Registry": registry,
    "coro.http._connection.connection": connection,
    "coro.http._connection.http_request": request,
    "coro.http._ws_connection.WebSocket": websocket,
    "coro.http._gateway.Environs": lambda: _gateway.Environs({}, ""),
    "coro.http._static.Remembered": lambda: _static.Remembered(True),
    "coro.http.wsgi.InputStream": lambda: wsgi.InputStream(Stream()),
    "coro.http.wsgi.WSGIHandler": lambda: wsgi.WSGIHandler(lambda environ, start: [b"x"]),
    "coro.http._client.fast.Plan": lambda: fast.Plan("a", b"x", None, 1, None, 1.0, 5),
}
