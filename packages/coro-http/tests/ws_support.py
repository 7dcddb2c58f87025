"""What tests of WebSocket share: a request read from a stream with the codec alone, and connected pairs in memory."""

from __future__ import annotations

from typing import Any

import coro
from coro.http import h1
from coro.http._ws_connection import WebSocket
from coro.http.ws import Codec
from coro.testing import stream_pair


class PlainRequest:
    """A request for the handshake, with what ``websocket.accept`` uses of a server's request."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.codec = h1.Connection(h1.SERVER)
        while (event := self.codec.next_event()) is h1.NEED_DATA:
            self.codec.feed(stream.recv(65536))
        self.head = event
        self.headers = event.headers
        self.method = event.method.decode().lower()
        self.version = "{}.{}".format(*event.version)
        self.path = event.target.decode()
        self.scheme = "http"
        self.peer = None
        self.status: int | None = None
        self.connection = self

    def call_at_drain(self, function: Any) -> None:
        """No server, and so no drain."""

    def takeover(self, status: int, headers: Any) -> tuple[Any, bytes]:
        self.status = status
        while self.codec.next_event() not in (h1.PAUSED, h1.NEED_DATA):
            pass
        self.stream.sendall(self.codec.response(status, headers))
        return self.stream, self.codec.trailing_data

    def respond(self, status: int, headers: Any, body: bytes) -> None:
        self.status = status
        head = self.codec.response(status, [*headers, ("content-length", str(len(body)))])
        self.stream.sendall(head + self.codec.data(body) + self.codec.end())


def pair(
    client: dict[str, Any] | None = None, server: dict[str, Any] | None = None, capacity: int = 1 << 16, **both: Any
) -> tuple[WebSocket, WebSocket]:
    """An open WebSocket over a stream in memory: the client's side and the server's. Options of the codec are named
    as in ``Codec``; others go to the connection. The keepalive is off unless asked for."""
    left, right = stream_pair(capacity)
    sides = []
    for role, stream, options in (("client", left, client), ("server", right, server)):
        given = {"ping_interval": None, **both, **(options or {})}
        names = ("max_frame", "max_message", "max_inflated", "max_fragments", "deflate", "assemble")
        codec = Codec(role, **{name: given.pop(name) for name in names if name in given})
        sides.append(WebSocket(stream, codec, **given))
    return sides[0], sides[1]


def raw(role: str = "server", capacity: int = 1 << 20, **options: Any) -> tuple[Any, WebSocket]:
    """A WebSocket of this role, and the bare stream of its peer."""
    left, right = stream_pair(capacity)
    names = ("max_frame", "max_message", "max_inflated", "max_fragments", "deflate", "assemble")
    codec = Codec(role, **{name: options.pop(name) for name in names if name in options})
    return left, WebSocket(right, codec, **{"ping_interval": None, **options})


def refused(options: dict[str, Any], *frames: bytes, role: str = "server") -> tuple[int, BaseException | None]:
    """What a WebSocket does that is sent these frames: the code of the close frame that it answers with, and the cause
    that its program sees."""
    from coro.http.exceptions import WebSocketClosed

    stream, ws = raw(role, close_timeout=1.0, **options)

    def write() -> None:
        try:
            for frame in frames:
                stream.sendall(frame)
            stream.shutdown(coro.SHUT.WR)
        except OSError:
            pass

    thread = coro.spawn(write)
    cause: BaseException | None = None
    try:
        while True:
            ws.receive()
    except WebSocketClosed as e:
        cause = e.__cause__
    other = Codec("server" if role == "client" else "client", max_frame=None, max_message=None)
    code = 0
    while data := stream.recv(65536):
        other.feed(data)
        for event in other.events():
            code = getattr(event, "code", code)
    thread.join()
    stream.close()
    return code, cause
