"""What one client sends never reaches another one's requests: all connections of a server receive into one piece of
memory, so what is left in it of one of them is out of it before a handler, which may wait, runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from http_support import connected, in_loop, messages, serving, until_blocked, until_end

import coro

OTHERS = b"GET /other HTTP/1.1\r\nHost: other\r\nCookie: of-another\r\n\r\n" * 20
CHUNKED = b"POST /wait HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
NEXT = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"
PIECES = b"5\r\nhello\r\n5\r\nworld\r\n5\r\nagain\r\n0\r\n\r\n"

Waiting = Callable[[], None]


def asked(handler: Callable[[Any, Waiting], Any], *parts: bytes) -> bytes:
    """What a client gets that sends these parts. Each part but the first is sent when the handler waits for it; where
    it waits after the last one, another client sends its requests and gets its answers."""
    go = coro.semaphore(0)
    paths: list[str] = []

    def choose(request: Any) -> Any:
        paths.append(request.path)
        return "other" if request.path == "/other" else handler(request, lambda: go.acquire(1))

    with serving(choose) as server, connected(server) as ours, connected(server) as other:
        for part in parts:
            ours.send(part)
            until_blocked()
            if part is not parts[-1]:
                go.release(1)
                until_blocked()
        other.send(OTHERS)
        until_blocked()
        assert paths.count("/other") == 20
        go.release(100)
        ours.shutdown(coro.SHUT.WR)
        answer = until_end(ours)
        assert paths.count("/other") == 20
        return answer


@in_loop
def test_the_next_request_while_a_handler_waits() -> None:
    def handler(request: Any, wait: Waiting) -> str:
        wait()
        return f"{request.path} {request.headers.get('cookie')}"

    found = messages(asked(handler, b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n" + NEXT * 3))
    assert [body for _, _, body in found] == [b"/wait None"] + [b"/next None"] * 3


@pytest.mark.parametrize("most", [1, 3, 65536])
@in_loop
def test_the_rest_of_a_body_that_came_with_its_head(most: int) -> None:
    def handler(request: Any, wait: Waiting) -> bytes:
        found = b""
        while piece := request.read_some(most):
            wait()
            found += piece
        return found

    assert messages(asked(handler, CHUNKED + PIECES))[0][2] == b"helloworldagain"


@pytest.mark.parametrize("most", [1, 3, 65536])
@in_loop
def test_the_rest_of_a_body_that_came_later(most: int) -> None:
    def handler(request: Any, wait: Waiting) -> bytes:
        wait()
        found = b""
        while piece := request.read_some(most):
            wait()
            found += piece
        return found

    assert messages(asked(handler, CHUNKED, PIECES + NEXT))[0][2] == b"helloworldagain"


@in_loop
def test_the_rest_of_a_body_of_known_length() -> None:
    def handler(request: Any, wait: Waiting) -> bytes:
        wait()
        found = b""
        while piece := request.read_some(2):
            wait()
            found += piece
        return found

    head = b"POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"
    found = messages(asked(handler, head, b"123456789" + NEXT))
    assert [body for _, _, body in found] == [b"123456789", b""]


@in_loop
def test_the_request_behind_a_body_that_nobody_read() -> None:
    """The handler's own things go, and may wait, when the rest of the body has been read."""
    ends: list[str] = []

    class Keepsake:
        def __init__(self, wait: Waiting) -> None:
            self.wait = wait

        def __del__(self) -> None:
            self.wait()
            ends.append("gone")

    def handler(request: Any, wait: Waiting) -> str:
        if request.path == "/wait":
            wait()
            request.keepsake = Keepsake(wait)
        return request.path

    found = messages(asked(handler, CHUNKED, PIECES + NEXT))
    assert [body for _, _, body in found] == [b"/wait", b"/next"]
    assert ends == ["gone"]


@in_loop
def test_what_came_behind_a_switch_of_protocols() -> None:
    early: list[bytes] = []

    def handler(request: Any, wait: Waiting) -> None:
        wait()
        stream, before = request.takeover(101, [("connection", "upgrade"), ("upgrade", "x")])
        early.append(before)
        stream.send(before)

    head = b"GET /wait HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
    assert asked(handler, head + b"words of the other protocol").endswith(b"\r\n\r\nwords of the other protocol")
    assert early == [b"words of the other protocol"]
