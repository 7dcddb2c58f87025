"""Queries over one connection, TCP or TLS: many at a time, answers in any order (RFC 7766).

The first query connects; the others wait for that and share it. One thread reads and hands replies to those who wait;
a reply belongs to a query by its id and its question. A connection that was idle for IDLE seconds is closed. If it
breaks, all who wait get the same error, and those whose connection had been used before ask once more on a new one (the
server may have closed it in the same moment: RFC 7766, section 6.2.4).

Invariant: every entry of `waiting` is removed by the thread that made it. An interrupted thread leaves the connection
usable: its reply, when it comes, is thrown away. If it is interrupted while it sends, the connection is closed, since
nobody knows how much of the message has gone out.
"""

from __future__ import annotations

import socket
from typing import Any

import coro
from coro.dns import _wire
from coro.dns._stub import engine
from coro.dns._stub.questions import Query, Refusal

__all__ = ["Link"]

#: Seconds without a query after which a connection is closed (RFC 7766, section 6.2.3: a few).
IDLE = 10.0
#: Queries on one connection at a time, and replies nobody waits for, after which it is closed.
WAITING_MOST = 1000
STRAY_MOST = 100
_TCP, _NODELAY = int(socket.IPPROTO_TCP), int(socket.TCP_NODELAY)


class _Broken(Exception):
    pass


class _Wait:
    __slots__ = ("bell", "name", "query", "reply")

    def __init__(self, query: bytes, name: int) -> None:
        self.query = query
        self.name = name
        self.reply: tuple[_wire.Message, bytes] | None = None
        self.bell = coro.event()


class _Connection:
    """One connection and who waits on it."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.sock: Any = None
        self.waiting: dict[int, _Wait] = {}
        self.broken: str | None = None
        self.used = 0
        self.stray = 0
        self.sending = coro.mutex()

    def connect(self, source: str | None) -> None:
        """Connect, with TLS if the link has a context."""
        server = self.link.server
        sock = coro.tcp6_sock() if ":" in server.address[0] else coro.tcp_sock()
        stream: Any = sock
        try:
            if source is not None:
                sock.bind((source, 0))
            sock.connect_addr(server.address)
            sock.setsockopt(_TCP, _NODELAY, 1)
            if self.link.context is not None:
                stream = self.link.context.wrap(sock, server_hostname=self.link.name)
        except BaseException:
            sock.close()
            raise
        self.sock = stream
        coro.spawn(self.read, daemon=True, thread_name=f"DNS replies from {server.text}")

    def ask(self, query: Query, padding: int) -> tuple[_wire.Message, bytes]:
        """One query. Raises _Broken; a limit of the caller's may end it."""
        name = query.name
        server = self.link.server
        if len(self.waiting) >= WAITING_MOST:
            raise _Broken(f"{WAITING_MOST} queries wait already")
        while True:
            data = engine.query(name, query.rtype, server, query.size, query.dnssec, query.trust, False, padding)
            ident = int.from_bytes(data[:2], "big")
            if ident not in self.waiting:
                break
        wait = self.waiting[ident] = _Wait(data, len(name))
        try:
            with self.sending:
                if self.broken is not None:
                    raise _Broken(self.broken)
                try:
                    self.sock.send(len(data).to_bytes(2, "big") + data)
                except (OSError, coro.ClosedError) as e:
                    self.end(f"the connection broke: {e}")
                except BaseException:
                    self.end("a query was cut off in the middle")
                    raise
            server.sent += 1
            wait.bell.wait()
        finally:
            del self.waiting[ident]
        if wait.reply is None:
            raise _Broken(self.broken or "the connection broke")
        self.used += 1
        server.replies += 1
        return wait.reply

    def read(self) -> None:
        """The thread that reads."""
        why = "the server has closed the connection"
        try:
            while self.broken is None:
                limit = coro.timeout(IDLE)
                try:
                    with limit:
                        size = int.from_bytes(self._exactly(2), "big")
                except coro.TimeoutError:
                    if not limit.expired:
                        raise
                    if self.waiting:
                        continue  # their own limits count
                    why = "nobody has asked for a while"
                    return
                with coro.timeout(IDLE):
                    data = self._exactly(size)
                self.deliver(data)
        except (OSError, EOFError, coro.ClosedError) as e:
            why = str(e) or why
        except coro.TimeoutError:
            why = "a reply stopped in the middle"
        finally:
            self.end(why)

    def _exactly(self, size: int) -> bytes:
        data: bytes = self.sock.recv_exact(size)
        return data

    def deliver(self, data: bytes) -> None:
        """Give a reply to the thread that waits for it."""
        wait = self.waiting.get(int.from_bytes(data[:2], "big"))
        server = self.link.server
        message = engine.reads(data, wait.query, wait.name, True) if wait is not None and wait.reply is None else None
        if wait is None or message is None or message.truncated:
            server.forged += 1
            self.stray += 1
            if self.stray > STRAY_MOST:
                self.end("too many messages that are no reply to a query")
            return
        if not engine.copies_letters(data, wait.query, wait.name) and message.questions:
            server.no_mixing = True
        wait.reply = message, data
        wait.bell.set()

    def end(self, why: str) -> None:
        """Close it and tell all who wait."""
        if self.broken is None:
            self.broken = why
            self.link.gone(self)
            for wait in list(self.waiting.values()):
                wait.bell.set()
        if self.sock is not None:
            sock, self.sock = self.sock, _Closed()
            sock.close()


class _Closed:
    def send(self, data: bytes) -> None:
        raise OSError("closed")

    recv_exact = send

    def close(self) -> None:
        pass


class Link:
    """The connection to one server, made when it is needed. `context`: a context for TLS, or None; `name`: what its
    certificate should have."""

    def __init__(self, server: engine.Server, context: Any, name: str | None) -> None:
        self.server = server
        self.context = context
        self.name = name
        self.connection: _Connection | None = None
        self.opening: Any = None
        self.opened = 0

    def forget(self) -> None:
        """After a fork: the connection is the parent's."""
        self.connection = self.opening = None

    def close(self) -> None:
        """End the connection."""
        if self.connection is not None:
            self.connection.end("the resolver was closed")

    def gone(self, connection: _Connection) -> None:
        """It is not to be used any more."""
        if self.connection is connection:
            self.connection = None

    def _connection(self, source: str | None) -> _Connection:
        while self.connection is None:
            if self.opening is not None:
                self.opening.wait()
                continue
            bell = self.opening = coro.event()
            try:
                connection = _Connection(self)
                connection.connect(source)
                self.opened += 1
                self.connection = connection
            finally:
                if self.opening is bell:
                    self.opening = None
                bell.set()
        return self.connection

    def ask(self, query: Query, seconds: float, padding: int) -> tuple[_wire.Message, bytes]:
        """The reply to one query; raises Refusal."""
        limit = coro.timeout(seconds)
        try:
            with limit:
                while True:
                    connection = self._connection(query.source)
                    fresh = not connection.used
                    try:
                        return connection.ask(query, padding)
                    except _Broken as e:
                        if fresh:
                            raise Refusal(str(e)) from None
        except coro.TimeoutError:
            if not limit.expired:
                raise
            raise Refusal(f"no reply in {seconds:.3g} seconds") from None
        except (OSError, coro.ClosedError, EOFError) as e:
            raise Refusal(str(e) or type(e).__name__) from e
