"""Zones that are signed so that checking them costs much, and answers whose proofs show something else."""

from __future__ import annotations

import builtins
import hashlib
import time

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from dns_support import in_loop, name

import coro
from coro.dns import DNS_Error, DNS_Validation_Unavailable
from coro.dns._dnssec import signatures
from coro.dns._dnssec.anchors import anchors_of
from coro.dns._dnssec.denial import INSECURE, PROVEN, Denial
from coro.dns._dnssec.signatures import Budget, Key, RRset, Spent, check, digest_matches, signed_data
from coro.dns._recursive import recursor
from coro.dns._recursive.store import Entry, Signed
from coro.dns.cache import dns_cache, root_anchors
from coro.dns.packet import TYPE, rdata_from_text

ZONE = name("test")
NOW = int(time.time())


def key_of(private, flags=256):
    point = private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return Key.read(flags.to_bytes(2, "big") + b"\3\x0d" + point[1:])


def colliding(key, count):
    """Keys with the same tag: the tag is a sum, so pairs of bytes may change places."""
    pairs = [key.data[i : i + 2] for i in range(4, len(key.data), 2)]
    out = [Key.read(key.data[:4] + b"".join(pairs[i:] + pairs[:i])) for i in range(1, count + 1)]
    assert {one.tag for one in out} == {key.tag} and len({one.data for one in out}) == count
    return out


def signed(private, key, owner=ZONE, since=-100, until=100, right=True, labels=1, data=(b"\1\2\3\4",)):
    head = (
        (1).to_bytes(2, "big") + bytes((13, labels)) + (300).to_bytes(4, "big") + (NOW + until).to_bytes(4, "big")
        + (NOW + since).to_bytes(4, "big") + key.tag.to_bytes(2, "big") + ZONE
    )  # fmt: skip
    rrset = RRset(owner, 1, 300, data)
    if not right:
        return head + bytes(64)
    der = private.sign(signed_data(signatures.Signature.read(head), rrset), ec.ECDSA(hashes.SHA256()))
    r, s = utils.decode_dss_signature(der)
    return head + r.to_bytes(32, "big") + s.to_bytes(32, "big")


@pytest.fixture(scope="module")
def private():
    return ec.generate_private_key(ec.SECP256R1())


@in_loop
def test_signatures(private):
    key = key_of(private)
    good = signed(private, key)
    for sigs, said in (
        ((good,), ""),
        ((signed(private, key, right=False), good), ""),
        ((), "no signature"),
        ((signed(private, key, right=False),), "a wrong signature"),
        ((signed(private, key, until=-1),), "no longer valid"),
        ((signed(private, key, since=50),), "not yet"),
        ((signed(private, key, labels=2),), "more labels"),
        ((good[:10],), "another zone"),
    ):
        rrset = RRset(ZONE, 1, 300, (b"\1\2\3\4",), sigs)
        found, why = check(rrset, ZONE, [key], NOW, Budget())
        assert (found is not None) == (not said) and said in why
    rrset = RRset(ZONE, 1, 300, (b"\1\2\3\5",), (good,))
    assert check(rrset, ZONE, [key], NOW, Budget())[0] is None
    assert check(rrset._replace(data=(b"\1\2\3\4",)), name("other"), [key], NOW, Budget())[0] is None
    for flags in (0, 0x180, 1):  # not a key of a zone, revoked
        assert key_of(private, flags) is None or not flags & 0x80 and flags & 0x100


@in_loop
def test_many_keys_with_one_tag(private, monkeypatch):
    """KeyTrap (CVE-2023-50387): keys times signatures."""
    checks = []
    monkeypatch.setattr(signatures, "_is_valid", lambda *args: checks.append(1))
    key = key_of(private)
    wrong = tuple(signed(private, key, since=-100 - i, right=False) for i in range(50))
    rrset = RRset(ZONE, 1, 300, (b"\1\2\3\4",), wrong)
    assert check(rrset, ZONE, colliding(key, 30), NOW, Budget()) == (None, "too many keys with one tag")
    assert not checks
    assert check(rrset, ZONE, colliding(key, 4), NOW, Budget()) == (None, "too many signatures that are wrong")
    assert len(checks) == signatures.SIGNATURES_MOST
    for budget, most in ((Budget(signatures=10), 10), (Budget(), 17)):
        checks.clear()
        with pytest.raises(Spent):
            for _ in range(10):
                check(rrset, ZONE, [key], NOW, budget)
        assert len(checks) == most


@in_loop
def test_others_run_while_signatures_are_checked(private):
    key = key_of(private)
    rrset = RRset(ZONE, 1, 300, (b"\1\2\3\4",), tuple(signed(private, key, right=False) for _ in range(8)))
    order = []

    def other():
        for _ in range(4):
            order.append("other")
            coro.yield_slice()

    thread = coro.spawn(other)
    check(rrset, ZONE, [key], NOW, Budget())
    order.append("checked")
    thread.join()
    assert order.index("checked") >= 4


def nsec3(owner, following, types="A", rounds=0, flags=0, salt=b""):
    """An NSEC3 record from the hash of one name to that of another (or to bytes)."""
    import base64

    def hashed(what, less=0):
        if isinstance(what, bytes):
            return what
        digest = name(what)
        for _ in range(rounds + 1):
            digest = hashlib.sha1(digest + salt).digest()
        return (int.from_bytes(digest, "big") + less).to_bytes(20, "big")

    first, last = (hashed(*one) if isinstance(one, tuple) else hashed(one) for one in (owner, following))
    label = base64.b32hexencode(first).decode().lower()
    text = f"1 {flags} {rounds} {salt.hex() or '-'} {base64.b32hexencode(last).decode()} {types}"
    return RRset(name(f"{label}.test"), 50, 300, (rdata_from_text(TYPE.NSEC3, text),))


def nsec(owner, text):
    return RRset(name(owner), 47, 300, (rdata_from_text(TYPE.NSEC, text),))


@in_loop
def test_hashes_of_names_are_counted(monkeypatch):
    """CVE-2023-50868: many labels, many rounds."""
    deep = name(".".join(["a"] * 100) + ".test")
    budget = Budget(hashes=30)
    apex = nsec3("test", b"\xff" * 20)
    with pytest.raises(Spent):
        Denial(ZONE, [apex], budget).no_name(deep)
    assert budget.hashes == -1
    budget = Budget()
    for shown in ("no_name", "no_data", "no_closer"):
        denial = Denial(ZONE, [nsec3("test", b"\xff" * 20, rounds=151)], budget)
        more = () if shown == "no_name" else (1,)
        assert getattr(denial, shown)(deep, *more) == INSECURE
    assert budget.hashes == 200, "not one round was done"
    other = nsec3("x.test", b"\xff" * 20, salt=b"ab")
    assert len(Denial(ZONE, [apex, other], budget).nsec3s) == 1, "one set of parameters for a reply"


@in_loop
def test_proofs_with_nsec3():
    apex = nsec3("test", ("test", 1), "NS SOA")
    here = nsec3(("gone.test", -1), ("gone.test", 1))
    wild = nsec3(("*.test", -1), ("*.test", 1))
    gone = name("gone.test")
    assert Denial(ZONE, [apex, here, wild], Budget()).no_name(gone) == PROVEN
    for missing in ([apex, here], [apex, wild], [here, wild], []):
        assert not Denial(ZONE, missing, Budget()).no_name(gone)
    opt_out = nsec3(("gone.test", -1), ("gone.test", 1), flags=1)
    assert Denial(ZONE, [apex, opt_out, wild], Budget()).no_name(gone) == INSECURE
    assert Denial(ZONE, [apex, opt_out], Budget()).no_data(gone, TYPE.DS) == INSECURE
    assert not Denial(ZONE, [apex, here], Budget()).no_data(gone, TYPE.DS)
    delegation = nsec3("sub.test", ("sub.test", 1), "NS")
    denial = Denial(ZONE, [delegation], Budget())
    assert denial.no_data(name("sub.test"), TYPE.DS) == PROVEN and not denial.no_data(name("sub.test"), 1)
    child = nsec3("sub.test", ("sub.test", 1), "NS SOA")
    assert not Denial(ZONE, [child], Budget()).no_data(name("sub.test"), TYPE.DS), (
        "the child cannot speak for its parent"
    )
    assert Denial(ZONE, [here], Budget()).no_closer(gone, 1) == PROVEN
    assert not Denial(ZONE, [wild], Budget()).no_closer(gone, 1)
    assert not Denial(ZONE, [nsec3("test", ("test", 1), "NS SOA", flags=2)], Budget()).nsec3s, "an unknown flag"


@in_loop
def test_wildcard_opt_out_is_no_unsigned_zone():
    """Only where the next closer name may have been left out can an unsigned zone be (RFC 5155, section 8.4)."""
    apex = nsec3("test", ("test", 1), "NS SOA")
    here = nsec3(("gone.test", -1), ("gone.test", 1))
    wild = nsec3(("*.test", -1), ("*.test", 1), flags=1)
    assert Denial(ZONE, [apex, here, wild], Budget()).no_name(name("gone.test")) == PROVEN


@in_loop
def test_proofs_with_nsec():
    cover = nsec("a.test", "z.test. A")
    apex = nsec("test", "a.test. NS SOA")
    missing = name("m.test")
    assert Denial(ZONE, [cover, apex], Budget()).no_name(missing) == PROVEN
    assert not Denial(ZONE, [cover], Budget()).no_name(missing), "a wildcard could stand in for it"
    assert not Denial(ZONE, [apex], Budget()).no_name(missing)
    assert not Denial(ZONE, [nsec("a.test", "z.test. A")], Budget()).no_data(name("a.test"), 1)
    assert Denial(ZONE, [nsec("a.test", "z.test. A")], Budget()).no_data(name("a.test"), 15) == PROVEN
    assert not Denial(ZONE, [nsec("a.test", "z.test. CNAME")], Budget()).no_data(name("a.test"), 15)
    assert Denial(ZONE, [nsec("a.test", "x.b.test. A")], Budget()).no_data(name("b.test"), 1) == PROVEN, (
        "empty, but there"
    )
    # RFC 6840, section 4.1: a delegation says nothing about what is below it
    assert not Denial(ZONE, [nsec("sub.test", "z.test. NS"), apex], Budget()).no_name(name("x.sub.test"))
    assert not Denial(ZONE, [nsec("d.test", "z.test. DNAME"), apex], Budget()).no_name(name("x.d.test"))
    # the last one leads back to the apex
    assert Denial(ZONE, [nsec("z.test", "test. A"), apex], Budget()).no_name(name("zz.test")) == PROVEN


@in_loop
def test_what_is_proven_of_a_name_below_is_no_proof_of_a_name():
    """NXDOMAIN for a name that exists, with the record that shows that nothing is below it."""
    cache = dns_cache(trust_anchors=root_anchors)
    entry = Entry(time.monotonic() + 100, 100, (), None, True, Signed((), (nsec("a.test", "z.test. A"),)))
    cache._recursor.entries.put(recursor.key_of(name("a.test"), 0), entry)
    found = cache._recursor._look(name("x.a.test"), 1)
    assert found.entry is entry and found.owner == name("a.test")
    proofs = [nsec("a.test", "z.test. A"), nsec("test", "a.test. NS SOA")]
    assert Denial(ZONE, proofs, Budget()).no_name(name("x.a.test")) == PROVEN
    assert not Denial(ZONE, proofs, Budget()).no_name(found.owner)


def test_anchors():
    found = anchors_of(root_anchors)
    assert list(found) == [b"\0"] and [len(one) for one in found[b"\0"]] == [36, 36]
    # the root's key of 2017, RFC 8624's algorithm 8; its tag and digest are public
    assert int.from_bytes(found[b"\0"][0][:2], "big") == 20326
    for wrong in ("", ". A 192.0.2.1", ". DS x", ". IN DNSKEY 0 3 8 AQAB"):
        with pytest.raises(ValueError, match="expected"):
            anchors_of([wrong])


def test_anchors_as_zone_files_have_them():
    """Comments, parentheses, several lines and records."""
    (plain,) = anchors_of(root_anchors)[b"\0"][:1]
    digest = "E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D"
    for text in (
        f". IN DS 20326 8 2 {digest} ; root",
        f"; the root\n. 86400 IN DS 20326 8 2 (\n  {digest[:32]} ; one half\n  {digest[32:]} )\n",
        f'\n.\tDS\t20326 8 2 {digest[:10]} {digest[10:]};"',
    ):
        assert anchors_of([text]) == {b"\0": [plain]}
    assert len(anchors_of(["\n".join(root_anchors)])[b"\0"]) == 2
    for wrong in ("; nothing", f". DS 20326 8 2 ( {digest}", f'. DS 20326 8 2 "{digest}'):
        with pytest.raises(ValueError, match="expected a trust anchor"):
            anchors_of([wrong])


def test_anchor_as_key(private):
    key = key_of(private, 257)
    import base64

    text = f"test. 3600 IN DNSKEY 257 3 13 {base64.b64encode(key.data[4:]).decode()}"
    (ds,) = anchors_of([text])[ZONE]
    assert digest_matches(ZONE, key, ds) and not digest_matches(name("other"), key, ds)


@in_loop
def test_without_cryptography(private, monkeypatch):
    real = builtins.__import__

    def absent(module, *args, **kwargs):
        if module.startswith("cryptography"):
            raise ImportError(module)
        return real(module, *args, **kwargs)

    key = key_of(private)
    rrset = RRset(ZONE, 1, 300, (b"\1\2\3\4",), (signed(private, key),))
    monkeypatch.setattr(builtins, "__import__", absent)
    signatures._verifier.cache_clear()
    with pytest.raises(DNS_Validation_Unavailable, match=r"coro-dns\[dnssec\]") as caught:
        check(rrset, ZONE, [key], NOW, Budget())
    assert isinstance(caught.value, ImportError) and isinstance(caught.value, DNS_Error)
    dns_cache(trust_anchors=root_anchors)  # it is wanted when there is something to check
