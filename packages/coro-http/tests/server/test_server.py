"""The server over real sockets: answers of all forms, keep-alive, pipelining, bodies, errors, an end in order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from http_support import connected, in_loop, messages, serving, statuses, talk, until_end

import coro
from coro import http

GET = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"


def make_app() -> http.App:
    app = http.App()

    @app.get("/")
    def hello(request: Any) -> str:
        return "hello"

    @app.get("/user/{id}")
    def user(request: Any, id: int) -> dict[str, int]:
        return {"id": id}

    @app.get("/files/{path:path}")
    def files(request: Any, path: str) -> str:
        return path

    @app.get("/stream")
    def stream(request: Any) -> Any:
        for i in range(3):
            yield f"{i}\n"

    @app.post("/echo")
    def echo(request: Any) -> bytes:
        return bytes(request.read())

    @app.get("/fail")
    def fail(request: Any) -> None:
        raise ZeroDivisionError("<secret>")

    @app.get("/fail-late")
    def fail_late(request: Any) -> Any:
        yield "begun"
        raise ZeroDivisionError

    @app.get("/tuple")
    def pair(request: Any) -> Any:
        return "made", 201, [("x", "y")]

    @app.get("/big")
    def big(request: Any) -> str:
        return "abc " * 1000

    @app.get("/nothing")
    def nothing(request: Any) -> None:
        return None

    return app


@in_loop
def test_answers() -> None:
    with serving(make_app()) as server:
        found = messages(talk(server, b"".join(GET % p for p in (b"/", b"/user/7", b"/stream", b"/tuple", b"/none"))))
        assert [m[0] for m in found] == [200, 200, 200, 201, 404]
        assert [m[2] for m in found[:4]] == [b"hello", b'{"id":7}', b"0\n1\n2\n", b"made"]
        assert found[0][1]["content-type"] == ["text/plain; charset=utf-8"]
        assert found[0][1]["server"] == ["coro"] and "date" in found[0][1]
        assert found[3][1]["x"] == ["y"]


@in_loop
def test_routes() -> None:
    with serving(make_app()) as server:
        for path, status in [
            (b"/user/x", 404),
            (b"/user/", 404),
            (b"/user/7/", 404),
            (b"/user/%37", 200),
            (b"/user/1%2f2", 404),
            (b"//", 404),
            (b"/%2f", 404),
            (b"/?x=y", 200),
        ]:
            assert statuses(talk(server, GET % path)) == [status], path
        assert messages(talk(server, GET % b"/files/a/b%20c"))[0][2] == b"a/b c"
        status, fields, _ = messages(talk(server, b"DELETE /echo HTTP/1.1\r\nHost: a\r\n\r\n"))[0]
        assert status == 405 and fields["allow"] == ["POST"]
        status, fields, _ = messages(talk(server, b"OPTIONS / HTTP/1.1\r\nHost: a\r\n\r\n"))[0]
        assert status == 204 and fields["allow"] == ["GET, HEAD"]


@in_loop
def test_head() -> None:
    with serving(make_app()) as server:
        data = talk(server, b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\nHEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n" + GET % b"/")
        found = messages(data, "HEAD", "HEAD", "GET")
        assert [(m[0], m[2]) for m in found] == [(200, b""), (200, b""), (200, b"hello")]
        assert found[0][1]["content-length"] == ["5"]


@in_loop
def test_bodies() -> None:
    with serving(make_app()) as server:
        plain = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
        chunked = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n"
        assert [m[2] for m in messages(talk(server, plain + chunked + plain))] == [b"hello", b"hi!", b"hello"]
        for at in range(1, len(chunked)):
            with connected(server) as conn:
                conn.send(chunked[:at])
                coro.yield_slice()
                conn.send(chunked[at:])
                conn.shutdown(coro.SHUT.WR)
                assert messages(until_end(conn))[0][2] == b"hi!"


@in_loop
def test_a_body_beyond_the_limit() -> None:
    with serving(make_app(), max_body=4) as server:
        big = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
        assert statuses(talk(server, big + GET % b"/")) == [413, 200]
        big = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        assert statuses(talk(server, big)) == [413]


@in_loop
def test_an_unread_body_is_no_request() -> None:
    """Up to a limit it is read; beyond, the connection is closed."""
    with serving(make_app()) as server:
        post = b"POST /none HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
        inside = GET % b"/"
        assert statuses(talk(server, post % len(inside) + inside + GET % b"/")) == [404, 200]
        large = inside * 12000
        with connected(server) as conn:
            conn.send(post % len(large))
            found = messages(until_end(conn))
            assert [m[0] for m in found] == [404] and found[0][1]["connection"] == ["close"]


@in_loop
def test_expect_100_continue() -> None:
    with serving(make_app()) as server:
        post = b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        with connected(server) as conn:
            conn.send(post % b"/echo")
            assert conn.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            conn.send(b"hi")
            conn.shutdown(coro.SHUT.WR)
            assert messages(until_end(conn))[0][2] == b"hi"


@in_loop
@pytest.mark.parametrize(
    "fields",
    [
        b"Expect: foo\r\n",
        b"Expect: 100-continue, foo\r\n",
        b"Expect: 100-continue\r\nExpect: foo\r\n",
        b"Expect: foo\r\nexpect: 100-continue\r\n",
        b"Expect: 100-continue;q=1\r\n",
    ],
)
def test_an_expectation_that_nobody_knows(fields: bytes) -> None:
    """RFC 9110 10.1.1. The body may come or not, so what follows is taken for no request; HTTP/1.0 has none."""
    called = []
    with serving(lambda request: called.append(request) or "") as server:
        inside = GET % b"/inside"
        data = b"POST / HTTP/1.1\r\nHost: a\r\n" + fields + b"Content-Length: %d\r\n\r\n" % len(inside) + inside
        found = messages(talk(server, data + inside))
        assert [status for status, _, _ in found] == [417] and found[0][1]["connection"] == ["close"]
        assert statuses(talk(server, b"GET / HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n" + GET % b"/")) == [417, 200]
        assert len(called) == 1
        assert statuses(talk(server, b"GET / HTTP/1.0\r\n" + fields + b"\r\n")) == [200]
        assert server.statistics()["errors"] == 0


@in_loop
@pytest.mark.parametrize("value", [b"", b",", b"100-Continue", b"100-continue , 100-continue"])
def test_an_expectation_that_is_met(value: bytes) -> None:
    with serving(make_app()) as server:
        ask = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: " + value + b"\r\n\r\nhi"
        assert messages(talk(server, ask))[-1][2] == b"hi"


@in_loop
def test_failures() -> None:
    with serving(make_app()) as server:
        status, _, body = messages(talk(server, GET % b"/fail"))[0]
        assert status == 500 and b"secret" not in body and b"Zero" not in body
        data = talk(server, GET % b"/fail-late")
        assert data.count(b"HTTP/1.1") == 1 and b"begun" in data and not data.endswith(b"0\r\n\r\n")
        assert statuses(talk(server, GET % b"/nothing" + GET % b"/")) == [500, 200]
        assert server.statistics()["errors"] >= 2


@in_loop
def test_compression() -> None:
    with serving(make_app()) as server:
        import gzip

        for accept, coding in [(b"gzip", "gzip"), (b"gzip;q=0", None), (b"gzip;q=0.5, identity;q=1", None)]:
            ask = b"GET /big HTTP/1.1\r\nHost: a\r\nAccept-Encoding: " + accept + b"\r\n\r\n"
            _, fields, body = messages(talk(server, ask))[0]
            assert fields.get("content-encoding") == ([coding] if coding else None)
            assert fields["vary"] == ["accept-encoding"]
            assert (gzip.decompress(body) if coding else body) == b"abc " * 1000


@in_loop
def test_http_1_0() -> None:
    with serving(make_app()) as server:
        assert talk(server, b"GET /stream HTTP/1.0\r\n\r\n", end=False).endswith(b"\r\n\r\n0\n1\n2\n")
        data = talk(server, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n", end=False)
        assert statuses(data) == [200, 200] and b"connection: keep-alive" in data


@in_loop
def test_a_handler_of_its_own() -> None:
    def handler(request: Any) -> None:
        request.add_header("x-added", "1")
        request.start(200, [("content-type", "text/plain")])
        request.send(b"a")
        request.send(memoryview(b"bc"))
        request.finish([("x-sum", "3")])

    with serving(handler) as server:
        data = talk(server, GET % b"/")
        assert data.endswith(b"1\r\na\r\n2\r\nbc\r\n0\r\nx-sum: 3\r\n\r\n") and b"x-added: 1\r\n" in data


@in_loop
def test_large_pieces() -> None:
    """Above the size that is copied behind its frame, and above what the kernel takes at once."""
    piece = bytes(range(256)) * 4096

    def handler(request: Any) -> None:
        request.start()
        for _ in range(4):
            request.send(piece)
        request.finish()

    with serving(handler) as server:
        assert messages(talk(server, GET % b"/"))[0][2] == piece * 4


@in_loop
def test_takeover() -> None:
    def handler(request: Any) -> None:
        stream, early = request.takeover(101, [("upgrade", "x"), ("connection", "upgrade")])
        stream.send(early + b"|" + stream.recv(100))

    with serving(handler) as server, connected(server) as conn:
        conn.send(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nearly")
        assert conn.recv_exact(12) == b"HTTP/1.1 101"
        conn.send(b"late")
        assert until_end(conn).endswith(b"\r\n\r\nearly|late")


@in_loop
def test_middleware_and_errors() -> None:
    app = make_app()

    @app.middleware
    def named(request: Any, proceed: Any) -> Any:
        request.add_header("x-by", "middleware")
        return proceed(request)

    @app.error(404)
    def missing(request: Any, e: http.HTTPException) -> Any:
        return "not here", 404

    with serving(app) as server:
        found = messages(talk(server, GET % b"/" + GET % b"/none"))
        assert [(m[0], m[2]) for m in found] == [(200, b"hello"), (404, b"not here")]
        assert all(m[1]["x-by"] == ["middleware"] for m in found)


@in_loop
def test_virtual_hosts() -> None:
    app = http.Hosts({"a.example": lambda r: "a", "*.b.example": lambda r: "b"})
    with serving(app) as server:
        for host, status in [(b"a.example", 200), (b"A.example:80", 200), (b"x.b.example", 200), (b"c.example", 421)]:
            assert statuses(talk(server, b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")) == [status]


@in_loop
def test_it_ends_in_order() -> None:
    """A request in progress is answered, an idle connection closed, and one with a request under way served."""
    go = coro.event()

    def handler(request: Any) -> str:
        if request.path == "/wait":
            go.wait()
        return "done"

    with serving(handler) as server, connected(server) as busy, connected(server) as idle, connected(server) as late:
        for conn in (idle, late):
            conn.send(GET % b"/")
            conn.recv(1000)
        busy.send(GET % b"/wait")
        coro.testing.wait_all_blocked()
        ended = coro.spawn(server.drain, 30)
        coro.testing.wait_all_blocked()
        late.send(GET % b"/")
        answer = until_end(late)
        assert b"connection: close" in answer and answer.endswith(b"done")
        go.set()
        answer = until_end(busy)
        assert b"connection: close" in answer and answer.endswith(b"done")
        assert until_end(idle) == b""
        ended.join()


@in_loop
def test_prometheus() -> None:
    from coro.http import metrics

    app = make_app()
    app.add_route("/metrics", metrics.handler(None))
    with serving(app) as server:
        talk(server, GET % b"/" + GET % b"/none")
        text = messages(talk(server, GET % b"/metrics"))[0][2].decode()
        assert 'coro_http_requests_total{status="2xx"} 1\n' in text
        assert 'coro_http_requests_total{status="4xx"} 1\n' in text
        assert "coro_http_request_seconds_count 2\n" in text


@in_loop
@pytest.mark.parametrize("kind", ["common", "combined", "json"])
def test_access_log(kind: str) -> None:
    from coro.http import access_log

    lines: list[str] = []
    with serving(make_app(), access_log=lambda r: lines.append(access_log.FORMATS[kind](r))) as server:
        talk(server, b'GET /"x HTTP/1.1\r\nHost: a\r\nUser-Agent: a"\xffb\r\n\r\n')
    assert len(lines) == 1
    if kind == "json":
        assert json.loads(lines[0])["status"] == 404
    else:
        assert '"GET /\\x22x HTTP/1.1" 404 ' in lines[0] and lines[0].isascii()
        assert ('"a\\x22\\xffb"' in lines[0]) is (kind == "combined")


@in_loop
def test_over_a_stream_in_memory() -> None:
    from coro.http._connection import connection
    from coro.testing import stream_pair

    server = http.server(make_app())
    near, far = stream_pair()
    thread = coro.spawn(connection(server, far, "memory", server.registry).run)
    near.send(GET % b"/" + b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert statuses(until_end(near)) == [200, 200]
    near.close()
    thread.join()
    far.close()


class TestClassic:
    """The interface that Shrapnel's programs use."""

    @in_loop
    def test_push_and_done(self) -> None:
        class Handler:
            def match(self, request: Any) -> bool:
                return bool(request.path == "/x")

            def handle_request(self, request: Any) -> None:
                request["content-type"] = "text/html"
                request.push("abc")
                request.push(b"def")
                request.done()

        with serving(Handler()) as server:
            found = messages(talk(server, GET % b"/x?y" + GET % b"/z"))
            assert [(m[0], m[2]) for m in found[:1]] == [(200, b"abcdef")] and found[1][0] == 404
            assert found[0][1]["content-type"] == ["text/html"]

    @in_loop
    def test_answered_by_another_thread(self) -> None:
        class Handler:
            def match(self, request: Any) -> bool:
                return True

            def handle_request(self, request: Any) -> None:
                coro.spawn(self.later, request)

            def later(self, request: Any) -> None:
                request.push("later")
                request.done()

        with serving(Handler()) as server:
            assert [m[2] for m in messages(talk(server, GET % b"/" * 2))] == [b"later", b"later"]

    @in_loop
    def test_started_by_start(self) -> None:
        from coro.http import handlers

        server = http.server()
        server.push_handler(handlers.post_handler())
        server.push_handler(handlers.put_handler())
        server.push_handler(handlers.favicon_handler())
        server.start(("127.0.0.1", 0))
        post = b"%s / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\na\nb\n"
        found = messages(talk(server, post % b"POST" + post % b"PUT" + GET % b"/favicon.ico" + GET % b"/"))
        assert [(m[0], m[2]) for m in found[:2]] == [(200, b"4 bytes\n"), (200, b"2 lines\n")]
        assert [m[0] for m in found[2:]] == [200, 404]
        server.close()

    @in_loop
    def test_deflate(self) -> None:
        import zlib

        class Handler:
            def match(self, request: Any) -> bool:
                return True

            def handle_request(self, request: Any) -> None:
                assert request.can_deflate() and request.set_deflate() is not None
                request.push("abc" * 100)
                request.done()

        with serving(Handler()) as server:
            ask = b"GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: deflate\r\n\r\n"
            _, fields, body = messages(talk(server, ask))[0]
            assert fields["content-encoding"] == ["deflate"] and zlib.decompress(body) == b"abc" * 100

    @in_loop
    def test_sessions(self) -> None:
        from coro.http.session_handler import session_handler

        def visitor(sid: str, fifo: Any) -> None:
            for hit in range(2):
                request = fifo.pop()
                request.push(f"hit {hit}")
                request.done()

        server = http.server()
        server.push_handler(session_handler("hits", visitor))
        server.start(("127.0.0.1", 0))
        _, fields, body = messages(talk(server, GET % b"/hits"))[0]
        cookie = fields["set-cookie"][0]
        assert body == b"hit 0" and "HttpOnly" in cookie and "SameSite=Lax" in cookie
        ask = b"GET /hits HTTP/1.1\r\nHost: a\r\nCookie: " + cookie.partition(";")[0].encode() + b"\r\n\r\n"
        assert messages(talk(server, ask))[0][2] == b"hit 1"
        server.close()

    @in_loop
    def test_error_pages_are_escaped(self) -> None:
        with serving(lambda request: request.error(400, "<script>")) as server:
            body = messages(talk(server, GET % b"/"))[0][2]
            assert b"&lt;script&gt;" in body and b"<script>" not in body


def test_the_loop_ends_under_a_server() -> None:
    """A server that is closed while the loop ends can start no thread any more, and needs none."""
    ended: list[str] = []

    def host(ready: Any) -> None:
        with http.server(lambda request: "x", ("127.0.0.1", 0)) as server:
            with connected(server) as conn:
                conn.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                assert conn.recv(1000).startswith(b"HTTP/1.1 200")
                ready.set()
                try:
                    coro.sleep_relative(3600)
                finally:
                    try:
                        server.stop()
                        server.close()
                        ended.append("in order")
                    except coro.exceptions.LoopError as e:
                        ended.append(str(e))

    def main() -> None:
        ready = coro.event()
        coro.spawn(host, ready, daemon=True)
        ready.wait()

    coro.run(main)
    assert ended == ["in order"]


@in_loop
def test_no_request_is_lost_when_it_ends_under_load() -> None:
    """Clients that ask again and again while the server ends: what was sent is answered, on connections that are kept
    and on those that wait to be accepted."""
    answered, lost = 0, []

    def handler(request: Any) -> str:
        coro.sleep_relative(0.001)
        return "x"

    def ask() -> None:
        nonlocal answered
        while True:
            with coro.tcp_sock() as conn:
                try:
                    conn.connect(("127.0.0.1", port))
                except OSError:
                    return  # it listens no more
                try:
                    answer = b""
                    while b"connection: close" not in answer.lower():
                        conn.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                        answer = conn.recv(1000)
                        assert answer.startswith(b"HTTP/1.1 200"), answer
                        answered += 1
                except (OSError, AssertionError) as e:
                    lost.append(e)

    with serving(handler) as server:
        port = server.port
        clients = [coro.spawn(ask) for _ in range(50)]
        while answered < 500:
            coro.sleep_relative(0.001)
        assert server.drain(60)
        for client in clients:
            client.join()
    assert lost == []


@in_loop
def test_an_endless_answer_does_not_keep_it_from_ending() -> None:
    ended = []

    def handler(request: Any) -> None:
        request.start()
        try:
            while True:
                request.send(b"x" * 100)
                coro.sleep_relative(0.01)
        except BaseException as e:
            ended.append(type(e))
            raise

    with serving(handler) as server, connected(server) as conn:
        conn.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert conn.recv(1000)
        assert not server.drain(0.1)
        assert ended == [coro.Shutdown]
