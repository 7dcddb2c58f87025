"""For tests of programs that call, or are called: both sides in one process, without sockets.

    with rpc_testing.connected(registry) as conn:
        assert conn.call("add", 1, 2) == 3

The connection is a real one with its handshake, encoding and limits, over a stream in memory
(``coro.testing.stream_pair``). Nothing waits for the kernel, so a test under the virtual clock or a seeded scheduler
sees the same order each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from coro.rpc._core import explained as _explained

with _explained():
    import coro
    from coro import testing
    from coro.rpc._registry import Registry
    from coro.rpc.connection import Connection
    from coro.rpc.packet_stream import PacketStream

__all__ = ["connected", "packet_pair"]


@contextmanager
def connected(
    registry: Registry | None = None,
    client_registry: Registry | None = None,
    *,
    server_options: Mapping[str, Any] | None = None,
    streams: tuple[Any, Any] | None = None,
    **options: Any,
) -> Iterator[Connection]:
    """A Connection whose other side serves ``registry``, for a ``with`` block; both sides are closed at its end.

    registry: what may be called, None for nothing. client_registry: what the serving side may call back.
    server_options: of the serving Connection. streams: the two ends, the client's first, if not those of
    ``coro.testing.stream_pair()``. options: of the client's Connection. Raises what ``Connection.start`` raises."""
    ours, theirs = testing.stream_pair() if streams is None else streams
    server = Connection(theirs, registry, server_side=True, peer_name="the client", **dict(server_options or {}))
    client = Connection(ours, client_registry, **{"peer_name": "the server", **options})
    starting = coro.spawn(_start, server)
    try:
        client.start()
        starting.join()
        yield client
    finally:
        for side in (client, server):
            side.abort()
        starting.join()
        for side in (client, server):
            side.wait_closed()


def _start(server: Connection) -> None:
    try:
        server.start()
    except Exception:
        server.abort()  # the client is told, and that is what a test sees


@contextmanager
def packet_pair(**options: Any) -> Iterator[tuple[PacketStream, PacketStream]]:
    """Two connected PacketStreams for a ``with`` block. options: those of PacketStream, for both. The handlers may be
    given as ``handler`` and ``push_handler``, too; both sides then have them."""
    a, b = testing.stream_pair()
    one, two = PacketStream(a, name="the other", **options).start(), PacketStream(b, name="the one", **options).start()
    try:
        yield one, two
    finally:
        for side in (one, two):
            side.abort()
        for side in (one, two):
            side.wait_closed()
