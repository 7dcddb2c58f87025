"""A client of bare packets that connects when it is needed, and again when the connection has gone.

    with PacketClient(("127.0.0.1", 7000)) as client:
        reply = client.request(b"question", idempotent=True)

A request that was under way when the connection broke may have been handled, so it fails, unless it was marked
idempotent; then it is sent again, at most ``attempts`` times. One that was certainly not handled (the other side is
going away) is sent again in any case. How it connects, and how long it pauses before that, is in _reconnect.py. A
request costs one Python call more than one of a PacketStream.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from coro.rpc._core import explained as _explained

with _explained():
    import coro
    from coro.rpc._connecting import CONNECT_TIMEOUT, open_stream
    from coro.rpc._reconnect import Limit, Reconnecting
    from coro.rpc.exceptions import CallTimeout, ConnectionLost, GoingAway
    from coro.rpc.packet_stream import PacketStream

__all__ = ["PacketClient", "PacketClientStatistics"]


class PacketClientStatistics(NamedTuple):
    """Counts of a packet client, for debugging."""

    #: Is there a connection now?
    connected: bool
    #: Connections made after the first one.
    reconnects: int
    #: Attempts to connect that failed.
    failures: int
    #: Requests that were sent again.
    repeated: int
    #: Requests under way.
    outstanding: int


class PacketClient:
    """Packets to one address over whichever connection there is.

    address: ``(host, port)`` or the path of a UNIX socket. tls, server_hostname: as for ``fast_rpc.connect``. timeout:
    seconds for a request (60). attempts: how often a request is sent that was not handled, or is idempotent; 1 never
    repeats. connect_timeout: seconds for one attempt to connect, TLS included. retry_connect: seconds for which a
    request goes on trying to connect; 0 tries once. on_connect: ``on_connect(packets)`` with each new PacketStream,
    before anybody uses it; what it raises is raised by the request that connected. options: those of PacketStream, such
    as ``handler`` for requests of the other side.

    Any number of threads may use it at once. ``with`` closes it at the end. ValueError for less than one attempt.
    """

    def __init__(
        self,
        address: Any,
        *,
        tls: Any = None,
        server_hostname: str | None = None,
        timeout: float | None = 60.0,
        attempts: int = 3,
        connect_timeout: float = CONNECT_TIMEOUT,
        retry_connect: float = 10.0,
        on_connect: Callable[[PacketStream], object] | None = None,
        **options: Any,
    ) -> None:
        if attempts < 1:
            raise ValueError(f"expected at least 1 attempt, got {attempts}")
        self.address = address
        self._tls, self._server_hostname = tls, server_hostname
        self._attempts = attempts
        self._connect_timeout = connect_timeout
        self._options = {"timeout": timeout, **options}
        self._link = Reconnecting(self._connect, retry_connect, on_connect)
        self._repeated = 0

    def __repr__(self) -> str:
        return f"<PacketClient of {self.address}: {'closed' if self._link.closed else self._link.current or 'idle'}>"

    def _connect(self) -> PacketStream:
        with coro.move_on_after(self._connect_timeout):
            stream = open_stream(self.address, self._tls, self._server_hostname)
            return PacketStream(stream, **self._options).start()
        raise CallTimeout(
            f"expected a connection to {self.address} within {self._connect_timeout:g} seconds", self._connect_timeout
        )

    def packets(self) -> PacketStream:
        """The present connection; connects if there is none. Raises OSError, CallTimeout, GoingAway after ``close``,
        ForkedError in a forked child."""
        return self._link.get()

    def request(self, data: Any, timeout: float | None = None, *, idempotent: bool = False) -> bytes:
        """See ``PacketStream.request``. idempotent: send it again when the connection broke and nobody knows whether it
        was handled. timeout: seconds for all of it, connecting included. Also raises OSError when no connection can be
        made."""
        attempt = 1
        limit = Limit(self._options["timeout"] if timeout is None else timeout, "the request")
        while True:
            packets = self._link.get(limit)
            if limit.over:
                raise limit.error()
            try:
                return packets.request(data, limit.left)
            except GoingAway:
                if attempt >= self._attempts:
                    raise
            except ConnectionLost:
                if not idempotent or attempt >= self._attempts:
                    raise
            attempt += 1
            self._repeated += 1

    def push(self, data: Any) -> None:
        """See ``PacketStream.push``. Nobody learns of a packet that was on its way when the connection broke."""
        attempt = 1
        while True:
            try:
                return self._link.get().push(data)
            except GoingAway:
                if attempt >= self._attempts:
                    raise
            attempt += 1
            self._repeated += 1

    def statistics(self) -> PacketClientStatistics:
        """Counts, for debugging; those of one connection are ``packets().statistics()``."""
        current = self._link.current
        return PacketClientStatistics(
            current is not None and not current.closed,
            max(0, self._link.connects - 1),
            self._link.failures,
            self._repeated,
            0 if current is None else current.statistics().outstanding,
        )

    def close(self, timeout: float = 5.0) -> None:
        """Close it in order, see ``PacketStream.close``. Later requests raise GoingAway."""
        self._link.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        self._link.close(5.0 if kind is None else None)
        return False
