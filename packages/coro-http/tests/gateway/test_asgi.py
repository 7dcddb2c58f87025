"""ASGI: scopes, bodies, streaming, lifespan, WebSockets, clients that leave, errors."""

from __future__ import annotations

import asyncio

import pytest
from http_support import connected, messages, serving, talk

import coro
from coro.http import websocket
from coro.http.asgi import ASGIHandler
from coro.http.exceptions import HandshakeError, LifespanError
from coro.testing import coro_test

# The event loop of asyncio stays until coro's loop ends, which is after the look at what was left behind.
in_loop = coro_test(leaks=False)
START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}


async def body_of(receive):
    body = b""
    while True:
        message = await receive()
        body += message["body"]
        if not message["more_body"]:
            return body


def ask(app, request=b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", method="GET", **options):
    with serving(ASGIHandler(app, lifespan="off", **options)) as server:
        return messages(talk(server, request, end=False), method)[0]


@in_loop
def test_the_scope():
    scopes = []

    async def app(scope, receive, send):
        scopes.append(scope)
        await send(START)
        await send({"type": "http.response.body", "body": b"x"})

    ask(app, b"GET /a%20b/%C3%BC?q=%20 HTTP/1.1\r\nHost: h\r\nX-One: 1\r\nConnection: close\r\n\r\n", root_path="/r/")
    ask(app, b"GET http://h/a%20b?q=http://i/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")  # RFC 9112 3.2.2
    scope, whole = scopes
    assert (whole["path"], whole["raw_path"], whole["query_string"]) == ("/a b", b"/a%20b", b"q=http://i/")
    assert scope["type"] == "http"
    assert scope["asgi"]["version"] == "3.0"
    assert scope["http_version"] == "1.1"
    assert scope["method"] == "GET"
    assert scope["scheme"] == "http"
    assert scope["path"] == "/a b/\u00fc"
    assert scope["raw_path"] == b"/a%20b/%C3%BC"
    assert scope["query_string"] == b"q=%20"
    assert scope["root_path"] == "/r"
    assert (b"x-one", b"1") in scope["headers"]
    assert scope["client"][0] == scope["server"][0] == "127.0.0.1"


@pytest.mark.parametrize("waits", [False, True])
def test_answers(waits):
    async def app(scope, receive, send):
        if waits:
            await asyncio.sleep(0)
        body = await body_of(receive)
        path = scope["path"]
        if path == "/length":
            await send({**START, "headers": [(b"content-length", b"5"), (b"transfer-encoding", b"chunked")]})
            await send({"type": "http.response.body", "body": b"hello"})
        elif path == "/stream":
            await send(START)
            for _ in range(20):
                await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": True})
                if waits:
                    await asyncio.sleep(0)
            await send({"type": "http.response.body"})
        else:
            await send(START)
            await send({"type": "http.response.body", "body": b"got " + body})

    @in_loop
    def run():
        head = b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
        assert ask(app, b"GET /length" + head + b"\r\n")[1:] == (
            {**ask(app, b"GET /length" + head + b"\r\n")[1], "content-length": ["5"]},
            b"hello",
        )
        assert ask(app, b"GET /stream" + head + b"\r\n")[2] == b"x" * 200_000
        assert ask(app, b"POST /" + head + b"Content-Length: 3\r\n\r\nabc")[2] == b"got abc"
        assert (
            ask(app, b"POST /" + head + b"Content-Length: 300000\r\n\r\n" + b"y" * 300_000)[2]
            == b"got " + b"y" * 300_000
        )
        chunked = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        assert ask(app, b"POST /" + head + chunked)[2] == b"got abcde"
        assert ask(app, b"HEAD /" + head + b"\r\n", "HEAD")[2] == b""

    run()


@in_loop
def test_several_requests_of_a_connection():
    async def app(scope, receive, send):
        await asyncio.sleep(0)
        await send(START)
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    with serving(ASGIHandler(app)) as server:
        requests = b"".join(b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % i for i in range(5))
        assert [m[2] for m in messages(talk(server, requests), *["GET"] * 5)] == [b"/%d" % i for i in range(5)]


@in_loop
def test_tasks_and_context_of_asyncio():
    seen = {}

    async def app(scope, receive, send):
        seen["loop"] = asyncio.get_running_loop()
        seen["task"] = asyncio.current_task()
        later = asyncio.create_task(asyncio.sleep(0, "later"))
        seen["outcome"] = await asyncio.wait_for(later, 30)
        async with asyncio.timeout(30):
            await asyncio.to_thread(lambda: None)
        await send(START)
        await send({"type": "http.response.body", "body": b"x"})

    assert ask(app)[0] == 200
    assert seen["outcome"] == "later"
    assert seen["task"] is not None
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()  # not here


@in_loop
def test_what_goes_on_after_the_answer():
    done = coro.event()
    go_on = []

    async def app(scope, receive, send):
        go_on.append(asyncio.Event())
        await send(START)
        await send({"type": "http.response.body", "body": b"answered"})
        await go_on[0].wait()
        assert (await receive())["type"] == "http.disconnect"
        done.set()

    from coro import asyncio_bridge

    with serving(ASGIHandler(app, lifespan="off")) as server:
        assert talk(server, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").endswith(b"answered")
        asyncio_bridge.get_loop().call_soon_threadsafe(go_on[0].set)
        done.wait()


@in_loop
def test_a_client_that_leaves():
    left = coro.event()
    begun = coro.event()

    async def app(scope, receive, send):
        await body_of(receive)
        begun.set()
        assert (await receive())["type"] == "http.disconnect"
        left.set()

    with serving(ASGIHandler(app, lifespan="off")) as server:
        with connected(server) as conn:
            conn.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            begun.wait()
        left.wait()


@in_loop
def test_a_client_that_does_not_read():
    """Sending waits, and wakes up when the client has gone (https://github.com/encode/uvicorn/issues/2754)."""
    ended = coro.event()

    async def app(scope, receive, send):
        await send(START)
        try:
            while True:
                await send({"type": "http.response.body", "body": bytes(100_000), "more_body": True})
        finally:
            ended.set()

    with serving(ASGIHandler(app, lifespan="off")) as server:
        with connected(server) as conn:
            conn.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            conn.recv(1000)
        ended.wait()


@pytest.mark.parametrize("waits", [False, True])
def test_mistakes_of_an_application(waits):
    async def fails(scope, receive, send):
        if waits:
            await asyncio.sleep(0)
        raise KeyError("secret")

    async def returns(scope, receive, send):
        if waits:
            await asyncio.sleep(0)

    async def body_first(scope, receive, send):
        await send({"type": "http.response.body", "body": b"x"})

    async def unknown(scope, receive, send):
        await send({"type": "http.response.trailer"})

    async def splits(scope, receive, send):
        await send({**START, "headers": [(b"x", b"a\r\nset-cookie: evil=1")]})
        await send({"type": "http.response.body", "body": b"x"})

    async def breaks_off(scope, receive, send):
        await send(START)
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        if waits:
            await asyncio.sleep(0)
        raise KeyError("secret")

    @in_loop
    def run():
        for app in (fails, returns, body_first, unknown, splits):
            status, headers, body = ask(app)
            assert status == 500, app
            assert b"secret" not in body
            assert "set-cookie" not in headers
        with serving(ASGIHandler(breaks_off, lifespan="off")) as server:
            data = talk(server, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert b"begun" in data
        assert not data.endswith(b"0\r\n\r\n")

    run()


# -- lifespan


@in_loop
def test_lifespan():
    events = []

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            assert (await receive())["type"] == "lifespan.startup"
            scope["state"]["ready"] = "yes"
            await send({"type": "lifespan.startup.complete"})
            assert (await receive())["type"] == "lifespan.shutdown"
            await asyncio.sleep(0)
            events.append("ended")
            await send({"type": "lifespan.shutdown.complete"})
            return
        await send(START)
        await send({"type": "http.response.body", "body": scope["state"]["ready"].encode()})

    with ASGIHandler(app) as handler, serving(handler) as server:
        assert talk(server, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").endswith(b"yes")
    assert events == ["ended"]


@in_loop
def test_applications_without_lifespan_and_those_that_refuse():
    async def without(scope, receive, send):
        assert scope["type"] == "http"

    async def refuses(scope, receive, send):
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    with ASGIHandler(without):
        pass
    with pytest.raises(LifespanError, match="no lifespan"):
        ASGIHandler(without, lifespan="on").startup()
    with pytest.raises(LifespanError, match="no database"):
        ASGIHandler(refuses).startup()
    with pytest.raises(ValueError, match="lifespan"):
        ASGIHandler(without, lifespan="maybe")
    with pytest.raises(TypeError):
        ASGIHandler(None)


# -- WebSocket


async def echo(scope, receive, send):
    assert scope["type"] == "websocket"
    assert await receive() == {"type": "websocket.connect"}
    if scope["path"] == "/refused":
        await send({"type": "websocket.close"})
        return
    if scope["path"] == "/denied":
        await send({"type": "websocket.http.response.start", "status": 404, "headers": [(b"x-why", b"none")]})
        await send({"type": "websocket.http.response.body", "body": b"no such thing"})
        return
    if scope["path"] == "/denied-with-length":  # as every framework's response has it
        await send({"type": "websocket.http.response.start", "status": 401, "headers": [(b"content-length", b"2")]})
        await send({"type": "websocket.http.response.body", "body": b"no"})
        return
    if scope["path"] == "/denied-at-length":
        await send({"type": "websocket.http.response.start", "status": 403, "headers": []})
        for _ in range(20):
            await send({"type": "websocket.http.response.body", "body": b"no" * 50_000, "more_body": True})
        await send({"type": "websocket.http.response.body"})
        return
    if scope["path"] == "/denied-and-fails":
        await send({"type": "websocket.http.response.start", "status": 403, "headers": []})
        raise KeyError("secret")
    chosen = scope["subprotocols"][0] if scope["subprotocols"] else None
    await send({"type": "websocket.accept", "subprotocol": chosen, "headers": [(b"x-more", b"1")]})
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            endings.append((message["code"], message["reason"]))
            return
        if message.get("text") == "close":
            await send({"type": "websocket.close", "code": 4001, "reason": "asked"})
        elif message.get("text") == "fail":
            raise KeyError("secret")
        elif message.get("text") == "end":
            return
        else:
            await send({"type": "websocket.send", **{k: v for k, v in message.items() if k != "type"}})


endings: list[tuple[int, str]] = []


@in_loop
def test_websocket():
    endings.clear()
    with serving(ASGIHandler(echo, lifespan="off")) as server:
        url = f"ws://127.0.0.1:{server.port}/"
        with websocket.connect(url, subprotocols=["chat"]) as ws:
            assert ws.subprotocol == "chat"
            assert ws.response_headers.get("x-more") == "1"
            for message in ("text", b"bytes", "", b"", "x" * 200_000):
                ws.send(message)
                assert ws.receive() == message
            ws.close(1001, "bye")
        with websocket.connect(url) as ws:
            ws.send("close")
            with pytest.raises(websocket.WebSocketClosed):
                ws.receive()
            assert (ws.close_code, ws.close_reason) == (4001, "asked")
        for last, code in (("end", 1000), ("fail", 1011)):
            with websocket.connect(url) as ws:
                ws.send(last)
                with pytest.raises(websocket.WebSocketClosed):
                    ws.receive()
                assert ws.close_code == code
        for path, status, body in (
            ("refused", 403, b"not accepted"),
            ("denied", 404, b"no such thing"),
            ("denied-with-length", 401, b"no"),
            ("denied-at-length", 403, b"no" * 100),
            ("denied-and-fails", 500, b"Internal"),
        ):
            with pytest.raises(HandshakeError) as caught:
                websocket.connect(url + path)
            assert caught.value.status == status
            assert body in caught.value.body
    assert (1001, "bye") in endings


@in_loop
def test_an_application_that_exits_ends_its_own_request_only():
    """asyncio's loop ends with a task that raises SystemExit, and all others with it."""
    begun, go_on, answers = coro.event(), [], []

    async def app(scope, receive, send):
        if scope["path"] == "/waits":
            go_on.append(asyncio.get_running_loop().create_future())
            begun.set()
            await go_on[0]
        else:
            if scope["path"] == "/later":
                await asyncio.sleep(0)
            raise SystemExit(3)
        await send(START)
        await send({"type": "http.response.body", "body": b"still here"})

    request = b"GET %b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    with serving(ASGIHandler(app, lifespan="off")) as server:
        waiting = coro.spawn(lambda: answers.append(talk(server, request % b"/waits", end=False)))
        begun.wait()
        for path in (b"/at-once", b"/later"):
            assert messages(talk(server, request % path, end=False))[0][0] == 500
        go_on[0].get_loop().call_soon_threadsafe(go_on[0].set_result, None)
        waiting.join()
        assert messages(answers[0])[0][2] == b"still here"


@in_loop
def test_the_length_of_what_get_would_answer_is_not_made_up():
    """RFC 9110 8.6: an answer to HEAD has the length of the one to GET, or none."""

    async def app(scope, receive, send):
        await send(START)
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else b"hello"})

    status, fields, body = ask(app, b"HEAD / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "HEAD")
    assert (status, fields.get("content-length"), body) == (200, None, b"")
    assert ask(app)[1]["content-length"] == ["5"]


@in_loop
def test_the_scheme_is_the_request_s_behind_a_proxy():
    async def app(scope, receive, send):
        await send(START)
        await send({"type": "http.response.body", "body": scope["scheme"].encode()})

    requests = b"".join(
        b"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: %b\r\n\r\n" % proto for proto in (b"https", b"http")
    )
    with serving(ASGIHandler(app, lifespan="off"), trusted_proxies=["127.0.0.1"]) as server:
        assert [body for _, _, body in messages(talk(server, requests))] == [b"https", b"http"]


@in_loop
def test_a_websocket_whose_client_leaves_before_it_is_accepted():
    """The connection does not wait for an application that waits for something else."""
    begun, told = coro.event(), []

    async def app(scope, receive, send):
        go_on = asyncio.get_running_loop().create_future()
        told.append(go_on)
        await receive()
        begun.set()
        told.append(await receive())
        await go_on
        for message in ({"type": "websocket.accept"}, {"type": "websocket.send", "text": "x" * 100_000}):
            try:
                await send(message)
            except OSError as e:
                told.append(e)

    upgrade = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
    with serving(ASGIHandler(app, lifespan="off")) as server:
        with connected(server) as conn:
            conn.send(upgrade)
            begun.wait()
        while server.registry.open:
            coro.yield_slice()
        told[0].get_loop().call_soon_threadsafe(told[0].set_result, None)
        while len(told) < 4:
            coro.yield_slice()
    assert told[1] == {"type": "websocket.disconnect", "code": 1006, "reason": ""}
    assert all(isinstance(e, OSError) for e in told[2:])
