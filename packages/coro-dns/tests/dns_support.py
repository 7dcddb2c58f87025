"""Helpers: a test that runs in a loop, and servers made of a function, on addresses 127.54.0.x and one port."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from real_programs import free_port

import coro
from coro.dns import _wire

NET = "127.54.0"


def in_loop(test: Callable[..., Any]) -> Callable[..., Any]:
    """The test runs in a thread of a loop, for a minute at most."""

    @functools.wraps(test)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return coro.run(coro.with_timeout, 60, functools.partial(test, *args, **kwargs))

    return wrapper


def name(text: str) -> bytes:
    return _wire.from_text(text)


def record(owner: str, rtype: int, data: bytes | str, ttl: int = 300) -> tuple[bytes, int, int, int, bytes]:
    """A record; data that is text is an address for A, a name otherwise."""
    if isinstance(data, str):
        data = bytes(map(int, data.split("."))) if rtype == 1 else name(data)
    return name(owner), rtype, 1, ttl, data


def soa(zone: str, ttl: int = 300, minimum: int = 300) -> tuple[bytes, int, int, int, bytes]:
    numbers = b"".join(n.to_bytes(4, "big") for n in (1, 2, 3, 4, minimum))
    return name(zone), 6, 1, ttl, 2 * (b"\2ns" + name(zone)) + numbers


def reply(
    query: _wire.Message, answer=(), authority=(), additional=(), *, aa=True, rcode=0, flags=0, ident=None
) -> bytes:
    return _wire.build(
        query.id if ident is None else ident,
        0x8000 | (0x0400 if aa else 0) | rcode | flags,
        query.question,
        query.qtype,
        query.qclass,
        answer,
        authority,
        additional,
    )


class Fakes:
    """Servers at NET.1, NET.2 ...: each is a function from a query to a message, or a list of them, or None."""

    def __init__(self, servers: dict[int, Callable[[_wire.Message], Any]]) -> None:
        self.servers = servers
        self.port = free_port()
        self.asked: list[tuple[int, str, int]] = []
        self.ports: list[int] = []
        self.socks: list[coro.sock] = []

    @property
    def root(self) -> tuple[str, int]:
        return f"{NET}.1", self.port

    def serve(self, number: int, sock: coro.sock) -> None:
        try:
            while True:
                data, address = sock.recvfrom(4096)
                query = _wire.parse(data)
                self.ports.append(address[1])
                self.asked.append((number, _wire.to_text(query.qname), query.qtype))
                out = self.servers[number](query) or []
                for message in [out] if isinstance(out, bytes) else out:
                    sock.sendto(message, address)
        except OSError:
            pass


@contextmanager
def fakes(servers: dict[int, Callable[[_wire.Message], Any]]) -> Iterator[Fakes]:
    """Run them."""
    all_of_them = Fakes(servers)
    threads = []
    try:
        for number in servers:
            sock = coro.udp_sock()
            all_of_them.socks.append(sock)
            sock.bind((f"{NET}.{number}", all_of_them.port))
            threads.append(coro.spawn(all_of_them.serve, number, sock))
        yield all_of_them
    finally:
        for sock in all_of_them.socks:
            sock.close()
        for thread in threads:
            thread.join()
