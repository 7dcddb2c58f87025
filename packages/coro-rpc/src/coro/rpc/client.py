"""A client that connects when it is needed, and again when the connection has gone; and a pool of them.

A call that was under way when the connection broke may have been executed, so it fails, unless it was marked
idempotent. Calls that were certainly not executed (the server is going away, or busy) are tried again in any case,
Busy ones only when they are idempotent. A call with an iterator among its arguments is repeated only as long as the
iterator has not been asked for an item (_arguments.py): what would be left of it is another argument.

The limit of a call covers connecting, repetitions and pauses. How a client connects anew, and how long it waits before
that, is in _reconnect.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeVar

import coro
from coro.rpc._arguments import OneShot, one_shot
from coro.rpc._calls import Pending, RpcStream, Stream
from coro.rpc._connecting import CONNECT_TIMEOUT, open_stream
from coro.rpc._reconnect import FIRST_PAUSE, Limit, Reconnecting
from coro.rpc._registry import Registry
from coro.rpc.connection import HANDSHAKE_TIMEOUT, Caller, Connection
from coro.rpc.exceptions import (
    Busy,
    CallTimeout,
    ConnectionLost,
    GoingAway,
    RpcError,
)

__all__ = ["Client", "ClientStatistics", "Member", "Pool", "connect"]

_T = TypeVar("_T")
#: What makes a call over a connection, within so many seconds (None: the connection's own limit).
_Make = Callable[[RpcStream, "float | None"], _T]


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
        stream = open_stream(address, tls, server_hostname)
        try:
            name = address if isinstance(address, (str, bytes)) else f"{address[0]}:{address[1]}"
            return Connection(stream, registry, peer_name=str(name), **dict(options or {}), **settings).start(
                min(timeout, HANDSHAKE_TIMEOUT)
            )
        except BaseException:
            stream.close()
            raise
    raise CallTimeout(f"expected a connection to {address} within {timeout:g} seconds", timeout)


class Client(Caller):
    """A connection that is made at the first call, and made anew when it has gone.

    address, registry, tls, server_hostname, settings: as for ``connect``. timeout: seconds for a call (60), connecting
    and repetitions included. attempts: how often a call is tried that was not executed, or is idempotent; 1 never
    repeats. A call whose iterator has given items is not repeated: it raises the error that stands in the way, which
    says so; see ``Items``. connect_timeout: seconds for one attempt to connect. retry_connect: seconds for which trying
    to connect goes on; 0 tries once. All callers that wait for a connection wait for the same one, and get the same
    error. on_connect: ``on_connect(connection)`` after each connecting, before anybody calls, in the thread that
    connects. options: of PacketStream.

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
        self._connect_timeout = connect_timeout
        options = {"timeout": timeout, **dict(options or {})}
        self._timeout: float | None = options["timeout"]
        self._settings: dict[str, Any] = dict(tls=tls, server_hostname=server_hostname, options=options, **settings)
        self._link = Reconnecting(self._connect, retry_connect, on_connect)
        self._repeated = 0

    def __repr__(self) -> str:
        return f"<Client of {self.address}: {'closed' if self._link.closed else self._link.current or 'not connected'}>"

    # -- the connection

    def _connection(self, limit: Limit | None = None) -> RpcStream:
        current = self._link.current
        if current is not None:
            rpc = current._rpc
            if not rpc.closing:
                return rpc
        return self._link.get(limit)._rpc

    def _connect(self) -> Connection:
        return connect(self.address, self._registry, timeout=self._connect_timeout, **self._settings)

    def connection(self) -> Connection:
        """The present connection; connects if there is none. Raises OSError, ConnectionLost or its kinds, and what ends
        a handshake."""
        return self._link.get()

    def close(self, timeout: float = 5.0) -> None:
        """Close it in order, see ``Connection.close``. Later calls raise GoingAway."""
        self._link.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        self._link.close(5.0 if kind is None else None)
        return False

    @property
    def outstanding(self) -> int:
        """Calls under way, also those that wait for a connection."""
        current = self._link.current
        return self._link.waiting + (0 if current is None else current.statistics().outstanding)

    def statistics(self) -> ClientStatistics:
        """Counts, for debugging."""
        current = self._link.current
        connected = current is not None and not current.closed
        return ClientStatistics(connected, self._link.connects, self._link.failures, self._repeated, self.outstanding)

    def ping(self, timeout: float | None = None) -> float:
        """Ask the server for a sign of life; the seconds that it took. timeout: seconds, connecting included."""
        limit = Limit(self._timeout if timeout is None else timeout, "a ping")
        return self._link.get(limit).ping(max(limit.left, 1e-6))

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
        return self.call_with(method, args, kwargs, timeout=timeout, metadata=metadata, idempotent=idempotent)

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
        positional, once = one_shot(tuple(args))
        limit = Limit(self._timeout if timeout is None else timeout, f"the call of {method}")
        return self._repeat(lambda rpc, t: rpc.call(method, positional, kwargs, t, metadata), limit, idempotent, once)

    def call_async(
        self, method: str, /, *args: Any, timeout: float | None = None, metadata: Any = None, **kwargs: Any
    ) -> Pending:
        """See ``Caller.call_async``. What was sent is not repeated. ``timeout`` begins now, also if there is no
        connection yet."""
        positional, once = one_shot(args)
        limit = Limit(self._timeout if timeout is None else timeout, f"the call of {method}")
        return self._repeat(lambda rpc, t: rpc.call_async(method, positional, kwargs, t, metadata), limit, False, once)

    def stream(
        self, method: str, /, *args: Any, timeout: float | None = None, metadata: Any = None, **kwargs: Any
    ) -> Stream:
        """See ``Caller.stream``. What was sent is not repeated."""
        positional, once = one_shot(args)
        limit = Limit(timeout, f"the call of {method}")
        return self._repeat(lambda rpc, t: rpc.open_stream(method, positional, kwargs, t, metadata), limit, False, once)

    def _repeat(self, function: _Make[_T], limit: Limit, idempotent: bool, once: OneShot | None) -> _T:
        attempt = 1
        while True:
            rpc = self._connection(limit)
            left = limit.left
            try:
                return function(rpc, left)
            except CallTimeout as e:
                # Each attempt has what was left; the caller knows the whole.
                if limit.seconds is not None and e.seconds == left:
                    raise _whole(e, limit.seconds) from None
                raise
            except GoingAway as e:
                if attempt >= self._attempts:
                    raise
                refuse_used(e, once)
            except ConnectionLost as e:
                if not idempotent or attempt >= self._attempts:
                    raise
                refuse_used(e, once)
            except Busy as e:
                if not idempotent or attempt >= self._attempts:
                    raise
                refuse_used(e, once)
                coro.sleep_relative(min(FIRST_PAUSE * 2**attempt * random.uniform(0.5, 1.0), limit.left))
            if limit.over:
                raise limit.error()
            attempt += 1
            self._repeated += 1


def refuse_used(error: RpcError, once: OneShot | None) -> None:
    """Raise the error, with the reason, if the call that it ended cannot be repeated: its iterator has been used."""
    if once is not None and once.begun:
        raise type(error)(
            f"{error}; the call was not repeated, because its iterator has given items that are gone: pass "
            "fast_rpc.Items(function), which makes the iterator again"
        ) from error


def _whole(error: CallTimeout, seconds: float) -> CallTimeout:
    """The error of an attempt, as one of the whole call."""
    text = str(error).replace(f"within {error.seconds:g} seconds", f"within {seconds:g} seconds")
    return CallTimeout(text, seconds)


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
    idempotent; a call whose iterator has given items is tried at no other one, see ``Items``. settings: those of
    ``Client``; ``timeout`` is the limit of a call over all these attempts.
    ``start()`` or ``with`` starts the looks; ``close()`` ends it. With no
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
        limit = Limit(None, "connecting")
        return self._try(lambda client, left: client._connection(limit), limit, False, None)

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
        return self.call_with(method, args, kwargs, timeout=timeout, metadata=metadata, idempotent=idempotent)

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
        positional, once = one_shot(tuple(args))
        return self._try(
            lambda client, left: client.call_with(method, positional, kwargs, timeout=left, metadata=metadata),
            self._limit(timeout, method),
            idempotent,
            once,
        )

    def call_async(
        self, method: str, /, *args: Any, timeout: float | None = None, metadata: Any = None, **kwargs: Any
    ) -> Pending:
        """See ``Caller.call_async``. Another server is tried only as long as nothing was sent."""
        positional, once = one_shot(args)
        return self._try(
            lambda client, left: client.call_async(method, *positional, timeout=left, metadata=metadata, **kwargs),
            self._limit(timeout, method),
            False,
            once,
        )

    def stream(
        self, method: str, /, *args: Any, timeout: float | None = None, metadata: Any = None, **kwargs: Any
    ) -> Stream:
        """See ``Caller.stream``. Another server is tried only as long as nothing was sent."""
        positional, once = one_shot(args)
        return self._try(
            lambda client, left: client.stream(method, *positional, timeout=left, metadata=metadata, **kwargs),
            Limit(timeout, f"the call of {method}"),
            False,
            once,
        )

    def _limit(self, timeout: float | None, method: str) -> Limit:
        default = self._members[0].client._timeout
        return Limit(default if timeout is None else timeout, f"the call of {method}")

    def _try(self, function: Callable[[Client, float], _T], limit: Limit, idempotent: bool, once: OneShot | None) -> _T:
        tried: list[_Member] = []
        while True:
            if self._closed:
                raise GoingAway("the pool is closed")
            member = self._choose(tried)
            tried.append(member)
            try:
                # Nothing is sent before there is a connection, so another server can be tried without a doubt.
                member.client._connection(limit)
            except (OSError, ConnectionLost, CallTimeout) as e:
                if limit.over:
                    raise limit.error() from e
                member.healthy = False
                if len(tried) >= max(self._attempts, len(self._members)):
                    raise
                continue
            left = limit.left
            try:
                return function(member.client, left)
            except CallTimeout as e:
                if limit.seconds is not None and e.seconds == left:
                    raise _whole(e, limit.seconds) from None
                raise
            except (GoingAway, Busy) as e:
                if len(tried) >= self._attempts:
                    raise
                refuse_used(e, once)
            except ConnectionLost as e:
                member.healthy = False
                if not idempotent or len(tried) >= self._attempts:
                    raise
                refuse_used(e, once)
            if limit.over:
                raise limit.error()
