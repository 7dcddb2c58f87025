"""Whole objects of the compiled classes that need arguments, for what is done to all of them (test_half_made.py)."""

from __future__ import annotations

from collections.abc import Callable

import coro
from coro.ldap import _wire
from coro.ldap._client import link


class Stream:
    """Of a server that says nothing."""

    def recv(self, size: int, flags: int = 0) -> bytes:
        coro.sleep_relative(3600)
        return b""

    def send(self, data: bytes) -> int:
        return len(data)

    sendall = send

    def close(self) -> None:
        pass

    shutdown = close


def connection() -> link.Link:
    return link.Link(Stream())


def pending() -> link.Pending:
    return connection().start(b"\x4a\x01x")


def framer() -> _wire.Framer:
    made = _wire.Framer()
    made.receive(b"\x30\x0c\x02\x01\x01\x61")
    return made


SAMPLES: dict[str, Callable[[], object]] = {
    "coro.ldap._client.link.Alone": lambda: connection().exclusive(),
    "coro.ldap._client.link.Link": connection,
    "coro.ldap._client.link.Pending": pending,
    "coro.ldap._wire.Entry": lambda: _wire.Entry("cn=x", {"cn": [b"x"]}),
    "coro.ldap._wire.Framer": framer,
}
