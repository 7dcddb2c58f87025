"""A name server over UDP, TCP and TLS (RFC 1035, RFC 7766, RFC 7858) that answers from a `dns_cache`: a recursive
resolver or a forwarder for the machines around it, with lists of names that it denies.

One thread reads each UDP socket in batches and answers what was asked before from prepared bytes (`_prepared.pyx`).
Each other question gets a thread of its own, at most `most` at a time; what is more is dropped, since the client asks
again.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import coro
import coro.tls
from coro.dns import _prepared, _wire
from coro.dns._cookies import COOKIE, Cookies
from coro.dns._recursive.recursor import Answer
from coro.dns.cache import dns_cache
from coro.dns.exceptions import DNS_Bogus_Error, DNS_Soft_Error

__all__ = ["Server", "ServerStatistics"]

NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS, BADCOOKIE = 0, 1, 2, 3, 4, 5, 16, 23
PAYLOAD = 1232
#: Extended errors (RFC 8914).
STALE_ANSWER, BOGUS, BLOCKED, PROHIBITED, NO_REACHABLE = 3, 6, 15, 18, 22
AD, CD = 0x20, 0x10

#: Networks that may ask when nothing else is said: this machine, and private ones (RFC 1918, RFC 4193, RFC 4291).
PRIVATE = ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "::1/128", "fc00::/7",
           "fe80::/10")  # fmt: skip


class ServerStatistics(NamedTuple):
    """What a server has done."""

    #: Queries answered from prepared bytes, and those that took the long way.
    hits: int
    misses: int
    #: Of the latter: dropped because too many were open, refused, denied by a list, answered with SERVFAIL.
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


class Server:
    """A name server for the questions that ``cache``, a ``coro.dns.cache.dns_cache``, can answer.

    ``addresses`` are pairs of a numeric address and a port, for UDP and TCP; port 0 takes a free one. ``tls`` is a TLS
    context (an ``ssl.SSLContext``, or one with ``wrap``) for DNS over TLS, on ``tls_addresses``. Clients in ``allow``
    are answered, networks such as ``"10.0.0.0/8"``; None means this machine and private networks. Names in ``block``,
    and all below them, do not exist. At most ``most`` questions are looked up at a time, ``prepared`` answers are kept
    ready, and ``connections`` may be open; one that says nothing for ``idle`` seconds is closed. A question may take
    ``limit`` seconds. With ``reuse_port`` several processes may listen on the same addresses (SO_REUSEPORT).

    A question without RD is refused, as is one for ANY (RFC 8482) or for another class than IN.

    Clients that send a DNS cookie get one (:rfc:`7873`). With ``require_cookies`` a question over UDP is answered only
    if it has a cookie of this server, so replies cannot be sent to forged addresses; all others are told to ask again,
    with the cookie that they get or over TCP. ``cookie_secrets``, 16 bytes each, are for several servers at one address
    (:rfc:`9018`): the first one makes cookies, all of them are good; None takes one by chance. Raises ValueError for
    secrets of another length.

    Use it in a ``with`` block, or call ``start`` and ``stop``.
    """

    def __init__(
        self,
        cache: dns_cache,
        addresses: Sequence[tuple[str, int]] = (("127.0.0.1", 53),),
        *,
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
    ) -> None:
        if tls_addresses and tls is None:
            raise ValueError("tls_addresses need a TLS context: pass one as tls")
        self.cache = cache
        self._wanted = list(addresses)
        self._tls = None if tls is None else coro.tls.context(tls)
        self._tls_wanted = list(tls_addresses)
        self._allow = [ipaddress.ip_network(network) for network in (PRIVATE if allow is None else allow)]
        self._block = {_wire.from_text(name) for name in block}
        self._most = most
        self._most_connections = connections
        self._idle = idle
        self._limit = limit
        self._reuse_port = reuse_port
        self._cookies = Cookies(cookie_secrets)
        self._require_cookies = require_cookies
        self._answers = _prepared.Answers(prepared)
        self._answers.validated = cache.validates
        self._socks: list[coro.sock] = []
        self._threads: list[coro.coro] = []
        self._streams: set[Any] = set()
        self._open = 0
        self._dropped = self._refused = self._blocked = self._failed = self._stream_queries = 0
        #: Where it listens, as pairs of an address and a port: UDP and TCP, and TLS.
        self.addresses: list[tuple[str, int]] = []
        self.tls_addresses: list[tuple[str, int]] = []

    # -- life

    def start(self) -> Server:
        """Bind the sockets and begin. Returns the server itself. Raises OSError if an address is taken."""
        try:
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
        for sock in (*self._socks, *self._streams):
            sock.close()
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
        def miss(query: bytes, address: tuple[str, int]) -> None:
            if self._open >= self._most:
                self._dropped += 1
                return
            self._open += 1
            coro.spawn(self._answer_datagram, sock, query, address)

        try:
            ready = _prepared.Answers(1) if self._require_cookies else self._answers
            _prepared.serve(sock, ready, miss, self._may_ask)
        except coro.ClosedError:
            pass

    def _answer_datagram(self, sock: coro.sock, query: bytes, address: tuple[str, int]) -> None:
        try:
            reply = self.respond(query, address[0], datagram=True)
            if reply is not None:
                sock.sendto(reply, address)
        except OSError:
            pass  # the client cannot be reached, or the server has been stopped
        finally:
            self._open -= 1

    # -- streams

    def _accept(self, listener: coro.sock, tls: Any) -> None:
        try:
            while True:
                sock, address = listener.accept()
                if len(self._streams) >= self._most_connections:
                    sock.close()
                else:
                    self._streams.add(sock)
                    coro.spawn(self._serve_stream, sock, address[0], tls)
        except coro.ClosedError:
            pass

    def _serve_stream(self, sock: coro.sock, host: str, tls: Any) -> None:
        stream: Any = sock
        try:
            if tls is not None:
                with coro.timeout(self._idle):
                    stream = tls.wrap(sock, server_side=True)
            turn = coro.mutex()
            threads = coro.semaphore(100)
            while True:
                with coro.timeout(self._idle):
                    size = stream.recv_exact(2)
                    query = stream.recv_exact(int.from_bytes(size, "big"))
                self._stream_queries += 1
                threads.acquire()
                coro.spawn(self._answer_stream, stream, query, host, turn, threads)
        except (OSError, EOFError, coro.TimeoutError, coro.tls.TLSError):
            pass  # it has said all, or nothing
        finally:
            self._streams.discard(sock)
            stream.close()

    def _answer_stream(self, stream: Any, query: bytes, host: str, turn: coro.mutex, threads: coro.semaphore) -> None:
        try:
            reply = self.respond(query, host, datagram=False)
            if reply is not None:
                with turn, coro.timeout(self._idle):
                    stream.send(len(reply).to_bytes(2, "big") + reply)
        except (OSError, coro.TimeoutError, coro.tls.TLSError):
            stream.close()
        finally:
            threads.release()

    # -- answers

    def respond(self, query: bytes, host: str, datagram: bool = True) -> bytes | None:
        """The reply to a message from the address ``host``, None if it gets none. A reply for a ``datagram`` is not
        longer than its sender can take, and no more than 1232 bytes."""
        if not datagram:
            ready = self._answers.answer(query)
            if ready is not None and self._may_ask(host):
                return ready
        try:
            question = _wire.parse(query)
        except ValueError:
            if len(query) < 12 or query[2] & 0x80:
                return None
            return query[:2] + bytes(((query[2] & 0x79) | 0x80, FORMERR)) + bytes(8)
        if question.is_reply:
            return None
        return self._reply(question, host, datagram)

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

    def _reply(self, question: _wire.Message, host: str, datagram: bool) -> bytes | None:
        code, extra, found = NOERROR, 0, None
        name, rtype = question.qname, question.qtype
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
        elif not good and self._may_ask(host):
            if not cookie:  # RFC 7873, section 5.2.1: over TCP it is not forged either
                head = question.question if question.questions else None
                return _wire.build(
                    question.id, 0x8280 | question.flags & 0x7910, head, question.qtype, question.qclass,
                    udp_size=PAYLOAD if question.udp_size else 0, dnssec_ok=question.dnssec_ok,
                )  # fmt: skip
            code = BADCOOKIE
        elif not question.questions and cookie:
            pass  # RFC 7873, section 5.4: it asks for a cookie
        elif not self._may_ask(host):
            self._refused += 1
            code, extra = REFUSED, PROHIBITED
        elif question.udp_size and question.edns_version:
            code = BADVERS
        elif question.opcode:
            code = NOTIMP
        elif not question.questions:
            code = FORMERR
        elif question.qclass != 1 or not recurse or rtype == 41 or rtype >= 249 and rtype < 256:
            self._refused += 1
            code = REFUSED  # no recursion was asked for, or no answer can be looked up (RFC 8482 for ANY)
        elif self._is_blocked(name):
            self._blocked += 1
            code, extra = NXDOMAIN, BLOCKED
        else:
            try:
                check = not question.flags & CD
                found = self.cache.answer(name, rtype, self._limit, check=check, dnssec=question.dnssec_ok)
                code = found.rcode
                extra = STALE_ANSWER if found.stale else 0
            except DNS_Bogus_Error:
                self._failed += 1
                code, extra = SERVFAIL, BOGUS
            except DNS_Soft_Error:
                self._failed += 1
                code, extra = SERVFAIL, NO_REACHABLE
        return self._built(question, code, extra, found, datagram, cookie)

    def _built(
        self,
        question: _wire.Message,
        code: int,
        extra: int,
        found: Answer | None,
        datagram: bool,
        cookie: bytes,
    ) -> bytes:
        limit = min(max(question.udp_size, 512), PAYLOAD) if datagram else 65535
        flags = 0x8080 | question.flags & 0x7910 | code & 15
        name = question.question if question.questions else None
        answer = found.answer if found else []
        authority = found.authority if found else []
        ttls = [record[3] for record in (*answer, *authority)]
        if found and found.authenticated and (question.dnssec_ok or question.flags & AD):
            flags |= AD  # RFC 6840, section 5.8
        # what was not checked, or says more than was asked for, is for this client only
        for_all = not (question.flags & CD and self.cache.validates) and (question.dnssec_ok or not flags & AD)
        if for_all and found and not found.stale and ttls and min(ttls) > 0:
            plain = _wire.build(question.id, flags, name, question.qtype, question.qclass, answer, authority)
            # the last tenth of its time takes the long way, where the cache renews what is used
            self._answers.put(question.qname, question.qtype, question.dnssec_ok, plain, 0.9 * min(ttls))
        options = [(15, extra.to_bytes(2, "big"))] if extra and question.udp_size else []
        if cookie:
            options.append((COOKIE, cookie))
        return _wire.build(
            question.id, flags, name, question.qtype, question.qclass, answer, authority,
            udp_size=PAYLOAD if question.udp_size else 0, dnssec_ok=question.dnssec_ok, extended=code >> 4,
            options=options, limit=limit,
        )  # fmt: skip

    # -- looking

    def forget(self, name: str = "", subtree: bool = True) -> None:
        """Drop what is known of a name, and with ``subtree`` of all below it; all prepared answers go."""
        self.cache.forget(name, subtree)
        self._answers.clear()

    def statistics(self) -> ServerStatistics:
        """Counters since the beginning."""
        return ServerStatistics(
            self._answers.hits, self._answers.misses, self._dropped, self._refused, self._blocked, self._failed,
            self._stream_queries, len(self._streams), self._open, len(self._answers),
        )  # fmt: skip

    def metrics(self) -> str:
        """All counters, of the cache as well, as lines ``coro_dns_NAME NUMBER``, which Prometheus reads."""
        lines = [f"coro_dns_server_{name} {value}" for name, value in self.statistics()._asdict().items()]
        lines += [f"coro_dns_cache_{name} {value}" for name, value in self.cache.statistics()._asdict().items()]
        return "\n".join(lines) + "\n"

    def __repr__(self) -> str:
        where = ", ".join(f"{host}:{port}" for host, port in self.addresses) or "not started"
        return f"<coro.dns.server.Server {where}>"
