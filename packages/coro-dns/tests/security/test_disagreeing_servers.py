"""Servers of a signed zone that say different things: one has an old copy, or leaves out signatures, or somebody forges
what it says. What is right is found, whichever part is wrong, and nothing wrong is believed."""

from __future__ import annotations

import time

import pytest
from dns_forged import Signing, World
from dns_support import NET, fakes, in_loop, name, record, reply, soa

import coro
from coro.dns import DNS_Bogus_Error, _wire
from coro.dns._dnssec.validator import BOGUS_FOR, DISAGREE_FOR
from coro.dns._recursive.recursor import ROOT, Recursor, key_of
from coro.dns._recursive.store import Entry, Signed
from coro.dns.packet import TYPE, rdata_from_text

A, DS, DNSKEY, NSEC = TYPE.A, TYPE.DS, TYPE.DNSKEY, TYPE.NSEC
WWW = name("www.bank.test")


def world_of_names():
    """With a proof that nothing is delegated at the name that is asked for."""
    world = World()
    world.put("www.bank.test", DS, (), world.bank.one("www.bank.test", NSEC, "bank.test. A") + world.bank.soa())
    return world


def resolver_of(world, servers, numbers):
    all_of_them = [(f"{NET}.{number}", servers.port) for number in numbers]
    return Recursor([], {ROOT: (all_of_them, True)}, port=servers.port, anchors={ROOT: [world.root.ds()]})


def expired(zone, owner, kind, data):
    return zone.one(owner, kind, data, since=-2000, until=-1000)


def wrong_replies(world):
    """Question -> reply that does not hold, for each part of the chain."""
    other = Signing("bank.test")
    forged = [record("www.bank.test", A, "6.6.6.6")]
    return {
        "old answer": ("www.bank.test", A, expired(world.bank, "www.bank.test", A, "192.0.2.1"), ()),
        "answer without signatures": ("www.bank.test", A, forged, ()),
        "answer signed by another": ("www.bank.test", A, other.one("www.bank.test", A, "6.6.6.6"), ()),
        "no such records": ("www.bank.test", A, (), world.bank.soa()),
        "old keys": ("bank.test", DNSKEY, expired(world.bank, "bank.test", DNSKEY, world.bank.key.data), ()),
        "keys of another": ("bank.test", DNSKEY, other.one("bank.test", DNSKEY, other.key.data), ()),
        "no keys": ("bank.test", DNSKEY, (), [soa("bank.test")]),
        "old DS": ("bank.test", DS, expired(world.test, "bank.test", DS, world.bank.ds()), ()),
        "DS without signatures": ("bank.test", DS, [(name("bank.test"), DS, 1, 300, other.ds())], ()),
        "no DS, not shown": ("bank.test", DS, (), world.test.soa()),
        "keys of the zone above": ("test", DNSKEY, (), [soa("test")]),
    }


def wrong_server(world, what):
    owner, kind, answer, authority = wrong_replies(world)[what]

    def server(query):
        if (query.qname, query.qtype) == (name(owner), kind):
            return reply(query, answer, authority)
        return world.answer(query)

    return server


PARTS = list(wrong_replies(World()))


@pytest.mark.parametrize("what", PARTS)
@in_loop
def test_the_other_server_is_right(what):
    world = world_of_names()
    with fakes({1: wrong_server(world, what), 2: world.answer}) as servers:
        r = resolver_of(world, servers, (1, 2))
        answer = r.resolve(WWW, A)
        assert answer.authenticated and answer.chosen(A)[0][1] == bytes((192, 0, 2, 1))
        asked = len(servers.asked)
        assert r.resolve(WWW, A).authenticated and len(servers.asked) == asked, "what is right is kept"
        assert not r.validator.bogus


@pytest.mark.parametrize("what", PARTS)
@in_loop
def test_all_servers_are_wrong(what):
    world = world_of_names()
    with fakes({number: wrong_server(world, what) for number in (1, 2, 3)}) as servers:
        r = resolver_of(world, servers, (1, 2, 3))
        for _ in range(2):
            with pytest.raises(DNS_Bogus_Error, match="validation failed"):
                r.resolve(WWW, A)
        owner, kind, _, _ = wrong_replies(world)[what]
        assert sorted(number for number, text, t in servers.asked if (text, t) == (owner, kind)) == [1, 2, 3]


@in_loop
def test_a_verdict_is_short_where_servers_disagree():
    for parts, seconds in ((("old answer", "no such records"), DISAGREE_FOR), (("old answer",) * 2, BOGUS_FOR)):
        world = World()
        first = wrong_server(world, parts[0])
        second = first if parts[0] == parts[1] else wrong_server(world, parts[1])
        if parts[0] == parts[1]:
            old = expired(world.bank, "www.bank.test", A, "192.0.2.1")
            world.put("www.bank.test", A, old)
            first = second = world.answer
        with fakes({1: first, 2: second}) as servers:
            r = resolver_of(world, servers, (1, 2))
            with pytest.raises(DNS_Bogus_Error):
                r.resolve(WWW, A)
            until = r.entries.get(key_of(WWW, A)).signed.until - time.monotonic()
            assert seconds - 5 < until <= seconds


@in_loop
def test_who_asks_meanwhile_gets_what_was_found_at_last():
    world = world_of_names()
    with fakes({1: wrong_server(world, "old answer"), 2: world.answer}) as servers:
        r = resolver_of(world, servers, (1, 2))
        threads = [coro.spawn(r.resolve, WWW, A) for _ in range(20)]
        assert all(thread.get().authenticated for thread in threads)
        assert sum(text == "www.bank.test" and kind == A for _, text, kind in servers.asked) == 2


@in_loop
def test_the_only_server_is_asked_over_tcp():
    """Whoever can forge a datagram cannot forge a connection: what it says decides."""
    world = world_of_names()
    with fakes({1: wrong_server(world, "answer signed by another")}) as servers:
        listener = coro.tcp_sock()
        listener.bind(servers.root)
        listener.listen()

        def serve():
            sock, _ = listener.accept()
            message = world.answer(_wire.parse(sock.recv_exact(int.from_bytes(sock.recv_exact(2), "big"))))
            sock.send(len(message).to_bytes(2, "big") + message)
            sock.close()

        thread = coro.spawn(serve)
        r = resolver_of(world, servers, (1,))
        assert r.resolve(WWW, A).authenticated
        thread.join()
        listener.close()


@in_loop
def test_work_is_bounded_however_many_servers_there_are():
    world = World()
    numbers = range(1, 16)
    with fakes({number: wrong_server(world, "answer signed by another") for number in numbers}) as servers:
        r = resolver_of(world, servers, numbers)
        with pytest.raises(DNS_Bogus_Error):
            r.resolve(WWW, A)
        assert sum(text == "www.bank.test" for _, text, _ in servers.asked) <= 6


@in_loop
def test_what_is_right_for_one_name_is_no_answer_for_another():
    """A forged "does not exist" about a name is there for all names below it; each has its own answer instead."""
    world = world_of_names()
    with fakes({1: world.answer, 2: world.answer}) as servers:
        r = resolver_of(world, servers, (1, 2))
        entry = Entry(time.monotonic() + 300, 300, (), (ROOT, soa(".")[4]), True, Signed((), (), servers.root))
        r.entries.put(key_of(name("test"), 0), entry)
        plain = r.resolve(name("www.plain.test"), A)
        assert plain.answer and not plain.authenticated
        entry.expires = time.monotonic() + 300  # as for those that have found it meanwhile
        answer = r.resolve(WWW, A)
        assert answer.authenticated and [one[0] for one in answer.answer] == [WWW]


# -- delegations with DS records


def tree(world, ds, *, proof=()):
    """A root that delegates `test` with these records beside the delegation, and the server of `test`."""

    def root(query):
        if query.qname == ROOT or query.qtype == DS:
            return world.answer(query)
        glue = [record("ns.test", A, f"{NET}.2")]
        return reply(query, (), [record("test", TYPE.NS, "ns.test"), *ds, *proof], glue, aa=False)

    return {1: root, 2: world.answer}


@pytest.mark.parametrize("what", ["good", "old", "of another", "none"])
@in_loop
def test_ds_records_beside_a_delegation(what):
    """They are taken, so they are not asked for; if they are wrong or missing, they are."""
    world = World()
    ds = {
        "good": world.root.one("test", DS, world.test.ds()),
        "old": expired(world.root, "test", DS, world.test.ds()),
        "of another": world.root.one("test", DS, Signing("test").ds()),
        "none": (),
    }[what]
    world.put("www.test", A, world.test.one("www.test", A, "192.0.2.1"))
    with fakes(tree(world, ds)) as servers:
        r = Recursor([servers.root], port=servers.port, anchors={ROOT: [world.root.ds()]})
        if what == "of another":  # signed by the root: then the zone is wrong, whoever is asked
            with pytest.raises(DNS_Bogus_Error):
                r.resolve(name("www.test"), A)
        else:
            assert r.resolve(name("www.test"), A).authenticated
        assert ("test", DS) in [one[1:] for one in servers.asked] or what in ("good", "of another")
        if what == "good":
            assert ("test", DS) not in [one[1:] for one in servers.asked]


@in_loop
def test_the_proof_beside_a_delegation_that_a_zone_is_not_signed():
    world = World()
    proof = world.root.one("test", NSEC, "z. NS")
    world.put("www.test", A, [record("www.test", A, "192.0.2.1")])
    world.replies.pop(("test", DS))
    with fakes(tree(world, (), proof=proof)) as servers:
        r = Recursor([servers.root], port=servers.port, anchors={ROOT: [world.root.ds()]})
        answer = r.resolve(name("www.test"), A)
        assert answer.answer and not answer.authenticated
        assert ("test", DS) not in [one[1:] for one in servers.asked]


@in_loop
def test_a_proof_beside_a_delegation_that_shows_something_else():
    """A proof of another name, or of the name with DS records, makes no zone unsigned."""
    for owner, text in (("a", "b. NS"), ("test", "z. NS DS")):
        world = World()
        proof = world.root.one(owner, NSEC, text)
        world.put("www.test", A, [record("www.test", A, "6.6.6.6")])
        with fakes(tree(world, (), proof=proof)) as servers:
            r = Recursor([servers.root], port=servers.port, anchors={ROOT: [world.root.ds()]})
            with pytest.raises(DNS_Bogus_Error):
                r.resolve(name("www.test"), A)


@in_loop
def test_an_anchor_of_an_unknown_algorithm():
    """Nobody can tell anything from it, so the zone counts as not signed (RFC 4035, section 5.2)."""
    world = World()
    ds = rdata_from_text(DS, "1 250 2 " + 64 * "0")
    with world.resolver({ROOT: [ds]}) as r:
        answer = r.resolve(WWW, A)
        assert answer.answer and not answer.authenticated
    with world.resolver({ROOT: [ds, world.root.ds()]}) as r:
        assert r.resolve(WWW, A).authenticated
    world.put("www.bank.test", A, [record("www.bank.test", A, "6.6.6.6")])
    with world.resolver({ROOT: [ds, world.root.ds()]}) as r, pytest.raises(DNS_Bogus_Error):
        r.resolve(WWW, A)


@in_loop
def test_the_alias_below_a_signed_dname_as_the_question():
    """The alias that a server makes of it has no signature (RFC 6672, section 5.3.1)."""
    world = World()
    made = world.bank.one("dn.bank.test", TYPE.DNAME, name("bank.test"))
    made.append(record("www.dn.bank.test", TYPE.CNAME, "www.bank.test"))
    for kind in (TYPE.CNAME, A):
        world.put("www.dn.bank.test", kind, made)
    for first in (TYPE.CNAME, A):
        with world.resolver() as r:
            assert r.resolve(name("www.dn.bank.test"), first).authenticated
            answer = r.resolve(name("www.dn.bank.test"), TYPE.CNAME)
            assert answer.authenticated and [one[1] for one in answer.answer] == [TYPE.DNAME, TYPE.CNAME]
    forged = [record("www.dn.bank.test", TYPE.CNAME, "www.evil"), *made[:-1]]
    world.put("www.dn.bank.test", TYPE.CNAME, forged)
    with world.resolver() as r:
        assert r.resolve(name("www.dn.bank.test"), TYPE.CNAME).answer[-1][4] == WWW, "made here, not copied"
