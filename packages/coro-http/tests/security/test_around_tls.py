"""Bytes in the clear before, behind and inside TLS: never a request, never an answer. And wss on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import client_support
import client_tls
import pytest
from http_support import connected, in_loop, serving

import coro
from coro import tls
from coro.http import websocket
from coro.http.client import Client
from coro.http.exceptions import ConnectError, ProxyError, ReadError, RemoteError

GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
PROXY = b"PROXY TCP4 1.2.3.4 5.6.7.8 99 443\r\n"


@contextmanager
def secure(folder: Path, **settings: Any) -> Iterator[tuple[Any, list[str]]]:
    """A server of https, and the paths that it was asked for."""
    served: list[str] = []

    def handler(request: Any) -> str:
        served.append(request.path)
        return str(request.remote[0])

    with serving(handler, tls=client_tls.server_context(folder), **settings) as server:
        yield server, served


def rest(conn: Any) -> bytes:
    """All that comes until the end, which may be a reset."""
    found = b""
    try:
        while piece := conn.recv(65536):
            found += piece
    except OSError:
        pass
    return found


def shaken(conn: Any) -> Any:
    return tls.context(client_tls.client_context()).wrap(conn, server_hostname="localhost")


@pytest.mark.parametrize("ends", ["at once", "in order", "later"])
def test_a_request_in_the_clear_before_the_handshake(ends: str, tmp_path: Path) -> None:
    """CVE-2023-40217: what came before a handshake that never takes place must not be read as if it had."""

    @in_loop
    def run() -> None:
        with secure(tmp_path) as (server, served):
            for _ in range(20):
                with connected(server) as conn:
                    conn.send(GET % b"/admin")
                    if ends == "at once":
                        continue
                    if ends == "in order":
                        conn.shutdown(coro.SHUT.WR)
                    assert b"HTTP/" not in rest(conn)
            coro.testing.wait_all_blocked()
            counts = server.statistics()["accepting"]
            assert (served, counts["wrap_failures"], counts["failed"]) == ([], 20, 0)

    run()


@pytest.mark.parametrize("proxied", [False, True])
def test_a_request_in_the_clear_and_then_a_handshake(proxied: bool, tmp_path: Path) -> None:
    @in_loop
    def run() -> None:
        with secure(tmp_path, proxy_protocol=proxied) as (server, served):
            with connected(server) as conn:
                conn.send((PROXY if proxied else b"") + GET % b"/admin")
                with pytest.raises(OSError):
                    shaken(conn)
            assert served == []
            with connected(server) as conn:
                if proxied:
                    conn.send(PROXY)
                with shaken(conn) as stream:
                    stream.send(GET % b"/in-order")
                    assert stream.recv(1000).endswith(b"\r\n\r\n" + (b"1.2.3.4" if proxied else b"127.0.0.1"))
            assert served == ["/in-order"]

    run()


@pytest.mark.parametrize("farewell", [False, True])
def test_a_request_in_the_clear_behind_tls(farewell: bool, tmp_path: Path) -> None:
    """In the middle of a session, and behind the farewell that ends it."""

    @in_loop
    def run() -> None:
        with secure(tmp_path) as (server, served):
            with connected(server) as conn:
                stream = shaken(conn)
                stream.send(GET % b"/inside")
                assert stream.recv(1000).startswith(b"HTTP/1.1 200")
                if farewell:
                    stream.shutdown(coro.SHUT.WR)
                conn.send(GET % b"/behind")
                conn.shutdown(coro.SHUT.WR)
                assert b"HTTP/" not in rest(conn)
            coro.testing.wait_all_blocked()
            assert served == ["/inside"]

    run()


@pytest.mark.parametrize(
    "behind", [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", b"\x15\x03\x03\x00\x02\x01\x00", b"evil and more"]
)
def test_an_answer_in_the_clear_behind_the_proxys(behind: bytes, tmp_path: Path) -> None:
    """A proxy, or who sits between, puts bytes behind its answer to CONNECT: they are no answer of the server."""

    @in_loop
    def run() -> None:
        def proxy(conn: Any, address: Any) -> None:
            assert client_support.read_head(conn) is not None
            conn.send(b"HTTP/1.1 200 OK\r\n\r\n" + behind)
            rest(conn)

        with coro.Server(proxy, ("127.0.0.1", 0)) as between:
            place = f"http://127.0.0.1:{between.addresses[0][1]}"
            with Client(tls=client_tls.client_context(), proxy=place) as client:
                with pytest.raises((ConnectError, ProxyError, ReadError, RemoteError)):
                    client.get("https://localhost:1/")
                assert client.statistics().used == 0

    run()


@pytest.mark.parametrize("when", ["before", "behind"])
def test_an_answer_in_the_clear_around_the_servers(when: str, tmp_path: Path) -> None:
    context = tls.context(client_tls.server_context(tmp_path))
    evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"

    def handle(conn: Any, address: Any) -> None:
        if when == "before":
            conn.send(evil)
            rest(conn)
            return
        stream = context.wrap(conn, server_side=True)
        client_support.read_head(stream)
        conn.send(evil)
        rest(conn)

    @in_loop
    def run() -> None:
        with coro.Server(handle, ("127.0.0.1", 0)) as server, Client(tls=client_tls.client_context()) as client:
            with pytest.raises((ConnectError, ReadError, RemoteError)):
                client.get(f"https://localhost:{server.addresses[0][1]}/")
            assert client.statistics().used == 0

    run()


@pytest.mark.parametrize("deflate", [None, True])
def test_wss(deflate: bool | None, tmp_path: Path) -> None:
    """A WebSocket over TLS with contexts of the ssl module alone, both sides ours."""

    @in_loop
    def run() -> None:
        def echo(ws: Any) -> None:
            for message in ws:
                ws.send(message)

        handler = websocket.endpoint(echo, deflate=deflate)
        with serving(handler, tls=client_tls.server_context(tmp_path)) as server:
            url = f"wss://localhost:{server.port}/"
            with websocket.connect(url, tls=client_tls.client_context(), deflate=deflate) as ws:
                for message in ("", "text", b"\0\xff", "long " * 60_000, bytes(range(256)) * 1000):
                    ws.send(message)
                    assert ws.receive() == message
            with pytest.raises(OSError, match="certificate"):
                websocket.connect(url)
            with pytest.raises(websocket.HandshakeError, match="TLS on this port.*wss://"):
                websocket.connect(f"ws://localhost:{server.port}/")

    run()


@pytest.mark.parametrize("side", ["client", "server"])
def test_wss_that_is_cut(side: str, tmp_path: Path) -> None:
    """TLS without a farewell, WebSocket without a close frame: told as 1006, on either side."""

    @in_loop
    def run() -> None:
        codes: list[int] = []
        opened = coro.event()

        def receive(ws: Any) -> None:
            opened.set()
            if side == "client":
                ws.stream.shutdown(coro.SHUT.RDWR)
                return
            try:
                ws.receive()
            except websocket.WebSocketClosed as e:
                codes.append(e.code)

        handler = websocket.endpoint(receive, close_timeout=1)
        with serving(handler, tls=client_tls.server_context(tmp_path)) as server:
            with connected(server) as conn:
                ws = websocket.connect("ws://localhost/", stream=shaken(conn))
                opened.wait()
                if side == "server":
                    conn.shutdown(coro.SHUT.RDWR)
                    while server.registry.counts()["open"]:
                        coro.yield_slice()
                else:
                    with pytest.raises(websocket.WebSocketClosed) as caught:
                        ws.receive()
                    codes.append(caught.value.code)
                ws.close()
        assert codes == [1006]

    run()
