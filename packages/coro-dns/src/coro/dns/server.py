"""A name server over UDP, TCP and TLS (RFC 1035, RFC 7766, RFC 7858): for zones of its own, and with a `dns_cache` a
recursive resolver or a forwarder for the machines around it, with lists of names that it denies.

One thread reads each UDP socket in batches and answers what was asked before from prepared bytes (`_prepared.pyx`).
What the server's own zones say is found by the same thread, since that never waits (`_zone/authority.py`). Each other
question gets a thread of its own, at most `most` at a time; what is more is dropped, since the client asks again.
What one client may have of all this is in `_clients.py`.
"""

from __future__ import annotations

import functools
import ipaddress
import secrets
from collections.abc import Generator, Iterable, Sequence
from typing import Any, NamedTuple

import coro
import coro.tls
from coro.dns import _prepared, _wire, tsig
from coro.dns._clients import Clients, Stream, Streams, packed
from coro.dns._cookies import COOKIE, Cookies
from coro.dns._recursive.recursor import Answer
from coro.dns._zone.answers import Found
from coro.dns._zone.authority import Authority, Signed
from coro.dns._zone.service import Primary, Secondary
from coro.dns.cache import dns_cache
from coro.dns.exceptions import DNS_Bogus_Error, DNS_Soft_Error
from coro.dns.zone import Zone

__all__ = ["Server", "ServerStatistics"]

NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS, BADCOOKIE = 0, 1, 2, 3, 4, 5, 16, 23
PAYLOAD = 1232
#: Extended errors (RFC 8914).
STALE_ANSWER, BOGUS, NOT_READY, BLOCKED, PROHIBITED, NOT_AUTHORITATIVE, NO_REACHABLE = 3, 6, 14, 15, 18, 20, 22
AA, RD, RA, AD, CD = 0x0400, 0x0100, 0x80, 0x20, 0x10
NOTIFY, UPDATE = 4, 5
IXFR, AXFR = 251, 252

#: Networks that may ask when nothing else is said: this machine, and private ones (RFC 1918, RFC 4193, RFC 4291).
PRIVATE = ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "::1/128", "fc00::/7",
           "fe80::/10")  # fmt: skip


class ServerStatistics(NamedTuple):
    """What a server has done."""

    #: Queries answered from prepared bytes, and those that took the long way.
    hits: int
    misses: int
    #: Of the latter: dropped because too many were open, altogether or of this client's network, refused, denied by a
    #: list, answered with SERVFAIL.
    dropped: int
    refused: int
    blocked: int
    failed: int
    #: Queries over TCP or TLS, and such connections that are open.
    stream_queries: int
    connections: int
    #: Questions that are being looked up, and answers kept prepared.
    open: int
    prepared: int
    #: Answers from zones that were not prepared, zones sent, updates made, notifications taken.
    zone_answers: int = 0
    transfers: int = 0
    updates: int = 0
    notifications: int = 0
    #: Connections closed to make room for others; responses beyond the rate of a network, dropped and truncated.
    evicted: int = 0
    rate_dropped: int = 0
    rate_truncated: int = 0


class Server:
    """A name server for ``zones``, and for the questions that ``cache``, a ``coro.dns.cache.dns_cache``, can answer.

    Each zone is a ``coro.dns.zone.Zone``, which is answered and nothing else, or a ``Primary`` or ``Secondary``, which
    say who may transfer and change it. Everybody may ask for names in them. ``allow`` is about the cache.

    ``addresses`` are pairs of a numeric address and a port, for UDP and TCP; port 0 takes a free one. ``tls`` is a TLS
    context (an ``ssl.SSLContext``, or one with ``wrap``) for DNS over TLS, on ``tls_addresses``. Clients in ``allow``
    are answered, networks such as ``"10.0.0.0/8"``; None means this machine and private networks. Names in ``block``,
    and all below them, do not exist. At most ``most`` questions are looked up at a time, ``prepared`` answers are kept
    ready, and ``connections`` may be open; one that says nothing for ``idle`` seconds is closed, sooner as they fill
    (:rfc:`7766`). When half of them are open, an address of IPv4, or a /56 of IPv6, may have a quarter; if there is no
    room, the connection that has been silent for longest goes. A question may take ``limit`` seconds. With
    ``reuse_port`` several processes may listen on the same addresses (SO_REUSEPORT).

    For names outside the zones, a question without RD is refused, as is one for ANY (RFC 8482); for all names, one for
    another class than IN. Raises ValueError without a cache and zones, and for a zone that is there twice.

    A network of clients, a /24 of IPv4 or a /56 of IPv6, is sent ``max_responses_per_second`` over UDP; of those
    beyond that every second one is truncated, so a client that is real asks over TCP, and the others are dropped (None:
    no limit). Clients with a cookie of this server do not count. A network may also cause ``max_client_work`` a second
    in the cache, ten times that at once: datagrams to other servers, and signatures checked (None: no limit). What is
    beyond is dropped while more than a quarter of the places for look-ups is taken; and while more than a half is, a
    network may have a quarter. There are ``most`` places, and no more than the cache's ``max_outstanding``.

    Clients that send a DNS cookie get one (:rfc:`7873`). With ``require_cookies`` a question over UDP is answered only
    if it has a cookie of this server, so replies cannot be sent to forged addresses; all others are told to ask again,
    with the cookie that they get or over TCP. ``cookie_secrets``, 16 bytes each, are for several servers at one address
    (:rfc:`9018`): the first one makes cookies, all of them are good; None takes one by chance. Raises ValueError for
    secrets of another length, and for a rate that is not above 0.

    Use it in a ``with`` block, or call ``start`` and ``stop``.
    """

    def __init__(
        self,
        cache: dns_cache | None = None,
        addresses: Sequence[tuple[str, int]] = (("127.0.0.1", 53),),
        *,
        zones: Iterable[Zone | Primary | Secondary] = (),
        tls: Any = None,
        tls_addresses: Sequence[tuple[str, int]] = (),
        allow: Iterable[str] | None = None,
        block: Iterable[str] = (),
        most: int = 2000,
        prepared: int = 100_000,
        connections: int = 1000,
        idle: float = 10.0,
        limit: float = 8.0,
        reuse_port: bool = False,
        require_cookies: bool = False,
        cookie_secrets: Iterable[bytes] | None = None,
        max_responses_per_second: float | None = None,
        max_client_work: float | None = 1000.0,
    ) -> None:
        if tls_addresses and tls is None:
            raise ValueError("tls_addresses need a TLS context: pass one as tls")
        self.cache = cache
        self._authority = Authority(
            [Primary(zone) if isinstance(zone, Zone) else zone for zone in zones], self._zone_changed
        )
        if cache is None and not self._authority:
            raise ValueError("expected a cache or zones: a server without both has no answers")
        self._wanted = list(addresses)
        self._tls = None if tls is None else coro.tls.context(tls)
        self._tls_wanted = list(tls_addresses)
        self._allow = [ipaddress.ip_network(network) for network in (PRIVATE if allow is None else allow)]
        self._block = {_wire.from_text(name) for name in block}
        self._clients = Clients(most, max_client_work, None if cache is None else cache.max_outstanding)
        self._streams = Streams(connections, idle)
        self._rate = None
        if max_responses_per_second is not None:
            rate = max_responses_per_second
            self._rate = _prepared.RateLimit(rate, rate, secrets.token_bytes(16))
        self._idle = idle
        self._limit = limit
        self._reuse_port = reuse_port
        self._cookies = Cookies(cookie_secrets)
        self._require_cookies = require_cookies
        self._answers = _prepared.Answers(prepared)
        self._answers.validated = cache is not None and cache.validates
        self._socks: list[coro.sock] = []
        self._threads: list[coro.coro] = []
        self._dropped = self._refused = self._blocked = self._failed = self._stream_queries = 0
        #: Where it listens, as pairs of an address and a port: UDP and TCP, and TLS.
        self.addresses: list[tuple[str, int]] = []
        self.tls_addresses: list[tuple[str, int]] = []

    # -- life

    def start(self) -> Server:
        """Bind the sockets and begin. Returns the server itself. Raises OSError if an address is taken."""
        try:
            self._authority.start()
            for host, port in self._wanted:
                stream = self._listen(host, port)
                at = stream.getsockname()[:2]
                datagrams = coro.udp6_sock() if ":" in host else coro.udp_sock()
                self._socks.append(datagrams)
                self._bind(datagrams, at)
                self.addresses.append(at)
                self._threads.append(coro.spawn(self._serve_datagrams, datagrams))
                self._threads.append(coro.spawn(self._accept, stream, None))
            for host, port in self._tls_wanted:
                stream = self._listen(host, port)
                self.tls_addresses.append(stream.getsockname()[:2])
                self._threads.append(coro.spawn(self._accept, stream, self._tls))
        except BaseException:
            self.stop()
            raise
        return self

    def _listen(self, host: str, port: int) -> coro.sock:
        stream = coro.tcp6_sock() if ":" in host else coro.tcp_sock()
        self._socks.append(stream)
        self._bind(stream, (host, port))
        stream.listen()
        return stream

    def _bind(self, sock: coro.sock, address: tuple[str, int]) -> None:
        if self._reuse_port:
            sock.setsockopt(coro.SOL.SOCKET, coro.SO.REUSEPORT, 1)
        sock.bind(address)

    def stop(self) -> None:
        """Close all sockets and connections. Once more does nothing."""
        self._authority.stop()
        for sock in self._socks:
            sock.close()
        self._streams.close()
        self._socks.clear()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self.addresses.clear()
        self.tls_addresses.clear()

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    # -- datagrams

    def _serve_datagrams(self, sock: coro.sock) -> None:
        def miss(query: bytes, address: tuple[str, int]) -> bytes | None:
            if self._authority:
                replies = self._replies(query, address[0], True, False)
                if replies is not None:
                    return self._within_rate(query, address[0], next(iter(replies), None))
            client = packed(address[0])
            if self._clients.enter(client):
                coro.spawn(self._answer_datagram, sock, query, address, client)
            else:
                self._dropped += 1
            return None

        try:
            ready = _prepared.Answers(1) if self._require_cookies else self._answers
            _prepared.serve(sock, ready, miss, self._may_ask, self._rate)
        except coro.ClosedError:
            pass

    def _within_rate(self, query: bytes, host: str, reply: bytes | None) -> bytes | None:
        """The reply, a truncated one or none: what the rate of the client's network leaves of it."""
        if reply is None or self._rate is None:
            return reply
        verdict = self._rate.response(packed(host))
        if not verdict or self._has_cookie(query, host):
            return reply
        return _prepared.truncated(reply) if verdict == 1 else None

    def _has_cookie(self, query: bytes, host: str) -> bool:
        """Has the query a cookie of ours, so that its address is not forged?"""
        try:
            options = _wire.parse(query).options
            return any(self._cookies.checked(data, host)[0] for number, data in options if number == COOKIE)
        except ValueError:
            return False

    def _answer_datagram(self, sock: coro.sock, query: bytes, address: tuple[str, int], client: bytes) -> None:
        try:
            reply = self._within_rate(query, address[0], self.respond(query, address[0], datagram=True))
            if reply is not None:
                sock.sendto(reply, address)
        except OSError:
            pass  # the client cannot be reached, or the server has been stopped
        finally:
            self._clients.leave(client)

    # -- streams

    def _accept(self, listener: coro.sock, tls: Any) -> None:
        try:
            while True:
                sock, address = listener.accept()
                stream = self._streams.enter(sock, address[0])
                if stream is None:
                    sock.close()
                else:
                    coro.spawn(self._serve_stream, stream, address[0], tls)
        except coro.ClosedError:
            pass

    def _serve_stream(self, stream: Stream, host: str, tls: Any) -> None:
        link: Any = stream.sock
        try:
            if tls is not None:
                with coro.timeout(self._streams.patience()):
                    link = tls.wrap(stream.sock, server_side=True)
            turn = coro.mutex()
            threads = coro.semaphore(100)
            while True:
                with coro.timeout(self._idle if stream.busy else self._streams.patience()):
                    size = link.recv_exact(2)
                    query = link.recv_exact(int.from_bytes(size, "big"))
                self._stream_queries += 1
                threads.acquire()
                self._streams.begin(stream)
                coro.spawn(self._answer_stream, stream, link, query, host, turn, threads)
        except (OSError, EOFError, coro.TimeoutError, coro.tls.TLSError):
            pass  # it has said all, or nothing
        finally:
            self._streams.leave(stream)
            link.close()

    def _answer_stream(
        self, stream: Stream, link: Any, query: bytes, host: str, turn: coro.mutex, threads: coro.semaphore
    ) -> None:
        replies = self._replies(query, host, False)
        try:
            for reply in replies or ():
                with turn, coro.timeout(self._idle):
                    link.send(len(reply).to_bytes(2, "big") + reply)
        except (OSError, coro.TimeoutError, coro.tls.TLSError):
            link.close()
        finally:
            if isinstance(replies, Generator):
                replies.close()
            self._streams.end(stream)
            threads.release()

    # -- answers

    def respond(self, query: bytes, host: str, datagram: bool = True) -> bytes | None:
        """The reply to a message from the address ``host``, None if it gets none; the first message of a transfer. A
        reply for a ``datagram`` is not longer than its sender can take, and no more than 1232 bytes."""
        return next(iter(self._replies(query, host, datagram) or ()), None)

    def _replies(self, query: bytes, host: str, datagram: bool, wait: bool = True) -> Iterable[bytes] | None:
        """All messages that a message gets; None if that would take waiting and is not to."""
        if not datagram:
            ready = self._answers.answer(query)
            if ready is not None and (self._answers.for_all or self._may_ask(host)):
                return (ready,)
        try:
            question = _wire.parse(query)
        except ValueError:
            if len(query) < 12 or query[2] & 0x80:
                return ()
            return (query[:2] + bytes(((query[2] & 0x79) | 0x80, FORMERR)) + bytes(8),)
        if question.is_reply:
            return ()
        try:
            signed = self._authority.signed(query, question)
        except tsig.Refused as e:
            return (tsig.refusal(self._built(question, e.rcode, 0, None, datagram, b"", 300), e),)
        reply = self._reply(question, host, datagram, signed, wait)
        if not isinstance(reply, bytes):
            return reply
        return (signed.sign(reply) if signed else reply,)

    def _may_ask(self, host: str) -> bool:
        address = ipaddress.ip_address(host.partition("%")[0])
        if address.version == 6 and address.ipv4_mapped:
            address = address.ipv4_mapped
        return any(address in network for network in self._allow)

    def _is_blocked(self, name: bytes) -> bool:
        while self._block:
            if name in self._block:
                return True
            if len(name) == 1:
                return False
            name = _wire.parent(name)
        return False

    def _is_own(self, question: _wire.Message) -> bool:
        """Is it about a zone of ours?"""
        if question.opcode in (NOTIFY, UPDATE):
            return True
        if question.opcode or not question.questions or question.qclass != 1:
            return False
        return question.qtype in (IXFR, AXFR) or self._authority.find(question.qname) is not None

    def _reply(
        self, question: _wire.Message, host: str, datagram: bool, signed: Signed | None, wait: bool
    ) -> bytes | Iterable[bytes] | None:
        code, extra = NOERROR, 0
        found: Answer | Found | None = None
        name, rtype = question.qname, question.qtype
        own = bool(self._authority) and self._is_own(question)
        room = signed.signature.key.room if signed else 0
        recurse = bool(question.flags & 0x0100)
        cookie, good, malformed = b"", not (datagram and self._require_cookies), False
        for number, data in question.options:
            if number == COOKIE and not cookie:
                try:
                    known, cookie = self._cookies.checked(data, host)
                    good = good or known
                except ValueError:
                    malformed = True
        if malformed:
            code = FORMERR
        elif not good and (own or self._may_ask(host)):
            if not cookie:  # RFC 7873, section 5.2.1: over TCP it is not forged either
                head = question.question if question.questions else None
                return _wire.build(
                    question.id, 0x8280 | question.flags & 0x7910, head, question.qtype, question.qclass,
                    udp_size=PAYLOAD if question.udp_size else 0, dnssec_ok=question.dnssec_ok,
                )  # fmt: skip
            code = BADCOOKIE
        elif not question.questions and cookie:
            pass  # RFC 7873, section 5.4: it asks for a cookie
        elif not own and not self._may_ask(host):
            self._refused += 1
            code, extra = REFUSED, PROHIBITED
        elif question.udp_size and question.edns_version:
            code = BADVERS
        elif own:
            limit = self._limit_of(question, datagram, room)
            key = signed.signature.key if signed else None
            if question.opcode:
                notify = question.opcode == NOTIFY
                if not notify and not wait and self._authority.is_kept(question):
                    return None
                code = self._authority.notify(question, host, key) if notify else self._authority.update(question, key)
            elif rtype in (IXFR, AXFR):
                code, messages = self._authority.transfer(question, host, signed, limit if datagram else 0)
                if not code:
                    return messages
            elif rtype == 41 or 249 <= rtype < 255:
                code = REFUSED
            else:
                service = self._authority.find(name, rtype)
                assert service is not None
                code, found = self._authority.answer(service, question, host, key, not datagram)
                if found is not None and found.outside is not None and self._follows(question, found.outside, host):
                    if not wait:
                        return None
                    found = self._followed(question, found, host)
                    code = found.rcode
                elif found is not None and found.exists and service.may_ask is None:
                    # where an alias leads out of our zones, the answer depends on who asks, and how
                    if found.outside is None or self.cache is None:
                        self._prepare(question, found)
            self._refused += code == REFUSED
        elif question.opcode:
            code = NOTIMP
        elif not question.questions:
            code = FORMERR
        elif self.cache is None:
            self._refused += 1
            code, extra = REFUSED, NOT_AUTHORITATIVE
        elif question.qclass != 1 or not recurse or rtype == 41 or rtype >= 249 and rtype < 256:
            self._refused += 1
            code = REFUSED  # no recursion was asked for, or no answer can be looked up (RFC 8482 for ANY)
        elif not wait:
            return None
        elif self._is_blocked(name):
            self._blocked += 1
            code, extra = NXDOMAIN, BLOCKED
        elif not datagram and not self._clients.enter(packed(host)):
            self._failed += 1
            code, extra = SERVFAIL, NOT_READY
        else:
            try:
                check = not question.flags & CD
                found = self.cache.answer(
                    name, rtype, self._limit, check=check, dnssec=question.dnssec_ok,
                    charge=functools.partial(self._clients.charge, packed(host)),
                )  # fmt: skip
                code = found.rcode
                extra = STALE_ANSWER if found.stale else 0
            except DNS_Bogus_Error:
                self._failed += 1
                code, extra = SERVFAIL, BOGUS
            except DNS_Soft_Error:
                self._failed += 1
                code, extra = SERVFAIL, NO_REACHABLE
            finally:
                if not datagram:  # those over UDP have had their place before
                    self._clients.leave(packed(host))
        return self._built(question, code, extra, found, datagram, cookie, room)

    @staticmethod
    def _limit_of(question: _wire.Message, datagram: bool, room: int) -> int:
        """The most bytes of a reply, less those of its signature."""
        return (min(max(question.udp_size, 512), PAYLOAD) if datagram else 65535) - room

    def _flags(self, question: _wire.Message, code: int, found: Answer | Found | None) -> int:
        flags = 0x8000 | question.flags & 0x7910 | code & 15
        if self.cache is not None:
            flags |= RA
        if isinstance(found, Found) and found.authoritative:
            flags |= AA
        return flags

    def _prepare(self, question: _wire.Message, found: Found) -> None:
        """Keep an answer of a zone ready until the zone changes."""
        plain = _wire.build(
            question.id, self._flags(question, found.rcode, found), question.question, question.qtype, question.qclass,
            found.answer, found.authority, found.additional,
        )  # fmt: skip
        self._answers.put(question.qname, question.qtype, question.dnssec_ok, plain, None)

    def _follows(self, question: _wire.Message, target: bytes, host: str) -> bool:
        """Is the cache to be asked where an alias leads?"""
        return (
            self.cache is not None and bool(question.flags & RD) and self._authority.find(target) is None
            and self._may_ask(host)
        )  # fmt: skip

    def _followed(self, question: _wire.Message, found: Found, host: str) -> Found:
        """The answer, with what the cache knows of the name where its alias leads outside our zones."""
        assert self.cache is not None and found.outside is not None
        try:
            more = self.cache.answer(
                found.outside, question.qtype, self._limit, dnssec=question.dnssec_ok,
                charge=functools.partial(self._clients.charge, packed(host)),
            )  # fmt: skip
        except DNS_Soft_Error:
            self._failed += 1
            found.answer, found.rcode = [], SERVFAIL
        else:
            found.answer += more.answer
            found.authority += more.authority
            found.rcode = more.rcode
        return found

    def _built(
        self,
        question: _wire.Message,
        code: int,
        extra: int,
        found: Answer | Found | None,
        datagram: bool,
        cookie: bytes,
        room: int = 0,
    ) -> bytes:
        limit = self._limit_of(question, datagram, room)
        flags = self._flags(question, code, found)
        name = question.question if question.questions else None
        own = found if isinstance(found, Found) else None
        if own is not None:
            found = None
        assert not isinstance(found, Found)
        answer = own.answer if own else found.answer if found else []
        authority = own.authority if own else found.authority if found else []
        ttls = [record[3] for record in (*answer, *authority)]
        if found and found.authenticated and (question.dnssec_ok or question.flags & AD):
            flags |= AD  # RFC 6840, section 5.8
        # what was not checked, or says more than was asked for, is for this client only
        validates = self.cache is not None and self.cache.validates
        for_all = not (question.flags & CD and validates) and (question.dnssec_ok or not flags & AD)
        if for_all and found and not found.stale and ttls and min(ttls) > 0:
            plain = _wire.build(question.id, flags, name, question.qtype, question.qclass, answer, authority)
            # the last tenth of its time takes the long way, where the cache renews what is used
            self._answers.put(question.qname, question.qtype, question.dnssec_ok, plain, 0.9 * min(ttls))
        options = [(15, extra.to_bytes(2, "big"))] if extra and question.udp_size else []
        if cookie:
            options.append((COOKIE, cookie))
        return _wire.build(
            question.id, flags, name, question.qtype, question.qclass, answer, authority, own.additional if own else (),
            udp_size=PAYLOAD if question.udp_size else 0, dnssec_ok=question.dnssec_ok, extended=code >> 4,
            options=options, limit=limit, needed=own.needed if own else 0,
        )  # fmt: skip

    # -- looking

    def forget(self, name: str = "", subtree: bool = True) -> None:
        """Drop what is known of a name, and with ``subtree`` of all below it; all prepared answers go."""
        if self.cache is not None:
            self.cache.forget(name, subtree)
        self._answers.clear()

    def _zone_changed(self) -> None:
        self._answers.clear()

    def statistics(self) -> ServerStatistics:
        """Counters since the beginning."""
        return ServerStatistics(
            self._answers.hits, self._answers.misses, self._dropped, self._refused, self._blocked, self._failed,
            self._stream_queries, len(self._streams), self._clients.open, len(self._answers), self._authority.answers,
            self._authority.transfers, self._authority.updates, self._authority.notifications, self._streams.evicted,
            0 if self._rate is None else self._rate.dropped, 0 if self._rate is None else self._rate.truncated,
        )  # fmt: skip

    def metrics(self) -> str:
        """All counters, of the cache as well, as lines ``coro_dns_NAME NUMBER``, which Prometheus reads."""
        lines = [f"coro_dns_server_{name} {value}" for name, value in self.statistics()._asdict().items()]
        if self.cache is not None:
            lines += [f"coro_dns_cache_{name} {value}" for name, value in self.cache.statistics()._asdict().items()]
        return "\n".join(lines) + "\n"

    def __repr__(self) -> str:
        where = ", ".join(f"{host}:{port}" for host, port in self.addresses) or "not started"
        return f"<coro.dns.server.Server {where}>"
