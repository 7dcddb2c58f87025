"""Many clients at once: thousands that say nothing, or half a request, or listen to events for ever, beside one that
wants an answer."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import client_tls
import pytest
from http_support import in_loop, messages, serving, statuses, talk

import coro
from coro.http import sse
from coro.http.client import Client

GET = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"


@contextmanager
def descriptors(wanted: int) -> Iterator[int]:
    """Room for so many descriptors; how many there really are, which the machine decides."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    try:
        yield max(soft, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def crowd(server: Any, count: int, *sent: bytes) -> Iterator[list[Any]]:
    """Connections that have sent these, in turn."""
    with ExitStack() as all:
        found = []
        for i in range(count):
            conn = coro.tcp_sock()
            all.callback(conn.close)
            conn.connect(("127.0.0.1", server.port))
            data = sent[i % len(sent)]
            if data:
                conn.send(data)
            found.append(conn)
        yield found


@pytest.mark.slow
def test_9000_idle_connections_beside_a_normal_client() -> None:
    """A third of them never said anything, a third has had an answer, a third is in the middle of a head. Each request
    of the normal client is answered, and so are theirs when they ask at last."""

    @in_loop
    def run() -> None:
        patient = {"head_timeout": 3600, "idle_timeout": 3600}
        with descriptors(19_000) as room, serving(lambda request: request.path, **patient) as server:
            count = min(9000, (room - 500) // 2)
            with crowd(server, count, b"", GET % b"/before", b"GET /half HTTP/1.1\r\nHost:") as conns:
                coro.testing.wait_all_blocked()
                assert server.registry.counts()["open"] == count
                for i in range(100):
                    path = b"/normal/%d" % i
                    assert messages(talk(server, GET % path))[0][2] == path
                # they all still work
                conns[0].send(GET % b"/now")
                conns[1].send(GET % b"/again")
                conns[2].send(b" a\r\n\r\n")
                for conn, path in zip(conns, (b"/now", b"/again", b"/half"), strict=False):
                    found = b""
                    while not found.endswith(path):
                        piece = conn.recv(1000)
                        assert piece
                        found += piece
            while server.registry.counts()["open"]:
                coro.testing.wait_all_blocked()
            assert server.statistics()["errors"] <= count

    run()


@pytest.mark.slow
def test_1000_listeners_to_events() -> None:
    """Each gets every event in order, one that does not read holds nobody up, and all handlers end with their
    clients."""
    queues: list[Any] = []
    ended = 0

    def handler(request: Any) -> None:
        nonlocal ended
        queue = coro.fifo()
        queues.append(queue)
        try:
            with sse.stream(request, ping=0) as events:
                while True:
                    events.send(queue.pop())
        except OSError:
            ended += 1

    def tell(text: str) -> None:
        for queue in queues:
            queue.push(text)

    @in_loop
    def run() -> None:
        with descriptors(3000), serving(handler, write_timeout=3600) as server:
            with crowd(server, 1000, GET % b"/events") as conns:
                coro.testing.wait_all_blocked()
                assert len(queues) == 1000
                for i in range(5):
                    tell(f"event {i}")
                for conn in conns[1:]:  # the first reads nothing
                    found = b""
                    while b"event 4" not in found:
                        found += conn.recv(65536)
                    assert [found.find(b"data: event %d\n\n" % i) for i in range(5)] == sorted(
                        found.find(b"data: event %d\n\n" % i) for i in range(5)
                    )
                    assert found.count(b"data:") == 5
                queues[0].push("x" * 20_000_000)  # its handler is stuck in a write now
                tell("last")
                for conn in conns[1:]:
                    assert b"data: last" in conn.recv(65536)
            # The clients have gone: the next events say so.
            while server.registry.counts()["open"]:
                tell("nobody is there")
                coro.testing.wait_all_blocked()
        assert ended == 1000

    run()


def test_connections_above_the_limit_wait_and_are_served() -> None:
    @in_loop
    def run() -> None:
        with serving(lambda request: "x", max_connections=10) as server:
            with crowd(server, 50, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") as conns:
                for conn in conns:
                    assert conn.recv(1000).startswith(b"HTTP/1.1 200")
                    conn.close()
            with crowd(server, 10, b""):
                coro.testing.wait_all_blocked()
                assert server.registry.counts()["open"] == 10
            assert statuses(talk(server, GET % b"/")) == [200]

    run()


@pytest.mark.slow
@pytest.mark.parametrize("over_tls", [False, True])
def test_1000_mute_clients_beside_a_normal_one(over_tls: bool, tmp_path: Path) -> None:
    """They connect and say nothing, not even TLS's first message (https://github.com/benoitc/gunicorn/issues/2652)."""

    @in_loop
    def run() -> None:
        context = client_tls.server_context(tmp_path) if over_tls else None
        url = "https://localhost:{}/" if over_tls else "http://localhost:{}/"
        trusted = client_tls.client_context()
        with descriptors(3000), serving(lambda request: "fine", tls=context) as server:
            with crowd(server, 1000, b""):
                coro.testing.wait_all_blocked()
                with Client(tls=trusted) as client:
                    for _ in range(10):
                        assert client.get(url.format(server.port)).text == "fine"

    run()
