"""A resolver that asks the name servers of this system, or those that it is given: what the C library's is for blocking
programs, for threads of a loop.

``query`` has the records of a name, ``resolve_all`` and ``getaddrinfo`` the addresses of a host with hosts file and
search list. A lookup has one deadline for everything: all servers, all attempts, TCP. Answers are kept for as long as
they say, threads that ask the same at the same time share one query. The parts are in ``_stub/``.
"""

from __future__ import annotations

import itertools
import os
import random
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import coro
from coro.dns import _wire
from coro.dns._stub import engine
from coro.dns._stub.engine import Answer
from coro.dns._stub.hosts import HostNames, LookupFailed, put_in, take_out
from coro.dns._stub.questions import Query, Refusal
from coro.dns._stub.servers import OverHTTPS, OverTLS, Plain, Transport, said
from coro.dns._stub.system import File, Settings, literal, settings_of
from coro.dns._values import number_of, type_name, value_of, value_or_bytes
from coro.dns.exceptions import DNS_Hard_Error, DNS_Malformed_Qname_Error
from coro.dns.packet import Unpacker, UnpackError

__all__ = [
    "HTTPS",
    "TLS",
    "Answer",
    "LookupFailed",
    "QueryFailed",
    "StubStatistics",
    "install",
    "stub_resolver",
    "uninstall",
]

#: Seconds during which a server that did not answer is asked after the others.
DEAD = 30.0
#: Seconds that the last server to be asked has at least, however many there are.
LEAST = 0.005
_NXDOMAIN = 3
_EVERY: weakref.WeakSet[stub_resolver] = weakref.WeakSet()


class QueryFailed(LookupFailed):
    """No name server gave a usable reply: ``error_string`` says what each one did. It is a DNS_Soft_Error and a
    coro.NameError."""


@dataclass(frozen=True)
class TLS:
    """A name server that is asked over TLS (:rfc:`7858`).

    ``address`` and ``port`` are where it is; ``context`` is what ``coro.tls.context`` takes, such as an
    ``ssl.SSLContext``; ``name`` is what its certificate has to have, the address if it is empty.
    """

    address: str
    context: Any
    name: str = ""
    port: int = 853


@dataclass(frozen=True)
class HTTPS:
    """A name server that is asked over HTTP (:rfc:`8484`).

    ``url`` is its address. ``post(url, data, headers)`` sends bytes with a POST request and returns the body of the
    response as bytes; it raises if the status is not 200. It may wait, and be interrupted.
    """

    url: str
    post: Any


@dataclass(frozen=True)
class StubStatistics:
    """Counters of a resolver since it was made: lookups (``requests``), queries ``sent`` and ``replies`` to them, what
    the cache had (``hits``, of these ``negative_hits``), had not (``misses``) or no longer (``expired``), lookups that
    waited for another thread's query (``shared``), replies that did not belong to a query (``forged``), replies that
    did not fit into a datagram (``truncated``), lookups without any usable reply (``failed``); ``entries`` of the
    cache, and its ``bytes``."""

    requests: int
    sent: int
    replies: int
    hits: int
    negative_hits: int
    misses: int
    expired: int
    shared: int
    forged: int
    truncated: int
    failed: int
    entries: int
    bytes: int


_Given = str | tuple[str, int] | TLS | HTTPS


class stub_resolver(HostNames):
    """Asks name servers that look up names for others.

    ``nameservers`` are addresses, pairs of an address and a port, ``TLS`` or ``HTTPS``; None: those of resolv.conf(5),
    which is read again whenever it has changed. ``inflight`` lookups ask at the same time, the others wait for their
    turn. ``timeout`` is in seconds, for a whole lookup. ``config``, ``hosts`` and ``nsswitch`` are the paths of the
    system's files.

    What resolv.conf has under ``options`` can be set here: ``attempts`` how often all servers are asked,
    ``attempt_timeout`` seconds for one attempt, ``rotate`` begins with another server each time, ``use_tcp``,
    ``trust_ad``, ``ndots`` and ``search`` (a list of domains); None leaves it to the file.

    ``port`` is that of servers without one. ``edns_size`` is the largest reply over UDP that is asked for, 0 turns EDNS
    off. ``dnssec`` asks for signatures, too (they are not validated here). ``cache_size`` is in bytes, 0 for no cache.
    ``source`` is the numeric address to ask from.
    """

    def __init__(
        self,
        nameservers: Iterable[_Given] | None = None,
        inflight: int = 200,
        *,
        timeout: float = 10.0,
        config: str | os.PathLike[str] = "/etc/resolv.conf",
        hosts: str | os.PathLike[str] = "/etc/hosts",
        nsswitch: str | os.PathLike[str] = "/etc/nsswitch.conf",
        port: int = 53,
        attempts: int | None = None,
        attempt_timeout: float | None = None,
        rotate: bool | None = None,
        use_tcp: bool | None = None,
        trust_ad: bool | None = None,
        ndots: int | None = None,
        search: Sequence[str] | None = None,
        edns_size: int = 1232,
        dnssec: bool = False,
        cache_size: int = 4 << 20,
        source: str | None = None,
    ) -> None:
        """The parameters are those of the class."""
        super().__init__(os.fspath(hosts), os.fspath(nsswitch))
        if edns_size and not 512 <= edns_size <= 16000:
            raise ValueError(f"edns_size is 0, or from 512 to 16000 bytes, not {edns_size}")
        if inflight < 1:
            raise ValueError(f"inflight is at least 1, not {inflight}")
        self._own = {
            key: value
            for key, value in {
                "attempts": attempts, "timeout": attempt_timeout, "rotate": rotate, "use_tcp": use_tcp,
                "trust_ad": trust_ad, "ndots": ndots, "search": None if search is None else tuple(search),
            }.items()
            if value is not None
        }  # fmt: skip
        self._file: File[Settings] = File(config, settings_of)
        self._from: Settings | None = None
        self._settings = Settings()
        self._port = port
        self._transports: list[Transport] = []
        self._given = nameservers is not None
        if nameservers is not None:
            self._now()
            self._transports = [self._transport(one) for one in nameservers]
            if not self._transports:
                raise ValueError("expected at least one name server; None takes those of resolv.conf")
        self._timeout = timeout
        self._size = edns_size
        self._dnssec = dnssec
        self._source = source
        self._inflight = inflight
        self._places = coro.semaphore(inflight)
        self._cache = engine.Cache(cache_size)
        self._flights = engine.Flights()
        self._turn = itertools.count(random.randrange(1 << 16))
        self._requests = self._negative_hits = self._failed = 0
        self._past = [0, 0, 0, 0]  # counters of servers that resolv.conf no longer has
        _EVERY.add(self)

    # -- what is set

    def _transport(self, given: _Given) -> Transport:
        if isinstance(given, HTTPS):
            return OverHTTPS(given.url, given.post)
        if isinstance(given, TLS):
            self._check_address(given.address)
            return OverTLS(given.address, given.port, given.context, given.name or given.address)
        host, port = (given, self._port) if isinstance(given, str) else given
        self._check_address(host)
        return Plain(host, port)

    @staticmethod
    def _check_address(host: str) -> None:
        if not isinstance(host, str) or not literal(host.partition("%")[0]):
            raise ValueError(f"a name server is given by its numeric address, not {host!r}")

    def _now(self) -> Settings:
        """The settings; the servers follow if the file has changed."""
        said = self._file.now()
        if said is not self._from:
            self._from = said
            self._settings = replace(said, **self._own)  # type: ignore[arg-type]
            if not self._given:
                kept = {one.server.address: one for one in self._transports}
                wanted = [(host, self._port) for host in said.nameservers]
                for address, one in kept.items():
                    if address not in wanted:
                        self._count_past(one)
                        one.close()
                self._transports = [kept.get(address) or Plain(*address) for address in wanted]
        return self._settings

    def _count_past(self, transport: Transport) -> None:
        server = transport.server
        for i, count in enumerate((server.sent, server.replies, server.forged, getattr(transport, "truncated", 0))):
            self._past[i] += count

    # -- asking

    def answer(
        self, qname: str | bytes, qtype: str | int = "A", timeout: float | None = None, no_cache: bool = False
    ) -> Answer:
        """All about one question: ``rcode`` 0 or 3, ``left()`` as ``[(ttl, data), ...]`` in wire form, ``aliases``,
        ``authenticated`` (the server has validated it, and resolv.conf says ``trust-ad``), ``message``.

        ``qname`` is a full name, or one in wire form. Neither hosts file nor search list is used. Raises as ``query``,
        but not for a name that does not exist.
        """
        rtype = qtype if type(qtype) is int else number_of(qtype)
        try:
            name = engine.wire_name(qname) if isinstance(qname, str) else _wire.lower(qname)
        except ValueError as e:
            raise DNS_Malformed_Qname_Error(str(qname), type_name(rtype), (1, str(e))) from None
        settings = self._settings if self._given else self._now()
        self._requests += 1
        key = name + rtype.to_bytes(2, "big")
        if not no_cache:
            found = self._cache.get(key)
            if found is not None:
                if not found.records:
                    self._negative_hits += 1
                return found
        seconds = self._timeout if timeout is None else timeout
        limit = coro.timeout(seconds)
        try:
            with limit:
                answer: Answer = self._flights.share(key, self._ask, settings, name, rtype, key, seconds)
                return answer
        except coro.TimeoutError:
            if not limit.expired:
                raise
        self._failed += 1
        servers = ", ".join(one.server.text for one in self._transports)
        raise QueryFailed(
            _wire.to_text(name), type_name(rtype), servers, f"no reply from nameservers in {seconds:g} seconds"
        )

    def _order(self, settings: Settings) -> list[Transport]:
        servers = self._transports
        if len(servers) == 1:
            return servers
        if settings.rotate:
            first = next(self._turn) % len(servers)
            servers = servers[first:] + servers[:first]
        now = time.monotonic()
        return sorted(servers, key=lambda one: bool(one.server.failed_at) and now - one.server.failed_at < DEAD)

    def _ask(self, settings: Settings, name: bytes, rtype: int, key: bytes, seconds: float) -> Answer:
        """One server after the other, `attempts` times; the caller's limit holds for all of it."""
        with self._places:
            servers = self._order(settings)
            left = settings.attempts * len(servers)
            first = servers[0]
            begun = None
            began = time.monotonic()
            if isinstance(first, Plain) and not settings.use_tcp:
                found = engine.begin(
                    first.server, name, rtype, self._size, self._dnssec, settings.trust_ad,
                    min(settings.timeout, max(seconds / left, LEAST)), self._source,
                )  # fmt: skip
                if isinstance(found, Answer):
                    self._cache.put(key, found)
                    return found
                begun = found
            query = Query(name, rtype, self._size, self._dnssec, settings.trust_ad, settings.use_tcp, self._source)
            reasons: dict[str, str] = {}
            for _ in range(settings.attempts):
                for one in servers:
                    share = min(settings.timeout, max((began + seconds - time.monotonic()) / left, LEAST))
                    left -= 1
                    try:
                        if begun is not None and isinstance(one, Plain):
                            message, data = one.ask(query, share, begun)
                            begun = None
                        else:
                            message, data = one.ask(query, share)
                        answer = self._understood(message, data, query)
                    except Refusal as e:
                        begun = None
                        reasons[one.server.text] = str(e)
                        continue
                    self._cache.put(key, answer)
                    return answer
        self._failed += 1
        told = "; ".join(f"{server}: {why}" for server, why in reasons.items())
        raise QueryFailed(_wire.to_text(name), type_name(rtype), ", ".join(reasons), told)

    @staticmethod
    def _understood(message: _wire.Message, data: bytes, query: Query) -> Answer:
        if message.rcode not in (0, _NXDOMAIN):
            raise Refusal(said(message.rcode))
        if not message.answer and not message.rcode and not message.flags & 0x0480:
            # neither authoritative nor recursive: a referral, which is no use to us
            raise Refusal("it does not look up names for others")
        try:
            return engine.understood(message, data, query.name, query.rtype, query.trust)
        except ValueError as e:
            raise Refusal(f"an answer that makes no sense: {e}") from None

    def query(
        self, qname: str, qtype: str | int = "A", timeout: float | None = None, no_cache: bool = False
    ) -> list[tuple[int, Any]]:
        """The records of a full name and one type: ``[(ttl, data), ...]``. An empty list: the name exists, without such
        records.

        Aliases are followed. ``data`` is text for addresses and names, a tuple for MX, SOA, SRV and HINFO, a list of
        bytes for TXT, and bytes for all else. ``timeout`` is in seconds, for everything together; None means that of
        the resolver. With ``no_cache`` the cache is not looked at. Neither hosts file nor search list is used.

        Raises DNS_Hard_Error if the name does not exist, DNS_Malformed_Qname_Error if it cannot, QueryFailed (a
        DNS_Soft_Error) if nobody can tell or the data of a record does not fit its type, and ValueError for an unknown
        type.
        """
        rtype = number_of(qtype)
        answer = self.answer(qname, rtype, timeout, no_cache)
        if answer.rcode:
            raise DNS_Hard_Error(qname, type_name(rtype), (answer.rcode, "the name does not exist"))
        if rtype == 1 or rtype == 28:
            return answer.values(rtype)
        try:
            return [(ttl, value_of(rtype, data)) for ttl, data in answer.left()]
        except ValueError as e:
            raise QueryFailed(qname, type_name(rtype), "", str(e)) from None

    # -- for hosts

    def _find(self, name: str, rtype: int) -> tuple[list[bytes], str]:
        if rtype == 28 and self._now().no_aaaa:
            return [], ""
        answer = self.answer(name, rtype)
        if answer.rcode:
            return [], ""
        return [data for _, data in answer.records], _wire.to_text(answer.name or _wire.from_text(name))

    def _names(self, name: str) -> Iterator[str]:
        if name.endswith("."):
            yield name
            return
        settings = self._now()
        first = name.count(".") >= settings.ndots
        if first:
            yield name
        for domain in settings.search:
            yield f"{name}.{domain}" if domain else name
        if not first:
            yield name

    def gethostbyname(self, name: str, qtype: str | int = "A") -> str:
        """One address of a host, with the hosts file and the search list; ``qtype`` is ``"A"`` or ``"AAAA"`` (or their
        numbers). Raises coro.NameError if there is none, and of that QueryFailed or LookupFailed if nobody can tell."""
        rtype = number_of(qtype)
        if rtype not in (1, 28):
            raise ValueError(f"addresses are of the types A and AAAA, not {qtype!r}")
        return self.resolve_ipv4(name) if rtype == 1 else self.resolve_ipv6(name)

    # -- for other types

    def lookup(self, qname: str, qtype: int | str, timeout: float = 10, retries: int = 3) -> tuple[Any, ...]:
        """A whole reply as ``(header, questions, answers, authority, additional)``, the values of
        ``coro.dns.packet.Unpacker.unpack``. The cache is not used.

        ``timeout`` is in seconds for everything, ``retries`` how often each server is asked. Raises QueryFailed if no
        server gives a reply that can be used.
        """
        rtype = number_of(qtype)
        settings = replace(self._now(), attempts=retries)
        name = _wire.from_text(qname)
        limit = coro.timeout(timeout)
        self._requests += 1
        try:
            with limit:
                answer = self._ask(settings, name, rtype, name + rtype.to_bytes(2, "big"), timeout)
        except coro.TimeoutError:
            if not limit.expired:
                raise
            self._failed += 1
            raise QueryFailed(
                qname, type_name(rtype), "", f"no reply from nameservers in {timeout:g} seconds"
            ) from None
        try:
            return Unpacker(answer.message).unpack()
        except UnpackError as e:
            self._failed += 1
            raise QueryFailed(qname, type_name(rtype), "", f"a reply that cannot be read: {e}") from e

    def mx(self, domain: str, timeout: float | None = None) -> list[tuple[int, str]]:
        """The mail servers of a domain as ``(preference, host)``, the preferred first; those of equal preference in
        random order (:rfc:`5321`, section 5.1). A domain without any has itself; one that takes no mail has none
        (:rfc:`7505`). Raises as ``query``."""
        found = [(int(one[0]), str(one[1])) for _, one in self.query(domain, "MX", timeout)]
        if not found:
            return [(0, domain.removesuffix("."))]
        random.shuffle(found)
        return sorted((one for one in found if one[1]), key=lambda one: one[0])

    def srv(
        self, service: str, domain: str, protocol: str = "tcp", timeout: float | None = None
    ) -> list[tuple[str, int, int, int]]:
        """The servers of a service (``"xmpp-client"``) as ``(host, port, priority, weight)`` in the order in which to
        try them: by priority, and by chance according to the weights (:rfc:`2782`). Empty if the domain has none, or
        says that it has none. Raises as ``query``, but not for a name that does not exist."""
        try:
            found = [tuple(one) for _, one in self.query(f"_{service}._{protocol}.{domain}", "SRV", timeout)]
        except DNS_Malformed_Qname_Error:
            raise
        except DNS_Hard_Error:
            return []
        ordered: list[tuple[str, int, int, int]] = []
        for priority in sorted({one[0] for one in found}):
            left = sorted((one for one in found if one[0] == priority), key=lambda one: one[1])
            while left:
                place = random.randint(0, sum(one[1] for one in left))
                for one in left:
                    place -= one[1]
                    if place <= 0:
                        break
                left.remove(one)
                ordered.append((one[3], one[2], one[0], one[1]))
        return [] if len(ordered) == 1 and not ordered[0][0] else ordered

    def ptr(self, address: str) -> list[str]:
        """The names of an address, from the hosts file or the servers. Raises as ``reverse``."""
        return self.reverse(address)

    def txt(self, name: str, timeout: float | None = None) -> list[bytes]:
        """The texts of a name; the strings of each record are joined. Raises as ``query``."""
        return [b"".join(one) for _, one in self.query(name, "TXT", timeout)]

    def connect_host(self, host: str, port: int, *, timeout: float | None = None, **settings: Any) -> coro.sock:
        """``coro.connect`` with names looked up here: all addresses of both families are tried, side by side with a
        little distance (Happy Eyeballs, :rfc:`8305`). ``timeout`` is in seconds, for everything; ``settings`` are those
        of ``coro.connect``. Returns the connected sock; raises as ``coro.connect``."""
        return coro.connect(host, port, timeout=timeout, resolver=self, **settings)

    # -- looking after it

    def forget(self, name: str = "", subtree: bool = False) -> int:
        """Drop what is known about a name, with ``subtree`` about all names below it, too. Returns the number of
        entries."""
        wire = _wire.from_text(name)
        keys = [key for key, _ in self._cache.items() if (_wire.below(key[:-2], wire) if subtree else key[:-2] == wire)]
        return sum(self._cache.forget(key) for key in keys)

    def empty(self) -> None:
        """Forget all answers."""
        self._cache.clear()

    def dump(self) -> list[tuple[str, str, int, list[Any]]]:
        """What the cache holds: name, type, seconds left and data of each entry. The type ``"NXDOMAIN"`` is a name that
        does not exist; no data means that there is none of that type. What does not fit its type is shown as bytes."""
        now = time.monotonic()
        out = []
        for key, answer in self._cache.items():
            rtype = int.from_bytes(key[-2:], "big")
            if answer.expires > now:
                data = [value_or_bytes(rtype, one) for _, one in answer.records]
                kind = "NXDOMAIN" if answer.rcode else type_name(rtype)
                out.append((_wire.to_text(key[:-2]), kind, int(answer.expires - now), data))
        return out

    def statistics(self) -> StubStatistics:
        """Counters since the beginning."""
        sent, replies, forged, truncated = self._past
        for one in self._transports:
            sent += one.server.sent
            replies += one.server.replies
            forged += one.server.forged
            truncated += getattr(one, "truncated", 0)
        cache = self._cache
        return StubStatistics(
            self._requests, sent, replies, cache.hits, self._negative_hits, cache.misses, cache.expired,
            self._flights.joined, forged, truncated, self._failed, len(cache), cache.bytes_used,
        )  # fmt: skip

    def close(self) -> None:
        """End all connections; they are made anew when they are needed."""
        for one in self._transports:
            one.close()

    def __enter__(self) -> stub_resolver:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        servers = ", ".join(one.server.text for one in self._transports) or "those of the system"
        return f"<stub_resolver of {servers}, {self._requests} lookups, {len(self._cache)} answers kept>"

    def _after_fork(self) -> None:
        self._flights.forget()
        self._places = coro.semaphore(self._inflight)
        for one in self._transports:
            link = getattr(one, "link", None)
            if link is not None:
                link.forget()


def _after_fork_in_child() -> None:
    for resolver in list(_EVERY):
        resolver._after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)


def install(nameserver_ips: Iterable[_Given] | None = None, **settings: Any) -> Any:
    """Have all sockets of coro, and the emulated ``socket`` module, find host names by a new ``stub_resolver``.

    ``nameserver_ips`` and ``settings`` are its parameters; None takes the servers of resolv.conf. Returns the resolver
    before. Forked children use it, too.
    """
    return put_in(stub_resolver(nameserver_ips, **settings))


def uninstall() -> None:
    """Undo ``install``: the resolver from before the first one of this package is back. Does nothing if another one
    has been installed since."""
    take_out()
