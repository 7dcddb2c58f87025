"""Hostile servers against the recursive resolver: each test is named after what is tried."""

from __future__ import annotations

import time

import pytest
from dns_support import NET, fakes, in_loop, name, record, reply, soa

import coro
from coro.dns import DNS_Runaway_Query_Error, DNS_Soft_Error, _wire
from coro.dns._recursive.recursor import RUNAWAY, TARGETS_MOST, Recursor
from coro.dns.cache import dns_cache, resolver
from coro.dns.stub_resolver import stub_resolver

A, NS, CNAME = 1, 2, 5


def recursor(servers, **settings):
    return Recursor([servers.root], port=servers.port, **settings)


def refer(query, zone, number, **settings):
    """The root's or a parent's reply: ask the server at NET.number."""
    host = f"ns.{zone}".rstrip(".")
    return reply(
        query,
        authority=[record(zone, NS, host, **settings)],
        additional=[record(host, A, f"{NET}.{number}")],
        aa=False,
    )


def answered(answer):
    return [data for _, data in answer.chosen(A)]


ADDRESS = bytes((192, 0, 2, 1))
FORGED = bytes((6, 6, 6, 6))


@in_loop
def test_forged_replies_do_not_end_the_wait():
    """TuDoor, CVE-2023-29483: a bad datagram is as if it had not come; and none of them becomes an answer."""

    def server(query):
        forged = [record(_wire.to_text(query.qname), A, "6.6.6.6")]
        right = reply(query, [record(_wire.to_text(query.qname), A, "192.0.2.1")])
        other = _wire.build(query.id, 0x8400, name("other.test"), A, 1, forged)
        lower = query.question.lower() if query.question.lower() != query.question else query.question.upper()
        return [
            b"",
            b"\0" * 5,
            right[:20],
            right + b"junk",
            right[:2] + bytes((right[2] & 0x7F,)) + right[3:],  # no reply
            reply(query, forged, ident=query.id ^ 1),  # another id
            other,  # another question
            _wire.build(query.id, 0x8400, lower, query.qtype, 1, forged),  # letters of another case
            _wire.build(query.id, 0x8400, query.question, 28, 1, forged),
            right,
        ]

    with fakes({1: server}) as servers:
        r = recursor(servers)
        assert answered(r.resolve(name("www.test"), A)) == [ADDRESS]
        assert r.network.forged >= 9


@in_loop
def test_ports_and_ids_are_new_for_each_query():
    """CVE-2008-1447, and resolvers that lost their ports' randomness later."""
    seen = []

    def server(query):
        seen.append(query.id)
        return reply(query, [record(_wire.to_text(query.qname), A, "192.0.2.1")])

    with fakes({1: server}) as servers:
        r = recursor(servers)
        for i in range(40):
            r.resolve(name(f"n{i}"), A)
        assert len(set(seen)) >= 38
        assert len(set(servers.ports)) >= 30
        memory = r.network.memory(servers.root)
        asked = {r.network._query(memory, name("abcdefghij.test"), A, False, False)[1] for _ in range(20)}
        assert len(asked) > 15


@in_loop
def test_records_that_nobody_asked_for():
    """What stands beside an answer is not kept: CVE-2025-40778 and the poisoning of old."""

    def root(query):
        return refer(query, "evil", 2)

    def evil(query):
        text = _wire.to_text(query.qname)
        return reply(
            query,
            [record(text, A, "192.0.2.1"), record("www.bank", A, "6.6.6.6"), record("x.evil", A, "6.6.6.6")],
            [record("bank", NS, "ns.evil"), record(".", NS, "ns.evil"), record("evil", NS, "ns.other")],
            [record("www.bank", A, "6.6.6.6"), record("ns.bank", A, "6.6.6.6")],
        )

    with fakes({1: root, 2: evil}) as servers:
        r = recursor(servers)
        assert answered(r.resolve(name("www.evil"), A)) == [ADDRESS]
        kept = {_wire.to_text(key[:-2]) for key in r.entries.keys()}
        assert kept == {"www.evil"}
        assert [_wire.to_text(zone) for zone in r.delegations.keys()] == ["evil"]


@in_loop
def test_an_alias_into_another_zone_is_asked_there():
    """The target's address that comes with the alias is not believed."""

    def root(query):
        zone = _wire.to_text(query.qname).split(".")[-1]
        return refer(query, zone, 2 if zone == "evil" else 3)

    def evil(query):
        return reply(query, [record(_wire.to_text(query.qname), CNAME, "www.bank"), record("www.bank", A, "6.6.6.6")])

    def bank(query):
        return reply(query, [record(_wire.to_text(query.qname), A, "192.0.2.1")])

    with fakes({1: root, 2: evil, 3: bank}) as servers:
        r = recursor(servers)
        assert answered(r.resolve(name("www.evil"), A)) == [ADDRESS]


@in_loop
def test_a_referral_upwards_or_aside():
    """Only down, and towards the name."""

    def root(query):
        return refer(query, "evil", 2)

    for zone in (".", "evil", "bank", "other.evil"):

        def evil(query, zone=zone):
            return refer(query, zone, 2)

        with fakes({1: root, 2: evil}) as servers:
            with pytest.raises(DNS_Soft_Error):
                recursor(servers).resolve(name("www.evil"), A)
            assert len(servers.asked) <= 6


@in_loop
def test_nxns():
    """NXNSAttack, CVE-2020-8616: a delegation to many servers without addresses makes few queries."""

    def root(query):
        zone = _wire.to_text(query.qname).split(".")[-1]
        return refer(query, zone, 2 if zone == "evil" else 3)

    def evil(query):
        text = _wire.to_text(query.qname)
        return reply(query, authority=[record(text, NS, f"n{i}.victim") for i in range(1000)], aa=False)

    def victim(query):
        return reply(query, authority=[soa("victim", 0, 0)], rcode=3)

    with fakes({1: root, 2: evil, 3: victim}) as servers:
        r = recursor(servers)
        with pytest.raises(DNS_Soft_Error):
            r.resolve(name("www.evil"), A)
        assert sum(number == 3 for number, _, _ in servers.asked) <= 8
        assert r.network.sent <= RUNAWAY


@in_loop
def test_delegations_without_end():
    """Each reply delegates to servers whose addresses need another look-up: what one question may cause is bounded."""

    def root(query):
        return refer(query, _wire.to_text(query.qname).split(".")[-1], 2)

    count = iter(range(10**9))

    def evil(query):
        text = _wire.to_text(query.qname)
        names = [f"ns.a{next(count)}.evil" for _ in range(20)]
        return reply(query, authority=[record(text, NS, one) for one in names], aa=False)

    with fakes({1: root, 2: evil}) as servers:
        r = recursor(servers)
        with pytest.raises(DNS_Soft_Error):
            r.resolve(name("a.b.c.d.e.f.g.evil"), A)
        assert len(servers.asked) <= RUNAWAY + 2
        assert len(servers.asked) <= RUNAWAY and TARGETS_MOST == 20


@in_loop
def test_a_zone_of_very_many_labels():
    """QNAME minimisation sends a bounded number of queries (RFC 9156, section 2.3)."""

    def root(query):
        return reply(query, authority=[soa(".")])

    with fakes({1: root}) as servers:
        r = recursor(servers)
        assert r.resolve(name(".".join("abcdefghij" * 6)), A).answer == []
        assert len(servers.asked) <= 12


@in_loop
def test_alias_chains_without_end():
    count = iter(range(10**9))

    def root(query):
        return reply(query, [record(_wire.to_text(query.qname), CNAME, f"n{next(count)}")])

    with fakes({1: root}) as servers:
        with pytest.raises(DNS_Soft_Error, match="aliases"):
            recursor(servers).resolve(name("www"), A)
        assert len(servers.asked) <= 13


@in_loop
def test_cacheflush():
    """Replies full of delegations and aliases take little room in the cache: one delegation, and one chain."""

    def root(query):
        text = _wire.to_text(query.qname)
        chain = [record(text, CNAME, "c0.evil")] + [record(f"c{i}.evil", CNAME, f"c{i + 1}.evil") for i in range(500)]
        return reply(query, chain)

    with fakes({1: root}) as servers:
        r = recursor(servers, size=100)
        with pytest.raises(DNS_Soft_Error):
            r.resolve(name("www.evil"), A)
        assert len(r.entries) <= 40
        for i in range(1000):
            r.entries.put(name(f"n{i}") + b"\0\1", r.entries.get(r.entries.keys()[0]))
        assert len(r.entries) <= 100


@in_loop
def test_ghost_domains():
    """The servers of a zone cannot prolong their delegation, whatever they answer."""

    def root(query):
        return refer(query, "evil", 2, ttl=1)

    def evil(query):
        text = _wire.to_text(query.qname)
        return reply(query, [record(text, A, "192.0.2.1", 0)], [record("evil", NS, "ns.evil", 86400)])

    with fakes({1: root, 2: evil}) as servers:
        r = recursor(servers)
        for _ in range(3):
            r.resolve(name("www.evil"), A)
        delegation = r.delegations.get(name("evil"))
        assert delegation.expires <= time.monotonic() + 1
        delegation.expires = 0.0
        r.resolve(name("www.evil"), A)
        assert [number for number, _, _ in servers.asked].count(1) == 2


@in_loop
def test_compression_pointers():
    """Loops, pointers forwards, and names that expand without end are no messages; so the wait goes on."""

    def server(query):
        head = query.id.to_bytes(2, "big") + b"\x84\0\0\1\0\1\0\0\0\0" + query.question + b"\0\1\0\1"
        bombs = [head + b"\xc0" + bytes((len(head),)) + bytes(20), head + b"\xff\xff" + bytes(20)]
        return [*bombs, reply(query, [record(_wire.to_text(query.qname), A, "192.0.2.1")])]

    with fakes({1: server}) as servers:
        assert answered(recursor(servers).resolve(name("www"), A)) == [ADDRESS]


@in_loop
def test_servers_at_forbidden_addresses():
    """A delegation to this machine is not followed."""

    def root(query):
        return refer(query, "evil", 2)

    with fakes({1: root, 2: lambda query: reply(query, [record("www.evil", A, "6.6.6.6")])}) as servers:
        r = recursor(servers, accept=lambda host: not host.startswith("127."))
        with pytest.raises(DNS_Soft_Error, match="no address"):
            r.resolve(name("www.evil"), A)
        assert {number for number, _, _ in servers.asked} == {1}


@in_loop
def test_the_budget_of_one_question():
    def root(query):
        return refer(query, "evil", 2)

    with fakes({1: root, 2: lambda query: reply(query, authority=[soa("evil")])}) as servers:
        with pytest.raises(DNS_Runaway_Query_Error):
            recursor(servers, work=3).resolve(name("a.b.c.d.e.evil"), A)
        assert len(servers.asked) == 3


@pytest.mark.parametrize(
    ("rtype", "data"),
    [(A, b"\1\2\3"), (A, b""), (A, bytes(16)), (28, bytes(4)), (15, b"\0"), (16, b"\5ab"), (33, b"\0\1"), (13, b"\1a"),
     (6, b"\0\0\0"), (12, b"")],
)  # fmt: skip
@in_loop
def test_data_that_does_not_fit_its_type(rtype, data):
    """The hosts of others get the documented error, and what shows the cache shows bytes."""

    def server(query):
        return reply(query, [(query.qname, rtype, 1, 300, data)], flags=0x80)

    with fakes({1: server}) as servers:
        cache = dns_cache(roots=[servers.root], port=servers.port, loopback=True)
        stub = stub_resolver([servers.root], hosts="/nonexistent", config="/nonexistent", attempts=1)
        for one in (cache, stub):
            try:
                one.query("1.2.0.192.in-addr.arpa", rtype, timeout=0.2)
            except DNS_Soft_Error:
                pass
            one.dump()
        if rtype in (A, 28):
            family = coro.AF.INET if rtype == A else coro.AF.INET6
            for hosts in (resolver(cache, hosts="/nonexistent"), stub):
                with pytest.raises((DNS_Soft_Error, coro.NameError)):
                    hosts.resolve_all("www.test", family)


@in_loop
def test_many_servers_at_one_address():
    """NRDelegation, CVE-2022-3204, and relatives: however many names its servers have, an address is asked once, or
    twice if it is silent."""

    def root(query):
        names = [f"ns{i}.evil" for i in range(20)]
        return reply(
            query,
            authority=[record("evil", NS, one) for one in names],
            additional=[record(one, A, f"{NET}.2") for one in names],
            aa=False,
        )

    with fakes({1: root, 2: lambda query: reply(query, rcode=2)}) as servers:
        with pytest.raises(DNS_Soft_Error):
            recursor(servers).resolve(name("www.evil"), A)
        assert [number for number, _, _ in servers.asked].count(2) <= 2


@in_loop
def test_a_flood_of_names_does_not_take_what_is_used():
    """What is asked for again and again stays, however many names of others come in between (CacheFlush)."""

    def server(query):
        return reply(query, [record(_wire.to_text(query.qname), A, "192.0.2.1")])

    with fakes({1: server}) as servers:
        r = recursor(servers, size=40)
        for i in range(100):
            r.resolve(name("www.bank"), A)
            r.resolve(name(f"n{i}.evil"), A)
        assert [one for _, one, _ in servers.asked].count("www.bank") == 1
        assert len(r.entries) <= 40


@pytest.mark.parametrize("cut", [False, True], ids=["one zone", "a zone for each name"])
@in_loop
def test_a_domain_has_a_share_of_the_cache(cut):
    """Whoever has one can have names and zones without end looked up; what others used once stays (CacheFlush)."""

    def root(query):
        text = _wire.to_text(query.qname)
        if cut and text.endswith("evil.com") and text != "evil.com":
            return refer(query, text, 2)
        return reply(query, [record(text, A, "192.0.2.1")])

    def zone(query):
        return reply(query, [record(_wire.to_text(query.qname), A, "192.0.2.1")])

    with fakes({1: root, 2: zone}) as servers:
        r = recursor(servers, size=200)
        for i in range(50):
            r.resolve(name(f"www.bank{i}.com"), A)
        for i in range(400):
            r.resolve(name(f"n{i}.evil.com"), A)
            assert len(r.entries) <= 200 and len(r.delegations) <= 100
        servers.asked.clear()
        for i in range(50):
            r.resolve(name(f"www.bank{i}.com"), A)
        # One domain of 4096 may share its place with the attacker's.
        assert len(servers.asked) <= 2
        assert r.resolve(name("n399.evil.com"), A).answer and len(servers.asked) <= 2


@in_loop
def test_ports_are_new_with_an_address_of_its_own_too():
    """CVE-2026-50252 was about ports that lost their randomness when sockets shared them."""
    with fakes({1: lambda query: reply(query, [record(_wire.to_text(query.qname), A, "192.0.2.1")])}) as servers:
        r = recursor(servers, source="127.0.0.1")
        for i in range(40):
            r.resolve(name(f"n{i}"), A)
        assert len(set(servers.ports)) >= 30


@in_loop
def test_a_server_that_denies_names_with_others_below():
    """Its NXDOMAIN for `b.zone`, which was asked for on the way, is forgotten when `a.b.zone` is there."""

    def zone(query):
        text = _wire.to_text(query.qname)
        if text.startswith(("a.", "c.")):
            return reply(query, [record(text, A, "192.0.2.1")])
        return reply(query, authority=[soa("zone")], rcode=3)

    with fakes({1: lambda query: refer(query, "zone", 2), 2: zone}) as servers:
        r = recursor(servers)
        for owner in ("a.b.zone", "c.b.zone"):
            assert answered(r.resolve(name(owner), A)) == [ADDRESS]
        assert r.resolve(name("d.b.zone"), A).rcode == 3


@in_loop
def test_one_formerr_does_not_take_edns_for_good(monkeypatch):
    """It may be forged: it has no question to fit. Without EDNS there are no signatures."""
    sizes = []

    def server(query):
        sizes.append(query.udp_size)
        if len(sizes) == 1:
            return _wire.build(query.id, 0x8001, None, 0, 0)
        return reply(query, [record(_wire.to_text(query.qname), A, "192.0.2.1")])

    with fakes({1: server}) as servers:
        r = recursor(servers)
        for owner in ("a", "b"):
            r.resolve(name(owner), A)
        assert sizes == [1232, 0, 0]
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + 901)
        assert not r.network.memory(servers.root).no_edns


@in_loop
def test_a_short_limit_says_nothing_about_a_server():
    """Whoever leaves little time for a server, with an alias that came late, cannot make it count as dead."""
    with fakes({1: lambda query: None}) as servers:
        r = recursor(servers)
        for owner in ("a", "b", "c", "d"):
            with pytest.raises(DNS_Soft_Error):
                r.resolve(name(owner), A, seconds=0.01)
        assert not r.network.memory(servers.root).failures
