"""Asking one server one question, whatever it takes: UDP first, TCP for what does not fit; or TLS; or HTTP.

Each kind has ``ask``, which returns a reply that belongs to the question, and raises Refusal if there is none that
helps; the caller goes on with the next server. No time is spent after `seconds`, but twice that if UDP brought nothing
and TCP has to decide (the letters of the name came back changed, or the cookie did not).
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import coro
from coro.dns import _wire
from coro.dns._stub import engine
from coro.dns._stub.questions import Query, Refusal
from coro.dns._stub.streams import Link

__all__ = ["OverHTTPS", "OverTLS", "Plain", "Transport", "said"]

#: RFC 8467, section 4.1: so lengths say little about names.
BLOCK = 128
#: Seconds after which EDNS is tried again: without it there are no cookies, and the error may have been forged.
NO_EDNS_FOR = 900.0
_NAMES = {1: "FORMERR", 2: "SERVFAIL", 4: "NOTIMP", 5: "REFUSED", 23: "BADCOOKIE"}
_BADCOOKIE = 23


_Reply = tuple[_wire.Message, bytes]
_Begun = tuple[engine.Exchange, _Reply | None, OSError | None]


class Transport(Protocol):
    """A server and a way to it."""

    server: engine.Server

    def ask(self, query: Query, seconds: float) -> _Reply:
        """The reply."""

    def close(self) -> None:
        """End connections."""


def said(rcode: int) -> str:
    """A response code as text."""
    return f"it says {_NAMES.get(rcode, f'response code {rcode}')}"


class Plain:
    """UDP and TCP."""

    def __init__(self, host: str, port: int) -> None:
        self.server = engine.Server((host, port))
        self.link = Link(self.server, None, None)
        self.truncated = 0

    def close(self) -> None:
        """End the connection."""
        self.link.close()

    def ask(self, query: Query, seconds: float, begun: _Begun | None = None) -> _Reply:
        """The reply, with the rcode that it has. Raises Refusal. `begun`: what came of the first query over UDP."""
        if query.use_tcp:
            return self._over_tcp(query, seconds, "")
        reply = self._over_udp(query, seconds, begun)
        rcode = reply[0].rcode
        server = self.server
        if rcode in (1, 4) and query.size and not server.no_edns and not reply[0].udp_size:
            server.no_edns_until = time.monotonic() + NO_EDNS_FOR  # RFC 6891, section 7: it may not know EDNS
            reply = self._over_udp(query, seconds)
        elif rcode == _BADCOOKIE:
            reply = self._over_udp(query, seconds)  # with the cookie that came with it: RFC 7873, section 5.3
            if reply[0].rcode == _BADCOOKIE:
                return self._over_tcp(query, seconds, "the server does not take its own cookie, ")
        if reply[0].truncated:
            self.truncated += 1
            return self._over_tcp(query, seconds, "the reply is too large for UDP, ")
        return reply

    def _over_udp(self, query: Query, seconds: float, begun: _Begun | None = None) -> _Reply:
        if begun is None:
            begun = self._send(query, seconds)
        exchange, reply, error = begun
        if reply is not None:
            self.server.failed_at = 0.0
            return reply
        if error is None and (exchange.mixed or exchange.bare):
            # Who answers over TCP has at least received what we sent, so he decides.
            reply = self._over_tcp(query, seconds, "its replies over UDP do not fit, ")
            if exchange.bare:
                self.server.cookie = self.server.cookie[:8]  # it has stopped giving cookies
            return reply
        self._failed()
        if error is not None:
            raise Refusal(error.strerror or str(error)) from error
        raise Refusal(f"no reply in {seconds:.3g} seconds")

    def _send(self, query: Query, seconds: float) -> _Begun:
        server = self.server
        exchange = engine.Exchange()
        size = 0 if server.no_edns else query.size
        data = engine.query(query.name, query.rtype, server, size, query.dnssec, query.trust)
        limit = coro.timeout(seconds)
        try:
            with limit:
                return exchange, exchange.ask(server, data, len(query.name), query.source), None
        except coro.TimeoutError:
            if not limit.expired:
                raise
            return exchange, None, None
        except OSError as e:
            return exchange, None, e

    def _over_tcp(self, query: Query, seconds: float, why: str) -> _Reply:
        try:
            reply = self.link.ask(query, seconds, 0)
        except Refusal as e:
            self._failed()
            raise Refusal(f"{why}{'and ' if why else ''}over TCP: {e}") from e
        self.server.failed_at = 0.0
        return reply

    def _failed(self) -> None:
        self.server.failures += 1
        self.server.failed_at = time.monotonic()


class OverTLS:
    """TLS only (RFC 7858)."""

    def __init__(self, host: str, port: int, context: Any, name: str) -> None:
        self.server = engine.Server((host, port))
        self.link = Link(self.server, coro.tls.context(context), name)

    def close(self) -> None:
        """End the connection."""
        self.link.close()

    def ask(self, query: Query, seconds: float) -> _Reply:
        """The reply. Raises Refusal."""
        try:
            reply = self.link.ask(query, seconds, BLOCK)
        except Refusal as e:
            self.server.failures += 1
            self.server.failed_at = time.monotonic()
            raise Refusal(f"over TLS: {e}") from e
        self.server.failed_at = 0.0
        return reply


class OverHTTPS:
    """HTTP (RFC 8484), by a function of the user's."""

    def __init__(self, url: str, post: Any) -> None:
        self.server = engine.Server((url, 443))
        self.url = url
        self.post = post

    def close(self) -> None:
        """Nothing: the connection is the function's."""

    def ask(self, query: Query, seconds: float) -> _Reply:
        """The reply. Raises Refusal."""
        server = self.server
        data = engine.query(
            query.name, query.rtype, server, query.size or 1232, query.dnssec, query.trust, False, BLOCK
        )
        data = b"\0\0" + data[2:]  # RFC 8484, section 4.1: the id is 0
        server.sent += 1
        headers = {"content-type": "application/dns-message", "accept": "application/dns-message"}
        limit = coro.timeout(seconds)
        try:
            with limit:
                body = self.post(self.url, data, headers)
        except coro.TimeoutError:
            if not limit.expired:
                raise
            server.failures += 1
            server.failed_at = time.monotonic()
            raise Refusal(f"over HTTP: no reply in {seconds:.3g} seconds") from None
        except Exception as e:
            server.failures += 1
            server.failed_at = time.monotonic()
            raise Refusal(f"over HTTP: {type(e).__name__}: {e}") from e
        if not isinstance(body, bytes):
            raise TypeError(f"the function for HTTP should return the body as bytes, not {type(body).__name__}")
        message = engine.reads(body, data, len(query.name), True)
        if message is None or message.truncated:
            server.forged += 1
            raise Refusal("over HTTP: the body is no reply to the query")
        server.replies += 1
        server.failed_at = 0.0
        return message, body
