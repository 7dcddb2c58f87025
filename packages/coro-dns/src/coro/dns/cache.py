"""A recursive resolver with a cache: it asks the root, the servers that the root names, and so on, and trusts nobody
else. `dns_cache` is the resolver, `resolver` makes host names of its answers, `install` has coro's sockets use it.

How answers are found, and what is believed, is in `_recursive/recursor.py`.
"""

from __future__ import annotations

import ipaddress
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import coro
from coro.dns import _wire
from coro.dns._dnssec.anchors import anchors_of
from coro.dns._recursive import recursor as _recursor
from coro.dns._recursive.recursor import GLUELESSNESS, RUNAWAY, Answer, Recursor
from coro.dns._recursive.store import Entry
from coro.dns._stub.hosts import HostNames, put_in
from coro.dns._values import number_of, type_name, value_of, value_or_bytes
from coro.dns.exceptions import DNS_Hard_Error, DNS_Malformed_Qname_Error, DNS_Soft_Error

__all__ = [
    "GLUELESSNESS",
    "RUNAWAY",
    "CacheStatistics",
    "dns_cache",
    "domain_suffix",
    "install",
    "resolver",
    "root_anchors",
    "root_hints",
]

#: The root servers (www.iana.org/domains/root/servers), IPv4 first.
root_hints: list[str] = [
    "198.41.0.4", "170.247.170.2", "192.33.4.12", "199.7.91.13", "192.203.230.10", "192.5.5.241", "192.112.36.4",
    "198.97.190.53", "192.36.148.17", "192.58.128.30", "193.0.14.129", "199.7.83.42", "202.12.27.33",
    "2001:503:ba3e::2:30", "2801:1b8:10::b", "2001:500:2::c", "2001:500:2d::d", "2001:500:a8::e", "2001:500:2f::f",
    "2001:500:12::d0d", "2001:500:1::53", "2001:7fe::53", "2001:503:c27::2:30", "2001:7fd::1", "2001:500:9f::42",
    "2001:dc3::35",
]  # fmt: skip

#: The keys of the root (data.iana.org/root-anchors): those of 2017 and 2024.
root_anchors: list[str] = [
    ". DS 20326 8 2 E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D",
    ". DS 38696 8 2 683D2D0ACB8C9B712A1948B27F741219298D0A450D612C483AF444A4C0FB2B16",
]

_FOREVER = float("inf")


class CacheStatistics(NamedTuple):
    """What a cache has done."""

    #: Questions to ``query`` and ``answer``.
    requests: int
    #: Datagrams sent to servers.
    sent: int
    #: Look-ups that the cache could answer, those among them that said that there is nothing, and those it could not.
    hits: int
    negative_hits: int
    misses: int
    #: Entries found whose time was over.
    expired: int
    #: Entries renewed shortly before their end, and used after it because no server answered.
    prefetched: int
    served_stale: int
    #: Datagrams that were no reply to what was asked.
    forged: int
    #: Sets of records, and delegations, that are kept.
    entries: int
    delegations: int


def domain_suffix(above: str, name: str) -> bool:
    """Is ``name`` the domain ``above``, or below it? Letters count without their case, dots at the end not at all."""
    return _wire.below(_wire.from_text(name), _wire.from_text(above))


def _server(text: str | tuple[str, int], port: int) -> tuple[str, int]:
    host, port = text if isinstance(text, tuple) else (text, port)
    ipaddress.ip_address(host)  # ValueError with the text
    return host, port


def _is_public(host: str) -> bool:
    """Can a server be there? Not at this machine, nor at "any" (0.0.0.0/8), nor where many are."""
    address = ipaddress.ip_address(host)
    return not (address.is_loopback or address.is_unspecified or address.is_multicast or host.startswith("0."))


class dns_cache:
    """A caching, recursive resolver.

    ``cache_size`` is how many sets of records are kept at most. ``ttl_min`` is the least time in seconds for which
    records are used. ``roots`` are the addresses of root servers, each an address or a pair of an address and a port;
    None means ``root_hints``. ``port`` is where all other servers are asked.

    ``forward`` maps domains to the addresses of resolvers that are asked for names at or below them, in the order
    given; with an entry for ``""`` the root servers are never asked. ``source_ip`` is the address that queries come
    from. At most ``max_outstanding`` queries are open at a time. ``ipv6`` says whether servers are asked over IPv6,
    too. Servers on loopback addresses are asked only with ``loopback``: others could name them to have this machine ask
    itself.

    With ``trust_anchors`` answers are validated (DNSSEC, :rfc:`4035`): texts of zone files with DS or DNSKEY records,
    like ``root_anchors``; comments and parentheses may be in them. What is wrong then is a DNS_Bogus_Error. Needs the
    extra ``coro-dns[dnssec]``; without it questions raise DNS_Validation_Unavailable.

    Raises ValueError for an address or an anchor that is none.
    """

    def __init__(
        self,
        cache_size: int = 10_000,
        ttl_min: int = 0,
        *,
        roots: Iterable[str | tuple[str, int]] | None = None,
        port: int = 53,
        forward: Mapping[str, Sequence[str | tuple[str, int]]] | None = None,
        source_ip: str = "",
        max_outstanding: int = 500,
        ipv6: bool = False,
        loopback: bool = False,
        trust_anchors: Iterable[str] = (),
    ) -> None:
        hints = [_server(root, port) for root in (root_hints if roots is None else roots)]
        zones = {
            _wire.from_text(zone): ([_server(one, port) for one in servers], True)
            for zone, servers in (forward or {}).items()
        }
        self._recursor = Recursor(
            [hint for hint in hints if ipv6 or ":" not in hint[0]],
            zones,
            port=port,
            size=cache_size,
            most=max_outstanding,
            source=source_ip,
            minimum_ttl=ttl_min,
            accept=None if loopback else _is_public,
            ipv6=ipv6,
            anchors=anchors_of(trust_anchors),
        )
        self._requests = 0
        self._pin()

    @property
    def validates(self) -> bool:
        """Are answers validated?"""
        return self._recursor.validator is not None

    @property
    def max_outstanding(self) -> int:
        """How many queries may be open at a time."""
        return self._recursor.network.most

    def _pin(self) -> None:
        # RFC 6761, section 6.3
        pinned = self._recursor.pinned
        for name, rtype, data in (
            ("localhost", 1, b"\x7f\0\0\1"),
            ("localhost", 28, bytes(15) + b"\1"),
            ("1.0.0.127.in-addr.arpa", 12, _wire.from_text("localhost")),
            ("1." + "0." * 31 + "ip6.arpa", 12, _wire.from_text("localhost")),
        ):
            key = _recursor.key_of(_wire.from_text(name), rtype)
            pinned[key] = Entry(_FOREVER, 0, (data,))

    def answer(
        self,
        qname: str | bytes,
        qtype: str | int,
        timeout: float = 10.0,
        no_cache: bool = False,
        check: bool = True,
        dnssec: bool = False,
        charge: Callable[[int], object] | None = None,
    ) -> Answer:
        """All that is known about a question, for a server that hands it on: ``rcode``, ``authenticated`` (all of it is
        signed, and was validated), and the records of the sections ``answer`` and ``authority`` as tuples ``(owner,
        type, class, ttl, data)`` in wire form.

        ``qname`` is text or a name in wire form, ``qtype`` a name (``"MX"``) or number; ``timeout`` is in seconds, for
        everything together. With ``no_cache`` the cache is not looked at. Without ``check`` nothing is validated, with
        ``dnssec`` signatures and proofs are there, too, if the cache has trust anchors. ``charge`` is called with what
        the question has cost, whether there is an answer or not: datagrams sent, and signatures checked. Raises
        DNS_Soft_Error if nobody can tell, of that DNS_Bogus_Error if the answer is not signed as it has to be,
        DNS_Malformed_Qname_Error for what is no name, ValueError for an unknown type.
        """
        rtype = number_of(qtype)
        try:
            name = _wire.from_text(qname) if isinstance(qname, str) else _wire.lower(qname)
        except ValueError as e:
            raise DNS_Malformed_Qname_Error(str(qname), type_name(rtype), (1, str(e))) from None
        self._requests += 1
        work = _recursor.Work(time.monotonic() + timeout)
        try:
            return self._recursor.resolve(name, rtype, work, not no_cache, check, dnssec)
        finally:
            if charge is not None:
                charge(work.cost())

    def query(
        self, qname: str, qtype: str | int, no_cache: bool = False, timeout: float | None = None
    ) -> list[tuple[int, Any]]:
        """The records of a name and one type: ``[(ttl, data), ...]``. An empty list: the name exists, without such
        records.

        Aliases are followed. ``data`` is text for addresses and names, a tuple for MX, SOA, SRV and HINFO, a list of
        bytes for TXT, and bytes for all else. ``timeout`` is in seconds, for everything together; None means 10.

        Raises DNS_Hard_Error if the name does not exist, DNS_Malformed_Qname_Error if it cannot, and DNS_Soft_Error
        if nobody can tell, or if the data of a record does not fit its type.
        """
        rtype = number_of(qtype)
        found = self.answer(qname, rtype, 10.0 if timeout is None else timeout, no_cache)
        if found.rcode:
            why = "the name does not exist" if found.rcode == 3 else "the alias leads to an impossible name"
            raise DNS_Hard_Error(qname, type_name(rtype), (found.rcode, why))
        try:
            return [(ttl, value_of(rtype, data)) for ttl, data in found.chosen(rtype)]
        except ValueError as e:
            raise DNS_Soft_Error(qname, type_name(rtype), "", str(e)) from None

    def forget(self, name: str = "", subtree: bool = False) -> int:
        """Drop what is known about a name, with ``subtree`` about all names below it, too. Returns the number of
        entries."""
        return self._recursor.forget(_wire.from_text(name), subtree)

    def empty(self, pinned_as_well: bool = False) -> None:
        """Forget everything; ``localhost`` stays. ``pinned_as_well``: that is made new."""
        self._recursor.forget(b"\0", True)
        if pinned_as_well:
            self._recursor.pinned.clear()
            self._pin()

    def dump(self) -> list[tuple[str, str, int, list[Any]]]:
        """What the cache holds: name, type, seconds left and data of each entry. The type ``"NXDOMAIN"`` is a name that
        does not exist; no data means that there is none of that type. What does not fit its type is shown as bytes."""
        out = []
        now = time.monotonic()
        for key in self._recursor.entries.keys():
            entry = self._recursor.entries.peek(key)
            rtype = int.from_bytes(key[-2:], "big")
            if entry is not None and entry.expires >= now:
                data = [value_or_bytes(rtype, one) for one in entry.data]
                kind = type_name(rtype) if rtype else "NXDOMAIN"
                out.append((_wire.to_text(key[:-2]), kind, entry.left(now), data))
        return out

    def statistics(self) -> CacheStatistics:
        """Counters since the beginning."""
        r = self._recursor
        return CacheStatistics(
            self._requests, r.network.sent, r.hits, r.negative_hits, r.misses, r.expired, r.prefetched, r.served_stale,
            r.network.forged, len(r.entries), len(r.delegations),
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<dns_cache with {len(self._recursor.entries)} entries, {self._recursor.network.sent} datagrams sent>"


class resolver(HostNames):
    """Host names to addresses by a ``dns_cache``, for ``coro.set_resolver``. ``cache`` is the one to use; None makes a
    new one. The file ``hosts`` is looked at before."""

    def __init__(self, cache: dns_cache | None = None, hosts: str = "/etc/hosts") -> None:
        """``cache``: the ``dns_cache`` to ask, or None for a new one. ``hosts``: the path of a file like /etc/hosts."""
        super().__init__(hosts)
        self.cache = dns_cache() if cache is None else cache

    def gethostbyname(self, name: str, qtype: str = "A") -> str:
        """One of the addresses of a name, chosen by chance; ``qtype`` is ``"A"`` or ``"AAAA"``. Raises coro.NameError
        if there is none."""
        return random.choice(self.resolve_all(name, coro.AF.INET if qtype == "A" else coro.AF.INET6))

    def _find(self, name: str, rtype: int) -> tuple[list[bytes], str]:
        found = self.cache.answer(name, rtype)
        if found.rcode:
            return [], ""
        data = [one for _, one in found.chosen(rtype)]
        owners = [record[0] for record in found.answer if record[1] == rtype]
        canonical = _wire.to_text(owners[0]) if owners else name.removesuffix(".").lower()
        return random.sample(data, len(data)), canonical


def install(cache: dns_cache | None = None) -> Any:
    """Have ``connect`` of coro's sockets, and the emulated ``socket`` module, find host names by recursion; returns the
    resolver before. ``cache``: the ``dns_cache`` to ask, or None for a new one. ``coro.dns.uninstall`` undoes it."""
    return put_in(resolver(cache))
