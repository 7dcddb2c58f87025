"""WSGI: the environ, the body, the forms of an answer, errors, and wsgiref's validator."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from wsgiref.validate import validator

import pytest
from http_support import connected, in_loop, messages, serving, talk
from hypothesis import given, settings
from hypothesis import strategies as st

import coro
from coro import http
from coro.http.client import Client
from coro.http.wsgi import FileWrapper, InputStream, WSGIHandler

TEXT = [("Content-Type", "text/plain")]


def get(app, path="/", *lines, method="GET", body=b"", **options):
    """Status, headers and body of the answer."""
    head = "".join(f"{line}\r\n" for line in (f"{method} {path} HTTP/1.1", "Host: h", "Connection: close", *lines, ""))
    with serving(WSGIHandler(app, **options)) as server:
        return messages(talk(server, head.encode("latin-1") + body, end=False), method)[0]


def environ_of(path="/", *lines, **options):
    found = {}

    def app(environ, start_response):
        found.update(environ)
        start_response("200 OK", TEXT)
        return [b"x"]

    get(app, path, *lines, **options)
    return found


@in_loop
def test_environ():
    environ = environ_of(
        "/a%20b/%C3%BC?x=1&y=%20", "X-One: 1", "X-One: 2", "Cookie: a=1", "Cookie: b=2", "Content-Type: t/x"
    )
    assert environ["REQUEST_METHOD"] == "GET"
    assert environ["PATH_INFO"] == "/a b/\u00c3\u00bc"  # bytes as latin-1 (PEP 3333, "Unicode Issues")
    assert environ["QUERY_STRING"] == "x=1&y=%20"
    assert environ["SCRIPT_NAME"] == ""
    whole = environ_of("http://h/a%20b?x=http://i/")  # RFC 9112 3.2.2
    assert (whole["PATH_INFO"], whole["QUERY_STRING"]) == ("/a b", "x=http://i/")
    assert whole["REQUEST_URI"] == "http://h/a%20b?x=http://i/"
    assert environ["SERVER_PROTOCOL"] == "HTTP/1.1"
    assert environ["HTTP_X_ONE"] == "1,2"
    assert environ["HTTP_COOKIE"] == "a=1; b=2"
    assert environ["HTTP_HOST"] == "h"
    assert environ["CONTENT_TYPE"] == "t/x"
    assert "HTTP_CONTENT_TYPE" not in environ
    assert "CONTENT_LENGTH" not in environ
    assert environ["REMOTE_ADDR"] == environ["SERVER_NAME"] == "127.0.0.1"
    assert environ["SERVER_PORT"].isdigit()
    assert environ["wsgi.url_scheme"] == "http"
    assert environ["wsgi.version"] == (1, 0)
    assert environ["wsgi.multithread"] is True
    assert environ["wsgi.run_once"] is False
    assert type(environ) is dict
    assert all(type(name) is str for name in environ)


@in_loop
def test_names_that_could_stand_for_others_are_dropped():
    """CVE-2015-0219 (an underscore), CVE-2016-5385 (Proxy)."""
    environ = environ_of("/", "X_Real_User: root", "X-Real-User: me", "Proxy: http://evil.example", "Content_Length: 5")
    assert environ["HTTP_X_REAL_USER"] == "me"
    assert "HTTP_PROXY" not in environ
    assert "CONTENT_LENGTH" not in environ


@in_loop
def test_where_it_is_mounted():
    environ = environ_of("/app/page", root_path="/app")
    assert (environ["SCRIPT_NAME"], environ["PATH_INFO"]) == ("/app", "/page")
    environ = environ_of("/apple", root_path="/app")
    assert (environ["SCRIPT_NAME"], environ["PATH_INFO"]) == ("/app", "/apple")


@in_loop
def test_forms_of_an_answer():
    def whole(environ, start_response):
        start_response("200 OK", [*TEXT, ("Content-Length", "5")])
        return [b"hello"]

    def several(environ, start_response):
        start_response("201 Made", TEXT)
        return (b"a", b"", b"b")

    def generated(environ, start_response):
        start_response("200 OK", TEXT)
        yield b""
        yield b"x" * 100_000
        yield b"y"

    def late(environ, start_response):
        yield b"" if start_response("202 Accepted", TEXT) else b""

    def written(environ, start_response):
        write = start_response("200 OK", TEXT)
        write(b"one ")
        write(b"two ")
        return [b"three"]

    def large(environ, start_response):
        start_response("200 OK", TEXT)
        return [b"z" * 70_000, b"z" * 70_000]

    for app, status, body in (
        (whole, 200, b"hello"),
        (several, 201, b"ab"),
        (generated, 200, b"x" * 100_000 + b"y"),
        (late, 202, b""),
        (written, 200, b"one two three"),
        (large, 200, b"z" * 140_000),
    ):
        got_status, headers, got = get(app)
        assert (got_status, got) == (status, body), app
    status, headers, body = get(whole, method="HEAD")
    assert (status, headers["content-length"], body) == (200, ["5"], b"")


@in_loop
def test_the_validator_finds_nothing():
    @validator
    def app(environ, start_response):
        body = environ["wsgi.input"].read(1000)
        start_response("200 OK", TEXT)
        return [environ["REQUEST_METHOD"].encode(), b" ", body]

    stderr, sys.stderr = sys.stderr, io.StringIO()
    try:
        assert get(app)[2] == b"GET "
        assert get(app, "/x?y", "Content-Length: 3", method="POST", body=b"abc")[2] == b"POST abc"
        assert get(app, "/", "Transfer-Encoding: chunked", method="PUT", body=b"3\r\nabc\r\n0\r\n\r\n")[2] == b"PUT abc"
    finally:
        sys.stderr = stderr


class Body:
    """A request whose body comes in these pieces."""

    def __init__(self, *pieces):
        self.pieces = list(pieces)

    def read_some(self, n):
        return self.pieces.pop(0) if self.pieces else b""


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_the_input_is_a_file(size):
    data = b"one\ntwo\n\nlong line without an end\nlast"
    pieces = [data[i : i + size] for i in range(0, len(data), size)]

    def made():
        return InputStream(Body(*pieces))

    file = io.BytesIO(data)
    assert made().read() == data
    assert made().readlines() == file.readlines()
    assert list(made()) == data.splitlines(keepends=True)
    for call in (
        [
            ("read", 5),
            ("readline", -1),
            ("read", 0),
            ("readline", 3),
            ("readline", 0),
            ("readlines", 8),
            ("read", None),
        ],
    ):
        stream, file = made(), io.BytesIO(data)
        for name, argument in call:
            assert getattr(stream, name)(argument) == getattr(file, name)(argument), name
        assert stream.read() == b""
        assert stream.readline() == b""


@in_loop
def test_files(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789" * 50_000)
    closed = []

    class File(io.FileIO):
        def close(self):
            closed.append(self.closed)
            super().close()

    def app(environ, start_response):
        start_response("200 OK", TEXT)
        file = File(path)
        file.seek(5)
        return environ["wsgi.file_wrapper"](file)

    status, headers, body = get(app)
    assert headers["content-length"] == ["499995"]
    assert body == path.read_bytes()[5:]
    assert closed[0] is False

    def in_memory(environ, start_response):
        start_response("200 OK", TEXT)
        return FileWrapper(io.BytesIO(b"abc" * 1000), 100)

    assert get(in_memory)[2] == b"abc" * 1000


@in_loop
def test_mistakes_of_an_application():
    closed = []

    class Result:
        def __iter__(self):
            yield b"begun"
            raise KeyError("secret")

        def close(self):
            closed.append(True)

    def breaks_off(environ, start_response):
        start_response("200 OK", TEXT)
        return Result()

    with serving(WSGIHandler(breaks_off)) as server:
        data = talk(server, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert b"begun" in data
    assert not data.endswith(b"0\r\n\r\n")  # the client sees that something is missing
    assert b"secret" not in data
    assert closed == [True]

    def fails(environ, start_response):
        raise KeyError("secret")

    def silent(environ, start_response):
        return [b"x"]

    def twice(environ, start_response):
        start_response("200 OK", TEXT)
        start_response("200 OK", TEXT)
        return []

    def not_bytes(environ, start_response):
        start_response("200 OK", TEXT)
        return iter(["text"])

    def wrong_status(environ, start_response):
        start_response("OK", TEXT)
        return []

    def splits(environ, start_response):
        start_response("200 OK", [("X", "a\r\nSet-Cookie: evil=1")])
        return [b""]

    def exits(environ, start_response):
        sys.exit("secret")

    def exits_late(environ, start_response):
        start_response("200 OK", TEXT)
        yield b""
        sys.exit("secret")

    for app in (fails, silent, twice, not_bytes, wrong_status, splits, exits, exits_late):
        status, headers, body = get(app)
        assert status == 500, app
        assert b"secret" not in body
        assert "set-cookie" not in headers

    def replaced(environ, start_response):
        start_response("200 OK", TEXT)
        try:
            raise ValueError("late")
        except ValueError:
            start_response("503 Busy", TEXT, sys.exc_info())
        return [b"busy"]

    assert get(replaced)[0] == 503
    with pytest.raises(TypeError):
        WSGIHandler("app")


@in_loop
@pytest.mark.parametrize("name", ["Connection", "Transfer-Encoding", "Keep-Alive", "TE", "Trailer", "Upgrade"])
def test_fields_of_the_connection_are_left_out(name):
    """A view that passes on what another server has answered sends them, PEP 3333 or not; the connection is ours."""

    def app(environ, start_response):
        start_response("200 OK", [("X-Before", "1"), (name, "chunked"), ("Content-Length", "2"), ("X-Behind", "2")])
        return [b"ok"]

    with serving(WSGIHandler(app)) as server:
        answers = messages(talk(server, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n" * 2))
    assert [(status, body) for status, _, body in answers] == [(200, b"ok")] * 2
    for _, fields, _ in answers:
        assert name.lower() not in fields
        assert (fields["x-before"], fields["x-behind"]) == (["1"], ["2"])


@in_loop
def test_requests_that_wait_do_not_wait_for_each_other():
    """A view that sleeps is a thread that sleeps: a hundred take as long as one."""
    together = coro.barrier(100)

    def app(environ, start_response):
        together.wait()  # passes only when all are here at once
        start_response("200 OK", TEXT)
        return [b"met"]

    with serving(WSGIHandler(app)) as server:

        def ask():
            with connected(server) as conn:
                conn.send(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
                data = b""
                while piece := conn.recv(65536):
                    data += piece
                return data

        threads = [coro.spawn(ask) for _ in range(100)]
        assert all(thread.get().endswith(b"met") for thread in threads)


@in_loop
def test_fields_that_come_again():
    """The environ of the third request is made from what is kept; it is the request's own all the same."""
    seen = []

    def app(environ, start_response):
        body = environ["wsgi.input"].read()
        seen.append({key: value for key, value in environ.items() if key not in ("wsgi.input", "REMOTE_PORT")})
        environ["HTTP_X_ONE"] = environ["own"] = "changed by the application"
        start_response("200 OK", TEXT)
        return [body]

    fields = "Host: h\r\nX-One: 1\r\nx-two: 2\r\nX-One: 3\r\n"
    requests = (
        f"GET /a?q=1 HTTP/1.1\r\n{fields}\r\n",
        f"POST /b HTTP/1.1\r\n{fields}Content-Length: 1\r\n\r\nx",
        f"PUT /%62 HTTP/1.1\r\n{fields}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        f"GET /b HTTP/1.0\r\nConnection: keep-alive\r\n{fields}\r\n",
        "GET /c HTTP/1.1\r\nHost: h\r\n\r\n",
    )
    with serving(WSGIHandler(app)) as server:
        for request in requests:
            seen.clear()
            for _ in range(2):
                assert talk(server, (request * 2).encode()).count(b"HTTP/1.1 200 OK") == 2
            assert len(seen) == 4
            assert seen[0] == seen[1] == seen[2] == seen[3]
            assert seen[0]["REQUEST_METHOD"] == request.partition(" ")[0]
            assert seen[0].get("HTTP_X_ONE") == (None if "/c" in request else "1,3")
            assert ("CONTENT_LENGTH" in seen[0]) == ("Content-Length" in request)
            assert seen[0]["QUERY_STRING"] == ("q=1" if "?" in request else "")
            assert seen[0]["SERVER_PROTOCOL"] == ("HTTP/1.0" if "HTTP/1.0" in request else "HTTP/1.1")


@in_loop
def test_any_number_of_different_fields():
    def app(environ, start_response):
        start_response("200 OK", TEXT)
        return [environ["HTTP_N"].encode()]

    numbers = [*range(200)] * 3
    requests = "".join(f"GET / HTTP/1.1\r\nHost: h\r\nN: {n}\r\n\r\n" for n in numbers)
    with serving(WSGIHandler(app)) as server:
        answers = messages(talk(server, requests.encode()), *["GET"] * len(numbers))
    assert [int(body) for _, _, body in answers] == numbers


@in_loop
def test_lengths_and_fields_that_an_application_sets():
    def answer(*headers, body=b"hello", status="200 OK"):
        return get(lambda environ, start_response: start_response(status, [*headers]) and [body])

    assert answer(("content-length", "5"), ("Date", "d"), ("SERVER", "s"))[1:] == (
        {"content-length": ["5"], "date": ["d"], "server": ["s"], "connection": ["close"]},
        b"hello",
    )
    for value in ("5", " 5", "+5"):  # what int() takes, too
        status, fields, body = answer(("Content-Length", value), ("Content-Length", "5"))
        assert (status, fields["content-length"], body) == (200, ["5"], b"hello")
    assert answer(("Content-Length", "5"), status="299 Mine")[0::2] == (299, b"hello")
    assert answer(("X", "a\nb"))[0] == 500
    assert answer(("Content-Length", "x"))[0] == 500
    assert answer(body=b"")[1]["content-length"] == ["0"]
    assert "content-length" not in answer(status="204 No Content", body=b"")[1]


@given(
    pieces=st.lists(st.binary(min_size=1, max_size=12).map(lambda data: data.replace(b"a", b"\n")), max_size=6),
    calls=st.lists(
        st.tuples(st.sampled_from(["read", "readline", "readlines"]), st.none() | st.integers(-1, 12)), max_size=12
    ),
)
@settings(deadline=None)
def test_the_body_reads_as_a_file_does(pieces, calls):
    left = [*pieces, b""]
    request = SimpleNamespace(read_some=lambda size: left.pop(0))
    stream, file = InputStream(request), io.BytesIO(b"".join(pieces))
    for name, argument in calls:
        assert getattr(stream, name)(argument) == getattr(file, name)(argument), (name, argument)
    assert stream.read() == file.read()


@pytest.mark.slow
def test_a_body_of_short_lines_costs_what_its_length_is():
    """With a copy of what is left for each line, this would take minutes."""
    left = [b"\n" * (1 << 20), bytes(1 << 20), b""]
    stream = InputStream(SimpleNamespace(read_some=lambda size: left.pop(0)))
    assert all(stream.readline() == b"\n" for _ in range(1 << 20))
    assert all(stream.read(1) == b"\0" for _ in range(1 << 20))
    assert stream.read() == b""


@in_loop
def test_the_length_of_what_get_would_answer_is_not_made_up():
    """RFC 9110 8.6: an answer to HEAD has the length of the one to GET, or none."""

    def app(environ, start_response):
        start_response("200 OK", TEXT)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [b"hello"]

    heads = b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n" * 2 + b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    with serving(WSGIHandler(app)) as server:
        answers = messages(talk(server, heads, end=False), "HEAD", "HEAD", "GET")
    assert [(status, fields.get("content-length"), body) for status, fields, body in answers] == [
        (200, None, b""), (200, None, b""), (200, ["5"], b"hello"),
    ]  # fmt: skip


@in_loop
def test_behind_a_unix_socket(tmp_path):
    """PEP 3333: neither SERVER_NAME nor SERVER_PORT can be empty."""
    found = {}

    def app(environ, start_response):
        found.update(environ)
        start_response("200 OK", TEXT)
        return [b"x"]

    path = str(tmp_path / "socket")
    with http.server(WSGIHandler(app), path), Client(unix=path) as client:
        assert client.get("http://h/").content == b"x"
    assert (found["SERVER_NAME"], found["SERVER_PORT"], found["REMOTE_ADDR"]) == ("localhost", "80", "")
