"""Finding an answer from the root down (RFC 1034, section 5.3.3), and keeping it.

One step asks the servers of the deepest zone that is known above a name, and their reply is an answer, the news that
there is none, an alias, or a delegation one or more labels further down. The question that goes out has only one label
more than the zone while zones above the name may follow (RFC 9156), so servers learn no more than they need.

What is believed (RFC 2181, section 5.4.1, and what came later):

* Of a reply only what belongs to the question: the records of that name, an alias of it, aliases further on while they
  are in the zone that was asked. Nothing else becomes an answer, whatever stands in it.
* A delegation comes from the parent alone, goes down from the zone that was asked and towards the name, and ends when
  the parent said (the servers of a zone cannot keep themselves alive: "ghost domains").
* Addresses beside it serve for asking that zone's servers only. They count if they are in the zone that was asked.

What one question may cost: `Work` counts datagrams, and servers whose addresses had to be found. Of a delegation at
most NS_MOST servers count, of them at most GLUELESSNESS are looked for. These are the answers to NXNSAttack
(CVE-2020-8616) and its relatives. Numbers are those of Unbound where it has the same limit.

Names are in wire form throughout; text is made by whoever asks.
"""

from __future__ import annotations

import ipaddress
import os
import random
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import coro
from coro.dns import _wire
from coro.dns._dnssec.signatures import Budget, RRset
from coro.dns._dnssec.validator import Validator
from coro.dns._recursive.network import Address, BadReply, Network
from coro.dns._recursive.store import Delegation, Entry, Found, Signed, Store
from coro.dns._wire import below, labels, parent, to_text
from coro.dns.exceptions import DNS_Lame_Error, DNS_Runaway_Query_Error, DNS_Soft_Error

if TYPE_CHECKING:
    from coro.dns._wire import _Record as Record

__all__ = ["Answer", "Recursor", "Work"]

A, NS, CNAME, SOA, AAAA, DNAME, DS, RRSIG, NSEC, NSEC3 = 1, 2, 5, 6, 28, 39, 43, 46, 47, 50
NXDOMAIN, REFUSED, YXDOMAIN = 3, 5, 6
IN = 1
RA = 0x80
DOUBTFUL, RECURSED, EMPTY = 1, 2, 3
SIZES = {A: 4, AAAA: 16}
ROOT = b"\0"

RUNAWAY = 40  # datagrams for one question
TRIES_MOST = 8  # at one server for one question, if it is silent
TRIES_AGAIN = 3  # after another server's answer was wrong
TRIES_MINIMISED = 3  # at all servers, for a name that is shorter than the question's
GLUELESSNESS = 4  # servers of one delegation whose addresses are looked for
TARGETS_MOST = 20  # and of all delegations of one question
DEPTH_MOST = 5  # looking for the address of a server that serves the zone of a server ...
CNAMES_MOST = 11
NS_MOST = 20
RECORDS_MOST = 4096  # of one set: more is refused (CacheFlush: USENIX Security 2024, Afek and others)
BYTES_MOST = 65535
TTL_MOST = 7 * 86400
NEGATIVE_MOST = 3 * 3600  # RFC 2308, section 5
LAME_FOR = 900.0
FAILED_FOR = 5.0  # RFC 9520: a failure is remembered, for a short time
STALE_MOST = 86400.0  # RFC 8767: one to three days
STALE_TTL = 30
PREFETCH_MOST = 500  # renewals stop while so many questions are open
PREFETCH_SHARE = 10  # a used entry is renewed in the last tenth of its time
SIGNATURES_KEPT = 16  # of one set
PROOFS_MOST = 8  # sets of NSEC and NSEC3 records of one reply
MINIMISE_MOST = 10  # RFC 9156, section 2.3: MAX_MINIMISE_COUNT


class Answer(NamedTuple):
    """What is known about a question."""

    rcode: int
    answer: list[Record]
    authority: list[Record]
    stale: bool = False
    authenticated: bool = False

    def chosen(self, rtype: int) -> list[tuple[int, bytes]]:
        """TTL and data of the records of a type."""
        return [(record[3], record[4]) for record in self.answer if record[1] == rtype]


class Work:
    """What one question has cost."""

    __slots__ = ("budget", "deadline", "excluded", "sent", "stack", "targets")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.sent = 0
        self.targets = 0
        self.stack: list[bytes] = []
        self.budget: Budget | None = None
        #: Question -> servers whose answer to it was not signed as it has to be.
        self.excluded: dict[bytes, set[Address | None]] = {}

    def cost(self) -> int:
        """What the question has cost so far: datagrams, and signatures checked."""
        return self.sent + (0 if self.budget is None else self.budget.used())

    def left(self) -> float:
        """The seconds left."""
        return self.deadline - time.monotonic()


def key_of(name: bytes, rtype: int) -> bytes:
    """The key of the cache. Type 0 is that a name does not exist."""
    return name + bytes((rtype >> 8, rtype & 255))


def suffix(name: bytes, count: int) -> bytes:
    """The last `count` labels of a name."""
    for _ in range(labels(name) - count):
        name = parent(name)
    return name


def _text_of(rdata: bytes) -> str:
    return str(ipaddress.ip_address(rdata))


class Recursor:
    """A resolver with a cache.

    `roots` are addresses of root servers, `zones` maps a zone to servers that are asked instead of those of its parent:
    `(addresses, recurse)`, with recurse true for a forwarder.
    """

    def __init__(
        self,
        roots: Iterable[Address],
        zones: dict[bytes, tuple[list[Address], bool]] | None = None,
        port: int = 53,
        size: int = 10_000,
        most: int = 500,
        source: str = "",
        work: int = RUNAWAY,
        minimum_ttl: int = 0,
        accept: Callable[[str], bool] | None = None,
        ipv6: bool = False,
        anchors: dict[bytes, list[bytes]] | None = None,
    ) -> None:
        self.validator = Validator(self, anchors) if anchors else None
        self.roots = list(roots)
        self.zones = zones or {}
        self.port = port
        self.minimum_ttl = minimum_ttl
        self.work = work
        self.accept = accept
        self.ipv6 = ipv6
        self.network = Network(source, most)
        self.entries: Store[Entry] = Store(size)
        self.delegations: Store[Delegation] = Store(max(size // 4, 100))
        self.lame: dict[tuple[bytes, Address], float] = {}
        self.failed: dict[bytes, float] = {}
        self.pinned: dict[bytes, Entry] = {}
        self.running: dict[bytes, coro.event] = {}
        _EVERY.add(self)
        self.hits = self.misses = self.negative_hits = self.expired = self.prefetched = self.served_stale = 0

    def after_fork(self) -> None:
        """In the child: the threads that asked for something are the parent's."""
        self.running.clear()
        self.network.after_fork()
        if self.validator is not None:
            self.validator.after_fork()

    # -- the question as a whole

    def resolve(
        self,
        name: bytes,
        rtype: int,
        seconds: float | Work = 10.0,
        cached: bool = True,
        check: bool = True,
        dnssec: bool = False,
    ) -> Answer:
        """The answer to a question, with all aliases on the way, in so many seconds or as `Work` allows. With `check`
        it is validated, if there are trust anchors; with `dnssec` signatures and proofs are among the records. Raises
        DNS_Soft_Error if nobody can tell."""
        validator = self.validator if check else None
        work = seconds if isinstance(seconds, Work) else Work(time.monotonic() + seconds)
        return self._resolve(name, rtype, work, cached, True, validator, dnssec)

    def fetch(self, name: bytes, rtype: int, work: Work) -> Found:
        """One step for the validator, from the cache or from the servers. DS records are taken from a delegation,
        too."""
        found = self._look(name, rtype)
        if found is None and rtype == DS:
            delegation = self.delegations.get(name)
            if delegation is not None and delegation.ds is not None and delegation.ds.expires >= time.monotonic():
                return Found(delegation.ds, DS, name)
        return found or self._find(name, rtype, work, False)

    def fetch_elsewhere(self, entry: Entry, name: bytes, rtype: int, work: Work) -> Found | None:
        """The answer to a question by another server than that of an entry, and those before it; None if there is none
        that has not been asked. The cache has it instead of the entry, then."""
        if entry.signed is None:
            return None
        excluded = work.excluded.setdefault(key_of(name, rtype), set())
        server = entry.signed.server
        if server in excluded:
            return None
        if server is not None:
            excluded.add(server)
        elif rtype == DS:
            delegation = self.delegations.get(name)
            if delegation is None or delegation.ds is not entry:
                return None
            delegation.ds = None  # it came with a delegation; now it is asked for
        else:
            return None
        try:
            return self._ask_down(name, rtype, work)
        except DNS_Soft_Error:
            return None

    def soften(self, entry: Entry, name: bytes, rtype: int) -> None:
        """The entry said that the name does not exist, but shows that it only has no such records."""
        entry.hard = False
        self.entries.drop(key_of(name, 0))
        self.entries.put(key_of(name, rtype), entry)

    def _resolve(
        self,
        name: bytes,
        rtype: int,
        work: Work,
        cached: bool,
        top: bool,
        validator: Validator | None = None,
        dnssec: bool = False,
    ) -> Answer:
        answer: list[Record] = []
        authority: list[Record] = []
        stale = False
        secure = validator is not None
        for _ in range(CNAMES_MOST + 1):
            found = self._look(name, rtype) if cached else None
            if found is None:
                found = self._find(name, rtype, work, top)
            elif top and found.entry.left(time.monotonic()) < found.entry.ttl // PREFETCH_SHARE:
                self._prefetch(name, rtype)
            if validator is not None:
                found, is_secure = validator.settle(found, name, rtype, work)
                secure = secure and is_secure and not found.stale
            entry, kind, owner, is_stale = found
            left = STALE_TTL if is_stale else entry.left(time.monotonic())
            stale = stale or is_stale
            if dnssec and entry.signed is not None:
                answer += [(owner, RRSIG, IN, left, data) for data in entry.signed.signatures]
                for one in entry.signed.proof:
                    authority += [(one.owner, one.rtype, IN, left, data) for data in one.data if one.rtype != SOA]
                    authority += [(one.owner, RRSIG, IN, left, data) for data in one.signatures]
            if not entry.data:
                if entry.soa:
                    authority.insert(0, (entry.soa[0], SOA, IN, left, entry.soa[1]))
                return Answer(NXDOMAIN if entry.hard else 0, answer, authority, stale, secure)
            answer += [(owner, kind, IN, left, data) for data in entry.data]
            if kind == rtype and (kind != DNAME or owner == name):
                return Answer(0, answer, authority, stale, secure)
            if kind == CNAME:
                name = _wire.lower(entry.data[0])
            else:
                name = self._through_dname(name, owner, _wire.lower(entry.data[0]), answer, left)
                if not name:
                    # the new name would be too long (RFC 6672, section 2.2)
                    return Answer(YXDOMAIN, answer, authority, stale, secure)
                if rtype == CNAME:  # the alias was the question
                    return Answer(0, answer, authority, stale, secure)
        raise DNS_Soft_Error(to_text(name), str(rtype), "", f"more than {CNAMES_MOST} aliases, one for the other")

    @staticmethod
    def _through_dname(name: bytes, owner: bytes, target: bytes, answer: list[Record], ttl: int) -> bytes:
        """The name that a DNAME record makes of another, with the alias that says so (RFC 6672, section 3.1)."""
        new = name[: -len(owner)] + target
        if len(new) > 255:
            return b""
        answer.append((name, CNAME, IN, ttl, new))
        return new

    def _look(self, name: bytes, rtype: int) -> Found | None:
        """What the cache knows: the records, an alias, or that there is nothing."""
        now = time.monotonic()
        for key, kind in ((key_of(name, rtype), rtype), (key_of(name, CNAME), CNAME)):
            entry = self.pinned.get(key) or self.entries.get(key)
            if entry is not None and entry.expires >= now:
                if kind == rtype or entry.data:
                    self.hits += 1
                    self.negative_hits += not entry.data
                    return Found(entry, kind, name)
            elif entry is not None:
                self.expired += 1
        above = name
        while True:
            entry = self.entries.get(key_of(above, 0))
            if entry is not None and entry.expires >= now:
                self.hits += 1
                self.negative_hits += 1
                # Nothing is below a name that does not exist (RFC 8020). That name has to be proven not to exist: with
                # a proof about one below it, a name that exists could vanish.
                return Found(entry, rtype, above)
            if len(above) == 1:
                break
            above = parent(above)
            entry = self.entries.get(key_of(above, DNAME))
            if entry is not None and entry.data and entry.expires >= now:
                self.hits += 1
                return Found(entry, DNAME, above)
        self.misses += 1
        return None

    def _stale(self, name: bytes, rtype: int) -> Found | None:
        now = time.monotonic()
        for key, kind in ((key_of(name, rtype), rtype), (key_of(name, CNAME), CNAME)):
            entry = self.entries.get(key)
            if entry is not None and entry.data and entry.expires + STALE_MOST >= now:
                self.served_stale += 1
                return Found(entry, kind, name, True)
        return None

    def _find(self, name: bytes, rtype: int, work: Work, top: bool) -> Found:
        """Ask for what the cache lacks. Who asks what another thread is asking waits for its result; but not who looks
        for a server's address, or two could wait for each other."""
        key = key_of(name, rtype)
        while top and key in self.running:
            try:
                self.running[key].wait(max(work.left(), 0))
            except coro.TimeoutError:
                break
            found = self._look(name, rtype)
            if found is not None:
                return found
            if self.failed.get(key, 0) > time.monotonic():
                break
        fresh = not work.sent
        try:
            if self.failed.get(key, 0) > time.monotonic():
                raise DNS_Soft_Error(to_text(name), str(rtype), "", "the servers failed a moment ago")
            if key in self.running:
                return self._ask_down(name, rtype, work)
            done = self.running[key] = coro.event()
            try:
                return self._ask_down(name, rtype, work)
            finally:
                self.running.pop(key, None)
                done.set()
        except DNS_Soft_Error as e:
            # if it is the work for other names that has left too little for this one, it can be found next time
            spent = isinstance(e, DNS_Runaway_Query_Error) or work.left() <= 0
            if top and (fresh or not spent):
                if len(self.failed) > 10_000:
                    self.failed.clear()
                self.failed.setdefault(key, 0)
                if self.failed[key] <= time.monotonic():
                    self.failed[key] = time.monotonic() + FAILED_FOR
            found = self._stale(name, rtype)
            if found is None:
                raise
            return found

    def _prefetch(self, name: bytes, rtype: int) -> None:
        key = key_of(name, rtype)
        if key in self.running or len(self.running) > PREFETCH_MOST:
            return
        self.prefetched += 1

        def renew() -> None:
            try:
                self._find(name, rtype, Work(time.monotonic() + 10.0), False)
            except DNS_Soft_Error:
                pass  # the old one is good for the rest of its time

        coro.spawn(renew)

    # -- from the root down

    def _closest(self, name: bytes) -> tuple[Delegation, bool]:
        """The deepest zone with known servers at or above a name, and whether they are forwarders."""
        now = time.monotonic()
        above = name
        while True:
            configured = self.zones.get(above)
            if configured is not None:
                known = tuple(f"{host}#{port}" for host, port in configured[0])
                return Delegation(above, now + 1e9, (), {b"": known}), configured[1]
            delegation = self.delegations.get(above)
            if delegation is not None and delegation.expires >= now:
                return delegation, False
            if len(above) == 1:
                known = tuple(f"{host}#{port}" for host, port in self.roots)
                return Delegation(ROOT, now + 1e9, (), {b"": known}), False
            above = parent(above)

    def _ask_down(self, name: bytes, rtype: int, work: Work) -> Found:
        zone, forward = self._closest(parent(name) if rtype == DS and len(name) > 1 else name)
        full = labels(name)
        count = full if forward else labels(zone.zone) + 1
        minimised = 0
        denied = b""
        while True:
            if count >= full or minimised >= MINIMISE_MOST:
                asked, kind = name, rtype
            else:
                asked, kind = suffix(name, count), A
                minimised += 1
                known = self._look_minimised(asked)
                if known:
                    count += 1
                    continue
            got = self._ask_zone(zone, asked, kind, forward, work, asked != name)
            if got is None:
                minimised = MINIMISE_MOST  # servers that do not like names in between exist (RFC 9156, section 2.3)
            elif isinstance(got, Delegation):
                zone = got
                count = max(labels(zone.zone) + 1, min(count, full))
            elif (asked == name and kind == rtype) or got.rtype == DNAME:
                if denied and not got.entry.hard:
                    self.entries.drop(key_of(denied, 0))
                return got
            elif got.entry.hard:
                denied = asked
                count = full  # some servers deny names that only have others below them (RFC 9156, section 3)
            else:
                count += 1

    def _look_minimised(self, name: bytes) -> bool:
        """Is it known that there is no delegation at a name: has it records, or none of that kind?"""
        entry = self.entries.get(key_of(name, A))
        return entry is not None and entry.expires >= time.monotonic() and not entry.hard

    def _addresses(self, zone: Delegation) -> list[Address]:
        """The known addresses of a zone's servers."""
        found: dict[Address, None] = {}
        now = time.monotonic()
        for owner, texts in zone.addresses.items():
            for text in texts:
                host, _, port = text.partition("#")
                if not owner or self._may_ask(host):
                    found[host, int(port or self.port)] = None
        for name in zone.names:
            for rtype in (A, AAAA) if self.ipv6 else (A,):
                entry = self.entries.get(key_of(name, rtype))
                if entry is not None and entry.expires >= now:
                    for data in entry.data[:8]:
                        if len(data) in (4, 16) and self._may_ask(_text_of(data)):
                            found[_text_of(data), self.port] = None
        return list(found)

    def _may_ask(self, host: str) -> bool:
        """May a server be asked at this address that came out of the network?"""
        return (self.ipv6 or ":" not in host) and (self.accept is None or self.accept(host))

    def _ask_zone(
        self, zone: Delegation, name: bytes, rtype: int, forward: bool, work: Work, minimised: bool = False
    ) -> Found | Delegation | None:
        """Ask the servers of a zone until one helps: each once, then those that were silent again, with growing pauses,
        until there is no time left. None, which only a `minimised` name gives: the full name is to be asked."""
        tried: dict[Address, int] = {}
        errors: list[str] = []
        only_lame = True
        looked = silent = 0
        at_parent = False
        spare: tuple[int, Address, _wire.Message] | None = None
        excluded = work.excluded.get(key_of(name, rtype), ())
        most = TRIES_AGAIN if excluded else TRIES_MOST
        while True:
            servers = [server for server in self._addresses(zone) if server not in excluded]
            server = self._next(zone, servers, tried, most, forward)
            if server is None or server in tried or self._is_lame(zone, server):
                if spare is not None and spare[0] == DOUBTFUL:
                    got = self._read(zone, spare[1], name, rtype, spare[2], True, forward)
                    if got is not None:
                        return got
                    spare = None
                if self._find_server(zone, work, looked):
                    looked += 1
                    continue
                if not (at_parent or forward):
                    at_parent = True
                    if self._ask_parent(zone, work):
                        continue
                if spare is not None:
                    got = self._read(zone, spare[1], name, rtype, spare[2], True, forward)
                    if got is not None:
                        return got
                    spare = None
            insist = server is None and bool(excluded) and None not in excluded
            if insist:
                # All have been asked and none was believed. If somebody forges datagrams, TCP shows what they say.
                work.excluded[key_of(name, rtype)].add(None)
                server = next((one for one in self._addresses(zone) if one in excluded), None)
            if server is None or len(tried) >= NS_MOST and server not in tried:
                break
            work.sent += 1
            if work.sent > self.work:
                raise DNS_Runaway_Query_Error(to_text(name), str(rtype), server[0])
            if work.left() <= 0:
                raise DNS_Soft_Error(to_text(name), str(rtype), server[0], "no time is left")
            tries = tried.get(server, 0)
            tried[server] = most
            try:
                reply = self.network.ask(
                    server, name, rtype, forward, work.left(), self.validator is not None, tries=tries, stream=insist
                )
            except BadReply as e:
                only_lame = False
                if len(errors) < 8:
                    errors.append(f"{server[0]}: {e}")
                silent += 1
                if not insist:  # a server that has refused a connection, say, gets one more chance
                    tried[server] = tries + 1 if e.silent else max(tries + 1, most - 1)
                if minimised and silent >= TRIES_MINIMISED:
                    return None
                continue
            if any(kind in SIZES and len(data) != SIZES[kind] for _, kind, _, _, data in reply.answer):
                errors.append(f"{server[0]}: an address of a wrong length")
                only_lame = False
                continue
            if reply.rcode not in (0, NXDOMAIN) and not self._is_too_long(zone, name, reply):
                if minimised:
                    return None
                # It counts for this question: a server may refuse a type, and know all others.
                errors.append(f"{server[0]}: response code {reply.rcode}")
                only_lame = only_lame and reply.rcode == REFUSED
                continue
            doubt = self._doubt(zone, name, rtype, reply, forward)
            if doubt:
                if spare is None or doubt < spare[0]:
                    spare = doubt, server, reply
                continue
            got = self._read(zone, server, name, rtype, reply, forward or reply.authoritative, forward)
            if got is not None:
                return got
            if any(kind == NS for _, kind, _, _, _ in reply.authority):
                self._mark_lame(zone, server)
            errors.append(f"{server[0]}: it does not know the zone")
        if minimised and len(errors) > silent:
            return None
        text = "; ".join(errors) or "no address of any server is known"
        if errors and only_lame:
            raise DNS_Lame_Error(to_text(name), str(rtype), [(0, to_text(ns)) for ns in zone.names])
        raise DNS_Soft_Error(to_text(name), str(rtype), "", f"all servers of {to_text(zone.zone)} failed: {text}")

    def _next(
        self, zone: Delegation, servers: list[Address], tried: dict[Address, int], most: int, forward: bool
    ) -> Address | None:
        """The server to ask: one that has not been asked and knows the zone, one that has not been asked, the one that
        has been asked least; None if all have been asked often enough."""
        fresh = [server for server in servers if server not in tried]
        some = [server for server in fresh if not self._is_lame(zone, server)] or fresh
        if not some:
            least = min((tried[server] for server in servers), default=most)
            if least >= most:
                return None
            some = [server for server in servers if tried[server] == least]
        return some[0] if forward else self.network.in_order(some)[0]

    def _is_lame(self, zone: Delegation, server: Address) -> bool:
        """Did the server send us away when it was asked for the zone a short time ago? Then it is asked last."""
        return self.lame.get((zone.zone, server), 0) >= time.monotonic()

    def _mark_lame(self, zone: Delegation, server: Address) -> None:
        if len(self.lame) > 10_000:
            self.lame.clear()
        self.lame[zone.zone, server] = time.monotonic() + LAME_FOR

    @staticmethod
    def _is_too_long(zone: Delegation, name: bytes, reply: _wire.Message) -> bool:
        """Does the reply show that an alias leads to an impossible name? YXDOMAIN with other records is an error."""
        return reply.rcode == YXDOMAIN and any(
            kind == DNAME and klass == IN and owner != name and below(name, owner) and below(owner, zone.zone)
            for owner, kind, klass, *_ in reply.answer
        )

    @staticmethod
    def _doubt(zone: Delegation, name: bytes, rtype: int, reply: _wire.Message, forward: bool) -> int:
        """0 for a reply to be read at once. Otherwise it is believed if there is no better one: DOUBTFUL for an answer
        of a server that is no authority (load balancers in the place of name servers do not say that they are one),
        RECURSED if it recurses, so that the answer comes from somebody else's cache, EMPTY for an empty reply, which
        some servers give for what they do not know. A delegation is none of these, whatever proof is in it."""
        has_answer = any(
            owner == name and kind in (rtype, CNAME) or kind == DNAME and below(name, owner)
            for owner, kind, *_ in reply.answer
        )
        has_soa = any(
            kind == SOA and below(name, owner) and below(owner, zone.zone) for owner, kind, *_ in reply.authority
        )
        kinds = {kind for _, kind, *_ in reply.authority}
        if reply.rcode == 0 and not reply.answer and not kinds:
            return EMPTY if reply.authoritative or forward or not reply.flags & RA else 0
        if forward or reply.authoritative:
            return 0
        is_denial = has_soa or (bool(kinds & {NSEC, NSEC3}) and NS not in kinds) or reply.rcode == NXDOMAIN
        if not has_answer and not is_denial:
            return 0
        return RECURSED if reply.flags & RA else DOUBTFUL

    def _ask_parent(self, zone: Delegation, work: Work) -> bool:
        """Ask the servers of the zone above for addresses of servers that are below the zone itself: they should have
        come with the delegation. Is there one now?"""
        names = [ns for ns in zone.names if below(ns, zone.zone) and ns not in zone.addresses]
        if not names or len(zone.zone) == 1:
            return False
        above, forward = self._closest(parent(zone.zone))
        for ns in names[:GLUELESSNESS]:
            if work.targets >= TARGETS_MOST or len(work.stack) >= DEPTH_MOST or ns in work.stack:
                break
            work.targets += 1
            work.stack.append(ns)
            try:
                got = self._ask_zone(above, ns, A, forward, work)
            except DNS_Runaway_Query_Error:
                raise
            except DNS_Soft_Error:
                continue
            finally:
                work.stack.pop()
            if isinstance(got, Delegation) and got.zone == zone.zone and got.addresses:
                zone.addresses.update(got.addresses)
                return True
            if isinstance(got, Found) and got.rtype == A and got.entry.data:
                zone.addresses[ns] = tuple(_text_of(data) for data in got.entry.data[:8])
                return True
        return False

    def _find_server(self, zone: Delegation, work: Work, looked: int) -> bool:
        """Look for the address of one more server of the zone. False: there are none, or it would be too much."""
        candidates = [ns for ns in zone.names if ns not in zone.glue and not below(ns, zone.zone)]
        if looked >= min(len(candidates), GLUELESSNESS):
            return False
        if work.targets >= TARGETS_MOST or len(work.stack) >= DEPTH_MOST:
            return False
        ns = candidates[looked]
        if ns in work.stack:
            return True  # a loop: whoever is looking for it already needs it for this
        work.targets += 1
        work.stack.append(ns)
        try:
            self._resolve(ns, A, work, True, False)
            if self.ipv6:
                self._resolve(ns, AAAA, work, True, False)
        except DNS_Runaway_Query_Error:
            raise
        except DNS_Soft_Error:
            # What came with the delegation of its own zone is good for asking, too.
            known = self._closest(ns)[0].addresses.get(ns)
            if known:
                zone.addresses[ns] = known
        finally:
            work.stack.pop()
        return True

    # -- what a reply says

    def _read(
        self,
        zone: Delegation,
        server: Address,
        name: bytes,
        rtype: int,
        reply: _wire.Message,
        usable: bool,
        forward: bool = False,
    ) -> Found | Delegation | None:
        """Keep what may be believed, and say what it is; None if the server does not know the zone. `usable`: it may
        answer, otherwise it can delegate only."""
        found = self._read_answer(zone, server, name, rtype, reply, forward) if usable else None
        if found is not None:
            return found
        if reply.rcode == YXDOMAIN:
            return None
        if reply.rcode == 0 and not forward:
            delegation = self._read_referral(zone, name, reply)
            if delegation is not None:
                return delegation
        soa = next(
            (
                (owner, data)
                for owner, kind, klass, _, data in reply.authority
                if kind == SOA and klass == IN and below(name, owner) and below(owner, zone.zone) and len(data) >= 22
            ),
            None,
        )
        if not usable or (soa is None and any(record[1] == NS for record in reply.authority)):
            return None
        hard = reply.rcode == NXDOMAIN
        ttl = 0
        if soa is not None:
            its = next(r[3] for r in reply.authority if r[1] == SOA and r[0] == soa[0])
            ttl = min(its, int.from_bytes(soa[1][-4:], "big"), NEGATIVE_MOST)  # RFC 2308, section 5
        entry = Entry(time.monotonic() + ttl, ttl, (), soa, hard, self._signed(zone, server, reply, ()))
        if soa is not None:
            self.entries.put(key_of(name, 0 if hard else rtype), entry)
        return Found(entry, rtype, name)

    def _read_answer(
        self, zone: Delegation, server: Address, name: bytes, rtype: int, reply: _wire.Message, forward: bool
    ) -> Found | None:
        """The records of the question, and aliases as far as the zone goes."""
        first: Found | None = None
        current = name
        sets: dict[tuple[bytes, int], tuple[int, list[bytes]]] = {}
        for owner, kind, klass, ttl, data in reply.answer:
            if klass == IN and below(owner, zone.zone):
                known = sets.setdefault((owner, kind), (ttl, []))
                sets[owner, kind] = (min(known[0], ttl), known[1])
                known[1].append(data)
        for _ in range(CNAMES_MOST):
            owner, kind = current, rtype
            above = self._dname_above(current, sets)
            if above:  # then an alias at the name is made of it, and has no signature (RFC 6672, section 5.3.1)
                owner, kind = above, DNAME
            elif (current, rtype) not in sets:
                kind = CNAME
                if (current, CNAME) not in sets:
                    break
            ttl, all_data = sets[owner, kind]
            ttl = min(max(ttl, self.minimum_ttl), TTL_MOST)
            unique = tuple(dict.fromkeys(all_data))
            if len(unique) > RECORDS_MOST or sum(map(len, unique)) > BYTES_MOST:
                break
            if kind in (CNAME, DNAME):
                unique = unique[:1]
            signatures = tuple(
                one for one in sets.get((owner, RRSIG), (0, []))[1] if int.from_bytes(one[:2], "big") == kind
            )[:SIGNATURES_KEPT]
            signed = self._signed(zone, server, reply, signatures)
            entry = Entry(time.monotonic() + ttl, ttl, unique, None, False, signed)
            self.entries.put(key_of(owner, kind), entry)
            first = first or Found(entry, kind, owner)
            if kind == rtype:
                break
            target = _wire.lower(unique[0])
            current = target if kind == CNAME else current[: -len(owner)] + target
            if len(current) > 255 or not (forward or below(current, zone.zone)):
                break
        return first

    def _signed(
        self, zone: Delegation, server: Address, reply: _wire.Message, signatures: tuple[bytes, ...]
    ) -> Signed | None:
        """The signatures of records, and the proofs that came with them, if anybody validates."""
        if self.validator is None:
            return None
        return Signed(signatures, self._proofs(zone, reply), server)

    @staticmethod
    def _proofs(zone: Delegation, reply: _wire.Message) -> tuple[RRset, ...]:
        proofs: dict[tuple[bytes, int], tuple[int, list[bytes], list[bytes]]] = {}
        for owner, kind, klass, ttl, data in reply.authority:
            covered = int.from_bytes(data[:2], "big") if kind == RRSIG else kind
            if klass == IN and covered in (SOA, NSEC, NSEC3) and below(owner, zone.zone):
                known = proofs.setdefault((owner, covered), (ttl, [], []))
                (known[2] if kind == RRSIG else known[1]).append(data)
        kept = [
            RRset(owner, kind, ttl, tuple(data), tuple(signed[:SIGNATURES_KEPT]))
            for (owner, kind), (ttl, data, signed) in proofs.items()
            if len(data) == 1
        ]
        return tuple(kept[:PROOFS_MOST])

    def _referred_ds(self, zone: Delegation, owner: bytes, reply: _wire.Message) -> Entry | None:
        """The DS records that came with a delegation, or the proof that there are none (RFC 4035, section 3.1.4). None
        if there is nothing signed: then they have to be asked for."""
        if self.validator is None:
            return None
        data: list[bytes] = []
        signatures: list[bytes] = []
        ttl = TTL_MOST
        for its, kind, klass, its_ttl, one in reply.authority:
            if its == owner and klass == IN and kind == DS:
                data.append(one)
                ttl = min(ttl, its_ttl)
            elif its == owner and klass == IN and kind == RRSIG and int.from_bytes(one[:2], "big") == DS:
                signatures.append(one)
        proof = () if data else self._proofs(zone, reply)
        if data:
            if not signatures or len(data) > RECORDS_MOST:
                return None
        elif any(one.signatures for one in proof):
            signatures = []
            ttl = min(one.ttl for one in proof)
        else:
            return None
        signed = Signed(tuple(signatures[:SIGNATURES_KEPT]), proof)
        return Entry(time.monotonic() + ttl, ttl, tuple(dict.fromkeys(data)), None, False, signed)

    @staticmethod
    def _dname_above(name: bytes, sets: dict[tuple[bytes, int], tuple[int, list[bytes]]]) -> bytes:
        """The owner of the DNAME record that applies to a name; empty if there is none."""
        while len(name) > 1:
            name = parent(name)
            if (name, DNAME) in sets:
                return name
        return b""

    def _read_referral(self, zone: Delegation, name: bytes, reply: _wire.Message) -> Delegation | None:
        owner = next((r[0] for r in reply.authority if r[1] == NS and r[2] == IN), None)
        if owner is None or any(r[1] == SOA for r in reply.authority):
            return None
        if owner == zone.zone or not below(owner, zone.zone) or not below(name, owner):
            return None
        names: dict[bytes, None] = {}
        ttl = TTL_MOST
        for its, kind, klass, its_ttl, data in reply.authority:
            if its == owner and kind == NS and klass == IN and len(names) < NS_MOST:
                names[_wire.lower(data)] = None
                ttl = min(ttl, its_ttl)
        addresses: dict[bytes, list[str]] = {}
        for its, kind, klass, _, data in reply.additional:
            if klass == IN and its in names and below(its, zone.zone) and (kind, len(data)) in ((A, 4), (AAAA, 16)):
                some = addresses.setdefault(its, [])
                if len(some) < 8:
                    some.append(_text_of(data))
        order = random.sample(list(names), len(names))
        # No longer than the delegation above: what a zone has delegated goes with it, if its parent takes it away.
        expires = min(time.monotonic() + max(ttl, 1), zone.expires)
        known = {host: tuple(texts) for host, texts in addresses.items()}
        delegation = Delegation(owner, expires, tuple(order), known, self._referred_ds(zone, owner, reply))
        self.delegations.put(owner, delegation)
        return delegation

    # -- keeping house

    def forget(self, name: bytes, subtree: bool = False) -> int:
        """Drop what is known of a name, or of everything at and below it; returns how many entries that were."""
        count = 0
        for key in self.entries.keys():
            if key[:-2] == name or (subtree and below(key[:-2], name)):
                count += self.entries.drop(key)
        for zone in self.delegations.keys():
            if zone == name or (subtree and below(zone, name)):
                count += self.delegations.drop(zone)
        self.failed.clear()
        self.lame.clear()
        return count


_EVERY: weakref.WeakSet[Recursor] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for one in list(_EVERY):
        one.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
