"""Asking one server one question: over UDP with all that makes forging hard, over TCP when the answer was truncated.

Each query has a socket of its own, so a port that the system chooses, connected, so only that server's datagrams come
in; an id from the system's generator; and letters of random case in the name, which the server copies. A datagram that
does not fit, or cannot be read, changes nothing: the right one is still waited for until the time is over. (A resolver
that gives up at the first bad datagram can be stopped by anybody who sends one: CVE-2023-29483.)

A server that knows DNS cookies (RFC 7873) gets ours with each query, and its replies have to have it. If they do not,
TCP decides: who answers there has received what we sent.

Here is also what is remembered of servers: how long they take, since when they do not answer, whether they understand
EDNS, their cookies.
"""

from __future__ import annotations

import random
import secrets
import time
from typing import Any

import coro
from coro.dns import _wire

__all__ = ["BadReply", "Network", "ServerMemory"]

Address = tuple[str, int]

EDNS_SIZE = 1232  # dnsflagday.net/2020: what passes every path unfragmented
#: Seconds to wait for a server nothing is known of, at least, and at most.
FIRST, LEAST, MOST = 0.4, 0.2, 3.0
#: Each fourth try of a question goes over TCP: there are paths that lose all datagrams, or all long ones. It has time
#: for a second SYN, which the kernel sends after a second. A connection after a truncated reply has `TCP_MOST` seconds.
TCP_TURN, TCP_TRY, TCP_MOST = 4, 2.5, 4.0
#: For so long a server that did not answer three times in a row is asked after all others only.
DEAD = 60.0
SERVERS = 20_000  # remembered
#: Then it is asked with EDNS again: without it there are no signatures, and one forged error would take them for good.
NO_EDNS_FOR = 900.0
COOKIE, BADCOOKIE = 10, 23  # an EDNS option, a response code (RFC 7873)

_system = random.SystemRandom()


class BadReply(Exception):
    """The server did not answer in time (`silent`), or not in a way that helps."""

    def __init__(self, text: str, silent: bool = False) -> None:
        super().__init__(text)
        self.silent = silent


class ServerMemory:
    """What is known of one server."""

    __slots__ = ("client_cookie", "failures", "no_edns_until", "no_mixing", "rtt", "server_cookie", "since", "variance")

    def __init__(self) -> None:
        self.rtt = FIRST / 2
        self.variance = FIRST / 8
        self.failures = 0
        self.since = 0.0
        self.no_edns_until = 0.0
        self.no_mixing = False
        self.client_cookie = secrets.token_bytes(8)
        self.server_cookie = b""

    @property
    def no_edns(self) -> bool:
        """Did it not understand EDNS a short time ago?"""
        return self.no_edns_until > time.monotonic()

    def limit(self, tries: int = 0) -> float:
        """How long to wait for it, in seconds: as TCP does (RFC 6298), doubled with each try before for the same
        question. Failures of other questions count for two of them at most: on a path that loses datagrams, a question
        has to have time for many."""
        return min(max(self.rtt + 4 * self.variance, LEAST) * (1 << min(max(tries, min(self.failures, 2)), 4)), MOST)

    def cost(self, now: float) -> float:
        """By this servers are put in order; a dead one is the last."""
        if self.failures >= 3 and now - self.since < DEAD:
            return 1000.0 + self.failures
        return self.rtt * (1 << min(self.failures, 6))

    def answered(self, seconds: float) -> None:
        """It took so long."""
        self.variance += (abs(seconds - self.rtt) - self.variance) / 4
        self.rtt += (seconds - self.rtt) / 8
        self.failures = 0

    def failed(self) -> None:
        """It did not answer, or with an error."""
        self.failures += 1
        self.since = time.monotonic()


def mixed_case(name: bytes) -> bytes:
    """The name with letters of random case: a bit for each letter that a forger has to guess
    (draft-vixie-dnsext-dns0x20)."""
    out = bytearray(name)
    bits = secrets.randbits(8 * len(out))
    at = 0
    while out[at]:
        for i in range(at + 1, at + 1 + out[at]):
            if 97 <= out[i] <= 122 and bits & 1:
                out[i] -= 32
            bits >>= 1
        at += out[at] + 1
    return bytes(out)


class Network:
    """Asks servers, `most` at a time."""

    def __init__(self, source: str = "", most: int = 500) -> None:
        self.source = source
        self.most = most
        self.places = coro.semaphore(most)
        self.servers: dict[Address, ServerMemory] = {}
        self.sent = 0
        self.forged = 0

    def after_fork(self) -> None:
        """In the child: no query is open."""
        self.places = coro.semaphore(self.most)

    def memory(self, server: Address) -> ServerMemory:
        """What is known of a server."""
        known = self.servers.get(server)
        if known is None:
            if len(self.servers) >= SERVERS:
                self.servers.clear()
            known = self.servers[server] = ServerMemory()
        return known

    def in_order(self, servers: list[Address]) -> list[Address]:
        """The quick ones first. Those within 0.4 seconds of the quickest count as equal, so a forger cannot know who is
        asked, and what is known of them gets newer. (Unbound does the same.)"""
        if len(servers) < 2:
            return servers
        now = time.monotonic()
        servers = _system.sample(servers, len(servers))
        costs = {server: self.memory(server).cost(now) for server in servers}
        best = min(costs.values())
        return sorted(servers, key=lambda server: 0.0 if costs[server] <= best + 0.4 else costs[server])

    def ask(
        self,
        server: Address,
        name: bytes,
        rtype: int,
        recurse: bool,
        limit: float,
        dnssec: bool = False,
        *,
        tries: int = 0,
        stream: bool = False,
    ) -> _wire.Message:
        """The server's reply. Raises BadReply if none comes in `limit` seconds at most (less if it is known to be
        quick), or none that can be used; and coro.TimeoutError never. `tries`: how often this question has been sent to
        the server before; the wait grows with it. `stream`: ask over TCP alone."""
        memory = self.memory(server)
        began = time.monotonic()
        try:
            with coro.timeout(limit):
                self.places.acquire()
        except coro.TimeoutError:
            raise BadReply(f"{self.most} other queries are open") from None
        try:
            limit -= time.monotonic() - began
            began = time.monotonic()
            turn = tries % TCP_TURN == TCP_TURN - 1
            stream = stream or turn
            pause = TCP_TRY if stream else memory.limit(tries - tries // TCP_TURN)
            how = name, rtype, recurse, min(limit, pause), dnssec
            try:
                if stream:
                    reply = self._over_tcp(server, memory, *how)
                else:
                    reply = self._over_udp(server, memory, *how)
                if reply.rcode in (1, 4) and not memory.no_edns and not reply.udp_size:
                    memory.no_edns_until = time.monotonic() + NO_EDNS_FOR  # RFC 6891, section 7: it may not know EDNS
                    reply = self._over_udp(server, memory, *how)
                if reply.rcode == BADCOOKIE:  # RFC 7873, section 5.3: once more with the one that came with it
                    reply = self._over_udp(server, memory, *how)
                if reply.truncated or reply.rcode == BADCOOKIE:
                    reply = self._over_tcp(server, memory, name, rtype, recurse, min(limit, TCP_MOST), dnssec)
            except coro.TimeoutError:
                if limit >= pause:  # it had the time that it takes
                    memory.failed()
                raise BadReply("no reply in time", silent=True) from None
            except (OSError, ValueError, EOFError) as e:
                memory.failed()  # though who has no TCP may still answer a datagram
                raise BadReply(str(e) or type(e).__name__, silent=turn) from e
            memory.answered(time.monotonic() - began)
            return reply
        finally:
            self.places.release()

    def _query(
        self, memory: ServerMemory, name: bytes, rtype: int, recurse: bool, dnssec: bool
    ) -> tuple[bytes, bytes, int]:
        mixed = name if memory.no_mixing else mixed_case(name)
        ident = secrets.randbits(16)
        size = 0 if memory.no_edns else EDNS_SIZE
        self.sent += 1
        data = _wire.build(
            ident, 0x0100 if recurse else 0, mixed, rtype, 1, udp_size=size, dnssec_ok=dnssec,
            options=[(COOKIE, memory.client_cookie + memory.server_cookie)] if size else (),
        )  # fmt: skip
        return data, mixed, ident

    def _socket(self, server: Address, datagrams: bool) -> coro.sock:
        six = ":" in server[0]
        if datagrams:
            sock = coro.udp6_sock() if six else coro.udp_sock()
        else:
            sock = coro.tcp6_sock() if six else coro.tcp_sock()
        if self.source and (":" in self.source) == six:
            sock.bind((self.source, 0))
        return sock

    def _over_udp(self, server: Address, memory: ServerMemory, name: bytes, rtype: int, *how: Any) -> _wire.Message:
        recurse, limit, dnssec = how
        data, mixed, ident = self._query(memory, name, rtype, recurse, dnssec)
        bare = False
        waited = coro.timeout(limit)
        try:
            with self._socket(server, True) as sock, waited:
                sock.connect_addr(server)
                sock.send(data)
                while True:
                    reply = self._fitting(sock.recv(65535), data, len(mixed))
                    if reply is not None:
                        if self._has_cookie(memory, reply):
                            return reply
                        bare = True
                    self.forged += 1
        except coro.TimeoutError:
            if not bare or not waited.expired:
                raise
        reply = self._over_tcp(server, memory, name, rtype, recurse, limit, dnssec)
        memory.server_cookie = b""  # it has stopped giving cookies, or others share its address
        return reply

    def _over_tcp(self, server: Address, memory: ServerMemory, name: bytes, rtype: int, *how: Any) -> _wire.Message:
        recurse, limit, dnssec = how
        data, mixed, ident = self._query(memory, name, rtype, recurse, dnssec)
        with self._socket(server, False) as sock, coro.timeout(limit):
            sock.connect_addr(server)
            sock.send(len(data).to_bytes(2, "big") + data)
            reply = self._fitting(sock.recv_exact(int.from_bytes(sock.recv_exact(2), "big")), data, len(mixed))
        if reply is None or reply.truncated:
            raise ValueError("a reply over TCP that does not belong to the query, or is truncated")
        return reply

    @staticmethod
    def _has_cookie(memory: ServerMemory, reply: _wire.Message) -> bool:
        """Has the reply our cookie, if its server is one that sends them? RFC 7873, section 5.3."""
        if reply.truncated:
            return True  # only its header was read, and all that it can do is to have us ask over TCP
        cookie = next((data for number, data in reply.options if number == COOKIE), None)
        if cookie is None or cookie == memory.client_cookie:  # some servers copy options that they do not know
            return not memory.server_cookie
        if cookie[:8] != memory.client_cookie or not 16 <= len(cookie) <= 40:
            return False
        memory.server_cookie = cookie[8:]
        return True

    @staticmethod
    def _fitting(data: bytes, query: bytes, length: int) -> _wire.Message | None:
        """The message, if it is the reply to the query: same id, same question letter by letter."""
        if data[:2] != query[:2] or len(data) < 12:
            return None
        try:
            reply = _wire.parse(data, bool(data[2] & 2))
        except ValueError:
            return None
        if not reply.is_reply or reply.opcode:
            return None
        if not reply.questions and reply.rcode in (1, 4, 5):
            return reply  # errors may come without the question
        return reply if data[12 : 16 + length] == query[12 : 16 + length] else None
