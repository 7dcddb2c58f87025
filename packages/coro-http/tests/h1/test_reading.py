"""What the codec makes of bytes: events, framing, limits, and the same at every way of cutting them."""

from __future__ import annotations

import h1_support
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coro.http import h1
from coro.http.exceptions import IncompleteError, LimitError, RemoteError


@pytest.mark.parametrize("data", h1_support.CORPUS)
def test_cut_at_every_byte(data: bytes) -> None:
    whole = h1_support.server_messages([data])
    assert whole[1] is None and whole[0]
    for at in range(1, len(data)):
        assert h1_support.server_messages([data[:at], data[at:]]) == whole
    assert h1_support.server_messages([data[i : i + 1] for i in range(len(data))]) == whole


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_what_is_fed_may_change_afterwards(kind: type) -> None:
    data = bytearray(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\n")
    c = h1.Connection(h1.SERVER)
    c.feed(kind(data))
    data[:] = bytes(len(data))
    request = c.next_event()
    assert isinstance(request, h1.Request) and request.target == b"/"
    assert c.trailing_data == b"GET /2 HTTP/1.1\r\n"


def test_a_request() -> None:
    c = h1.Connection(h1.SERVER)
    c.feed(b"POST /a?b HTTP/1.1\r\nHost: x\r\nA: 1\r\na:  2 \r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc")
    request = c.next_event()
    assert isinstance(request, h1.Request)
    assert (request.method, request.target, request.version) == (b"POST", b"/a?b", (1, 1))
    assert request.raw_headers[1:3] == [(b"A", b"1"), (b"a", b"2")]
    assert request.headers["A"] == ["1", "2"] and request.get("HOST") == b"x" and request.get("none") is None
    assert request.content_length == 3 and not request.chunked and request.keep_alive and request.expect_continue
    event = c.next_event()
    assert isinstance(event, h1.Data) and event.data == b"abc"
    assert isinstance(c.next_event(), h1.EndOfMessage)
    assert c.next_event() is h1.PAUSED


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: CLOSE\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x , close\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n\r\n", True),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", True),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", False),
    ],
)
def test_keep_alive(head: bytes, expected: bool) -> None:
    c = h1.Connection(h1.SERVER)
    c.feed(head)
    request = c.next_event()
    assert isinstance(request, h1.Request) and request.keep_alive is expected
    c.next_event()
    c.response(200, [("content-length", "0")])
    c.end()
    assert c.keep_alive is expected
    assert c.next_event() is (h1.NEED_DATA if expected else h1.CLOSED)


def test_the_second_request_waits_for_the_first_answer() -> None:
    c = h1.Connection(h1.SERVER)
    c.feed(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
    c.next_event()
    c.next_event()
    assert c.next_event() is c.next_event() is h1.PAUSED
    c.response(200, [("content-length", "1")])
    assert c.next_event() is h1.PAUSED
    c.data(b"x")
    assert c.next_event() is h1.PAUSED
    c.end()
    second = c.next_event()
    assert isinstance(second, h1.Request) and second.target == b"/2"


def test_small_chunks_are_joined() -> None:
    c = h1.Connection(h1.SERVER)
    c.feed(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1000 + b"0\r\n\r\n")
    c.next_event()
    event = c.next_event()
    assert isinstance(event, h1.Data) and event.data == b"x" * 1000
    assert isinstance(c.next_event(), h1.EndOfMessage)


@pytest.mark.parametrize("line", [b"\r\n", b""])
def test_one_empty_line_before_a_request(line: bytes) -> None:
    """RFC 9112 2.2."""
    data = line + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    for at in range(1, len(data)):
        messages, error = h1_support.server_messages([data[:at], data[at:]])
        assert error is None and len(messages) == 1


@pytest.mark.parametrize(
    ("size", "limit", "status"),
    [
        ({"max_line": 20}, b"GET /" + b"x" * 30, 414),
        ({"max_header": 20}, b"GET / HTTP/1.1\r\nX: " + b"x" * 30, 431),
        ({"max_headers": 100, "max_line": 50}, b"GET / HTTP/1.1\r\n" + b"X: xxxxx\r\n" * 20, 431),
        ({"max_header_count": 3}, b"GET / HTTP/1.1\r\n" + b"X: x\r\n" * 4, 431),
    ],
)
def test_limits(size: dict[str, int], limit: bytes, status: int) -> None:
    """With and without the end of the line, by pieces and at once."""
    for data in (limit, limit + b"\r\n\r\n"):
        for cut in ([data], [data[i : i + 1] for i in range(len(data))]):
            error = h1_support.server_messages(cut, **size)[1]
            assert isinstance(error, LimitError) and error.status == status and error.limit in size.values()


def test_a_line_of_exactly_the_limit() -> None:
    line = b"GET /xxxx HTTP/1.1"
    data = line + b"\r\nHost: a\r\n\r\n"
    assert h1_support.server_messages([data], max_line=len(line))[1] is None
    error = h1_support.server_messages([data], max_line=len(line) - 1)[1]
    assert isinstance(error, LimitError)


@pytest.mark.parametrize("at", range(1, len(h1_support.CORPUS[3])))
def test_a_stream_that_ends_early(at: int) -> None:
    messages, error = h1_support.server_messages([h1_support.CORPUS[3][:at]])
    assert messages == [] and isinstance(error, IncompleteError)


def test_an_error_is_told_again() -> None:
    c = h1.Connection(h1.SERVER)
    c.feed(b"GET / HTTP/3.0\r\n\r\n")
    for _ in range(3):
        with pytest.raises(RemoteError) as caught:
            c.next_event()
        assert caught.value.status == 505
    c.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    with pytest.raises(RemoteError):
        c.next_event()
    assert not c.keep_alive


class TestResponses:
    def test_informational_responses_come_first(self) -> None:
        data = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n"
        data += b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
        messages, error = h1_support.client_messages([data])
        assert error is None
        assert [m[0] for m in messages] == [100, 103, 200]

    def test_too_many_informational_responses(self) -> None:
        error = h1_support.client_messages([b"HTTP/1.1 100 Continue\r\n\r\n" * 40])[1]
        assert isinstance(error, LimitError)

    @pytest.mark.parametrize("status", [204, 304])
    def test_no_body(self, status: int) -> None:
        data = b"HTTP/1.1 %d X\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" % status
        messages, error = h1_support.client_messages([data], ["GET", "GET"])
        assert error is None and [m[0] for m in messages] == [status, 200]

    def test_no_body_for_head(self) -> None:
        data = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP/1.1 201 OK\r\nContent-Length: 0\r\n\r\n"
        messages, error = h1_support.client_messages([data], ["HEAD", "GET"])
        assert error is None and [m[0] for m in messages] == [200, 201]

    def test_until_the_end_of_the_stream(self) -> None:
        messages, error = h1_support.client_messages([b"HTTP/1.1 200 OK\r\n\r\nabc", b"def"])
        assert error is None and messages[0][3] == b"abcdef"

    def test_an_answer_that_nobody_asked_for(self) -> None:
        c = h1.Connection(h1.CLIENT)
        c.feed(b"HTTP/1.1 200 OK\r\n\r\n")
        with pytest.raises(RemoteError, match="nobody had asked"):
            c.next_event()

    def test_another_protocol(self) -> None:
        data = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nbytes of it"
        for at in range(1, len(data)):
            messages, error = h1_support.client_messages([data[:at], data[at:]])
            assert error is None and messages[0][0] == 101
        c = h1.Connection(h1.CLIENT)
        c.request("GET", "/", {"host": "a"})
        c.feed(data)
        with pytest.raises(RemoteError, match="nobody had asked"):
            c.next_event()

    def test_a_tunnel(self) -> None:
        c = h1.Connection(h1.CLIENT)
        c.request("CONNECT", "a:443", {"host": "a:443"})
        c.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\x16\x03")
        assert isinstance(c.next_event(), h1.Response)
        assert c.switched and c.trailing_data == b"\x16\x03" and c.next_event() is h1.PAUSED


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_at_all(data: bytes, client: bool) -> None:
    """Nothing but RemoteError, and an error for what is no message."""
    read = h1_support.client_messages if client else h1_support.server_messages
    read([data])
    read([data[i : i + 7] for i in range(0, len(data), 7)])
