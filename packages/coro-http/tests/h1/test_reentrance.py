"""Code of a program that runs while a message is made of its values, and makes another message meanwhile: all heads are
built in one buffer, and none gets what belongs to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coro.http import h1
from coro.http.exceptions import LocalError

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = [("transfer-encoding", "chunked")]
EMPTY = [("content-length", "0")]


def server() -> h1.Connection:
    made = h1.Connection(h1.SERVER)
    made.feed(GET)
    made.next_event()
    return made


class Text(str):
    """Text that does something before it is encoded."""

    act: Callable[[], Any]

    def encode(self, *arguments: Any) -> bytes:
        self.act()
        return super().encode(*arguments)


class Pair:
    """A pair that does something before it is taken apart."""

    def __init__(self, name: str, value: str, act: Callable[[], Any]) -> None:
        self.pair = name, value
        self.act = act

    def __iter__(self) -> Iterator[str]:
        self.act()
        return iter(self.pair)

    def __getitem__(self, i: int) -> str:
        return self.pair[i]


def text(value: str, act: Callable[[], Any]) -> Text:
    made = Text(value)
    made.act = act
    return made


def another() -> None:
    assert server().response(404, [("x-other", "secret " * 1000), *EMPTY]).startswith(b"HTTP/1.1 404")


FIELDS = [
    lambda act: ("x-mine", text("1", act)),
    lambda act: (text("x-mine", act), "1"),
    lambda act: Pair("x-mine", "1", act),
    lambda act: [text("x-mine", act), text("1", act)],
]


@pytest.mark.parametrize("field", FIELDS)
def test_a_response_within_a_response(field: Callable[[Any], Any]) -> None:
    head = server().response(200, [("x-before", "0"), field(another), *EMPTY])
    assert head == b"HTTP/1.1 200 OK\r\nx-before: 0\r\nx-mine: 1\r\ncontent-length: 0\r\n\r\n"


@pytest.mark.parametrize("field", FIELDS)
def test_a_response_within_a_request(field: Callable[[Any], Any]) -> None:
    head = h1.Connection(h1.CLIENT).request("GET", "/", [("host", "a"), field(another)])
    assert head == b"GET / HTTP/1.1\r\nhost: a\r\nx-mine: 1\r\n\r\n"


def test_a_response_within_a_request_line_and_a_reason() -> None:
    head = h1.Connection(h1.CLIENT).request(text("GET", another), text("/x", another), [("host", "a")])
    assert head == b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n"
    head = server().response(200, EMPTY, text("Fine", another))
    assert head == b"HTTP/1.1 200 Fine\r\ncontent-length: 0\r\n\r\n"


@pytest.mark.parametrize("field", FIELDS)
def test_a_response_within_trailers(field: Callable[[Any], Any]) -> None:
    mine = server()
    mine.response(200, CHUNKED)
    assert mine.end([("x-before", "0"), field(another)]) == b"0\r\nx-before: 0\r\nx-mine: 1\r\n\r\n"


def test_what_is_encoded_to_something_else_is_refused() -> None:
    class Wrong(str):
        def encode(self, *arguments: Any) -> Any:
            return None

    with pytest.raises(LocalError, match="a header value as str"):
        server().response(200, [("x", Wrong("1")), *EMPTY])


def test_the_same_response_twice() -> None:
    mine = server()
    with pytest.raises(LocalError, match="was begun while its headers were read"):
        mine.response(200, [("x", text("1", lambda: mine.response(404, CHUNKED))), *EMPTY])
    assert mine.end() == b"0\r\n\r\n"


def test_the_same_end_twice() -> None:
    mine = server()
    mine.response(200, CHUNKED)

    class Ends(str):
        def __str__(self) -> str:
            assert mine.end() == b"0\r\n\r\n"
            return "x-mine"

    with pytest.raises(LocalError, match="was ended while its trailers were read"):
        mine.end([(Ends("x-mine"), "1")])


def test_a_request_within_the_same_request() -> None:
    mine = h1.Connection(h1.CLIENT)
    inner = [("host", "a"), *CHUNKED]
    with pytest.raises(LocalError, match="another request was begun"):
        mine.request("GET", "/", [("host", "a"), ("x", text("1", lambda: mine.request("GET", "/inner", inner)))])
