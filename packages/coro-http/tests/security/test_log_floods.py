"""What clients can make a server write: nothing for a cookie, a bounded number of lines for what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from http_support import connected, in_loop, messages, serving, statuses, talk, until_end

import coro
from coro import http
from coro.http import _connection, _server, json_rpc
from coro.http.client import Client
from coro.http.cookies import MOST_COOKIES, parse_cookie
from coro.testing import virtual_clock

GET = b"GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n"
WRONG = b"GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n"


class Lines(list[tuple[Any, ...]]):
    """In place of the facilities of the log."""

    def __call__(self, *data: Any) -> None:
        self.append(data)

    def exc(self) -> None:
        self.append(("exception",))

    def failure(self, error: BaseException, *data: Any) -> None:
        self.append(("exception",))


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    found = Lines()
    for module in (_connection, _server):
        for name in ("LOG", "LOG_HANDLERS"):
            monkeypatch.setattr(module, name, found)
    return found


@pytest.mark.parametrize("cookie", [b"a@b=1", b"=", b";", b"\xff=\xff", b'a="', b"a,b=c", b"$Version=1", b"a" * 80])
def test_invalid_cookies_are_not_logged(cookie: bytes, lines: Lines, capfd: pytest.CaptureFixture[str]) -> None:
    """aiohttp CVE-2025-69230: a warning for each invalid cookie of a request."""

    @in_loop
    def run() -> None:
        app = http.App()
        app.middleware(http.sessions.Sessions())

        @app.get("/")
        def count(request: Any) -> str:
            return str(len(parse_cookie(request.headers.get_one("cookie"))))

        field = b"Cookie: " + b"; ".join([cookie] * (15000 // (len(cookie) + 2))) + b"\r\n"
        with serving(app) as server:
            found = messages(talk(server, GET % (b"/", field) * 20))
            assert [m[0] for m in found] == [200] * 20
            assert all(int(m[2]) <= 1 for m in found)

    run()
    assert lines == [] and capfd.readouterr() == ("", "")


def test_a_request_has_a_bounded_number_of_cookies() -> None:
    assert len(parse_cookie("; ".join(f"a{i}=b" for i in range(100_000)))) == MOST_COOKIES


@in_loop
def test_invalid_cookies_of_a_server_are_not_logged(capfd: pytest.CaptureFixture[str]) -> None:
    bad = ["=", ";;;", "a b=1", "a=b; Domain=elsewhere.example", "a=b; Expires=never", "a" * 3000 + "=1"]

    def handler(request: Any) -> None:
        request.respond(200, [("set-cookie", value) for value in bad * 15], b"x")

    with serving(handler) as server, Client() as client:
        for _ in range(10):
            assert client.get(f"http://127.0.0.1:{server.port}/").status == 200
        assert len(client.cookies) <= 3
    assert capfd.readouterr() == ("", "")


def test_refused_requests_fill_no_log(lines: Lines) -> None:
    @in_loop
    def run() -> None:
        with serving(lambda request: "x", log_limit=5) as server:
            for _ in range(50):
                assert statuses(talk(server, WRONG)) == [400]
            assert len(lines) == 5 and all(line[0] == "refused" for line in lines)
            assert server.statistics()["unlogged"] == 45
            assert server.statistics()["errors"] == 50

    run()


@pytest.mark.parametrize("late", [False, True])
def test_failing_handlers_fill_no_log(late: bool, lines: Lines) -> None:
    """A client that has found a request that fails sends it again and again."""

    @in_loop
    def run() -> None:
        def handler(request: Any) -> None:
            if late:
                request.start()
                request.send(b"x")
            raise ZeroDivisionError

        with serving(handler, log_limit=3) as server:
            for _ in range(20):
                talk(server, GET % (b"/", b""))
            assert lines.count(("exception",)) == 3
            assert server.statistics()["unlogged"] == 17

    run()


def test_failing_methods_of_json_rpc_fill_no_log(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in requests of their own nor in batches."""
    monkeypatch.setattr(json_rpc, "LOG", lines)

    def fail(method: str, params: Any) -> None:
        raise ZeroDivisionError

    @in_loop
    def run() -> None:
        server: Any
        with serving(json_rpc.json_rpc_handler(fail), log_limit=3) as server:
            with json_rpc.json_rpc_remote(f"http://127.0.0.1:{server.port}/jsonrpc") as remote:
                for _ in range(10):
                    with pytest.raises(json_rpc.RPCError, match="internal error"):
                        remote.fail()
                assert len(remote.batch([("fail",)] * 50)) == 50
            assert lines == [("exception",)] * 3
            assert server.statistics()["unlogged"] == 57
        assert json_rpc.json_rpc_handler(fail).answer(b'{"jsonrpc": "2.0", "method": "fail", "id": 1}') is not None
        assert len(lines) == 4

    run()


def test_what_was_left_out_is_told(lines: Lines) -> None:
    """When the ten seconds are over, in one line, also if nothing else happens."""

    @in_loop
    def run() -> None:
        with virtual_clock(autojump=True), serving(lambda request: "x", log_limit=2) as server:
            with connected(server) as other:
                for _ in range(7):
                    with connected(server) as conn:
                        conn.send(WRONG)
                        conn.shutdown(coro.SHUT.WR)
                        until_end(conn)
                assert [line[0] for line in lines] == ["refused"] * 2
                other.recv(1)  # the deadline of its first request
            assert [line[:2] for line in lines] == [*(line[:2] for line in lines[:2]), ("not logged", 5)]
            talk(server, WRONG)
            assert lines[-1][0] == "refused"

    run()


def test_no_limit_and_none_at_all(lines: Lines) -> None:
    @in_loop
    def run() -> None:
        for limit, count in ((None, 150), (0, 0)):
            lines.clear()
            with serving(lambda request: "x", log_limit=limit) as server:
                for _ in range(150):
                    talk(server, WRONG)
            assert len(lines) == count

    run()


def test_connections_without_a_proxy_header_fill_no_log(lines: Lines) -> None:
    """They are no failures of the program: no traceback, and few lines."""

    @in_loop
    def run() -> None:
        with serving(lambda request: "x", proxy_protocol=True, log_limit=4) as server:
            for start in (
                b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                b"PROXY " + b"x" * 200,
                b"\r\n\r\n\0\r\nQUIT\n" + bytes(4),
            ):
                for _ in range(5):
                    try:
                        assert talk(server, start) == b""
                    except ConnectionResetError:
                        pass
            counts = server.statistics()
            assert (len(lines), counts["unlogged"], counts["errors"], counts["requests"]) == (4, 11, 15, 0)
            assert counts["accepting"]["wrap_failures"] == 15 and counts["accepting"]["failed"] == 0

    run()
