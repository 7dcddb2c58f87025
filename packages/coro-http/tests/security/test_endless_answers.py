"""A request of HEAD for what has no end: nothing of the body is sent, so nothing that the handler does would ever wait
or fail, and it would go on for ever, for a client that has long gone."""

from __future__ import annotations

from typing import Any

import pytest
from http_support import connected, messages, serving, statuses, talk

import coro
from coro import http
from coro.http import sse
from coro.http.asgi import ASGIHandler
from coro.http.wsgi import WSGIHandler
from coro.testing import coro_test, virtual_clock

HEAD = b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"
START = {"type": "http.response.start", "status": 200, "headers": []}


def endless() -> Any:
    while True:
        yield b"x" * 1000


def returned(request: http.http_request) -> Any:
    return endless()


def sent(request: http.http_request) -> None:
    request.start(200, [("content-type", "text/plain")])
    for piece in endless():
        request.send(piece)


def pushed(request: http.http_request) -> None:
    for piece in endless():
        request.push(piece)


def generated(environ: dict[str, Any], start_response: Any) -> Any:
    start_response("200 OK", [])
    return endless()


def written(environ: dict[str, Any], start_response: Any) -> None:
    write = start_response("200 OK", [])
    for piece in endless():
        write(piece)


async def awaited(scope: Any, receive: Any, send: Any) -> None:
    await send(START)
    for piece in endless():
        await send({"type": "http.response.body", "body": piece, "more_body": True})


HANDLERS = {
    "returned": returned,
    "sent": sent,
    "pushed": pushed,
    "WSGI": WSGIHandler(generated),
    "WSGI, written": WSGIHandler(written),
    "ASGI": ASGIHandler(awaited, lifespan="off"),
}


@pytest.mark.parametrize("how", HANDLERS)
@coro_test(leaks=False)  # asyncio's thread stays
def test_an_endless_answer_to_head_ends(how: str) -> None:
    with serving(HANDLERS[how]) as server:
        assert statuses(talk(server, HEAD, end=False) if how != "returned" else talk(server, HEAD)) == [200]
        while server.registry.open:
            coro.yield_slice()
        assert server.registry.counts()["errors"] == 0


@coro_test(leaks=False)
def test_events_for_head_end_when_the_client_has_gone() -> None:
    ended = coro.event()

    def ticks(request: http.http_request) -> None:
        try:
            with sse.stream(request) as events:
                while True:
                    events.send("tick")
                    coro.sleep(1)
        finally:
            ended.set()

    with virtual_clock(autojump=True), serving(ticks) as server:
        with connected(server) as conn:
            conn.send(HEAD)
            assert conn.recv(1000).startswith(b"HTTP/1.1 200")
        ended.wait()


@coro_test(leaks=False)
def test_a_short_answer_to_head_leaves_the_connection_alone() -> None:
    def app(request: http.http_request) -> Any:
        return iter([b"a", b"b"])

    def by_hand(request: http.http_request) -> None:
        request.start(200)
        for _ in range(100):
            request.send(b"x" * 1000)
        request.finish()

    for handler in (app, by_hand):
        with serving(handler) as server:
            found = messages(talk(server, HEAD * 3), "HEAD", "HEAD", "HEAD")
        assert [(status, body) for status, _, body in found] == [(200, b"")] * (3 if handler is app else len(found))
