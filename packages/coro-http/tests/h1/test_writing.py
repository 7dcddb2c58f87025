"""What the codec writes, and what it refuses to write."""

from __future__ import annotations

import h1_support
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coro.http import h1, header_set
from coro.http.exceptions import LocalError


def asked(request: bytes = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n") -> h1.Connection:
    """A server that has read a request."""
    c = h1.Connection(h1.SERVER)
    c.feed(request)
    c.next_event()
    c.next_event()
    return c


def test_a_response_with_a_length() -> None:
    c = asked()
    assert (
        c.response(200, [("Content-Length", 3), ("X", "y")]) == b"HTTP/1.1 200 OK\r\nX: y\r\ncontent-length: 3\r\n\r\n"
    )
    assert c.data(b"ab") + c.data(bytearray(b"c")) == b"abc"
    assert c.end() == b""


def test_a_response_in_chunks() -> None:
    c = asked()
    assert c.response(200).endswith(b"transfer-encoding: chunked\r\n\r\n")
    assert c.data(b"x" * 17) == b"11\r\n" + b"x" * 17 + b"\r\n"
    assert c.data(b"") == b""
    assert c.frame(10) == (b"a\r\n", b"\r\n")
    assert c.end({"checksum": "1"}) == b"0\r\nchecksum: 1\r\n\r\n"
    assert c.next_event() is h1.NEED_DATA


@pytest.mark.parametrize("headers", [{"a": "1"}, [("a", "1")], (("a", b"1"),), header_set([("a", 1)]), [["a", "1"]]])
def test_headers_of_all_kinds(headers: object) -> None:
    assert b"\r\na: 1\r\n" in asked().response(200, headers)  # type: ignore[arg-type]


def test_a_client_of_http_1_0() -> None:
    c = asked(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert b"connection: close\r\n" in c.response(200) and not c.keep_alive
    assert c.data(b"raw") == b"raw"
    c = asked(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert b"connection: keep-alive\r\n" in c.response(200, {"content-length": "0"})


@pytest.mark.parametrize("status", [204, 304])
def test_a_response_without_body(status: int) -> None:
    c = asked()
    assert b"transfer-encoding" not in c.response(status)
    with pytest.raises(LocalError, match="no body"):
        c.data(b"x")
    assert c.end() == b""


def test_a_response_to_head() -> None:
    c = asked(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b"content-length: 5\r\n" in c.response(200, {"content-length": "5"})
    with pytest.raises(LocalError, match="no body"):
        c.data(b"hello")
    assert c.end() == b"" and c.next_event() is h1.NEED_DATA


def test_early_hints() -> None:
    c = asked()
    assert c.response(103, {"link": "</x>"}) == b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    assert c.response(200, {"content-length": "0"}).startswith(b"HTTP/1.1 200 OK")


def test_switching() -> None:
    c = asked(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n\r\nearly")
    assert c.response(101, {"upgrade": "websocket", "connection": "upgrade"}).startswith(b"HTTP/1.1 101 Switching")
    assert c.switched and c.trailing_data == b"early" and c.next_event() is h1.PAUSED
    with pytest.raises(LocalError, match="did not ask"):
        asked().response(101)


def test_more_and_less_than_announced() -> None:
    c = asked()
    c.response(200, {"content-length": "3"})
    with pytest.raises(LocalError, match="longer than its content-length"):
        c.data(b"four")
    c.data(b"ab")
    with pytest.raises(LocalError, match="1 bytes shorter"):
        c.end()


def test_out_of_turn() -> None:
    c = asked()
    with pytest.raises(LocalError, match="send its head first"):
        c.data(b"x")
    c.response(200)
    with pytest.raises(LocalError, match="has been sent"):
        c.response(200)
    with pytest.raises(LocalError, match="a server sends responses"):
        c.request("GET", "/")
    client = h1.Connection(h1.CLIENT)
    with pytest.raises(LocalError, match="a client sends requests"):
        client.response(200)
    client.request("POST", "/", {"host": "a", "content-length": "2"})
    with pytest.raises(LocalError, match="is not complete"):
        client.request("GET", "/", {"host": "a"})


@pytest.mark.parametrize(
    "headers",
    [
        {"content-length": "-1"},
        {"content-length": "1", "transfer-encoding": "chunked"},
        [("content-length", "1"), ("Content-Length", "1")],
        {"transfer-encoding": "gzip"},
        {"bad name": "x"},
        {"": "x"},
        {"x": object()},
        {"x": True},
        {"x": "\u2028"},
        [("a", "b", "c")],
    ],
)
def test_impossible_headers(headers: object) -> None:
    with pytest.raises(LocalError):
        asked().response(200, headers)  # type: ignore[arg-type]


def test_impossible_requests() -> None:
    for method, target, headers in [
        ("GE T", "/", {"host": "a"}),
        ("GET", "/ x", {"host": "a"}),
        ("GET", "", {"host": "a"}),
        ("GET", "/", {}),
        ("GET", "/é", {"host": "a"}),
    ]:
        with pytest.raises(LocalError):
            h1.Connection(h1.CLIENT).request(method, target, headers)


TOKEN = st.text("abcXYZ0123-_!#$", min_size=1, max_size=12)
VALUE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=40)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(TOKEN.filter(lambda n: n.lower() not in ("host", "connection", "upgrade")), VALUE), max_size=8),
    st.lists(st.binary(min_size=1, max_size=100), max_size=5),
    st.booleans(),
)
def test_round_trip(headers: list[tuple[str, str]], body: list[bytes], chunked: bool) -> None:
    """What one side writes is what the other reads, both ways."""
    size = sum(map(len, body))
    framing = [("transfer-encoding", "chunked")] if chunked else [("content-length", str(size))]
    wanted = [(n.lower().encode(), v.strip(" \t").encode("latin-1")) for n, v in headers]
    client = h1.Connection(h1.CLIENT)
    sent = client.request("POST", "/x", [("host", "a"), *headers, *framing])
    sent += b"".join(map(client.data, body)) + client.end()
    messages, error = h1_support.server_messages([sent])
    assert error is None
    method, target, fields, got, _ = messages[0]
    assert (method, target, got) == (b"POST", b"/x", b"".join(body))
    assert [f for f in fields if f[0] not in (b"host", b"content-length", b"transfer-encoding")] == wanted  # type: ignore[attr-defined]

    server = asked()
    sent = server.response(200, [*headers, *framing]) + b"".join(map(server.data, body)) + server.end()
    messages, error = h1_support.client_messages([sent])
    assert error is None and messages[0][3] == b"".join(body)
