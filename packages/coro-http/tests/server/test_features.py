"""What a server does besides answering: UNIX sockets, sockets of systemd, signed sessions, event streams, If-Range,
trailers in both directions, and the empty lines that RFC 9112 lets pass."""

from __future__ import annotations

import base64
import email.utils
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from http_support import body_of, connected, in_loop, messages, serving, statuses, talk, until_end

import coro
from coro import http
from coro.http import activation, sessions, sse, static
from coro.http.client import Client
from coro.http.exceptions import LocalError

GET = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"


def ask(path: str, *lines: str, method: str = "GET") -> bytes:
    return "".join(f"{line}\r\n" for line in (f"{method} {path} HTTP/1.1", "Host: a", *lines, "")).encode()


# -- where it listens


def test_a_unix_socket(tmp_path: Path) -> None:
    """It is the file's owner's, is removed at the end, and one that a dead process has left is replaced."""
    path = str(tmp_path / "server.sock")

    @in_loop
    def run() -> None:
        left = socket.socket(socket.AF_UNIX)
        left.bind(path)
        left.close()
        with http.server(lambda request: f"{request.scheme} {request.remote!r}", path) as server:
            with pytest.raises(ValueError, match="no port"):
                _ = server.port
            with Client(unix=path) as client:
                for _ in range(3):
                    assert client.get("http://any/").status == 200
                assert client.statistics().made == 1
            with pytest.raises(OSError):
                http.server(lambda request: "", path)
        assert not os.path.exists(path)

    run()


def passed(listening: socket.socket, first: int, count: int = 1) -> dict[str, str]:
    """The socket at the descriptor `first`, and the variables for it."""
    os.dup2(listening.fileno(), first, inheritable=True)
    return {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(count), "LISTEN_FDNAMES": "http", "OTHER": "x"}


@pytest.fixture
def listening() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


@pytest.fixture
def free() -> int:
    """A descriptor that nobody uses."""
    number = os.dup(0)
    os.close(number)
    return number + 50


def test_sockets_of_systemd(listening: socket.socket, free: int) -> None:
    @in_loop
    def run() -> None:
        variables = passed(listening, free)
        found = activation.listeners(variables, first=free)
        assert variables == {"OTHER": "x"} and not os.get_inheritable(free)
        assert [s.getsockname() for s in found] == [listening.getsockname()]
        with http.server(lambda request: "x", found) as server:
            assert statuses(talk(server, GET % b"/")) == [200]
        assert found[0].fileno() == free, "the server has closed what is systemd's"
        found[0].close()

    run()


def test_sockets_for_another_process(listening: socket.socket, free: int) -> None:
    for variables in ({}, {"LISTEN_FDS": "1"}, {"LISTEN_PID": str(os.getppid()), "LISTEN_FDS": "1"}):
        before = dict(variables)
        assert activation.listeners(variables, first=free) == [] and variables == before


@pytest.mark.parametrize(("name", "text"), [("LISTEN_FDS", "-1"), ("LISTEN_FDS", "x"), ("LISTEN_PID", "\u0661"),
                                            ("LISTEN_FDS", "100000"), ("LISTEN_FDS", "2")])  # fmt: skip
def test_wrong_variables(name: str, text: str, listening: socket.socket, free: int) -> None:
    variables = passed(listening, free) | {name: text}
    with pytest.raises(ValueError, match="LISTEN_"):
        activation.listeners(variables, first=free)
    os.close(free)


@pytest.mark.parametrize("kind", ["datagram", "connected", "file"])
def test_descriptors_that_listen_on_nothing(kind: str, free: int, tmp_path: Path) -> None:
    one, two = socket.socketpair()
    with one, two, socket.socket(type=socket.SOCK_DGRAM) as datagram, open(tmp_path / "file", "w") as file:
        variables = passed({"datagram": datagram, "connected": one, "file": file}[kind], free)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="LISTEN_FDS" if kind == "file" else "no stream socket that listens"):
            activation.listeners(variables, first=free)
        os.close(free)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_command_takes_sockets_of_systemd(workers: str, listening: socket.socket, tmp_path: Path) -> None:
    (tmp_path / "activated.py").write_text("def app(request):\n    return 'activated'\n")
    starter = (
        "import os, sys\n"
        f"os.dup2({listening.fileno()}, 3)\n"
        "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'coro.http', 'serve', 'activated:app',\n"
        "    '--interface', 'http',"
        f" '--workers', '{workers}', '--app-dir', {str(tmp_path)!r}])\n"
    )
    # The client comes first: the kernel keeps it until the program has started.
    with socket.create_connection(listening.getsockname(), timeout=60) as client:
        client.sendall(ask("/", "Connection: close"))
        process = subprocess.Popen(
            [sys.executable, "-c", starter], pass_fds=[listening.fileno()], stderr=subprocess.PIPE, text=True
        )
        try:
            answer = b""
            while piece := client.recv(65536):
                answer += piece
        finally:
            process.terminate()
            said = process.communicate(timeout=60)[1]
    assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"activated"), said
    assert f"127.0.0.1:{listening.getsockname()[1]}" in said and process.returncode == 0


# -- signed sessions


def signed(**options: Any) -> tuple[http.App, sessions.SignedSessions]:
    app = http.App()
    made = sessions.SignedSessions(b"k" * 32, **options)
    app.middleware(made)

    @app.get("/hit")
    def hit(request: Any) -> str:
        request.session["hits"] = request.session.get("hits", 0) + 1
        return str(request.session["hits"])

    @app.get("/look")
    def look(request: Any) -> str:
        return json.dumps(request.session)

    @app.get("/out")
    def out(request: Any) -> None:
        request.session.clear()

    @app.get("/late")
    def late(request: Any) -> None:
        request.start()
        request.send(b"x")
        request.session["a"] = 1

    @app.get("/much")
    def much(request: Any) -> None:
        request.session["a"] = "x" * 4000

    return app, made


def get(server: Any, path: str, cookie: str | None = None) -> tuple[int, str, str | None]:
    """Status, body and the Set-Cookie field."""
    lines = [] if cookie is None else [f"Cookie: session={cookie}"]
    status, fields, body = messages(talk(server, ask(path, *lines)))[0]
    return status, body.decode(), fields.get("set-cookie", [None])[0]  # type: ignore[list-item]


@in_loop
def test_a_signed_session() -> None:
    app, made = signed(secure=True)
    with serving(app) as server:
        assert get(server, "/look") == (200, "{}", None)
        status, body, cookie = get(server, "/hit")
        assert (status, body) == (200, "1") and cookie is not None
        assert {"HttpOnly", "SameSite=Lax", "Secure"} <= set(cookie.split("; "))
        value = cookie.split(";")[0].removeprefix("session=")
        assert get(server, "/look", value) == (200, '{"hits": 1}', None)
        assert get(server, "/hit", value)[1] == "2"
        _, _, gone = get(server, "/out", value)
        assert gone is not None and "Max-Age=0" in gone
        late = talk(server, ask("/late"))  # it cannot be kept any more: the answer is cut, so that this is noticed
        assert b"set-cookie" not in late and not late.endswith(b"0\r\n\r\n")
        assert get(server, "/much")[0] == 500
        made.clock = lambda: 4e9
        assert get(server, "/look", value)[1] == "{}"


@in_loop
def test_a_signed_session_cannot_be_changed() -> None:
    app, made = signed()
    other = sessions.SignedSessions(b"k" * 32, name="other")
    wrong_key = sessions.SignedSessions(b"K" * 32)
    good = made.pack({"hits": 5})
    payload, _, signature = good.partition(".")
    forged = base64.urlsafe_b64encode(b'[99999999999,{"hits":9}]').decode().rstrip("=")
    with serving(app) as server:
        assert get(server, "/look", good)[1] == '{"hits": 5}'
        bad = [forged + "." + signature, payload, payload + ".", "." + signature, good + "A", good[:-1], "", "....",
               other.pack({"hits": 5}), wrong_key.pack({"hits": 5}), "\u00e9." + signature,
               payload + ".\u00e9"]  # fmt: skip
        bad += [good[:i] + ("A" if good[i] != "A" else "B") + good[i + 1 :] for i in range(0, len(good) - 1, 7)]
        for value in bad:
            assert get(server, "/look", value)[:2] == (200, "{}"), value
    for key in (b"", b"x" * 15):
        with pytest.raises(ValueError, match="16 bytes"):
            sessions.SignedSessions(key)


# -- event streams


@in_loop
def test_an_event_stream() -> None:
    def handler(request: Any) -> None:
        with sse.stream(request, ping=0) as events:
            events.send("one\r\ntwo\nthree\rfour", event="tick", id="7", retry=500)
            events.comment("a\nb")
            events.send(f"after {events.last_id}")
            for bad in ("a\nb", "a\rb", "a\0b"):
                with pytest.raises(LocalError):
                    events.send("x", event=bad)
                with pytest.raises(LocalError):
                    events.send("x", id=bad)

    with serving(handler) as server:
        _, fields, body = messages(talk(server, ask("/", "Last-Event-ID: 6")))[0]
        assert fields["content-type"] == ["text/event-stream"] and fields["cache-control"] == ["no-store"]
        assert body.decode() == (
            "event: tick\nid: 7\nretry: 500\ndata: one\ndata: two\ndata: three\ndata: four\n\n"
            ": a b\n\ndata: after 6\n\n"
        )


@in_loop
def test_silence_in_an_event_stream() -> None:
    """Comments go out, and a client that has gone ends its handler."""
    ended: list[BaseException] = []

    def handler(request: Any) -> None:
        try:
            with sse.stream(request, ping=15) as events:
                while True:
                    coro.sleep_relative(40)
                    events.send("tick")
        except OSError as e:
            ended.append(e)
            raise

    with coro.testing.virtual_clock(autojump=True), serving(handler) as server:
        with connected(server) as conn:
            conn.send(GET % b"/")
            found = b""
            while found.count(b"tick") < 2:
                found += conn.recv(65536)
            assert found.count(b": ping\n\n") >= 4
        while server.registry.counts()["open"]:
            coro.sleep_relative(1)
        assert len(ended) == 1


# -- conditions of ranges


def test_if_range(tmp_path: Path) -> None:
    """RFC 9110 13.1.5: the range only if the validator is that of the file, compared strongly; else the whole."""
    (tmp_path / "file").write_bytes(b"0123456789")
    os.utime(tmp_path / "file", (1e9, 1e9))

    @in_loop
    def run() -> None:
        with serving(static.Files(tmp_path)) as server:
            fields = messages(talk(server, GET % b"/file"))[0][1]
            etag, date = fields["etag"][0], fields["last-modified"][0]
            assert not etag.startswith("W/")
            for condition, part in [
                (etag, True),
                (date, True),
                ("W/" + etag, False),
                (etag.strip('"'), False),
                ('"other"', False),
                (f'{etag}, "other"', False),
                ("*", False),
                ("", False),
                (email.utils.formatdate(1e9 + 1, usegmt=True), False),
                (email.utils.formatdate(1e9 - 1, usegmt=True), False),
                ("yesterday", False),
            ]:
                lines = ("Range: bytes=2-4", f"If-Range: {condition}")
                status, fields, body = messages(talk(server, ask("/file", *lines)))[0]
                assert (status, body) == ((206, b"234") if part else (200, b"0123456789")), condition
                assert ("content-range" in fields) is part
            # without a range it has no meaning; a range that cannot be met is one only if the condition holds
            assert statuses(talk(server, ask("/file", f"If-Range: {etag}"))) == [200]
            assert statuses(talk(server, ask("/file", "Range: bytes=90-", f"If-Range: {etag}"))) == [416]
            assert statuses(talk(server, ask("/file", "Range: bytes=90-", 'If-Range: "other"'))) == [200]
            assert statuses(talk(server, ask("/file", "Range: bytes=2-4", 'If-None-Match: "x"'))) == [206]
            assert statuses(talk(server, ask("/file", "Range: bytes=2-4", f"If-None-Match: {etag}"))) == [304]

    run()


# -- trailers


@in_loop
def test_trailers_both_ways() -> None:
    """RFC 9110 6.5: apart from the header, known when the body is read, and never what frames or authenticates."""
    seen: list[Any] = []

    def handler(request: Any) -> None:
        seen.append(request.trailers)
        body = request.read()
        seen.append(None if request.trailers is None else request.trailers.get("x-sum"))
        assert request.headers.get("x-sum") is None
        request.start(200, [("trailer", "x-sum")])
        request.send(body)
        request.finish([("x-sum", str(len(body)))])

    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
    with serving(handler) as server:
        answer = talk(server, head + b"3\r\nabc\r\n0\r\nX-Sum: 3\r\n\r\n" + GET % b"/")
        assert statuses(answer, "POST", "GET") == [200, 200]
        assert b"0\r\nx-sum: 3\r\n\r\n" in answer and seen[:2] == [None, "3"]
        with Client() as client:
            answered = client.post(f"http://127.0.0.1:{server.port}/", b"12345")
            assert (answered.content, answered.trailers["x-sum"]) == (b"12345", "5")
            assert "x-sum" not in answered.headers
        # HTTP/1.0 has none: the answer ends with the connection, and nothing stands behind it
        assert talk(server, b"POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi").endswith(b"\r\n\r\nhi")


@pytest.mark.parametrize("name", ["content-length", "Transfer-Encoding", "host", "authorization", "set-cookie"])
def test_trailers_that_cannot_be(name: str) -> None:
    @in_loop
    def run() -> None:
        caught: list[LocalError] = []

        def handler(request: Any) -> None:
            request.read()
            request.start()
            try:
                request.finish([(name, "1")])
            except LocalError as e:
                caught.append(e)
                request.finish()

        with serving(handler) as server:
            assert statuses(talk(server, GET % b"/")) == [200] and len(caught) == 1

    run()


# -- empty lines


@pytest.mark.parametrize("before", [b"\r\n", b""])
def test_an_empty_line_before_a_request(before: bytes) -> None:
    """RFC 9112 2.2: at least one is to be ignored; clients put one behind a POST, whose body it is not."""

    @in_loop
    def run() -> None:
        post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"
        with serving(lambda request: request.read() or "x") as server:
            found = messages(talk(server, before + post + b"\r\n" + GET % b"/" + b"\r\n" + post + b"\r\n"))
            assert [(m[0], m[2]) for m in found] == [(200, b"hi"), (200, b"x"), (200, b"hi")]
            # byte by byte, with the end of a packet anywhere
            data = before + post + b"\r\n" + GET % b"/"
            with connected(server) as conn:
                for byte in data:
                    conn.send(bytes([byte]))
                    coro.yield_slice()
                conn.shutdown(coro.SHUT.WR)
                assert statuses(until_end(conn)) == [200, 200]
            assert server.statistics()["errors"] == 0

    run()


@pytest.mark.parametrize("before", [b"\n", b"\r", b"\r\r\n", b"\n\r\n", b" \r\n", b"\r\n" * 5000])
def test_what_is_no_empty_line(before: bytes) -> None:
    """RFC 9112 2.2 knows one or two of CRLF, and no endless number of them."""

    @in_loop
    def run() -> None:
        with serving(lambda request: "x") as server:
            assert statuses(talk(server, before + GET % b"/")) == [400]

    run()


def what_came(request: Any) -> str:
    return f"{request.path} {request.query} {request.query_string!r} {request.uri} {request.bad}"


@in_loop
def test_targets() -> None:
    """RFC 9112 3.2: a path; a whole URL, which a server has to take, too; `*` for OPTIONS."""
    app = http.App()
    app.get("/a/{rest}")(lambda request, rest: f"{rest} {what_came(request)}")
    app.get("/")(what_came)
    with serving(app) as server:
        for method, target, host, found in (
            ("GET", "/a/b?c=d?e", "h", "b /a/b ?c=d?e b'c=d?e' /a/b?c=d?e False"),
            ("GET", "http://h/a/b?c=d?e", "h", "b /a/b ?c=d?e b'c=d?e' http://h/a/b?c=d?e False"),
            ("GET", "HTTPS://H:80/a/%41", "h:80", "A /a/%41 None b'' HTTPS://H:80/a/%41 False"),
            ("GET", "http://h/?", "h", "/ ? b'' http://h/? False"),
            ("GET", "http://h/?u=http://i/?", "h", "/ ?u=http://i/? b'u=http://i/?' http://h/?u=http://i/? False"),
            ("GET", "http://h", "H", "/ None b'' http://h False"),
            ("GET", "http://h:80/a/b", "h", "b /a/b None b'' http://h:80/a/b False"),
            ("GET", "HTTP://h/a/b", "H:80", "b /a/b None b'' HTTP://h/a/b False"),
            ("GET", "http://h?a=/b", "h", "/ ?a=/b b'a=/b' /?a=/b False"),
            ("GET", "http://h?", "h", "/ ? b'' /? False"),
        ):
            answer = talk(server, f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert (statuses(answer), body_of(answer)) == ([200], found.encode()), target
        whole = b"GET http://h/a/b HTTP/1.0\r\n\r\n"
        assert statuses(talk(server, whole)) == [200]
        assert statuses(talk(server, b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n")) == [204]


@in_loop
@pytest.mark.parametrize(
    "line",
    ["GET *", "OPTIONS **", "GET a", "GET ?a", "GET h:80", "GET ftp://h/a", "GET http:/a", "GET http://", "GET http:///a",
     "GET http://u@h/a", "GET https://h:80/a", "GET http://other/a", "GET http://h:81/a", "GET javascript:alert(1)"],
)  # fmt: skip
def test_targets_that_are_none(line: str) -> None:
    served: list[str] = []
    with serving(lambda request: served.append(request.path) or "x") as server:
        data = f"{line} HTTP/1.1\r\nHost: h\r\n\r\nGET /next HTTP/1.1\r\nHost: h\r\n\r\n".encode()
        assert statuses(talk(server, data)) == [400]
    assert served == []


@in_loop
def test_a_session_begins_however_it_is_written() -> None:
    app = http.App()
    app.middleware(sessions.Sessions())

    @app.get("/{how}")
    def begin(request: Any, how: str) -> str:
        if how == "merged":
            request.session |= {"user": "ada"}
        elif how == "updated":
            request.session.update(user="ada")
        elif how == "default":
            request.session.setdefault("user", "ada")
        return str(request.session.get("user"))

    with serving(app) as server:
        for how in ("merged", "updated", "default"):
            with Client() as client:
                assert client.get(f"http://127.0.0.1:{server.port}/{how}").text == "ada"
                assert client.get(f"http://127.0.0.1:{server.port}/look").text == "ada", how


@in_loop
def test_middleware_that_comes_late_is_asked_all_the_same() -> None:
    """A server looks at routes without parameters first, and knows them from its beginning."""
    app = http.App()

    @app.get("/")
    def page(request: Any) -> str:
        return "secret"

    def refuse(request: Any, proceed: Any) -> Any:
        raise http.HTTPException(403)

    ask = b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n"
    with serving(app) as server:
        assert statuses(talk(server, ask % b"/")) == [200]
        app.middleware(refuse)
        app.add_route("/late", page)
        assert statuses(talk(server, ask % b"/")) == statuses(talk(server, ask % b"/late")) == [403]


@in_loop
def test_an_etag_of_what_is_compressed_is_weak() -> None:
    """RFC 9110 8.8.3.3: a strong one says that the bytes are the same."""

    def app(request: Any) -> Any:
        return http.Response("x" * 5000, 200, [(b"ETag", b'"1"'), (b"content-type", b"text/plain")])

    with serving(app) as server:
        for accepted, tag, coding in (("gzip", 'W/"1"', ["gzip"]), ("identity", '"1"', None)):
            ask = f"GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {accepted}\r\n\r\n".encode()
            fields = messages(talk(server, ask))[0][1]
            assert (fields["etag"], fields.get("content-encoding")) == ([tag], coding)
