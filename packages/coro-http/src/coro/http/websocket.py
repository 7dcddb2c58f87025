"""WebSocket (RFC 6455) with permessage-deflate (RFC 7692), both sides, for threads that block.

    @app.get("/echo")
    def echo(request):
        with websocket.accept(request) as ws:
            for message in ws:
                ws.send(message)

    with websocket.connect("ws://127.0.0.1:8080/echo") as ws:
        ws.send("hello")
        print(ws.receive())

`accept` answers a request, `connect` makes one; both return a `WebSocket`. The codec below is `coro.http.ws`, the
connection `_ws_connection.pyx`, the handshake `_ws_handshake.py`. At the end of the file are the classes of the classic
library: `handler`, `websocket` and `ws_packet`.

Cost: nothing beyond the connection's own.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, cast

import coro
from coro.http import h1
from coro.http._client.urls import parse
from coro.http._ws_connection import WebSocket, WebSocketStatistics
from coro.http._ws_handshake import (
    Deflate,
    accept_key,
    agree_deflate,
    check_answer,
    check_origin,
    check_request,
    choose_subprotocol,
    new_key,
    offer_deflate,
    tokens,
)
from coro.http.exceptions import (
    HandshakeError,
    RemoteError,
    TooMuchData,
    UnknownOpcode,
    WebSocketClosed,
    WebSocketError,
    WebSocketProtocolError,
)
from coro.http.ws import Codec, Fragment, may_be_sent

__all__ = [
    "Deflate",
    "HandshakeError",
    "TooMuchData",
    "UnknownOpcode",
    "WebSocket",
    "WebSocketClosed",
    "WebSocketError",
    "WebSocketProtocolError",
    "WebSocketStatistics",
    "accept",
    "connect",
    "endpoint",
    "handler",
    "websocket",
    "ws_packet",
]

MAX_MESSAGE = 1 << 20
MAX_INFLATED = 4 << 20
#: Fragments of a message: a message of MAX_MESSAGE bytes in pieces of 256 bytes is within it.
MAX_FRAGMENTS = 4096
PING_INTERVAL = 20.0
PONG_TIMEOUT = 20.0
CLOSE_TIMEOUT = 5.0
#: Service Restart, in IANA's registry of close codes: clients come back where they take 1000 for an end that was meant.
DRAIN_CODE = 1012
HANDSHAKE_TIMEOUT = 10.0
#: Bytes of the body of an answer that is no WebSocket which go into the exception.
SHOWN_BODY = 4096
#: How a server that expects TLS answers what is none: an alert, or its handshake (RFC 8446 5.1).
_TLS_ALERT, _TLS_HANDSHAKE = b"\x15\x03", b"\x16\x03"

_Headers = Iterable[tuple[str, str]]


def _deflate(wanted: Deflate | bool | None) -> Deflate | None:
    if wanted is None or wanted is False:
        return None
    return Deflate() if wanted is True else wanted


# -- a server


def accept(
    request: Any,
    *,
    subprotocols: Sequence[str] | Callable[[Sequence[str]], str | None] | None = None,
    origins: str | Iterable[str | None] | None = "same",
    deflate: Deflate | bool | None = None,
    headers: _Headers = (),
    max_message: int | None = MAX_MESSAGE,
    max_inflated: int | None = MAX_INFLATED,
    max_fragments: int | None = MAX_FRAGMENTS,
    ping_interval: float | None = PING_INTERVAL,
    pong_timeout: float = PONG_TIMEOUT,
    close_timeout: float = CLOSE_TIMEOUT,
    drain_code: int | None = DRAIN_CODE,
    _assemble: bool = True,
) -> WebSocket:
    """Answer a request with 101 and return the open WebSocket. Use it in a ``with`` block, in the handler's thread.

    subprotocols: names in the order of preference, or a function that chooses among those the client offers. origins:
    of which web pages a browser may connect: ``"same"``, those that came from this host; a list of origins such as
    ``"https://example.com"``, in which None stands for clients that send none; or None, all. deflate: whether to agree
    to permessage-deflate, and how. headers: pairs to send with the answer. max_message, max_inflated: most bytes of a
    message as sent, and as inflated; max_fragments: most frames of it; None is no limit. ping_interval: seconds of
    silence after which a ping is sent, None never. pong_timeout: seconds for its answer. close_timeout: seconds for the
    closing handshake. drain_code: the code to close with when the server begins to end in order (``drain``, ``stop``,
    SIGTERM): 1012 is "service restart", 1001 "going away" (RFC 6455 7.4.1). Whoever receives gets WebSocketClosed with
    it, and the server waits for the handler alone. None leaves it to the handler to come to an end.

    Raises HandshakeError after the request was answered with an error: it asks for no WebSocket, or may not have one;
    ValueError for a ``drain_code`` that may not be sent.
    """
    if drain_code is not None and not may_be_sent(drain_code):
        raise ValueError(f"expected a close code such as 1012 or 1001 as drain_code, or None, not {drain_code!r}")
    get_all = request.headers.get_all
    try:
        key = check_request(request.method, request.version, get_all)
        host = request.headers.get("host") or ""
        check_origin(request.headers.get("origin"), host, request.scheme, origins)
        offered = tokens(get_all("sec-websocket-protocol"))
        agreed = agree_deflate(_deflate(deflate), get_all("sec-websocket-extensions"))
    except HandshakeError as e:
        refuse(request, e)
    chosen = choose_subprotocol(offered, subprotocols)
    answer = [("upgrade", "websocket"), ("connection", "Upgrade"), ("sec-websocket-accept", accept_key(key))]
    if chosen is not None:
        answer.append(("sec-websocket-protocol", chosen))
    if agreed is not None:
        answer.append(("sec-websocket-extensions", agreed[1]))
    stream, early = request.takeover(101, [*answer, *headers])
    codec = Codec(
        "server",
        max_frame=max_message,
        max_message=max_message if _assemble else None,
        max_inflated=max_inflated,
        max_fragments=max_fragments if _assemble else None,
        deflate=None if agreed is None else agreed[0],
        assemble=_assemble,
    )
    ws = WebSocket(
        stream,
        codec,
        subprotocol=chosen,
        request=request,
        ping_interval=ping_interval,
        pong_timeout=pong_timeout,
        close_timeout=close_timeout,
        drain_code=drain_code or 0,
        early=early,
    )
    if drain_code is not None:
        request.connection.call_at_drain(ws._leave)
    return ws


def refuse(request: Any, error: HandshakeError) -> NoReturn:
    """Answer a request that cannot become a WebSocket, and raise the error."""
    headers = [("content-type", "text/plain; charset=utf-8")]
    if error.status == 426:
        headers += [("upgrade", "websocket"), ("connection", "Upgrade"), ("sec-websocket-version", "13")]
    elif error.status == 405:
        headers += [("allow", "GET")]
    request.respond(error.status or 400, headers, f"{error}\n".encode())
    raise error


def endpoint(function: Callable[..., object], **options: Any) -> Callable[..., None]:
    """A handler for a server or a route, made of a function that takes a WebSocket: ``app.get("/echo")(endpoint(f))``.

    Arguments of the route are passed on as keywords; ``options`` are those of ``accept``. The WebSocket is closed when
    the function returns or raises. A request that asks for no WebSocket was answered and is forgotten.
    """

    def handle(request: Any, **arguments: Any) -> None:
        try:
            ws = accept(request, **options)
        except HandshakeError:
            return
        with ws:
            try:
                function(ws, **arguments)
            except WebSocketClosed:
                if not ws.closed:
                    raise

    handle.__name__ = getattr(function, "__name__", "endpoint")
    handle.__doc__ = function.__doc__
    return handle


# -- a client


def connect(
    url: str,
    *,
    tls: Any = None,
    subprotocols: Sequence[str] = (),
    origin: str | None = None,
    headers: _Headers = (),
    deflate: Deflate | bool | None = None,
    timeout: float = HANDSHAKE_TIMEOUT,
    max_message: int | None = MAX_MESSAGE,
    max_inflated: int | None = MAX_INFLATED,
    max_fragments: int | None = MAX_FRAGMENTS,
    ping_interval: float | None = PING_INTERVAL,
    pong_timeout: float = PONG_TIMEOUT,
    close_timeout: float = CLOSE_TIMEOUT,
    stream: Any = None,
) -> WebSocket:
    """Connect to ``ws://host/path`` or ``wss://host/path`` and return the open WebSocket.

    tls: a context for ``wss``, by default one that verifies the server. subprotocols: names to offer, in the order of
    preference; ``subprotocol`` of the result is the one that the server chose. origin: value of the header Origin.
    headers: pairs to send with the request. A user and password in the URL are sent as Basic authentication. timeout:
    seconds for connecting and the whole handshake. stream: a connected stream to use instead of connecting. The other
    arguments are those of ``accept``.

    Raises HandshakeError when the server does not agree, OSError when it cannot be reached, coro.TimeoutError when the
    time is over, UnsupportedURL for a malformed URL.
    """
    target = parse(url, ("ws", "wss", "http", "https"))
    wanted = _deflate(deflate)
    names = list(subprotocols)
    with coro.timeout(timeout):
        conn = coro.connect(target.host, target.port) if stream is None else stream
        try:
            if target.secure and stream is None:
                conn = _wrap(conn, tls, target.host)
            key = new_key()
            lines = [
                ("host", target.authority),
                ("upgrade", "websocket"),
                ("connection", "Upgrade"),
                ("sec-websocket-key", key),
                ("sec-websocket-version", "13"),
            ]
            if names:
                lines.append(("sec-websocket-protocol", ", ".join(names)))
            if wanted is not None:
                lines.append(("sec-websocket-extensions", offer_deflate(wanted)))
            if origin is not None:
                lines.append(("origin", origin))
            if target.userinfo is not None:
                pair = base64.b64encode(":".join(target.userinfo).encode()).decode()
                lines.append(("authorization", "Basic " + pair))
            codec = h1.Connection(h1.CLIENT)
            conn.sendall(codec.request("GET", target.target, [*lines, *headers]))
            answer, body = _response(conn, codec)
            try:
                subprotocol, agreed = check_answer(answer.status, answer.headers.get_all, key, names, wanted)
            except HandshakeError as e:
                e.body = body
                raise
        except BaseException:
            conn.close()
            raise
    return WebSocket(
        conn,
        Codec(
            "client",
            max_frame=max_message,
            max_message=max_message,
            max_inflated=max_inflated,
            max_fragments=max_fragments,
            deflate=agreed,
        ),
        subprotocol=subprotocol,
        response_headers=answer.headers,
        ping_interval=ping_interval,
        pong_timeout=pong_timeout,
        close_timeout=close_timeout,
        early=codec.trailing_data,
    )


def _wrap(conn: Any, tls: Any, host: str) -> Any:
    import ssl

    from coro import tls as core_tls

    context = core_tls.context(ssl.create_default_context() if tls is None else tls)
    return context.wrap(conn, server_side=False, server_hostname=host)


def _response(conn: Any, codec: Any) -> tuple[Any, bytes]:
    """The head of the answer, and the beginning of its body when it is not 101."""
    answer = None
    body = first = b""
    while True:
        try:
            event = codec.next_event()
        except RemoteError as e:
            if first[:2] in (_TLS_ALERT, _TLS_HANDSHAKE):
                raise HandshakeError("expected HTTP, but the server speaks TLS on this port: use wss://") from e
            raise HandshakeError(f"expected an answer in HTTP, not {first[:40]!r}: {e}") from e
        if event is h1.NEED_DATA:
            data = conn.recv(65536)
            first = first or data
            codec.feed(data)
        elif isinstance(event, h1.Response):
            answer = event
            if answer.status == 101:
                return answer, body
        elif isinstance(event, h1.Data):
            body += event.data
            if len(body) >= SHOWN_BODY:
                return answer, body[:SHOWN_BODY]
        elif isinstance(event, h1.EndOfMessage):
            return answer, body
        elif event is h1.CLOSED or event is h1.PAUSED:
            if answer is None:
                raise HandshakeError(
                    "the server ended the connection without an answer; if it expects TLS on this port, use wss://"
                    if type(conn) is coro.sock
                    else "the server ended the connection without an answer"
                )
            return answer, body


# -- the classic interface


class _Opened:
    """A connection for which a websocket is being made, and its thread."""

    __slots__ = ("thread", "ws")

    def __init__(self, ws: WebSocket) -> None:
        self.ws = ws
        self.thread: Any = None


class handler:
    """A classic handler for one path: ``factory(protocol, request, handler)`` makes a ``websocket`` (or a child of it)
    for each connection. ``protocol`` is ``"rfc6455"``.

    ``options`` are those of ``accept`` but for ``deflate``: frames are handed up as they come. ``max_message`` limits a
    frame. The connection belongs to the websocket from then on.
    """

    def __init__(self, path: str, factory: Callable[..., Any], **options: Any) -> None:
        self.path = path
        self.factory = factory
        self.options = options
        self._open: dict[int, _Opened] = {}

    def match(self, request: Any) -> bool:
        """Whether the request asks for a WebSocket at our path."""
        upgrade = request.headers.get("upgrade") or ""
        return request.path == self.path and request.method == "get" and "websocket" in upgrade.lower()

    def handle_request(self, request: Any) -> None:
        """Answer, call the factory, and wait until its websocket has ended. A bad request is answered with an error."""
        try:
            ws = accept(request, **self.options, _assemble=False)
        except HandshakeError:
            return
        opened = _Opened(ws)
        self._open[id(request)] = opened
        try:
            self.factory("rfc6455", request, self)
        except BaseException:
            ws.close(1011)
            raise
        finally:
            del self._open[id(request)]
        if opened.thread is None:
            ws.close(1011)  # the factory made no websocket
        else:
            opened.thread.join()


class ws_packet:
    """A received data frame: ``fin``, ``opcode`` (1 text, 2 binary, 0 more of the same), ``mask``, ``plen`` and
    ``masking``; ``unpack()`` returns the payload. ``payload`` is the same: nothing is left to unmask."""

    __slots__ = ("fin", "mask", "masking", "opcode", "payload", "plen")

    def __init__(self, fragment: Fragment) -> None:
        self.fin = fragment.final
        self.opcode = fragment.opcode
        self.masking = fragment.mask
        self.mask = fragment.mask is not None
        self.payload = fragment.data
        self.plen = len(fragment.data)

    def unpack(self) -> bytes:
        """The payload, unmasked."""
        return self.payload

    def __repr__(self) -> str:
        return f"<ws_packet fin={self.fin} opcode={self.opcode} plen={self.plen}>"


class websocket:
    """A classic WebSocket of a server, with a thread that calls ``handle_packet`` for each data frame and
    ``handle_close`` at the end. Override these two. Pings, pongs and closing are dealt with below.

    proto: ``"rfc6455"``. http_request, handler: as passed to the handler's factory.
    """

    def __init__(self, proto: str, http_request: Any, handler: handler) -> None:
        self.proto = proto
        self.request = http_request
        self.handler = handler
        opened = handler._open[id(http_request)]
        self._ws = opened.ws
        self.stream = self.conn = self._ws.stream
        self.send_mutex = coro.mutex()
        self._text: bool | None = None
        opened.thread = coro.spawn(self.read_thread, thread_name=f"websocket {getattr(http_request, 'peer', '')}")

    def read_thread(self) -> None:
        """The body of the thread that reads."""
        try:
            with self._ws as ws:
                for fragment in ws:
                    if self.handle_packet(ws_packet(cast(Fragment, fragment))):
                        break
        except WebSocketClosed:
            pass
        finally:
            self.handle_close()

    def handle_packet(self, packet: ws_packet) -> bool | None:
        """A data frame has come. Return True to close the connection."""
        return False

    def handle_close(self) -> None:
        """The connection has ended."""

    def send_text(self, data: str | bytes, fin: bool = True) -> None:
        """Send text, or, with ``fin=False``, a fragment of it that others follow. Raises as ``WebSocket.send``."""
        self._send(data.decode() if isinstance(data, bytes) else data, fin)

    def send_binary(self, data: bytes, fin: bool = True) -> None:
        """Send bytes, or, with ``fin=False``, a fragment that others follow. Raises as ``WebSocket.send``."""
        self._send(data, fin)

    def _send(self, data: str | bytes, fin: bool) -> None:
        with self.send_mutex:
            if self._text is None and fin:
                self._ws.send(data)
                return
            self._text = None if fin else isinstance(data, str)
            self._ws._send_part(data, fin)

    def send_pong(self, data: bytes = b"") -> None:
        """Send a pong. Pings are answered without it."""
        self._ws.pong(data)

    def send_packet(self, opcode: int, data: bytes, fin: bool = True) -> None:
        """Send a frame: opcode 1 text, 2 binary, 0 the continuation of either, 8 close, 9 ping, 10 pong.

        Raises UnknownOpcode for another one, else as ``WebSocket.send``.
        """
        if opcode in (0, 1, 2):
            text = self._text if opcode == 0 else opcode == 1
            self._send(bytes(data).decode() if text else bytes(data), fin)
        elif opcode == 8:
            self._ws.close(int.from_bytes(data[:2], "big") if data else None, bytes(data[2:]).decode())
        elif opcode == 9:
            self._ws._send_ping(bytes(data))
        elif opcode == 10:
            self._ws.pong(bytes(data))
        else:
            raise UnknownOpcode(opcode)

    def close(self) -> None:
        """Close the connection."""
        self._ws.close()
