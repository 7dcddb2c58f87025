"""ASGI where clients leave and servers end: over TLS, in the log and in the counts, with WebSockets open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import client_tls
import pytest
from http_support import connected, messages, serving, until_end

import coro
from coro import http, tls
from coro.http import websocket
from coro.http.asgi import ASGIHandler
from coro.http.websocket import WebSocketClosed
from coro.testing import coro_test

# The event loop of asyncio stays until coro's loop ends, which is after the look at what was left behind.
in_loop = coro_test(leaks=False)
START = {"type": "http.response.start", "status": 200, "headers": []}
GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
UPGRADE = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"


@contextmanager
def client_of(server: Any, over_tls: bool) -> Iterator[Any]:
    with connected(server) as conn:
        if over_tls:
            conn = tls.context(client_tls.client_context()).wrap(conn, server_hostname="localhost")
        try:
            yield conn
        finally:
            conn.close()


def settings(over_tls: bool, folder: Path) -> dict[str, Any]:
    return {"tls": client_tls.server_context(folder)} if over_tls else {}


@pytest.mark.parametrize("over_tls", [False, True])
@pytest.mark.parametrize("how", ["in order", "cut"])
def test_a_client_that_leaves_is_told_and_is_no_fault(
    over_tls: bool, how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The application hears http.disconnect; the log has 499 (nginx's number), no traceback, and no error counts."""

    @in_loop
    def run() -> None:
        begun, told, logged = coro.event(), coro.event(), []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            assert (await receive())["type"] == "http.request"
            begun.set()
            assert (await receive())["type"] == "http.disconnect"
            told.set()
            raise LookupError("what a framework raises then")

        handler = ASGIHandler(app, lifespan="off")
        with serving(handler, access_log=logged.append, **settings(over_tls, tmp_path)) as server:
            with client_of(server, over_tls) as conn:
                conn.sendall(GET)
                begun.wait()
                if how == "cut":
                    getattr(conn, "sock", conn).close()
            told.wait()
            while server.registry.open:
                coro.yield_slice()
            counts = server.statistics()
            coro.sleep_relative(0)
            assert counts["errors"] == 0
            assert counts["by_class"]["4xx"] == 1
        assert [request.reply_code for request in logged] == [499]

    run()
    assert not [record for record in caplog.records if record.exc_info]


@in_loop
@pytest.mark.parametrize("late", [False, True])
def test_a_receive_that_is_cancelled_loses_nothing(late: bool) -> None:
    """What came for it, before it was cancelled or after, is for the next call."""
    pieces = [b"%d," % number for number in range(20)]
    asking = coro.event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            cancelled = asyncio.ensure_future(receive())
            await asyncio.sleep(0)
            if late:
                asking.set()
                while not exchange[0].asked.done():
                    await asyncio.sleep(0)
            cancelled.cancel()
            assert isinstance((await asyncio.gather(cancelled, return_exceptions=True))[0], asyncio.CancelledError)
            asking.set()
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        await send(START)
        await send({"type": "http.response.body", "body": body})

    exchange: list[Any] = []

    def watched(scope: Any, receive: Any, send: Any) -> Any:
        exchange[:] = [receive.__self__]
        return app(scope, receive, send)

    with serving(ASGIHandler(watched, lifespan="off")) as server, connected(server) as conn:
        length = len(b"".join(pieces))
        conn.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % length)
        for piece in pieces:
            asking.wait()
            asking.clear()
            conn.sendall(piece)
        assert messages(until_end(conn))[0][2] == b"".join(pieces)


@pytest.mark.parametrize("over_tls", [False, True])
def test_a_client_that_leaves_after_100_continue_has_no_answer(over_tls: bool, tmp_path: Path) -> None:
    @in_loop
    def run() -> None:
        logged: list[Any] = []
        handler = ASGIHandler(reads_all, lifespan="off")
        with serving(handler, access_log=logged.append, **settings(over_tls, tmp_path)) as server:
            with client_of(server, over_tls) as conn:
                conn.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
                assert conn.recv(100).startswith(b"HTTP/1.1 100 ")
                conn.sendall(b"abc")
                raw = getattr(conn, "sock", conn)
                raw.setsockopt(coro.SOL.SOCKET, coro.SO.LINGER, b"\x01\0\0\0\0\0\0\0")
                raw.close()
            while server.registry.open or not logged:
                coro.sleep_relative(0.001)
            assert server.statistics()["errors"] == 0
        assert [request.reply_code for request in logged] == [499]

    run()


async def reads_all(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def test_a_short_drain_is_not_held_up_by_a_websocket_whose_client_is_mute(caplog: pytest.LogCaptureFixture) -> None:
    """The close frame was sent when the drain began, and nobody answers it."""
    told = []

    @in_loop
    def run() -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            told.append(await receive())

        with serving(ASGIHandler(app, lifespan="off")) as server, connected(server) as conn:
            key = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            conn.sendall(UPGRADE.removesuffix(b"\r\n") + key)
            assert conn.recv(1000).startswith(b"HTTP/1.1 101 ")
            assert not server.drain(0.05)

    run()
    assert told == [{"type": "websocket.disconnect", "code": 1012, "reason": ""}]
    assert not [record for record in caplog.records if record.exc_info]


def test_a_denial_that_fails_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    @in_loop
    def run() -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await send({"type": "websocket.http.response.start", "status": 401, "headers": []})
            raise LookupError("nobody knows")

        with serving(ASGIHandler(app, lifespan="off")) as server, connected(server) as conn:
            conn.sendall(UPGRADE)
            assert conn.recv(1000).startswith(b"HTTP/1.1 500 ")

    run()
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [LookupError]


@pytest.mark.parametrize("over_tls", [False, True])
def test_a_client_that_sends_more_and_waits_is_answered(over_tls: bool, tmp_path: Path) -> None:
    """What comes while the application listens for the end of its client is the next request."""

    @in_loop
    def run() -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            gone = asyncio.ensure_future(receive())
            for _ in range(20):
                await asyncio.sleep(0)
            assert not gone.done()
            await send(START)
            await send({"type": "http.response.body", "body": scope["path"].encode()})

        with serving(ASGIHandler(app, lifespan="off"), **settings(over_tls, tmp_path)) as server:
            with client_of(server, over_tls) as conn:
                for number in range(3):
                    conn.sendall(b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % number)
                    answer = b""
                    while not answer.endswith(b"/%d" % number):
                        answer += conn.recv(1000)
                pipelined = b"".join(b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % number for number in range(9))
                conn.sendall(pipelined + b"GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
                bodies = [body for _, _, body in messages(until_end(conn))]
                assert bodies == [b"/%d" % number for number in range(9)] + [b"/last"]

    run()


@pytest.mark.parametrize("over_tls", [False, True])
def test_a_websocket_that_waits_for_its_accept_hears_that_the_client_left(over_tls: bool, tmp_path: Path) -> None:
    @in_loop
    def run() -> None:
        begun, told = coro.event(), []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            begun.set()
            told.append(await receive())

        with serving(ASGIHandler(app, lifespan="off"), **settings(over_tls, tmp_path)) as server:
            with client_of(server, over_tls) as conn:
                conn.sendall(UPGRADE)
                begun.wait()
            while not told:
                coro.yield_slice()
        assert told == [{"type": "websocket.disconnect", "code": 1006, "reason": ""}]

    run()


@pytest.mark.parametrize("over_tls", [False, True])
def test_a_websocket_opens_behind_a_wait(over_tls: bool, tmp_path: Path) -> None:
    """Whatever looked for the client's end before the accept has left nothing behind that takes a message."""

    @in_loop
    def run() -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            for _ in range(20):
                await asyncio.sleep(0)
            await send({"type": "websocket.accept"})
            while (message := await receive())["type"] == "websocket.receive":
                await send({"type": "websocket.send", "text": message["text"]})

        with serving(ASGIHandler(app, lifespan="off"), **settings(over_tls, tmp_path)) as server:
            scheme, context = ("wss", client_tls.client_context()) if over_tls else ("ws", None)
            with websocket.connect(f"{scheme}://localhost:{server.port}/", tls=context) as ws:
                for number in range(20):
                    ws.send(str(number))
                    assert ws.receive() == str(number)

    run()


@in_loop
def test_a_drain_closes_websockets_and_waits_for_their_handlers() -> None:
    """1012, service restart: clients come back. A handler may still do what it has to."""
    told, go_on, order = [], [], []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "open"})
        told.append(await receive())
        go_on.append(asyncio.get_running_loop().create_future())
        await go_on[0]
        order.append("application")

    with serving(ASGIHandler(app, lifespan="off")) as server:
        ws = websocket.connect(f"ws://127.0.0.1:{server.port}/")
        assert ws.receive() == "open"
        drained: list[bool] = []

        def drain() -> None:
            drained.append(server.drain(60))
            order.append("server")

        draining = coro.spawn(drain)
        with pytest.raises(WebSocketClosed) as caught:
            ws.receive()
        assert caught.value.code == 1012
        while not go_on:
            coro.yield_slice()
        assert not drained
        go_on[0].get_loop().call_soon_threadsafe(go_on[0].set_result, None)
        draining.join()
    assert (drained, order) == ([True], ["application", "server"])
    assert told == [{"type": "websocket.disconnect", "code": 1012, "reason": ""}]


@in_loop
def test_a_server_that_is_closed_tells_websockets_so() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "open"})
        while (await receive())["type"] != "websocket.disconnect":
            continue

    with serving(ASGIHandler(app, lifespan="off", websocket={"drain_code": 1001})) as server:
        ws = websocket.connect(f"ws://127.0.0.1:{server.port}/")
        assert ws.receive() == "open"
        closing = coro.spawn(server.close)
        with pytest.raises(WebSocketClosed) as caught:
            ws.receive()
        closing.join()
        assert caught.value.code == 1001


@pytest.mark.parametrize("code", [1012, 1001, 4000])
def test_drain_codes_of_native_websockets(code: int) -> None:
    @in_loop
    def run() -> None:
        ended = []

        def serve(ws: Any) -> None:
            ws.send("open")
            ended.append(list(ws))
            ended.append(ws.close_code)

        with serving(websocket.endpoint(serve, drain_code=code)) as server:
            ws = websocket.connect(f"ws://127.0.0.1:{server.port}/")
            assert ws.receive() == "open"
            draining = coro.spawn(server.drain, 60)
            with pytest.raises(WebSocketClosed) as caught:
                ws.receive()
            assert caught.value.code == code
            draining.join()
        assert ended == [[], code]

    run()


@in_loop
def test_a_drain_leaves_alone_what_asks_for_it() -> None:
    go_on = coro.event()

    def serve(ws: Any) -> None:
        ws.send("open")
        go_on.wait()
        ws.send("last words")

    with serving(websocket.endpoint(serve, drain_code=None)) as server:
        with websocket.connect(f"ws://127.0.0.1:{server.port}/") as ws:
            assert ws.receive() == "open"
            draining = coro.spawn(server.drain, 60)
            coro.testing.wait_all_blocked()
            go_on.set()
            assert ws.receive() == "last words"
            with pytest.raises(WebSocketClosed):
                ws.receive()
            draining.join()


@in_loop
def test_a_drain_while_a_message_is_sent_lets_it_out() -> None:
    """A close frame never stands between the fragments of a message."""
    begun, go_on = coro.event(), coro.event()

    def parts() -> Iterator[str]:
        yield "one "
        begun.set()
        go_on.wait()
        yield "two"

    with serving(websocket.endpoint(lambda ws: ws.send_fragments(parts()))) as server:
        with websocket.connect(f"ws://127.0.0.1:{server.port}/") as ws:
            begun.wait()
            draining = coro.spawn(server.drain, 60)
            coro.testing.wait_all_blocked()
            go_on.set()
            assert ws.receive() == "one two"
            with pytest.raises(WebSocketClosed):
                ws.receive()
            draining.join()


@in_loop
def test_a_websocket_that_opens_during_a_drain_is_closed_at_once() -> None:
    begun, go_on = coro.event(), coro.event()

    def handler(request: Any) -> None:
        begun.set()
        go_on.wait()
        with websocket.accept(request) as ws:
            assert list(ws) == []

    with serving(handler) as server:
        opened: list[Any] = []
        client = coro.spawn(lambda: opened.append(websocket.connect(f"ws://127.0.0.1:{server.port}/")))
        begun.wait()
        draining = coro.spawn(server.drain, 60)
        coro.testing.wait_all_blocked()
        go_on.set()
        client.join()
        with pytest.raises(WebSocketClosed) as caught:
            opened[0].receive()
        assert caught.value.code == 1012
        draining.join()


def test_codes_that_may_not_be_sent_are_refused() -> None:
    for code in (1005, 1006, 1015, 999, 5000, 0):
        with pytest.raises(ValueError, match="drain_code"):
            websocket.accept(None, drain_code=code)


@in_loop
def test_a_client_that_resets_its_upload_is_in_the_log_as_gone() -> None:
    """Whether the handler reads on, or notices when it answers."""
    logged: list[Any] = []
    begun, go_on = coro.event(), coro.event()

    def handler(request: Any) -> str:
        begun.set()
        go_on.wait()
        if request.path == "/read":
            request.read()
        return "late"

    for path in (b"/read", b"/answer"):
        begun.clear()
        go_on.clear()
        with serving(handler, access_log=logged.append) as server:
            with connected(server) as conn:
                conn.send(b"POST %b HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nabc" % path)
                begun.wait()
                conn.setsockopt(coro.SOL.SOCKET, coro.SO.LINGER, b"\x01\0\0\0\0\0\0\0")
            go_on.set()
            while server.registry.open:
                coro.yield_slice()
            assert server.statistics()["errors"] == 0
    assert [request.reply_code for request in logged] == [499, 499]


@in_loop
def test_a_client_of_tls_that_is_cut_in_its_upload(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logged: list[Any] = []
    begun = coro.event()

    def handler(request: Any) -> str:
        begun.set()
        return str(len(request.read()))

    with serving(handler, access_log=logged.append, tls=client_tls.server_context(tmp_path)) as server:
        with connected(server) as below:
            conn = tls.context(client_tls.client_context()).wrap(below, server_hostname="localhost")
            conn.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nabc")
            begun.wait()
            below.close()
        while server.registry.open:
            coro.yield_slice()
        assert server.statistics()["errors"] == 0
    assert [request.reply_code for request in logged] == [499]
    assert not [record for record in caplog.records if record.exc_info]


@in_loop
def test_another_connection_s_end_is_a_failure_of_the_handler() -> None:
    logged: list[Any] = []

    def handler(request: Any) -> str:
        raise ConnectionResetError("the data base has gone")

    app = http.App()
    app.get("/")(handler)
    with serving(app, access_log=logged.append) as server, connected(server) as conn:
        conn.send(GET)
        assert conn.recv(1000).startswith(b"HTTP/1.1 500")
    assert [request.reply_code for request in logged] == [500]
