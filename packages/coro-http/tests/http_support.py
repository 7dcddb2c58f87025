"""Servers for tests, and clients that send bytes as they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import coro
from coro import http
from coro.testing import coro_test

__all__ = ["body_of", "connected", "in_loop", "messages", "serving", "talk"]


def in_loop(test: Callable[..., Any]) -> Callable[..., Any]:
    """The test runs in a loop, and leaves nothing behind."""
    return coro_test(test)


@contextmanager
def serving(handler: Any, **settings: Any) -> Iterator[Any]:
    """A server on a free port."""
    with http.server(handler, ("127.0.0.1", 0), **settings) as server:
        yield server


@contextmanager
def connected(server: Any) -> Iterator[Any]:
    """A socket that is connected to it."""
    conn = coro.tcp_sock()
    try:
        conn.connect(("127.0.0.1", server.port))
        yield conn
    finally:
        conn.close()


def until_end(conn: Any) -> bytes:
    """All that comes until the peer ends the connection."""
    found = b""
    while True:
        piece = conn.recv(65536)
        if not piece:
            return found
        found += piece


def talk(server: Any, data: bytes, end: bool = True) -> bytes:
    """Send the data, and return all that comes until the server closes. ``end``: end our own direction first."""
    with connected(server) as conn:
        conn.send(data)
        if end:
            conn.shutdown(coro.SHUT.WR)
        return until_end(conn)


def messages(data: bytes, *methods: str) -> list[tuple[int, dict[str, list[str]], bytes]]:
    """The responses in `data`: (status, fields, body)."""
    from coro.http import h1

    c = h1.Connection(h1.CLIENT)
    for method in methods or ["GET"] * 100:
        c.request(method, "/", {"host": "a"})
    c.feed(data)
    c.feed(b"")
    found = []
    head: Any = None
    body = b""
    while True:
        event = c.next_event()
        if isinstance(event, h1.Response):
            head, body = event, b""
            if isinstance(event, h1.InformationalResponse):
                found.append((head.status, {}, b""))
        elif isinstance(event, h1.Data):
            body += event.data
        elif isinstance(event, h1.EndOfMessage):
            found.append((head.status, {name: head.headers[name] for name in head.headers}, body))
        else:
            return found


def statuses(data: bytes, *methods: str) -> list[int]:
    """The status codes of the responses in `data`."""
    return [status for status, _, _ in messages(data, *methods)]


body_of = functools.partial(lambda data: messages(data)[-1][2])


def until_blocked() -> None:
    """Wait until all other threads wait."""
    coro.testing.wait_all_blocked()
