"""A client that connects when it is needed, and again when the connection has gone; and a pool of them.

A call that was under way when the connection broke may have been executed, so it fails, unless it was marked
idempotent. Calls that were certainly not executed (the server is going away, or busy) are tried again in any case,
Busy ones only when the client was told to (``attempts``).

Pauses between attempts to connect grow from FIRST_PAUSE to LAST_PAUSE and vary by chance, so that clients which lost
the same server do not come back in step. One thread connects; the others wait for it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeVar

import coro
from coro.rpc._calls import Pending, RpcStream, Stream
from coro.rpc._registry import Registry
from coro.rpc.connection import HANDSHAKE_TIMEOUT, Caller, Connection
from coro.rpc.exceptions import (
    AuthenticationError,
    Busy,
    CallTimeout,
    ConnectionLost,
    ForkedError,
    GoingAway,
    ProtocolError,
    RpcError,
)

__all__ = ["Client", "ClientStatistics", "Member", "Pool", "connect"]

_T = TypeVar("_T")

#: Seconds: the pause after the first failure to connect, doubled after each further one up to the second.
FIRST_PAUSE = 0.05
LAST_PAUSE = 5.0
#: Seconds that connecting may take, TLS and the handshake included.
CONNECT_TIMEOUT = 10.0


class ClientStatistics(NamedTuple):
    """Counts of a client, for debugging."""

    #: Is there a connection now?
    connected: bool
    #: Connections made so far, and attempts that failed.
    connects: int
    failures: int
    #: Calls that were repeated.
    repeated: int
    #: Calls under way.
    outstanding: int


def connect(
    address: Any,
    registry: Registry | None = None,
    *,
    tls: Any = None,
    server_hostname: str | None = None,
    timeout: float = CONNECT_TIMEOUT,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Connection:
    """Connect, once: a Connection.

    address: ``(host, port)`` or the path of a UNIX socket. registry: what the server may call here. tls: a context, see
    Server; the certificate is checked for ``server_hostname``, the host of the address if None. timeout: seconds for
    all of it; CallTimeout. options: of PacketStream, its ``timeout`` for calls among them. settings: those of
    Connection. Raises OSError when nobody listens, and what ``Connection.start`` raises."""
    limit = coro.move_on_after(timeout)
    with limit:
        stream = _open(address, tls, server_hostname)
        try:
            name = address if isinstance(address, (str, bytes)) else f"{address[0]}:{address[1]}"
            return Connection(stream, registry, peer_name=str(name), **dict(options or {}), **settings).start(
                min(timeout, HANDSHAKE_TIMEOUT)
            )
        except BaseException:
            stream.close()
            raise
    raise CallTimeout(f"expected a connection to {address} within {timeout:g} seconds", timeout)


def _open(address: Any, tls: Any, server_hostname: str | None) -> Any:
    conn: Any
    if isinstance(address, (str, bytes, os.PathLike)):
        conn = coro.unix_sock()
        try:
            conn.connect(os.fspath(address))
        except BaseException:
            conn.close()
            raise
    else:
        conn = coro.connect(tuple(address))
        conn.setsockopt(6, 1, 1)  # IPPROTO_TCP, TCP_NODELAY: the same numbers everywhere
    if tls is None:
        return conn
    from coro import tls as coro_tls

    if server_hostname is None and not isinstance(address, (str, bytes, os.PathLike)):
        server_hostname = address[0]
    try:
        return coro_tls.context(tls).wrap(conn, server_hostname=server_hostname)
    except BaseException:
        conn.close()
        raise


class Client(Caller):
    """A connection that is made at the first call, and made anew when it has gone.

    address, registry, tls, server_hostname, settings: as for ``connect``. timeout: seconds for a call (60). attempts:
    how often a call is tried that was not executed, or is idempotent; 1 never repeats. connect_timeout: seconds for one
    attempt to connect. retry_connect: seconds for which a call goes on trying to connect; 0 tries once. on_connect:
    ``on_connect(connection)`` after each connecting, before anybody calls. options: of PacketStream.

    Any number of threads may use it at once. ``with`` closes it at the end.
    """

    def __init__(
        self,
        address: Any,
        registry: Registry | None = None,
        *,
        timeout: float | None = 60.0,
        attempts: int = 3,
        connect_timeout: float = CONNECT_TIMEOUT,
        retry_connect: float = 10.0,
        on_connect: Callable[[Connection], object] | None = None,
        tls: Any = None,
        server_hostname: str | None = None,
        options: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        if attempts < 1:
            raise ValueError(f"expected at least 1 attempt, got {attempts}")
        self.address = address
        self._registry = registry
        self._attempts = attempts
        self._connect_timeout, self._retry_connect = connect_timeout, retry_connect
        self._on_connect = on_connect
        self._settings: dict[str, Any] = dict(
            tls=tls, server_hostname=server_hostname, options={"timeout": timeout, **dict(options or {})}, **settings
        )
        self._current: Connection | None = None
        self._lock = coro.mutex()
        self._closed = False
        self._pid = os.getpid()
        self._connects = self._failures = self._repeated = 0
        self._pause = 0.0

    def __repr__(self) -> str:
        return f"<Client of {self.address}: {'closed' if self._closed else self._current or 'not connected'}>"

    # -- the connection

    def _connection(self) -> RpcStream:
        current = self._current
        if current is not None:
            rpc = current._rpc
            if not rpc.closing:
                return rpc
        return self.connection()._rpc

    def connection(self) -> Connection:
        """The present connection; connects if there is none. Raises OSError, ConnectionLost or its kinds, and what ends
        a handshake."""
        if self._pid != os.getpid():
            raise ForkedError("this client belongs to the process that forked this one; make a new one")
        with self._lock:
            if self._closed:
                raise GoingAway("the client is closed")
            current = self._current
            if current is not None and not current.closing:
                return current
            limit = coro.move_on_after(self._retry_connect) if self._retry_connect else None
            last: Exception | None = None
            while True:
                if self._pause:
                    if limit is None and last is None:
                        coro.sleep_relative(self._jitter())
                    elif limit is not None:
                        with coro.move_on_after(self._retry_connect) as scope:
                            coro.sleep_relative(self._jitter())
                        if scope.expired and last is not None:
                            raise last
                try:
                    connection = connect(self.address, self._registry, timeout=self._connect_timeout, **self._settings)
                except (AuthenticationError, ProtocolError):
                    self._failures += 1
                    raise
                except (OSError, RpcError) as e:
                    self._failures += 1
                    last = e
                    self._pause = min(max(FIRST_PAUSE, self._pause * 2), LAST_PAUSE)
                    if not self._may_retry():
                        raise
                    continue
                self._pause = 0.0
                self._connects += 1
                self._began = None
                if self._on_connect is not None:
                    try:
                        self._on_connect(connection)
                    except BaseException:
                        connection.abort()
                        raise
                self._current = connection
                return connection

    _began: float | None = None

    def _may_retry(self) -> bool:
        """Is there time for another attempt?"""
        now = coro.ticks_to_absolute_secs(coro.get_now())
        if self._began is None:
            self._began = now
        if now - self._began >= self._retry_connect:
            self._began = None
            return False
        return True

    def _jitter(self) -> float:
        return self._pause * random.uniform(0.5, 1.0)

    def close(self, timeout: float = 5.0) -> None:
        """Close it in order, see ``Connection.close``. Later calls raise GoingAway."""
        self._closed = True
        if self._current is not None:
            self._current.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        self._closed = True
        if self._current is not None:
            if kind is None:
                self._current.close()
            else:
                self._current.abort()
        return False

    @property
    def outstanding(self) -> int:
        """Calls under way."""
        return 0 if self._current is None else self._current.statistics().outstanding

    def statistics(self) -> ClientStatistics:
        """Counts, for debugging."""
        connected = self._current is not None and not self._current.closed
        return ClientStatistics(connected, self._connects, self._failures, self._repeated, self.outstanding)

    def ping(self, timeout: float | None = None) -> float:
        """Ask the server for a sign of life; the seconds that it took."""
        return self.connection().ping(timeout)

    # -- calls

    def call(
        self,
        method: str,
        /,
        *args: Any,
        timeout: float | None = None,
        metadata: Any = None,
        idempotent: bool = False,
        **kwargs: Any,
    ) -> Any:
        """See ``Caller.call``. idempotent: repeat it when the connection broke and nobody knows whether it was
        executed; also when the server is busy."""
        return self._repeat(lambda rpc: rpc.call(method, args, kwargs, timeout, metadata), idempotent)

    def call_with(
        self,
        method: str,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        metadata: Mapping[str, str] | None = None,
        idempotent: bool = False,
    ) -> Any:
        """See ``Caller.call_with`` and ``call``."""
        return self._repeat(lambda rpc: rpc.call(method, tuple(args), kwargs, timeout, metadata), idempotent)

    def call_async(
        self, method: str, /, *args: Any, timeout: float | None = None, metadata: Any = None, **kwargs: Any
    ) -> Pending:
        """See ``Caller.call_async``. What was sent is not repeated."""
        return self._repeat(lambda rpc: rpc.call_async(method, args, kwargs, timeout, metadata), False)

    def stream(
        self, method: str, /, *args: Any, timeout: float | None = None, metadata: Any = None, **kwargs: Any
    ) -> Stream:
        """See ``Caller.stream``. What was sent is not repeated."""
        return self._repeat(lambda rpc: rpc.open_stream(method, args, kwargs, timeout, metadata), False)

    def _repeat(self, function: Callable[[RpcStream], _T], idempotent: bool) -> _T:
        attempt = 1
        while True:
            rpc = self._connection()
            try:
                return function(rpc)
            except GoingAway:
                if attempt >= self._attempts:
                    raise
            except ConnectionLost:
                if not idempotent or attempt >= self._attempts:
                    raise
            except Busy:
                if not idempotent or attempt >= self._attempts:
                    raise
                coro.sleep_relative(FIRST_PAUSE * 2**attempt * random.uniform(0.5, 1.0))
            attempt += 1
            self._repeated += 1


class Member(NamedTuple):
    """A server of a pool, as ``Pool.members()`` shows it."""

    address: Any
    healthy: bool
    outstanding: int
    statistics: ClientStatistics


class _Member:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.healthy = True
        self.pause = 0.0


class Pool(Caller):
    """Several servers that do the same: each call goes to the healthy one with the fewest calls under way.

    addresses: of the servers; one may be named several times for several connections. check_every: seconds between
    looks at each server (a ping); one that does not answer within ``check_timeout`` seconds, or cannot be reached,
    gets no calls until it answers again. attempts: how many servers a call is tried at, if it was not executed or is
    idempotent. settings: those of ``Client``. ``start()`` or ``with`` starts the looks; ``close()`` ends it. With no
    healthy server the others are tried.
    """

    def __init__(
        self,
        addresses: Iterable[Any],
        registry: Registry | None = None,
        *,
        attempts: int = 3,
        check_every: float = 5.0,
        check_timeout: float = 2.0,
        **settings: Any,
    ) -> None:
        settings.setdefault("retry_connect", 0)
        settings.setdefault("connect_timeout", check_timeout)
        self._members = [_Member(Client(one, registry, attempts=1, **settings)) for one in addresses]
        if not self._members:
            raise ValueError("expected at least one address")
        self._attempts = attempts
        self._check_every, self._check_timeout = float(check_every), float(check_timeout)
        self._checkers: list[Any] = []
        self._closed = False

    def __repr__(self) -> str:
        healthy = sum(one.healthy for one in self._members)
        return f"<Pool of {len(self._members)} servers, {healthy} healthy>"

    def start(self) -> Self:
        """Begin to look at the servers; returns itself. Does nothing when it has."""
        if not self._checkers and not self._closed:
            self._checkers = [
                coro.spawn(self._check, one, thread_name=f"health of {one.client.address}", daemon=True)
                for one in self._members
            ]
        return self

    def close(self, timeout: float = 5.0) -> None:
        """Close all connections in order."""
        self._closed = True
        for thread in self._checkers:
            thread.shutdown()
        coro.in_parallel([(one.client.close, (timeout,)) for one in self._members])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        self.close(5.0 if kind is None else 0.0)
        return False

    def members(self) -> list[Member]:
        """The servers and how they are."""
        return [
            Member(one.client.address, one.healthy, one.client.outstanding, one.client.statistics())
            for one in self._members
        ]

    def _check(self, member: _Member) -> None:
        while not self._closed:
            try:
                member.client.ping(self._check_timeout)
                member.healthy = True
            except (OSError, RpcError):
                member.healthy = False
            coro.sleep_relative(self._check_every * random.uniform(0.75, 1.25))

    def _choose(self, tried: list[_Member]) -> _Member:
        left = [one for one in self._members if one not in tried] or self._members
        healthy = [one for one in left if one.healthy] or left
        fewest = min(one.client.outstanding for one in healthy)
        return random.choice([one for one in healthy if one.client.outstanding == fewest])

    def _connection(self) -> RpcStream:
        return self._try(lambda client: client._connection(), False)

    def call(
        self,
        method: str,
        /,
        *args: Any,
        timeout: float | None = None,
        metadata: Any = None,
        idempotent: bool = False,
        **kwargs: Any,
    ) -> Any:
        """See ``Caller.call``. idempotent: try it at another server when the connection broke and nobody knows whether
        it was executed."""
        return self._try(lambda c: c.call_with(method, args, kwargs, timeout=timeout, metadata=metadata), idempotent)

    def call_with(
        self,
        method: str,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        metadata: Mapping[str, str] | None = None,
        idempotent: bool = False,
    ) -> Any:
        """See ``Caller.call_with`` and ``call``."""
        return self._try(lambda c: c.call_with(method, args, kwargs, timeout=timeout, metadata=metadata), idempotent)

    def _try(self, function: Callable[[Client], _T], idempotent: bool) -> _T:
        tried: list[_Member] = []
        while True:
            if self._closed:
                raise GoingAway("the pool is closed")
            member = self._choose(tried)
            tried.append(member)
            try:
                # Nothing is sent before there is a connection, so another server can be tried without a doubt.
                member.client._connection()
            except (OSError, ConnectionLost, CallTimeout):
                member.healthy = False
                if len(tried) >= max(self._attempts, len(self._members)):
                    raise
                continue
            try:
                return function(member.client)
            except (GoingAway, Busy):
                if len(tried) >= self._attempts:
                    raise
            except ConnectionLost:
                member.healthy = False
                if not idempotent or len(tried) >= self._attempts:
                    raise
