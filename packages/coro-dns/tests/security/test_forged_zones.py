"""What the holder of a signed zone, or somebody between us and the servers, can do with records that are signed: show
them elsewhere, leave some out, say that a zone is not signed. Each test is named after what is tried."""

from __future__ import annotations

import time

import pytest
from dns_forged import Signing, World
from dns_support import in_loop, name, record, soa

import coro
from coro.dns import DNS_Bogus_Error, DNS_Soft_Error
from coro.dns._dnssec import signatures
from coro.dns._dnssec.signatures import Budget
from coro.dns._recursive.recursor import ROOT
from coro.dns.packet import TYPE

A = TYPE.A
FORGED = bytes((6, 6, 6, 6))


def forged(owner):
    return [record(owner, A, "6.6.6.6")]


@in_loop
def test_the_world_is_right():
    world = World()
    with world.resolver() as r:
        assert r.resolve(name("www.bank.test"), A).authenticated
        assert not r.resolve(name("www.plain.test"), A).authenticated
        world.put("ftp.bank.test", A, forged("ftp.bank.test"))
        with pytest.raises(DNS_Bogus_Error, match="validation failed"):
            r.resolve(name("ftp.bank.test"), A)


# -- proofs


def nsecs(world, *pairs):
    return [one for owner, text in pairs for one in world.bank.one(owner, TYPE.NSEC, text)]


@in_loop
def test_nxdomain_for_a_name_that_has_others_below():
    """An NSEC record that leads to a name below shows that the name exists (RFC 4035, section 5.4; RFC 8020), without
    records, whatever the response code; it hides none of those below."""
    world = World()
    proof = nsecs(world, ("a.bank.test", "x.m.bank.test. A"), ("bank.test", "a.bank.test. NS SOA")) + world.bank.soa()
    world.put("x.m.bank.test", A, world.bank.one("x.m.bank.test", A, "192.0.2.1"))
    for rcode in (3, 0):
        world.put("m.bank.test", A, (), proof, rcode)
        with world.resolver() as r:
            answer = r.resolve(name("m.bank.test"), A)
            assert answer.rcode == 0 and answer.authenticated and not answer.answer
            assert r.resolve(name("x.m.bank.test"), A).authenticated


@in_loop
def test_nxdomain_beside_a_wildcard_that_only_others_are_below():
    """`*.bank.test` is there if `x.*.bank.test` is, so other names are, too, without records (RFC 4592, 2.2.2)."""
    world = World()
    proof = nsecs(world, ("bank.test", "x.*.bank.test. NS SOA"), ("a.bank.test", "z.bank.test. A")) + world.bank.soa()
    for rcode in (3, 0):
        world.put("m.bank.test", A, (), proof, rcode)
        with world.resolver() as r:
            answer = r.resolve(name("m.bank.test"), A)
            assert answer.rcode == 0 and answer.authenticated and not answer.answer


@pytest.mark.parametrize("kind", [TYPE.NSEC, TYPE.NSEC3])
@in_loop
def test_proofs_that_are_none(kind):
    """Bytes that are no proof, signed by a zone that wants to see what happens."""
    world = World()
    owner = "bank.test" if kind == TYPE.NSEC else f"{'0' * 32}.bank.test"
    for data in (
        b"",
        b"\0",
        b"\1",
        b"\3ab",
        b"\x40" + bytes(70),
        b"\xc0\x0c",
        b"\1\0\0\1\xff",
        b"\0\0\xff",
        b"\1a" * 200,
    ):
        world.put("m.bank.test", A, (), world.bank.one(owner, kind, data) + world.bank.soa(), 3)
        with world.resolver() as r, pytest.raises(DNS_Bogus_Error):
            r.resolve(name("m.bank.test"), A)


@in_loop
def test_a_wildcard_beside_a_closer_name():
    """`x.m.bank.test` is not made of `*.bank.test` if `a.m.bank.test` exists (RFC 4592, section 3.3.1)."""
    world = World()
    wild = world.bank.one("*.bank.test", A, "192.0.2.7", shown="x.m.bank.test")
    world.put("x.m.bank.test", A, wild, nsecs(world, ("a.m.bank.test", "z.bank.test. A")))
    with world.resolver() as r:
        with pytest.raises(DNS_Bogus_Error, match="made of a wildcard"):
            r.resolve(name("x.m.bank.test"), A)
    world.put("x.m.bank.test", A, wild, nsecs(world, ("a.bank.test", "z.bank.test. A")))
    with world.resolver() as r:
        found = r.resolve(name("x.m.bank.test"), A, dnssec=True)
        assert found.authenticated and len(found.authority) == 2


@in_loop
def test_a_wildcard_for_a_name_that_exists():
    world = World()
    wild = world.bank.one("*.bank.test", A, "192.0.2.7", shown="www.bank.test")
    for proof in (
        (),
        nsecs(world, ("a.bank.test", "b.bank.test. A")),
        nsecs(world, ("www.bank.test", "z.bank.test. A")),
    ):
        world.put("www.bank.test", A, wild, proof)
        with world.resolver() as r, pytest.raises(DNS_Bogus_Error, match="made of a wildcard"):
            r.resolve(name("www.bank.test"), A)


@in_loop
def test_a_parent_speaks_for_its_child():
    """Proofs of the parent about the delegation, and about names below it (RFC 6840, section 4.1)."""
    world = World()
    own = world.test.one("bank.test", TYPE.NSEC, "c.test. NS DS RRSIG NSEC") + world.test.soa()
    apex = world.test.one("test", TYPE.NSEC, "bank.test. NS SOA")
    for owner, rcode in (("www.bank.test", 0), ("www.bank.test", 3), ("bank.test", 0)):
        world.put(owner, A, (), own + apex, rcode)
        with world.resolver() as r, pytest.raises(DNS_Bogus_Error, match="does not show"):
            r.resolve(name(owner), A)


@in_loop
def test_a_child_speaks_for_its_parent():
    """That there is no DS record is the parent's to say."""
    world = World()
    evil = Signing("bank.test")
    for signing in (world.bank, evil):
        proof = signing.one("bank.test", TYPE.NSEC, "a.bank.test. NS SOA RRSIG NSEC") + signing.soa()
        world.put("bank.test", TYPE.DS, (), proof)
        world.put("ftp.bank.test", A, forged("ftp.bank.test"))
        with world.resolver() as r, pytest.raises(DNS_Bogus_Error):
            r.resolve(name("ftp.bank.test"), A)


@in_loop
def test_forged_proofs_that_a_zone_is_not_signed():
    world = World()
    test = world.test
    world.put("ftp.bank.test", A, forged("ftp.bank.test"))
    unsigned = test.one("bank.test", TYPE.NSEC, "c.test. NS")
    for proof, rcode in (
        ((), 0),
        ([soa("test")], 0),
        (test.soa(), 0),
        (unsigned[:1] + test.soa(), 0),
        (Signing("test").one("bank.test", TYPE.NSEC, "c.test. NS") + test.soa(), 0),
        (test.one("bank.test", TYPE.NSEC, "c.test. NS", until=-1) + test.soa(), 0),
        (test.one("bank.test", TYPE.NSEC, "c.test. NS", since=50) + test.soa(), 0),
        (test.one("*.test", TYPE.NSEC, "c.test. NS", shown="bank.test") + test.soa(), 0),
        (test.one("a.test", TYPE.NSEC, "c.test. NS") + test.soa(), 0),
        (world.root.one("bank.test", TYPE.NSEC, "c.test. NS") + test.soa(), 0),
        ((), 3),
        (test.one("a.test", TYPE.NSEC, "c.test. A") + test.one("test", TYPE.NSEC, "a.test. NS SOA") + test.soa(), 3),
    ):
        world.put("bank.test", TYPE.DS, (), proof, rcode)
        with world.resolver() as r, pytest.raises(DNS_Soft_Error):
            r.resolve(name("ftp.bank.test"), A)


@in_loop
def test_ds_records_of_somebody_else():
    """Unsigned ones, others' digests, one that is made of a wildcard, an alias in their place."""
    world = World()
    evil = Signing("bank.test")
    world.put("bank.test", TYPE.DNSKEY, evil.one("bank.test", TYPE.DNSKEY, evil.key.data))
    world.put("ftp.bank.test", A, evil.signed(forged("ftp.bank.test")))
    for ds in (
        [(name("bank.test"), TYPE.DS, 1, 300, evil.ds())],
        evil.one("bank.test", TYPE.DS, evil.ds()),
        evil.one("bank.test", TYPE.DS, evil.ds(), signer=name("test")),
        world.test.one("bank.test", TYPE.DS, world.bank.ds()),
        world.test.one("bank.test", TYPE.DS, evil.ds(name("other.test"))),
        world.test.one("bank.test", TYPE.DS, evil.ds()[:-1]),
        world.test.one("*.test", TYPE.DS, evil.ds(), shown="bank.test"),
        world.test.one("*.test", TYPE.CNAME, "plain.test.", shown="bank.test"),
    ):
        world.put("bank.test", TYPE.DS, ds)
        with world.resolver() as r, pytest.raises(DNS_Soft_Error):
            r.resolve(name("ftp.bank.test"), A)


@in_loop
def test_algorithms_that_nobody_knows():
    """A zone with none but such DS records counts as not signed (RFC 4035, section 5.2); one that can be checked has
    to be right, and a SHA-1 digest does not count beside a better one (RFC 4509, section 3)."""
    world = World()
    evil = Signing("bank.test")
    world.put("bank.test", TYPE.DNSKEY, evil.one("bank.test", TYPE.DNSKEY, evil.key.data))
    world.put("ftp.bank.test", A, evil.signed(forged("ftp.bank.test")))
    unknown = [world.bank.ds()[:2] + bytes(numbers) + bytes(32) for numbers in ((99, 2), (13, 99))]

    def with_ds(all_data):
        world.put("bank.test", TYPE.DS, world.test.signed([(name("bank.test"), TYPE.DS, 1, 300, d) for d in all_data]))

    with_ds(unknown)
    with world.resolver() as r:
        assert not r.resolve(name("ftp.bank.test"), A).authenticated
    for some in ([*unknown, world.bank.ds()], [evil.ds(digest=1), world.bank.ds()]):
        with_ds(some)
        with world.resolver() as r, pytest.raises(DNS_Bogus_Error):
            r.resolve(name("ftp.bank.test"), A)


@in_loop
def test_signatures_of_others():
    """Of a sibling, in the name of the parent, of a zone below, of keys that are none of the zone's."""
    world = World()
    for signing, signer in (
        (Signing("evil.test"), "evil.test"),
        (Signing("test"), "test"),
        (Signing("."), "."),
        (world.root, "bank.test"),
        (world.root, "test"),
        (Signing("bank.test"), "bank.test"),
        (Signing("ftp.bank.test"), "ftp.bank.test"),
        (world.bank, "test"),
    ):
        world.put("ftp.bank.test", A, signing.signed(forged("ftp.bank.test"), signer=name(signer)))
        with world.resolver() as r, pytest.raises(DNS_Soft_Error):
            r.resolve(name("ftp.bank.test"), A)


@in_loop
def test_a_signer_that_is_above_the_anchor():
    """Below an anchor of its own, a zone is signed whatever the zones above it are: a signature in the name of one of
    those makes nothing unsigned."""
    world = World()
    world.put("ftp.bank.test", A, forged("ftp.bank.test"))
    bank = {name("bank.test"): [world.bank.ds()]}
    for anchors in (bank, {ROOT: [world.root.ds()], **bank}):
        none = world.root.one("test", TYPE.NSEC, "u. NS") + world.root.soa()
        world.put("test", TYPE.DS, (), none)
        for signer in ("test", "."):
            signed = Signing(signer).signed(forged("ftp.bank.test"))
            world.put("ftp.bank.test", A, signed)
            with world.resolver(anchors) as r:
                assert r.resolve(name("www.bank.test"), A).authenticated
                with pytest.raises(DNS_Bogus_Error):
                    r.resolve(name("ftp.bank.test"), A)
            proof = Signing(signer).one("ftp.bank.test", TYPE.NSEC, "g.bank.test. TXT")
            world.put("ftp.bank.test", A, (), [*proof, soa("bank.test")])
            with world.resolver(anchors) as r, pytest.raises(DNS_Bogus_Error):
                r.resolve(name("ftp.bank.test"), A)


@in_loop
def test_an_anchor_that_is_not_the_roots():
    world = World()
    with world.resolver({ROOT: [Signing(".").ds()]}) as r, pytest.raises(DNS_Bogus_Error):
        r.resolve(name("www.bank.test"), A)


@in_loop
def test_records_in_the_authority_section_that_are_not_signed():
    """With AD all that is handed on was checked (RFC 4035, section 3.2.3): the SOA record, and each proof."""
    world = World()
    proof = nsecs(world, ("www.bank.test", "x.bank.test. A"))
    other = Signing("bank.test")
    for wrong in ([soa("bank.test", 9999)], other.soa(), world.test.soa(), world.bank.soa(until=-1)):
        world.put("www.bank.test", TYPE.MX, (), [*proof, *wrong])
        with world.resolver() as r, pytest.raises(DNS_Bogus_Error):
            r.resolve(name("www.bank.test"), TYPE.MX)
    world.put("www.bank.test", TYPE.MX, (), [*proof, *world.bank.soa()])
    with world.resolver() as r:
        found = r.resolve(name("www.bank.test"), TYPE.MX, dnssec=True)
        assert found.authenticated and {one[1] for one in found.authority} == {TYPE.NSEC, TYPE.SOA, TYPE.RRSIG}
    beside = [
        (name("bank.test"), TYPE.NSEC, 1, 300, name("z.bank.test") + b"\0\1\x40"),
        *other.one("q.bank.test", TYPE.NSEC, "r.bank.test. A"),
    ]
    world.put("www.bank.test", A, world.bank.one("www.bank.test", A, "192.0.2.1"), beside)
    with world.resolver() as r:
        found = r.resolve(name("www.bank.test"), A, dnssec=True)
        assert found.authenticated and not found.authority


# -- time


@in_loop
def test_nothing_is_used_longer_than_its_signature():
    """RFC 4035, section 5.3.3; also the DS records and keys on the way, and proofs that come with a wildcard."""
    for place in ("answer", "ds", "key", "proof", "wildcard"):
        world = World()
        short = {"until": 7}
        if place == "answer":
            world.put("www.bank.test", A, world.bank.one("www.bank.test", A, "192.0.2.1", **short))
        elif place == "ds":
            world.put("bank.test", TYPE.DS, world.test.one("bank.test", TYPE.DS, world.bank.ds(), **short))
        elif place == "key":
            world.put("bank.test", TYPE.DNSKEY, world.bank.one("bank.test", TYPE.DNSKEY, world.bank.key.data, **short))
        elif place == "proof":
            proof = world.bank.one("www.bank.test", TYPE.NSEC, "x.bank.test. TXT", **short) + world.bank.soa()
            world.put("www.bank.test", A, (), proof)
        else:
            proof = world.bank.one("a.bank.test", TYPE.NSEC, "x.bank.test. TXT", **short)
            world.put("www.bank.test", A, world.bank.one("*.bank.test", A, "192.0.2.1", shown="www.bank.test"), proof)
        with world.resolver() as r:
            found = r.resolve(name("www.bank.test"), A)
            assert found.authenticated
            if place in ("ds", "key"):
                assert r.validator.zones[name("bank.test")].expires <= time.monotonic() + 7, place
            else:
                kept = r.entries.get(name("www.bank.test") + b"\0\1")
                assert kept.expires <= time.monotonic() + 7, place


@in_loop
def test_one_forged_reply_on_the_way_is_forgotten_soon():
    """A forged DS record, its denial, or keys make a zone wrong for a minute, not for as long as their TTL says."""
    week = 7 * 86400
    for kind, answer in (
        (TYPE.DS, ()),
        (TYPE.DS, [(name("bank.test"), TYPE.DS, 1, week, Signing("bank.test").ds())]),
        (TYPE.DNSKEY, ()),
        (TYPE.DNSKEY, [(name("bank.test"), TYPE.DNSKEY, 1, week, Signing("bank.test").key.data)]),
    ):
        world = World()
        world.put("bank.test", kind, answer, [soa("bank.test" if kind == TYPE.DNSKEY else "test", week, week)])
        with world.resolver() as r:
            with pytest.raises(DNS_Bogus_Error):
                r.resolve(name("www.bank.test"), A)
            limit = time.monotonic() + 60
            for key in (name("bank.test") + bytes((0, kind)), name("www.bank.test") + b"\0\1"):
                assert r.entries.get(key).expires <= limit


# -- names of others


@in_loop
def test_work_that_one_zone_causes_does_not_harm_another(monkeypatch):
    """An alias out of a zone whose checks use up what one question may cost: the name that it leads to stays good for
    everybody else."""
    world = World()
    evil = Signing("evil.test")
    world.put("evil.test", TYPE.DS, world.test.one("evil.test", TYPE.DS, evil.ds()))
    world.put("evil.test", TYPE.DNSKEY, evil.one("evil.test", TYPE.DNSKEY, evil.key.data))
    world.put("x.evil.test", A, evil.one("x.evil.test", TYPE.CNAME, "www.bank.test."))
    with world.resolver() as r:
        monkeypatch.setattr("coro.dns._dnssec.validator.Budget", lambda: Budget(signatures=6))
        with pytest.raises(DNS_Soft_Error):
            r.resolve(name("x.evil.test"), A)
        assert r.resolve(name("www.bank.test"), A).authenticated


@in_loop
def test_datagrams_that_one_zone_causes_do_not_harm_another():
    """The same with the number of datagrams for one question."""
    world = World()
    world.put("x.evil.test", A, [record("x.evil.test", TYPE.CNAME, "y.evil.test")])
    world.put("y.evil.test", A, [record("y.evil.test", TYPE.CNAME, "www.bank.test")])
    with world.resolver({}, work=2) as r:
        with pytest.raises(DNS_Soft_Error):
            r.resolve(name("x.evil.test"), A)
        assert r.resolve(name("www.bank.test"), A).chosen(A)


@in_loop
def test_aliases_out_of_signed_and_into_unsigned_zones():
    world = World()
    world.put("out.bank.test", A, world.bank.one("out.bank.test", TYPE.CNAME, "www.plain.test."))
    world.put("in.plain.test", A, [record("in.plain.test", TYPE.CNAME, "www.bank.test")])
    world.put("bad.plain.test", A, [record("bad.plain.test", TYPE.CNAME, "ftp.bank.test"), *forged("ftp.bank.test")])
    world.put("ftp.bank.test", A, forged("ftp.bank.test"))
    world.put("x.d.bank.test", A, world.bank.one("d.bank.test", TYPE.DNAME, "plain.test."))
    world.put("x.plain.test", A, [record("x.plain.test", A, "192.0.2.9")])
    # a DNAME without signature, for names that it has no say about
    world.put("y.e.bank.test", A, [record("e.bank.test", TYPE.DNAME, "plain.test")])
    with world.resolver() as r:
        for owner in ("out.bank.test", "in.plain.test", "x.d.bank.test"):
            found = r.resolve(name(owner), A)
            assert found.chosen(A) and not found.authenticated
        # a question for DNAME is one for the name's own, too, not for those above (RFC 6672, section 2.2)
        world.put("x.plain.test", TYPE.DNAME, (), [soa("plain.test")])
        world.put("x.d.bank.test", TYPE.DNAME, world.bank.one("d.bank.test", TYPE.DNAME, "plain.test."))
        found = r.resolve(name("x.d.bank.test"), TYPE.DNAME)
        assert [one[1] for one in found.answer] == [TYPE.DNAME, TYPE.CNAME] and not found.authenticated
        for owner in ("bad.plain.test", "y.e.bank.test"):
            with pytest.raises(DNS_Bogus_Error):
                r.resolve(name(owner), A)


@in_loop
def test_what_was_not_checked_is_checked_when_asked_for():
    """CD=1 (`check=False`) puts records into the cache; nobody else gets them unchecked, and the reverse."""
    world = World()
    world.put("ftp.bank.test", A, forged("ftp.bank.test"))
    with world.resolver() as r:
        assert r.resolve(name("ftp.bank.test"), A, check=False).chosen(A)[0][1] == FORGED
        for _ in range(2):
            with pytest.raises(DNS_Bogus_Error):
                r.resolve(name("ftp.bank.test"), A)
            assert not r.resolve(name("ftp.bank.test"), A, check=False).authenticated


@in_loop
def test_names_that_are_no_names():
    """Records whose data should be a name, and is nothing at all."""
    for kind in (TYPE.CNAME, TYPE.DNAME, TYPE.NS):
        world = World()
        where = "test" if kind == TYPE.DNAME else "www.bank.test"
        world.put("www.bank.test", A, [(name(where), kind, 1, 300, b"")], [(name("bank.test"), TYPE.NS, 1, 300, b"")])
        with world.resolver({}) as r, pytest.raises(DNS_Soft_Error):
            r.resolve(name("www.bank.test"), A, seconds=0.1)


@in_loop
def test_keys_that_share_a_tag_with_a_ds_record():
    """Each would cost a digest: KeyTrap's smaller sister (CVE-2023-50387)."""
    world = World()
    pairs = [world.bank.key.data[i : i + 2] for i in range(4, 68, 2)]
    keys = [world.bank.key.data[:4] + b"".join(pairs[i:] + pairs[:i]) for i in range(20)]
    all_keys = [(name("bank.test"), TYPE.DNSKEY, 1, 300, data) for data in keys]
    world.put("bank.test", TYPE.DNSKEY, world.bank.signed(all_keys))
    with world.resolver() as r, pytest.raises(DNS_Bogus_Error, match="too many keys with one tag"):
        r.resolve(name("www.bank.test"), A)


@in_loop
def test_keys_made_of_a_wildcard():
    world = World()
    keys = world.bank.one("*.test", TYPE.DNSKEY, world.bank.key.data, shown="bank.test")
    world.put("bank.test", TYPE.DNSKEY, keys)
    with world.resolver() as r, pytest.raises(DNS_Bogus_Error, match="wildcard"):
        r.resolve(name("www.bank.test"), A)


@in_loop
def test_many_clients_cause_one_check(monkeypatch):
    """What is wrong costs once, however many ask for it, and a zone that is wrong is asked for once a minute."""
    checks = []
    real = signatures._is_valid
    monkeypatch.setattr(signatures, "_is_valid", lambda *args: checks.append(1) or coro.yield_slice() or real(*args))
    world = World()
    wrong = [
        one for i in range(50) for one in Signing("bank.test").one("bank.test", TYPE.DNSKEY, b"x", until=i + 9)[1:]
    ]
    key = (name("bank.test"), TYPE.DNSKEY, 1, 300, world.bank.key.data)
    tag = world.bank.key.tag.to_bytes(2, "big")
    wrong = [(*one[:4], one[4][:16] + tag + one[4][18:]) for one in wrong]
    world.put("bank.test", TYPE.DNSKEY, [key, *wrong])
    with world.resolver() as r:
        with coro.group() as clients:
            threads = [clients.spawn(failure, r, f"n{i}.bank.test") for i in range(50)]
        assert {type(thread.get()) for thread in threads} == {DNS_Bogus_Error}
        assert len(checks) == 4 + signatures.SIGNATURES_MOST
        assert sum(kind == TYPE.DNSKEY for _, kind in world.asked) == 3


def failure(r, owner):
    try:
        r.resolve(name(owner), A)
    except DNS_Soft_Error as e:
        return e


@in_loop
def test_an_alias_made_of_a_wildcard_hides_a_zone_for_a_minute_only():
    """A wildcard's alias in the place of a DS record, without the proof that belongs to it."""
    world = World()
    world.put("bank.test", TYPE.DS, world.test.one("*.test", TYPE.CNAME, "plain.test.", 86400, shown="bank.test"))
    with world.resolver() as r:
        with pytest.raises(DNS_Bogus_Error, match="made of a wildcard"):
            r.resolve(name("www.bank.test"), A)
        assert r.validator.zones[name("bank.test")].expires <= time.monotonic() + 60
