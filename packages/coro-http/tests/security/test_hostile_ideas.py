"""Attacks of our own making, each tried against a server or a client that runs: what a clever peer could hope for."""

from __future__ import annotations

import base64
import os
import zlib
from pathlib import Path
from typing import Any

import pytest
from http_support import connected, in_loop, messages, serving, statuses, talk, until_end

import coro
from coro import http
from coro.http import static, websocket
from coro.http.client import Client

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
GET = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize(
    "field",
    [
        b"Connection: close, content-length\r\nContent-Length: 5",
        b"Connection: transfer-encoding\r\nTransfer-Encoding: chunked",
        b"Connection: host\r\nX: y",
    ],
    ids=["length", "coding", "host"],
)
@in_loop
def test_connection_names_a_field_that_frames(field: bytes) -> None:
    """A proxy that drops what Connection names would forward another message: ours is framed by its fields, always."""
    seen: list[bytes] = []

    def handler(request: Any) -> str:
        seen.append(request.read())
        return "x"

    body = b"5\r\nhello\r\n0\r\n\r\n" if b"chunked" in field else b"hello" if b"Length" in field else b""
    with serving(handler) as server:
        assert statuses(talk(server, HEAD + field + b"\r\n\r\n" + body)) == [200]
    assert seen == [b"hello" if body else b""]


@in_loop
def test_a_get_with_a_body_hides_no_request() -> None:
    """A body that looks like a request, in a message whose method usually has none."""
    seen: list[str] = []

    def handler(request: Any) -> str:
        seen.append(request.path)
        return "x"

    inside = GET % b"/admin"
    for method in (b"GET", b"DELETE", b"OPTIONS", b"HEAD"):
        head = method + b" / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(inside)
        with serving(handler) as server:
            talk(server, head + inside + GET % b"/next")
    assert seen == ["/", "/next"] * 4


@in_loop
def test_an_upgrade_to_what_nobody_offers_is_no_upgrade() -> None:
    """h2c and friends: the answer is one in HTTP/1.1, and what follows is read as HTTP/1.1."""
    with serving(lambda request: request.path) as server:
        for protocol in (b"h2c", b"TLS/1.0", b"websocket, h2c", b"%"):
            asked = b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\n" % protocol
            answers = messages(talk(server, asked + b"HTTP2-Settings: AAMAAABk\r\n\r\n" + GET % b"/b"))
            assert [(m[0], m[2]) for m in answers] == [(200, b"/a"), (200, b"/b")]


@in_loop
def test_a_chunk_line_that_does_not_end() -> None:
    """An extension of a megabyte in front of a chunk of one byte, and many small ones."""
    coded = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

    def handler(request: Any) -> str:
        return str(len(request.read()))

    with serving(handler) as server:
        with connected(server) as conn:
            conn.send(coded + b"1;x=")
            try:
                for _ in range(64):
                    conn.send(b"y" * 16384)
                assert b"HTTP/1.1 400" in until_end(conn)
            except OSError:
                pass  # it has closed long before all was sent
        assert server.statistics()["bytes_in"] < 1 << 20
        assert statuses(talk(server, coded + (b"1;" + b"a" * 100 + b"\r\nx\r\n") * 1000 + b"0\r\n\r\n"))[0] in (
            400,
            413,
        )


@in_loop
def test_trailers_as_numerous_as_headers() -> None:
    coded = HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
    with serving(lambda request: str(len(request.read()))) as server:
        for trailers in (b"a: b\r\n" * 1000, b"a: " + b"b" * 100_000 + b"\r\n", b"a" * 100_000):
            assert statuses(talk(server, coded + trailers + b"\r\n"))[0] in (400, 413, 431)


@in_loop
def test_pipelined_requests_of_a_client_that_does_not_read() -> None:
    """Answers are not made in advance: the handler is not called again before the last answer is with the kernel."""
    calls = 0

    def handler(request: Any) -> bytes:
        nonlocal calls
        calls += 1
        return b"x" * 1_000_000

    with serving(handler) as server, connected(server) as conn:
        conn.send(GET % b"/" * 1000)
        coro.testing.wait_all_blocked()
        assert calls < 30


@in_loop
def test_half_a_request_behind_an_error() -> None:
    """Nothing behind a refused message is read as another one, whatever comes in which piece."""
    seen: list[str] = []

    def handler(request: Any) -> str:
        seen.append(request.path)
        return "x"

    with serving(handler) as server, connected(server) as conn:
        conn.send(b"GET /bad\0 HTTP/1.1\r\n")
        coro.testing.wait_all_blocked()
        try:
            for _ in range(20):
                conn.send(GET % b"/admin")
                coro.testing.wait_all_blocked()
        except OSError:
            pass
    assert seen == []


@pytest.mark.parametrize(
    "path",
    ["/a%00.txt", "/..%2f..%2fetc/passwd", "/%2e%2e/x", "/a.txt/", "/a.txt/..", "/.%2e/", "/%252e%252e/a.txt",
     "/a.txt%20", "/" + "x" * 5000, "/" + "d/" * 2000, "/pipe", "/link", "/loop/loop/loop"],
)  # fmt: skip
@in_loop
def test_names_of_files_that_are_none(path: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "loop").symlink_to(".")
    with serving(static.Files(tmp_path)) as server:
        assert statuses(talk(server, GET % path.encode()))[0] == 404


@pytest.mark.parametrize(
    ("ranges", "status"),
    [
        ("bytes=" + ",".join(f"{i}-{i}" for i in range(500)), 200),
        ("bytes=0-,0-,0-", 200),
        ("bytes=9999999999999999999-", 416),
        ("bytes=18446744073709551615-18446744073709551616", 200),
        ("bytes=0-18446744073709551615", 200),
        ("bytes=-0", 416),
        ("bytes=١-٢", 200),
        ("bytes=--1", 200),
        ("bytes=1-0", 200),
        ("lines=0-1", 200),
    ],
)
@in_loop
def test_ranges(ranges: str, status: int, tmp_path: Path) -> None:
    """Many overlapping ones (Apache CVE-2011-3192), and numbers beyond 64 bits."""
    (tmp_path / "a.txt").write_text("a" * 1000)
    with serving(static.Files(tmp_path)) as server:
        asked = b"GET /a.txt HTTP/1.1\r\nHost: a\r\nRange: %s\r\n\r\n" % ranges.encode()
        found = messages(talk(server, asked))[0]
        assert found[0] in (status, 206)
        assert len(found[2]) <= 1000


@in_loop
def test_accept_encoding_that_goes_on_and_on() -> None:
    """Parsing q-values costs in proportion to the field, and nonsense leads to an answer as it is."""
    with serving(lambda request: "x" * 5000) as server:
        for value in (b"gzip;q=0.1," * 1400, b"," * 15000, b";q=" * 5000, b"gzip;q=1e309", b"gzip;q=nan", b"*;q=0"):
            found = messages(talk(server, b"GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: %s\r\n\r\n" % value))
            assert found[0][0] in (200, 406)


@in_loop
def test_credentials_that_are_none() -> None:
    """Each is refused with 401, none ends in 500."""
    from coro.http.handlers import auth_handler

    class Secret:
        def match(self, request: Any) -> bool:
            return True

        def handle_request(self, request: Any) -> None:
            request.push("secret")
            request.done()

    with serving(auth_handler({"a": "b"}, Secret())) as server:
        for value in (b"Digest", b"Digest =", b'Digest username="a', b"Basic " + base64.b64encode(b"a:b"),
                      b"Digest " + b"a=b," * 3000,
                      b'Digest username="\xff", realm="default", nonce="x", uri="/", response="y"'):  # fmt: skip
            found = messages(talk(server, b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\n\r\n" % value))
            assert found[0][0] == 401 and b"secret" not in found[0][2]


HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize(
    "field",
    [
        b"Sec-WebSocket-Extensions: " + b"permessage-deflate; server_max_window_bits=99," * 300,
        b'Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits="8"',
        b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=\xb2",
        b'Sec-WebSocket-Extensions: "' + b"\\" * 5000,
        b"Sec-WebSocket-Extensions: " + b";=," * 5000,
        b"Sec-WebSocket-Protocol: " + b"a," * 7000,
    ],
)
@in_loop
def test_offers_that_are_none(field: bytes) -> None:
    """An offer that cannot be kept is declined, or the handshake refused: never 500."""

    def echo(ws: Any) -> None:
        for message in ws:
            ws.send(message)

    with serving(websocket.endpoint(echo, deflate=True)) as server, connected(server) as conn:
        conn.send(HANDSHAKE + field + b"\r\n\r\n")
        assert conn.recv(65536).split()[1] in (b"101", b"400")


@in_loop
def test_frames_right_behind_the_handshake() -> None:
    """They came before the answer was sent; they are answered once, and a close among them ends it."""

    def echo(ws: Any) -> None:
        for message in ws:
            ws.send(message)

    frame = b"\x81\x82\0\0\0\0hi"
    with serving(websocket.endpoint(echo)) as server:
        got = talk(server, HANDSHAKE + b"\r\n" + frame * 3 + b"\x88\x82\0\0\0\0\x03\xe8" + frame, end=False)
    assert got.partition(b"\r\n\r\n")[2] == b"\x81\x02hi" * 3 + b"\x88\x02\x03\xe8"


@in_loop
def test_a_compressed_bomb_over_a_connection() -> None:
    """64 MB in 64 kB: refused with 1009 as soon as the limit is passed, and the server goes on."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = packer.compress(bytes(64 << 20)) + packer.flush(zlib.Z_SYNC_FLUSH)
    bomb = bomb[:-4]

    def echo(ws: Any) -> None:
        for message in ws:
            ws.send(message)

    with serving(websocket.endpoint(echo, deflate=True)) as server:
        with connected(server) as conn:
            conn.send(HANDSHAKE + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n")
            assert b" 101 " in conn.recv(65536)
            conn.send(b"\xc1\xfe" + len(bomb).to_bytes(2, "big") + bytes(4) + bomb)
            closing = until_end(conn)
            assert (closing[0], closing[2:4]) == (0x88, (1009).to_bytes(2, "big"))
        with websocket.connect(f"ws://127.0.0.1:{server.port}/") as ws:
            ws.send("still here")
            assert ws.receive() == "still here"


@in_loop
def test_cookies_of_one_path_or_port_reach_no_wider_host() -> None:
    """Names that reach beyond their host: a public suffix, another host, an address with a dot in front."""
    sent: list[str | None] = []
    bad = ["a=1; Domain=com", "b=1; Domain=..", "c=1; Domain=.0.0.1", "d=1; Domain=localhost.", "__Host-e=1; Path=/x",
           "__Secure-f=1", "g=1; Domain=1"]  # fmt: skip

    def handler(request: Any) -> None:
        sent.append(request.headers.get_one("cookie"))
        request.respond(200, [("set-cookie", value) for value in bad], b"x")

    with serving(handler) as server, Client(base_url=f"http://127.0.0.1:{server.port}") as client:
        client.get("/")
        client.get("/")
    assert sent == [None, None]


@in_loop
def test_a_redirect_from_post_to_another_host_carries_no_body() -> None:
    """303 and 302 become GET without a body and its fields; 307 to another origin repeats no credentials."""
    seen: list[tuple[str, bytes, Any, Any]] = []

    def second(request: Any) -> str:
        headers = request.headers
        seen.append((request.method, request.read(), headers.get("authorization"), headers.get("content-type")))
        return "x"

    with serving(second) as other:

        def first(request: Any) -> None:
            location = f"http://127.0.0.1:{other.port}/"
            request.respond(int(request.path[1:]), [("location", location)], b"")

        with serving(first) as server, Client(base_url=f"http://127.0.0.1:{server.port}") as client:
            for status in (302, 303, 307):
                client.post(f"/{status}", data={"password": "secret"}, auth=("user", "secret"))
    assert [s[:2] for s in seen[:2]] == [("get", b"")] * 2
    assert seen[2][0] == "post"
    assert all(s[2] is None for s in seen) and seen[0][3] is None is seen[1][3]


@in_loop
def test_a_middle_of_nowhere_in_the_multipart_body() -> None:
    """Boundaries within boundaries, without end, and of the greatest length: 400 or an empty form, never 500."""

    def handler(request: Any) -> str:
        with request.form() as found:
            return str(len(list(found)))

    app = http.App()
    app.post("/")(handler)
    with serving(app) as server:
        for kind, body in (
            (b"multipart/form-data", b""),
            (b"multipart/form-data; boundary=", b"--\r\n"),
            (b"multipart/form-data; boundary=" + b"x" * 5000, b"--x"),
            (b'multipart/form-data; boundary="a\\"b"', b'--a"b\r\n\r\n'),
            (b"multipart/form-data; boundary=a", b"--a\r\n" * 5000),
            (b"multipart/form-data; boundary=a", b"--a\r\nContent-Disposition: form-data; name=" + b"\r\n\r\n--a--"),
            (b"multipart/form-data; boundary=a", b"--a\r\n" + b"X: y\r\n" * 5000 + b"\r\n--a--\r\n"),
            (b"application/x-www-form-urlencoded; charset=rot13", b"%zz=%&&&&=;" * 50),
        ):
            sent = HEAD + b"Content-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind, len(body)) + body
            assert statuses(talk(server, sent))[0] in (200, 400, 413, 415, 431)
        assert server.statistics()["by_class"]["5xx"] == 0
