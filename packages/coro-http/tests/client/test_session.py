"""The client: what it sends, what it makes of responses, redirects, credentials, retries, limits in time."""

from __future__ import annotations

import gzip
import io
import json

import client_support
import pytest
from client_support import hello, raw, site

import coro
from coro import testing
from coro.http import client as http
from coro.http.client import Client, Limits, Retries, Timeout
from coro.http.exceptions import (
    ConnectError,
    ConnectTimeout,
    DeadlineExceeded,
    HTTPStatusError,
    IncompleteError,
    LimitError,
    LocalError,
    PoolTimeout,
    ReadError,
    ReadTimeout,
    RemoteError,
    RequestError,
    TooManyRedirects,
    WriteTimeout,
)
from coro.testing import coro_test

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def echo(seen):
    shown = {"method": seen.method, "target": seen.target, "fields": seen.fields, "body": seen.body.decode("latin-1")}
    return 200, [("Content-Type", "application/json")], json.dumps(shown).encode()


# ---- requests


@coro_test
def test_a_get():
    with site(hello) as server, Client() as client:
        response = client.get(server.url + "/a b?c=d#e")
        assert (response.status, response.text, bool(response)) == (200, "hello", True)
        assert response.headers["content-type"] == "text/plain"
        assert str(response.url) == server.url + "/a%20b?c=d#e"
        assert response.elapsed > 0 and response.history == [] and response.http_version == "1.1"
    seen = server.seen[0]
    assert (seen.method, seen.target) == ("GET", "/a%20b?c=d")
    assert seen.fields[0] == ("host" if seen.fields[0][0].islower() else "Host", f"127.0.0.1:{server.port}")
    assert seen.get("user-agent").startswith("coro-http/") and "gzip" in seen.get("accept-encoding")
    assert seen.get("content-length") is None


@coro_test
def test_connections_are_kept():
    with site(hello) as server, Client() as client:
        for _ in range(5):
            client.get(server.url)
            client.post(server.url, b"x")
        assert server.connections == 1
        assert client.statistics()._replace(waiting=0) == (0, 1, 0, 100, 1, 9)
    assert client.statistics().idle == 0
    with pytest.raises(LocalError, match="is closed"):
        client.get(server.url)


@pytest.mark.parametrize("method", ["get", "head", "options", "delete", "post", "put", "patch"])
@coro_test
def test_methods(method):
    with site(hello) as server, Client() as client:
        for _ in range(2):
            response = getattr(client, method)(server.url)
            assert response.status == 200
            assert response.content == (b"" if method == "head" else b"hello")
    assert [seen.method for seen in server.seen] == [method.upper()] * 2
    assert server.seen[0].get("content-length") == ("0" if method in ("post", "put", "patch") else None)
    assert server.connections == 1


@coro_test
def test_bodies(tmp_path):
    path = tmp_path / "data.bin"
    path.write_bytes(b"f" * 300_000)
    file = open(path, "rb")
    file.seek(10)
    parts = [b"a", b"", b"bc"]
    with site(echo) as server, Client() as client, file:
        for content, sent in (
            (b"bytes", b"bytes"),
            (bytearray(b"array"), b"array"),
            (memoryview(b"view"), b"view"),
            ("täxt", "täxt".encode()),
            (b"x" * 1_000_000, b"x" * 1_000_000),
            (path, b"f" * 300_000),
            (file, b"f" * 299_990),
            (io.BytesIO(b"memory"), b"memory"),
            (parts, b"abc"),
            ((p for p in parts), b"abc"),
            (b"", b""),
        ):
            assert client.post(server.url, content).json()["body"].encode("latin-1") == sent
        assert client.statistics().made == 1
    lengths = [(s.get("content-length"), s.get("transfer-encoding")) for s in server.seen]
    assert lengths[-3:] == [(None, "chunked"), (None, "chunked"), ("0", None)]
    assert lengths[4:7] == [("1000000", None), ("300000", None), ("299990", None)]


@coro_test
def test_json_and_forms():
    with site(echo) as server, Client() as client:
        client.post(server.url, json={"ä": [1, None]})
        client.post(server.url, json=None)
        client.put(server.url, data={"a": "b c", "d": [1, 2], "e": None, "t": True})
        client.post(server.url, data=[("a", "ü"), ("a", "&")])
    a, b, c, d = server.seen
    assert (a.body.decode(), a.get("content-type")) == ('{"ä":[1,null]}', "application/json")
    assert b.body == b"null"
    assert (c.body, c.get("content-type")) == (b"a=b+c&d=1&d=2&t=true", "application/x-www-form-urlencoded")
    assert d.body == b"a=%C3%BC&a=%26"


def test_a_request_has_one_body():
    client = Client()
    for options in (
        {"content": b"x", "json": 1},
        {"content": b"x", "data": {"a": "b"}},
        {"json": 1, "files": {"a": b"b"}},
    ):
        with pytest.raises(TypeError, match="one body"):
            client.build("POST", "http://a/", **options)
    with pytest.raises(TypeError, match="expected a body"):
        client.build("POST", "http://a/", content={"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant|Out of range"):
        client.build("POST", "http://a/", json=float("nan"))


@coro_test
def test_the_length_of_an_iterable_may_be_given():
    with site(echo) as server, Client() as client:
        client.post(server.url, iter([b"ab", b"c"]), headers={"Content-Length": "3"})
        assert server.seen[0].get("content-length") == "3"
        for pieces in ([b"ab"], [b"ab", b"cd"]):
            with pytest.raises((LocalError, RequestError)):
                client.post(server.url, iter(pieces), headers={"Content-Length": "3"})
        with pytest.raises(LocalError, match="but the body has 2 bytes"):
            client.post(server.url, b"ab", headers={"Content-Length": "3"})
        with pytest.raises(LocalError, match="no body"):
            client.get(server.url, headers={"Content-Length": "3"})
        assert client.statistics().used == 0


@coro_test
def test_headers_params_and_base_url():
    with (
        site(echo) as server,
        Client(base_url=server.url + "/v1/?k=0", headers={"X-A": "1", "User-Agent": "me"}, params={"p": "q"}) as client,
    ):
        client.get("users/7", headers={"x-a": "2", "X-B": ["3", "4"], "Accept": None})
        client.get("/users", params={"r": "s"})
        client.get(server.url + "/other")
        client.get("?only=query")
    a, b, c, d = server.seen
    assert (a.target, a.get("x-a"), a.all("x-b"), a.get("accept"), a.get("user-agent")) == (
        "/v1/users/7?p=q",
        "2",
        ["3", "4"],
        None,
        "me",
    )
    assert b.target == "/v1/users?p=q&r=s"
    assert c.target == "/other?p=q"
    assert d.target == "/v1/?only=query&p=q"


@coro_test
def test_a_head_that_is_kept_ready_follows_changes():
    with site(hello) as server, Client() as client:
        client.get(server.url)
        client.get(server.url)
        client.headers["X-New"] = "1"
        client.get(server.url)
        client.auth = http.BasicAuth("u", "p")
        client.get(server.url)
        client.auth = None
        client.hooks["request"].append(lambda request: request.headers.add("X-Hook", "1"))
        client.get(server.url)
        client.hooks["request"].clear()
        client.cookies.set("c", "d", host="127.0.0.1")
        client.get(server.url)
        client.get(server.url)
    assert [s.get("x-new") for s in server.seen] == [None, None, "1", "1", "1", "1", "1"]
    assert [bool(s.get("authorization")) for s in server.seen] == [False, False, False, True, False, False, False]
    assert [s.get("x-hook") for s in server.seen][4:] == ["1", None, None]
    assert [s.get("cookie") for s in server.seen][4:] == [None, "c=d", "c=d"]


@coro_test
def test_the_kept_head_is_what_the_general_way_sends():
    with site(hello) as server, Client() as client:
        client.get(server.url + "/x?y=z")
        client.get(server.url + "/x?y=z")
        assert client._plans
    first, second = server.seen
    assert {(n.lower(), v) for n, v in first.fields} == {(n.lower(), v) for n, v in second.fields}
    assert (first.method, first.target) == (second.method, second.target)


@coro_test
def test_hooks_see_each_request_and_response():
    def moved(seen):
        return (302, [("Location", "/b")], b"") if seen.target == "/a" else hello(seen)

    told = []
    hooks = {"request": lambda r: told.append(r.url.path), "response": [lambda r: told.append(r.status)]}
    with site(moved) as server, Client(hooks=hooks) as client:
        client.get(server.url + "/a")
        assert told == ["/a", 302, "/b", 200]

        def fail(response):
            raise KeyError("mine")

        client.hooks["response"].append(fail)
        with pytest.raises(KeyError, match="mine"):
            client.get(server.url + "/a")
        assert client.statistics().used == 0
    with pytest.raises(ValueError, match="expected hooks for"):
        Client(hooks={"before": print})


# ---- responses


@coro_test
def test_text_json_and_status():
    bodies = {
        "/latin": (200, [("Content-Type", "text/plain; charset=ISO-8859-1")], "ä".encode("latin-1")),
        "/utf8": (200, [], "ä\udcff".encode("utf-8", "surrogateescape")),
        "/odd": (200, [("Content-Type", 'text/plain; charset="hex"')], b"61"),
        "/utf16": (200, [("Content-Type", "application/json")], '{"a": "ü"}'.encode("utf-16")),
        "/404": (404, [], b"no"),
    }
    with site(lambda seen: bodies[seen.target]) as server, Client(base_url=server.url) as client:
        assert client.get("/latin").text == "ä"
        assert client.get("/utf8").text == "ä\ufffd"
        assert client.get("/odd").text == "61"
        assert client.get("/utf16").json() == {"a": "ü"}
        with pytest.raises(ValueError, match="Expecting value"):
            client.get("/404").json()
        assert client.get("/utf8").raise_for_status().ok
        response = client.get("/404")
        assert not response and not response.ok
        with pytest.raises(HTTPStatusError, match=r"GET http://127.0.0.1:\d+/404 was answered with 404") as caught:
            response.raise_for_status()
        assert caught.value.response is response


@coro_test
def test_streams():
    chunked = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n"
        + b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in (b"one\ntw", b"o\r", b"\nthree\r\r\nfo", "ür".encode()))
        + b"0\r\nX: y\r\n\r\n"
    )
    with raw(chunked) as server, Client() as client:
        with client.stream("GET", server.url) as response:
            with pytest.raises(LocalError, match="has not been read"):
                _ = response.content
            assert b"".join(response.iter_bytes()) == "one\ntwo\r\nthree\r\r\nfoür".encode()
            assert response.trailers["x"] == "y"
            with pytest.raises(LocalError, match="can be read once"):
                next(response.iter_bytes())
        with client.stream("GET", server.url) as response:
            assert list(response.iter_lines()) == ["one", "two", "three", "", "foür"]
        with client.stream("GET", server.url) as response:
            assert [len(p) for p in response.iter_bytes(7)] == [7, 7, 7, 1]
        with client.stream("GET", server.url) as response:
            assert response.read() == response.content == b"".join(response.iter_bytes())
        with client.stream("GET", server.url) as response:
            assert "".join(response.iter_text()).endswith("foür")
        with client.stream("GET", server.url) as response, pytest.raises(LimitError, match="longer than 2"):
            list(response.iter_lines(limit=2))
        assert client.statistics().used == 0


@coro_test
def test_a_line_of_single_bytes_is_gathered_once():
    def drip(conn):
        client_support.read_head(conn)
        conn.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        for _ in range(500):
            conn.send(b"x")
            coro.yield_slice()
        conn.send(b"\ny\n")

    with raw(drip) as server, Client() as client, client.stream("GET", server.url) as response:
        assert list(response.iter_lines()) == ["x" * 500, "y"]


@coro_test
def test_a_stream_that_is_left_early_gives_its_place_back():
    def endless(conn):
        client_support.read_head(conn)
        conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            conn.send(b"5\r\nhello\r\n")
            coro.yield_slice()

    with raw(endless) as server, Client(limits=Limits(connections=1)) as client:
        for _ in range(3):
            with client.stream("GET", server.url) as response:
                assert next(response.iter_bytes()).startswith(b"hello")
        response = client.send(client.build("GET", server.url), stream=True)
        del response
        assert client.statistics().used == 0 and client.statistics().idle == 0


@coro_test
def test_upload_and_download_at_once():
    """An echo that answers while it reads: a client that only wrote would wait for a server that only wrote."""
    size = 8_000_000

    def mirror(conn):
        client_support.read_head(conn)
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        left = size
        while left:
            data = conn.recv(65536)
            left -= len(data)
            conn.send(data)

    with raw(mirror) as server, Client() as client:
        content = bytes(range(256)) * (size // 256)
        assert client.post(server.url, content).content == content
        assert client.statistics().used == 0


@coro_test
def test_an_early_answer_is_read_and_the_upload_ends():
    def refuse(conn):
        client_support.read_head(conn)
        conn.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
        conn.shutdown(coro.SHUT.WR)
        conn.recv(1)

    def endless():
        while True:
            yield b"x" * 65536

    with raw(refuse) as server, Client() as client:
        response = client.post(server.url, endless())
        assert (response.status, response.content) == (413, b"big")
        assert client.statistics()[:2] == (0, 0)


@coro_test
def test_an_error_of_the_body_is_the_callers():
    def broken():
        yield b"x"
        raise KeyError("mine")

    with site(hello) as server, Client() as client:
        with pytest.raises(KeyError, match="mine"):
            client.post(server.url, broken())
        with pytest.raises(TypeError, match="pieces of a body"):
            client.post(server.url, [1])
        assert client.statistics()[:2] == (0, 0)


@coro_test
def test_expect_continue():
    def polite(conn):
        _, fields = client_support.read_head(conn)
        assert ("Expect", "100-continue") in fields
        conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = client_support.read_body(conn, fields)
        conn.send(client_support.response(200, [], body))
        conn.recv(1)

    def refusing(conn):
        client_support.read_head(conn)
        conn.send(b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n")
        assert conn.recv(1) == b""

    with raw(polite, refusing) as server, Client() as client:
        assert client.post(server.url, b"body", expect_continue=True).content == b"body"
        client.pool.close()
    with raw(refusing) as server, Client() as client:
        assert client.post(server.url, b"body", expect_continue=True).status == 417
        assert client.statistics()[:2] == (0, 0)


@coro_test
def test_a_server_that_ignores_expect_gets_the_body_after_a_second():
    with testing.virtual_clock(autojump=True), site(echo) as server, Client() as client:
        assert client.post(server.url, b"body", expect_continue=True).json()["body"] == "body"


@coro_test
def test_compressed():
    with site(lambda s: (200, [("Content-Encoding", "gzip")], gzip.compress(b"x" * 100_000))) as server:
        with Client() as client:
            for _ in range(2):
                assert client.get(server.url).content == b"x" * 100_000
            with client.stream("GET", server.url) as response:
                assert b"".join(response.iter_raw()) != b"x" * 100_000
            assert client.head(server.url).content == b""
            assert client.statistics().made == 1
        with Client(decompress=False) as client:
            assert gzip.decompress(client.get(server.url).content) == b"x" * 100_000
    assert server.seen[-1].get("accept-encoding") is None


# ---- redirects


def moving(status, location, fields=()):
    def answer(seen):
        if seen.target.startswith("/from"):
            return status, [("Location", location()), *fields], b"moved"
        return echo(seen)

    return answer


@pytest.mark.parametrize(
    ("status", "method", "then", "body"),
    [
        (301, "GET", "GET", ""),
        (301, "POST", "GET", ""),
        (302, "POST", "GET", ""),
        (302, "PUT", "PUT", "data"),
        (303, "POST", "GET", ""),
        (303, "PUT", "GET", ""),
        (303, "DELETE", "GET", ""),
        (307, "POST", "POST", "data"),
        (308, "POST", "POST", "data"),
        (308, "GET", "GET", ""),
    ],
)
@coro_test
def test_methods_after_redirects(status, method, then, body):
    with site(moving(status, lambda: "/to")) as server, Client() as client:
        content = None if method == "GET" else b"data"
        response = client.request(method, server.url + "/from", content=content)
        got = response.json()
        assert (got["method"], got["body"], got["target"]) == (then, body, "/to")
        assert [r.status for r in response.history] == [status]
        assert response.history[0].content == b"moved"
        assert server.connections == 1
        names = {name.lower() for name, _ in got["fields"]}
        assert ("content-length" in names) is bool(body)


@coro_test
def test_a_head_stays_a_head():
    with site(moving(303, lambda: "/to")) as server, Client() as client:
        client.head(server.url + "/from")
    assert [s.method for s in server.seen] == ["HEAD", "HEAD"]


@coro_test
def test_a_body_that_is_gone_cannot_be_sent_again():
    with site(moving(307, lambda: "/to")) as server, Client() as client:
        with pytest.raises(RequestError, match="cannot be read again"):
            client.post(server.url + "/from", iter([b"data"]))
        assert client.post(server.url + "/from", [b"da", b"ta"]).json()["body"] == "data"
        assert client.statistics().used == 0


@coro_test
def test_redirects_may_be_left_alone():
    with site(moving(302, lambda: "/to")) as server, Client(follow_redirects=False) as client:
        assert client.get(server.url + "/from").status == 302
        assert client.get(server.url + "/from").is_redirect
        assert client.get(server.url + "/from", follow_redirects=True).status == 200
    with site(moving(302, lambda: "/to")) as server, Client() as client:
        for _ in range(2):
            assert client.get(server.url + "/from").json()["target"] == "/to"


@coro_test
def test_a_location_in_utf8():
    with site(moving(302, lambda: "/to/ü".encode().decode("latin-1"))) as server, Client() as client:
        assert client.get(server.url + "/from").json()["target"] == "/to/%C3%BC"


# ---- credentials


@coro_test
def test_basic_and_bearer():
    with site(hello) as server:
        with Client(auth=("user", "pä:ss")) as client:
            client.get(server.url)
            client.get(server.url, auth="token")
            client.get(server.url, auth=None)
            client.get(server.url.replace("//", "//url:p%40@"), auth=None)
        with Client() as client:
            for _ in range(2):
                client.get(server.url.replace("//", "//url:p%40@"))
    assert [s.get("authorization") for s in server.seen] == [
        "Basic dXNlcjpww6Q6c3M=",
        "Bearer token",
        None,
        None,
        "Basic dXJsOnBA",
        "Basic dXJsOnBA",
    ]


@coro_test
def test_a_bearer_token_is_renewed_once():
    tokens = iter(["old", "new"])
    asked = []

    def token(before):
        asked.append(before)
        return next(tokens)

    def answer(seen):
        return (200, [], b"in") if seen.get("authorization") == "Bearer new" else (401, [], b"")

    with site(answer) as server, Client(auth=http.BearerAuth(token)) as client:
        assert client.get(server.url).content == b"in"
        assert client.get(server.url).content == b"in"
    assert asked == [None, "old"] and len(server.seen) == 3


# ---- retries


@coro_test
def test_a_stale_connection_is_replaced():
    def once(conn):
        client_support.read_head(conn)
        conn.send(client_support.response(200, [], b"1"))
        client_support.read_head(conn)  # and close without an answer

    with raw(once) as server, Client() as client:
        for _ in range(4):
            assert client.get(server.url).content == b"1"
        assert server.connections == 4
        for _ in range(2):
            client.put(server.url, b"")
        with pytest.raises(ReadError, match="without a response"):
            client.post(server.url, b"")
        assert client.statistics()[:2] == (0, 0)


@coro_test
def test_a_connection_that_the_server_closed_is_noticed_before_a_post():
    def once(conn):
        fields = client_support.read_head(conn)[1]
        client_support.read_body(conn, fields)
        conn.send(client_support.response(200, [], b"1"))

    with raw(once) as server, Client() as client:
        for _ in range(3):
            assert client.post(server.url, b"x").status == 200
            while server.server.statistics().active:
                coro.yield_slice()
        assert server.connections == 3


@coro_test
def test_retries_and_their_pauses():
    answers = iter([None, (503, [], b""), (503, [("Retry-After", "7")], b""), (200, [], b"at last")])
    with testing.virtual_clock(autojump=True), site(lambda s: next(answers)) as server:
        rule = Retries(attempts=4, wait_jitter=0, wait_initial=1)
        with Client(retries=rule) as client:
            began = coro.get_now()
            assert client.get(server.url).content == b"at last"
            assert round((coro.get_now() - began) / coro.ticks_per_sec) == 1 + 2 + 7


@pytest.mark.parametrize(("method", "times"), [("GET", 3), ("PUT", 3), ("DELETE", 3), ("POST", 1), ("PATCH", 1)])
@coro_test
def test_what_is_tried_again(method, times):
    with testing.virtual_clock(autojump=True), site(lambda s: None) as server, Client(retries=2) as client:
        with pytest.raises(ReadError):
            client.request(method, server.url)
        assert len(server.seen) == times


@coro_test
def test_a_post_is_tried_again_if_told_to():
    with testing.virtual_clock(autojump=True), site(lambda s: None) as server:
        with Client(retries=Retries(attempts=2, methods={"post"})) as client:
            with pytest.raises(ReadError):
                client.post(server.url, b"x")
            with pytest.raises(ReadError):
                client.post(server.url, iter([b"x"]))
        assert len(server.seen) == 3


@coro_test
def test_a_retry_after_that_is_too_long_ends_the_attempts():
    with site(lambda s: (503, [("Retry-After", "3600")], b"later")) as server, Client(retries=5) as client:
        assert client.get(server.url).status == 503
        assert len(server.seen) == 1


@coro_test
def test_nothing_is_tried_again_by_default():
    with site(lambda s: (503, [], b"")) as server, Client() as client:
        assert client.get(server.url).status == 503
        assert len(server.seen) == 1


# ---- limits in time, under a clock that jumps


@coro_test
def test_a_body_of_a_byte_a_second_ends_at_the_deadline():
    def drip(conn):
        client_support.read_head(conn)
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            conn.send(b"x")
            coro.sleep(1)

    with testing.virtual_clock(autojump=True), raw(drip) as server, Client(timeout=20.5) as client:
        for _ in range(2):
            began = coro.get_now()
            with pytest.raises(DeadlineExceeded, match="total limit of 20.5 seconds"):
                client.get(server.url)
            assert 20.5 <= (coro.get_now() - began) / coro.ticks_per_sec < 20.6
        began = coro.get_now()
        with client.stream("GET", server.url) as response, pytest.raises(DeadlineExceeded):
            list(response.iter_bytes())
        assert 20.5 <= (coro.get_now() - began) / coro.ticks_per_sec < 20.6
        assert client.statistics()[:2] == (0, 0)


@coro_test
def test_a_stream_goes_on_while_it_makes_progress_unless_a_total_was_asked_for():
    def drip(conn):
        client_support.read_head(conn)
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        for _ in range(100):
            conn.send(b"x")
            coro.sleep(10)

    with testing.virtual_clock(autojump=True), raw(drip) as server, Client() as client:
        with client.stream("GET", server.url) as response:
            assert len(response.read()) == 100


@pytest.mark.parametrize("timeout", [Timeout(read=5), Timeout(read=5, total=None)])
@coro_test
def test_a_silent_server(timeout):
    with testing.virtual_clock(autojump=True), raw(client_support.forever) as server:
        with Client(timeout=timeout) as client:
            for _ in range(2):
                with pytest.raises(ReadTimeout, match="sent nothing for 5 seconds") as caught:
                    client.get(server.url)
                assert isinstance(caught.value, TimeoutError)
            assert client.statistics()[:2] == (0, 0)


@coro_test
def test_the_short_way_keeps_the_limits():
    def once(conn):
        client_support.read_head(conn)
        conn.send(client_support.response(200, [], b"1"))
        client_support.forever(conn)

    with testing.virtual_clock(autojump=True), raw(once) as server:
        for timeout, error in (
            (Timeout(read=5), ReadTimeout),
            (Timeout(read=5, total=3), DeadlineExceeded),
            (Timeout(read=None, total=3), DeadlineExceeded),
        ):
            with Client(timeout=timeout) as client:
                client.get(server.url)
                with pytest.raises(error):
                    client.get(server.url)
                assert client.statistics()[:2] == (0, 0)


@coro_test
def test_a_server_that_does_not_read():
    def deaf(conn):
        coro.sleep(1000)

    with testing.virtual_clock(autojump=True), raw(deaf) as server, Client(timeout=Timeout(write=5)) as client:
        with pytest.raises(WriteTimeout, match="took nothing of the request for 5 seconds"):
            client.post(server.url, b"x" * 50_000_000)
        assert client.statistics()[:2] == (0, 0)


@coro_test
def test_an_upload_wakes_when_the_server_has_gone():
    """A write that waits ends when the connection is reset (https://github.com/encode/uvicorn/issues/2754)."""
    go = coro.event()

    def leaves(conn):
        client_support.read_head(conn)
        go.wait()
        conn.setsockopt(coro.SOL.SOCKET, coro.SO.LINGER, b"\x01\0\0\0\0\0\0\0")

    with raw(leaves) as server, Client(timeout=Timeout(write=None, read=None)) as client:
        upload = coro.spawn(pytest.raises, RequestError, client.post, server.url, b"x" * 20_000_000)
        coro.testing.wait_all_blocked()
        assert not upload.dead
        go.set()
        upload.join()
        assert upload.exception is None and client.statistics()[:2] == (0, 0)


@coro_test
def test_no_place_in_the_pool():
    with testing.virtual_clock(autojump=True), raw(client_support.forever) as server:
        with Client(limits=Limits(connections=1), timeout=Timeout(pool=5)) as client:
            holder = coro.spawn(pytest.raises, ReadTimeout, client.get, server.url)
            coro.yield_slice()
            with pytest.raises(PoolTimeout, match="1 of 1 are in use"):
                client.get(server.url)
            holder.join()
            assert client.statistics().used == 0


@coro_test
def test_connecting_takes_too_long():
    class never:
        def resolve_ipv4(self, name):
            coro.sleep(1000)

        resolve_ipv6 = resolve_ipv4

    before = coro.set_resolver(never())
    try:
        with testing.virtual_clock(autojump=True), Client(timeout=Timeout(connect=5)) as client:
            with pytest.raises(ConnectTimeout, match="in 5 seconds"):
                client.get("http://name.test/")
            with pytest.raises(DeadlineExceeded):
                client.get("http://name.test/", timeout=2)
            assert client.statistics().used == 0
    finally:
        coro.set_resolver(before)


@coro_test
def test_nobody_listens():
    s = coro.tcp_sock()
    s.bind(("127.0.0.1", 0))
    with s, Client() as client:
        with pytest.raises(ConnectError, match="cannot connect to 127.0.0.1"):
            client.get(f"http://127.0.0.1:{s.getsockname()[1]}/")
        with pytest.raises(ConnectError, match="cannot find") as caught:
            client.get("http://999.999.999.999/")
        assert isinstance(caught.value.__cause__, coro.NameError)
        assert client.statistics().used == 0


@coro_test
def test_a_limit_of_the_program_around_a_call_is_its_own():
    with testing.virtual_clock(autojump=True), raw(client_support.forever) as server, Client() as client:
        limit = coro.timeout(1)
        with pytest.raises(coro.TimeoutError), limit:
            client.get(server.url)
        assert limit.expired and client.statistics()[:2] == (0, 0)


# ---- the pool


@coro_test
def test_old_and_surplus_connections_are_closed():
    with testing.virtual_clock(autojump=True), site(hello) as server:
        with Client(limits=Limits(idle_seconds=10, idle=2)) as client:
            threads = [coro.spawn(client.get, server.url) for _ in range(5)]
            for thread in threads:
                assert thread.get().status == 200
            assert client.statistics().idle == 2
            made = client.statistics().made
            coro.sleep(11)
            client.get(server.url)
            assert client.statistics().made == made + 1 and client.statistics().idle == 1


@coro_test
def test_idle_connections_make_room_for_others():
    with site(hello) as a, site(hello) as b, Client(limits=Limits(connections=2)) as client:
        first = [coro.spawn(client.get, a.url) for _ in range(2)]
        for thread in first:
            thread.join()
        for _ in range(2):
            client.get(b.url)
        s = client.statistics()
        assert s.used == 0 and s.idle <= 2
        assert a.server.statistics().accepted == 2 and b.server.statistics().accepted == 1


@coro_test
def test_a_limit_for_each_origin():
    most = now = 0

    def count(seen):
        nonlocal most, now
        now += 1
        most = max(most, now)
        coro.yield_slice()
        now -= 1
        return hello(seen)

    with site(count) as server, Client(limits=Limits(per_origin=3)) as client:
        threads = [coro.spawn(client.get, server.url) for _ in range(20)]
        for thread in threads:
            assert thread.get().status == 200
        assert most <= 3 and client.pool._origins == {}


@coro_test
def test_http_1_0_and_close():
    with raw(b"HTTP/1.0 200 OK\r\n\r\nuntil the end") as server, Client() as client:
        response = client.get(server.url)
        assert (response.content, response.http_version) == (b"until the end", "1.0")
        assert client.statistics().idle == 0
    with site(lambda s: (200, [("Connection", "close")], b"x")) as server, Client() as client:
        for _ in range(3):
            assert client.get(server.url).content == b"x"
        assert server.connections == 3


@coro_test
def test_a_body_that_is_cut():
    with raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfive!") as server, Client() as client:
        for _ in range(2):
            with pytest.raises((IncompleteError, ReadError)):
                client.get(server.url)
    with raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfive!\r\n") as server, Client() as client:
        with pytest.raises((IncompleteError, ReadError)):
            client.get(server.url)
        assert client.statistics()[:2] == (0, 0)


@coro_test
def test_not_http():
    with raw(b"220 mail ready\r\n") as server, Client() as client:
        with pytest.raises(RemoteError):
            client.get(server.url)
        assert client.statistics()[:2] == (0, 0)


@coro_test
def test_unix_sockets(tmp_path):
    path = str(tmp_path / "sock")

    def handle(conn, address):
        while client_support.read_head(conn) is not None:
            conn.send(client_support.response(200, [], b"unix"))

    with coro.Server(handle, path), Client(unix=path) as client:
        for _ in range(2):
            assert client.get("http://anything/").content == b"unix"


@coro_test
def test_one_call():
    with site(echo) as server:
        assert http.get(server.url).status == 200
        assert http.post(server.url, json=1).json()["body"] == "1"
        assert http.fetch("DELETE", server.url, max_redirects=1).json()["method"] == "DELETE"
        assert http.put(server.url, b"x").ok and http.patch(server.url, b"x").ok
        assert http.head(server.url).ok and http.delete(server.url).ok


@coro_test
def test_too_many_redirects():
    with site(lambda s: (302, [("Location", s.target + "x")], b"")) as server, Client(max_redirects=3) as client:
        with pytest.raises(TooManyRedirects, match="more than 3 redirects"):
            client.get(server.url + "/")
        assert len(server.seen) == 4 and client.statistics().used == 0
