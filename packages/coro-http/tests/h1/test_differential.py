"""The codec beside h11, httptools (llhttp) and aiohttp, on messages that are made and damaged by a seed.

We accept nothing that h11 rejects, but for the rows of ACCEPTED; what is accepted by both is understood alike.
httptools is more lenient than either; where it accepts what we accept, it understands the same.
What aiohttp refuses and we accept has a table, too.

CORO_HTTP_MESSAGES is how many messages there are, CORO_HTTP_SEED where they begin.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import Iterator
from typing import Any

import h1_support
import h11
import httptools
import pytest

from coro.http.exceptions import RemoteError

MESSAGES = int(os.environ.get("CORO_HTTP_MESSAGES", "3000"))
SEED = int(os.environ.get("CORO_HTTP_SEED", "1"))

#: What we accept and h11 rejects: what it looks like, and why we do.
ACCEPTED: list[tuple[re.Pattern[bytes], str]] = [
    (re.compile(rb"\A\r\n"), "RFC 9112 2.2: a server should ignore an empty line before a request line"),
    (re.compile(rb"(?s)\r\n\r\n\r\n"), "the same, between two requests on one connection"),
    (re.compile(rb"HTTP/1\.[2-9]"), "RFC 9110 2.5: a higher minor version is read as the highest that is known"),
    (re.compile(rb"(?is)HTTP/1\.0\r\n.*keep-alive"), "RFC 9112 C.2.2: h11 ends each connection of HTTP/1.0"),
]

#: What we accept and aiohttp refuses: its error, and why we do.
ACCEPTED_BESIDE_AIOHTTP: list[tuple[re.Pattern[str], str]] = [
    (re.compile("BadHttpMethod"), "RFC 9110 16.1: methods are extensible; llhttp knows a list of them"),
    (re.compile("Data after `Connection: close`"), "RFC 9112 9.6: what follows the last request is left unread"),
    (re.compile("Duplicate '"), "RFC 9110 5.3: a field that is said twice frames nothing here; a program sees both"),
    (
        re.compile("InvalidURLError"),
        "the codec takes any target without blanks, as h11 does; the server minds its form",
    ),
    (re.compile("Invalid HTTP version"), "RFC 9110 2.5: a higher minor version is read as the highest that is known"),
    (re.compile("Invalid character in chunk extensions"), "RFC 9112 7.1.1: extensions are skipped; h11 does, too"),
]


def by_h11(data: bytes, role: Any) -> tuple[list[Any], bool]:
    """The messages, and whether all was accepted."""
    c = h11.Connection(role, max_incomplete_event_size=1 << 20)
    found: list[Any] = []
    head: Any = None
    body = b""
    if role is h11.CLIENT:
        c.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
        c.send(h11.EndOfMessage())
    try:
        c.receive_data(data)
        c.receive_data(b"")
        while True:
            event = c.next_event()
            if isinstance(event, (h11.Request, h11.Response)):
                head, body = event, b""
            elif isinstance(event, h11.InformationalResponse):
                found.append((event.status_code,))
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                if isinstance(head, h11.Request):
                    found.append((head.method, head.target, body))
                else:
                    found.append((head.status_code, body))
            elif event is h11.PAUSED:
                if role is h11.CLIENT:
                    return found, True
                c.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                c.send(h11.EndOfMessage())
                if c.our_state is h11.MUST_CLOSE or c.their_state is not h11.DONE:
                    return found, True
                c.start_next_cycle()
            else:
                return found, True
    except (h11.RemoteProtocolError, h11.LocalProtocolError):
        return found, False


def messages(make: Any, count: int) -> Any:
    for number in range(count):
        rng = random.Random(f"{SEED}-{number}")
        data = make(rng)
        if number % 10:
            data = h1_support.damaged(rng, data)
        if number % 7 == 0:
            data += make(rng)
        yield number, data, h1_support.pieces(rng, data)


def excused(data: bytes) -> bool:
    return any(pattern.search(data) for pattern, _ in ACCEPTED)


def test_requests_beside_h11() -> None:
    both = 0
    for number, data, pieces in messages(h1_support.request, MESSAGES):
        ours, error = h1_support.server_messages(pieces)
        assert error is None or isinstance(error, RemoteError)
        theirs, _ = by_h11(data, h11.SERVER)
        if len(ours) > len(theirs):
            assert excused(data), (SEED, number, data, ours, theirs)
            continue
        for mine, other in zip(ours, theirs, strict=False):
            assert (mine[0], mine[1], mine[3]) == other, (SEED, number, data)
        both += len(ours)
    assert both > MESSAGES // 20


def test_responses_beside_h11() -> None:
    both = 0
    for number, data, pieces in messages(h1_support.response, MESSAGES):
        ours, _ = h1_support.client_messages(pieces)
        theirs, _ = by_h11(data, h11.CLIENT)
        if len(ours) > len(theirs):
            assert excused(data), (SEED, number, data, ours, theirs)
            continue
        for mine, other in zip(ours, theirs, strict=False):
            assert ((mine[0],) if len(mine) == 1 else (mine[0], mine[-1])) == other, (SEED, number, data)
        both += len(ours)
    assert both > MESSAGES // 20


class Collected:
    """What httptools tells of requests."""

    def __init__(self) -> None:
        self.messages: list[tuple[bytes, bytes, bytes]] = []

    def on_message_begin(self) -> None:
        self.url = self.body = b""

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.messages.append((self.parser.get_method(), self.url, self.body))

    parser: Any


def test_requests_beside_httptools() -> None:
    both = 0
    for number, data, pieces in messages(h1_support.request, MESSAGES):
        ours, error = h1_support.server_messages(pieces)
        if error is not None:
            continue
        collected = Collected()
        collected.parser = parser = httptools.HttpRequestParser(collected)
        try:
            parser.feed_data(data)
        except httptools.HttpParserError:
            continue  # (it knows the methods by name, and no others)
        except httptools.HttpParserUpgrade:
            continue
        for mine, other in zip(ours, collected.messages, strict=False):
            assert (mine[0], mine[1], mine[3]) == other, (SEED, number, data)
            both += 1
    assert both > MESSAGES // 20


@pytest.fixture
def parsers() -> Iterator[tuple[Any, Any, Any]]:
    """What makes a parser of requests, what makes one of responses, and their errors."""
    pytest.importorskip("aiohttp")  # (there is none for 3.15, where a soak may run this)
    from aiohttp import base_protocol, http_exceptions, http_parser

    loop = asyncio.new_event_loop()
    limits = {"max_line_size": 8190, "max_field_size": 8190}

    def reader(kind: Any, **more: Any) -> Any:
        return kind(base_protocol.BaseProtocol(loop), loop, 2**16, **limits, **more)

    try:
        yield (
            lambda: reader(http_parser.HttpRequestParser),
            lambda: reader(http_parser.HttpResponseParser, response_with_body=True, read_until_eof=True),
            (http_exceptions.BadHttpMessage, http_exceptions.PayloadEncodingError),
        )
    finally:
        loop.close()


@pytest.mark.slow
@pytest.mark.timeout(600)  # for a hundred thousand on a busy machine
def test_requests_beside_aiohttp(parsers: Any) -> None:
    make, _, refused = parsers
    both = 0
    for number, data, pieces in messages(h1_support.request, MESSAGES):
        ours, error = h1_support.server_messages(pieces)
        try:
            theirs, _, _ = make().feed_data(data)
        except refused as e:
            # (it forgets the messages before the one that both refuse)
            excuse = error is not None or any(row.search(repr(e)) for row, _ in ACCEPTED_BESIDE_AIOHTTP)
            assert not ours or excuse, (SEED, number, data, e)
            continue
        assert len(ours) <= len(theirs), (SEED, number, data)
        for mine, (head, body) in zip(ours, theirs, strict=False):
            line = head.method.encode(), head.path.encode("utf-8", "surrogateescape")
            assert mine[:2] == line, (SEED, number, data)
            fields = [(name.lower(), value) for name, value in head.raw_headers]
            # (aiohttp adds the trailers of a message to the head of the next)
            assert mine[2] == fields[len(fields) - len(mine[2]) :], (SEED, number, data)
            content = b"".join(getattr(body, "_buffer", ()))
            assert mine[3] == content, (SEED, number, data)
            both += 1
    assert both > MESSAGES // 20


@pytest.mark.slow
@pytest.mark.timeout(600)  # for a hundred thousand on a busy machine
def test_responses_beside_aiohttp(parsers: Any) -> None:
    _, make, refused = parsers
    both = 0
    for number, data, pieces in messages(h1_support.response, MESSAGES):
        ours, error = h1_support.client_messages(pieces)
        # (llhttp does not know a coding with a tab behind it, which RFC 9110 5.6.3 lets pass as white space)
        if error is not None or not ours or b"chunked\t" in data:
            continue
        try:
            reader = make()
            theirs, _, _ = reader.feed_data(data)
            reader.feed_eof()
        except refused as e:
            assert any(row.search(repr(e)) for row, _ in ACCEPTED_BESIDE_AIOHTTP), (SEED, number, data, e)
            continue
        assert len(ours) <= len(theirs), (SEED, number, data)
        for mine, (head, body) in zip(ours, theirs, strict=False):
            assert mine[0] == head.code, (SEED, number, data)
            if len(mine) == 4:  # (neither an interim response nor a switch)
                assert mine[3] == b"".join(getattr(body, "_buffer", ())), (SEED, number, data)
            both += 1
    assert both > MESSAGES // 20


@pytest.mark.parametrize("data", h1_support.CORPUS)
def test_the_corpus_beside_h11(data: bytes) -> None:
    ours, error = h1_support.server_messages([data])
    theirs, _ = by_h11(data, h11.SERVER)
    # (h11 closes after each answer to HTTP/1.0)
    assert error is None and theirs
    assert [(m[0], m[1], m[3]) for m in ours][: len(theirs)] == theirs
