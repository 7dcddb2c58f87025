"""Helpers of the stub resolver's tests: servers made of a function, over UDP and TCP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dns_support import NET, Fakes, fakes, record, reply

import coro
from coro.dns import _wire
from coro.dns.stub_resolver import stub_resolver

A, CNAME, SOA, AAAA = 1, 5, 6, 28
RA = 0x0080


def address(query: _wire.Message, text: str = "192.0.2.1", **settings: Any) -> bytes:
    """The reply of a resolver: this address for the name asked for."""
    return reply(query, [record(_wire.to_text(query.qname), A, text)], aa=False, flags=RA, **settings)


def resolver(servers: Fakes, tmp: Path | None = None, **settings: Any) -> stub_resolver:
    """One that asks these servers, and has no files."""
    for name in ("config", "hosts", "nsswitch"):
        settings.setdefault(name, "/nonexistent")
    return stub_resolver([(f"{NET}.{number}", servers.port) for number in servers.servers], **settings)


@contextmanager
def over_tcp(servers: Fakes, answers: dict[int, Any], wrap: Any = None) -> Iterator[list[Any]]:
    """TCP beside the UDP of `servers`: a function from a list of queries to the messages that go back; how many
    connections there were is the length of the list. `wrap` makes TLS of a connection."""
    connections: list[Any] = []
    listeners = []
    threads = []

    def handle(number: int, conn: Any) -> None:
        try:
            stream = conn if wrap is None else wrap(conn)
            while True:
                size = int.from_bytes(stream.recv_exact(2), "big")
                query = _wire.parse(stream.recv_exact(size))
                servers.asked.append((number, _wire.to_text(query.qname), query.qtype))
                out = answers[number](query) or []
                for message in [out] if isinstance(out, bytes) else out:
                    stream.send(len(message).to_bytes(2, "big") + message)
        except (OSError, EOFError, coro.ClosedError):
            pass
        finally:
            conn.close()

    def accept(number: int, listener: Any) -> None:
        try:
            while True:
                conn, _ = listener.accept()
                connections.append(conn)
                threads.append(coro.spawn(handle, number, conn))
        except (OSError, coro.ClosedError):
            pass

    try:
        for number in answers:
            listener = coro.tcp_sock()
            listeners.append(listener)
            listener.set_reuse_addr()
            listener.bind((f"{NET}.{number}", servers.port))
            listener.listen()
            threads.append(coro.spawn(accept, number, listener))
        yield connections
    finally:
        for sock in listeners + connections:
            sock.close()
        for thread in threads:
            thread.join()


def silent(query: _wire.Message) -> None:
    """A server that does not answer."""


__all__ = ["AAAA", "CNAME", "NET", "RA", "SOA", "A", "address", "fakes", "over_tcp", "resolver", "silent"]
