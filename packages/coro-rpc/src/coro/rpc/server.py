"""The server of fast_rpc: a ``coro.Server`` whose handler is a Connection.

So everything that ``coro.Server`` does is here as well: port 0, several addresses, a limit of connections, statistics,
draining by ``coro.prefork``. Draining adds one thing: connections are told with a goodbye that no new calls are taken,
those under way come to their end, and then the connection is closed. A client that meets this connects anew, and finds
the process that has taken over the listening socket.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import coro
from coro._runtime import scheduler
from coro.rpc import _auth
from coro.rpc._calls import IncomingCall, Limits, current_call
from coro.rpc._registry import Registry
from coro.rpc.codecs import Codec
from coro.rpc.connection import HANDSHAKE_TIMEOUT, Connection
from coro.rpc.exceptions import NotPermitted, RpcError

__all__ = ["Server", "prefork", "serve"]

#: Seconds that calls under way have when nobody says otherwise.
CLOSE_TIMEOUT = 5.0
#: Connections in their handshake at a time. Each of them may have sent 16 KiB, and 64 KiB of calls behind its hello.
MAX_HANDSHAKES = 1000


class Server(coro.Server):
    """``with fast_rpc.Server(registry, address) as server:`` serves what a registry exports.

    registry: what may be called; one of the server's own with the built-in methods is put in front. address: as for
    ``coro.Server``. tls: a context whose ``wrap(sock, server_side=True)`` makes a TLS stream, an ``ssl.SSLContext`` for
    example; one that asks for a client certificate (mutual TLS) gives the connection that certificate's name as
    identity. codecs, secret, unix_users, tracebacks, in_order, slow, on_slow, on_error: as for ``Connection``. name:
    what clients are told. max_running: calls at a time over all connections; more are refused as busy.
    max_per_connection:
    the same for each connection. introspection: who may call rpc.stats and rpc.calls, which show what is going on here:
    True for everybody, False for nobody, None for those who are known by a secret, a certificate, or as this process's
    own user on a UNIX socket. handshake_timeout: seconds for TLS, and for the handshake of fast_rpc. max_connections,
    backlog, reuse_port, daemon: as for ``coro.Server``. options: those of ``PacketStream``.
    """

    def __init__(
        self,
        registry: Registry,
        address: Any,
        *,
        tls: Any = None,
        codecs: Iterable[Codec] | None = None,
        secret: bytes | Mapping[str, bytes] | None = None,
        unix_users: Literal["same"] | Iterable[int] | None = None,
        name: str = "",
        tracebacks: bool = False,
        in_order: bool = False,
        max_running: int = 10_000,
        max_per_connection: int = 1000,
        slow: float | None = None,
        on_slow: Callable[[IncomingCall, float], object] | None = None,
        on_error: Callable[[IncomingCall, Exception], object] | None = None,
        introspection: bool | None = None,
        handshake_timeout: float = HANDSHAKE_TIMEOUT,
        max_connections: int | None = None,
        backlog: int = 4096,
        reuse_port: bool = False,
        daemon: bool = False,
        **options: Any,
    ) -> None:
        if unix_users is not None and unix_users != "same":
            unix_users = frozenset(unix_users)
        self.registry = registry
        self._limits = Limits(max_running)
        self._introspection = introspection
        self._handshake_timeout = float(handshake_timeout)
        self._born = time.time()
        self._served: dict[Connection, None] = {}
        self._greeting: dict[Connection, None] = {}
        self._refused = 0
        self._settings: dict[str, Any] = dict(
            server_side=True,
            codecs=list(codecs) if codecs is not None else None,
            secret=secret,
            unix_users=unix_users,
            name=name,
            tracebacks=tracebacks,
            in_order=in_order,
            limits=self._limits,
            slow=slow,
            on_slow=on_slow,
            on_error=on_error,
            max_running=max_per_connection,
            _builtins=_builtins(registry, self),
            **options,
        )
        # Arguments that are wrong are said to be so now, not when the first client comes.
        Connection(_Nowhere(), registry, **self._settings)
        wrap = None
        if tls is not None:
            from coro import tls as coro_tls

            context = coro_tls.context(tls)

            def wrap(conn: Any) -> Any:
                return context.wrap(conn, server_side=True)

        super().__init__(
            self._handle,
            address,
            wrap=wrap,
            wrap_timeout=self._handshake_timeout,
            max_connections=max_connections,
            backlog=backlog,
            reuse_port=reuse_port,
            daemon=daemon,
        )

    @property
    def connections(self) -> list[Connection]:
        """Those that are open; each has ``call`` and so on, for methods that the client exports."""
        return [one for one in self._served if not one.closed]

    @property
    def running(self) -> int:
        """Calls that are executed now."""
        return int(self._limits.running)

    @property
    def refused(self) -> int:
        """Connections that ended in the handshake."""
        return self._refused

    def _handle(self, stream: Any, address: Any) -> None:
        connection = Connection(stream, self.registry, peer_name=str(address or "a UNIX socket"), **self._settings)
        self._served[connection] = None
        try:
            self._greeting[connection] = None
            if len(self._greeting) > MAX_HANDSHAKES:
                # The one that has taken the longest makes room.
                next(iter(self._greeting)).abort()
            try:
                connection.start(self._handshake_timeout)
            except RpcError:
                self._refused += 1
                return
            finally:
                self._greeting.pop(connection, None)
            if self._stopping:
                self._say_goodbye(connection)
            connection.wait_closed()
        finally:
            connection.abort()
            del self._served[connection]

    def _say_goodbye(self, connection: Connection) -> None:
        scheduler.spawn(connection.close, 1e9, thread_name=f"close {connection!r}", daemon=True)

    def stop(self) -> None:
        """Accept no more connections, and take no new calls over those there are. Calls under way come to their end,
        and then their connection is closed. Does not wait."""
        before = self._stopping
        super().stop()
        if not before:
            for connection in self._served:
                if connection._rpc._is_agreed():
                    self._say_goodbye(connection)

    # -- what every server answers

    def _stats(self) -> dict[str, Any]:
        s = self.statistics()
        return {
            "name": self._settings["name"],
            "build": _auth.BUILD,
            "pid": os.getpid(),
            "uptime": time.time() - self._born,
            "connections": s.active,
            "accepted": s.accepted,
            "refused": self._refused,
            "running": self.running,
            "methods": [
                {
                    "name": m.name,
                    "calls": m.calls,
                    "failures": m.failures,
                    "running": m.running,
                    "latencies": m.latencies(),
                }
                for m in self.registry._methods.values()
            ],
        }

    def _calls(self) -> list[dict[str, Any]]:
        mine = current_call()
        return [
            {
                "peer": connection._rpc.name,
                "identity": connection.identity,
                "id": one.id,
                "method": one.what,
                "age": one.age,
            }
            for connection in self.connections
            for one in connection.dump()
            if one.kind == "serving" and not (mine is not None and connection is mine.connection and one.id == mine.id)
        ]


class _Nowhere:
    """A stream that nothing comes from."""

    def getpeername(self) -> str:
        return "nowhere"


def _builtins(registry: Registry, server: Server) -> Registry:
    """What every server answers."""
    both = Registry()

    def watched(function: Callable[[], Any]) -> Callable[[], Any]:
        def method() -> Any:
            call = current_call()
            assert call is not None
            allowed = server._introspection
            if allowed is None:
                stream = call.connection._rpc.stream
                allowed = (
                    server._settings["secret"] is not None
                    or server._settings["unix_users"] is not None
                    or _auth.same_user(stream)
                    or _auth.certificate_name(stream) is not None
                )
            if not allowed:
                raise NotPermitted("a stranger is not told what is going on here: authenticate, or introspection=True")
            return function()

        return method

    def ping(value: Any = None) -> Any:
        return value

    def describe(name: str) -> Any:
        if name not in registry or not _may_see(registry, name):
            raise LookupError(f"no method {name!r} is exported")
        return registry.describe(name)

    def names() -> list[str]:
        return [name for name in registry if _may_see(registry, name)]

    both._add("rpc.ping", ping, idempotent=True)
    both._add("rpc.list", names, idempotent=True)
    both._add("rpc.describe", describe, idempotent=True)
    both._add("rpc.stats", watched(server._stats), idempotent=True)
    both._add("rpc.calls", watched(server._calls), idempotent=True)
    return both


def _may_see(registry: Registry, name: str) -> bool:
    call = current_call()
    allow = registry._methods[name.encode()].allow
    return allow is None or call is not None and call.identity in allow


def serve(registry: Registry, address: Any, *, drain_timeout: float | None = 30.0, **options: Any) -> None:
    """Serve until told to stop. drain_timeout: SIGTERM lets calls under way end, at most so many seconds; None leaves
    SIGTERM alone. options: those of Server. Raises what Server raises."""
    Server(registry, address, **options).serve_until_stopped(drain_timeout)


def prefork(
    workers: int | None,
    registry: Registry,
    address: Any,
    *,
    drain_timeout: float = 30.0,
    prefork_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """A server in several processes behind one address, supervised by ``coro.prefork``: call it in place of
    ``coro.run``. workers: how many, None for one per processor. SIGTERM drains, SIGHUP replaces the workers one by one;
    the listening socket stays. prefork_options: further ones of ``coro.prefork``. options: those of Server."""

    def work(worker: Any) -> None:
        serve(registry, worker.listeners, **options)

    return coro.prefork(workers, work, address, drain_timeout=drain_timeout, **dict(prefork_options or {}))
