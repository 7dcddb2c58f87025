"""Replies made by chance out of records that are right, replayed, damaged, signed by the wrong or by the right: what
comes of a question is an answer or one of our errors, nothing else, and never is something authentic that no key of
the chain has signed. CORO_DNS_FORGED is how many worlds there are, CORO_DNS_FORGED_SEED repeats them."""

from __future__ import annotations

import base64
import os
import random
from collections import Counter

import pytest
from dns_forged import Signing, World
from dns_support import name, soa

import coro
from coro.dns import DNS_Error, _wire
from coro.dns.packet import TYPE, UnpackError

NAMES = [
    "www.bank.test", "bank.test", "test", ".", "a.bank.test", "x.www.bank.test", "*.bank.test", "www.plain.test",
    "plain.test", "x.y.z.bank.test", "evil.other",
]  # fmt: skip
KINDS = [
    TYPE.A, TYPE.A, TYPE.NS, TYPE.CNAME, TYPE.SOA, TYPE.MX, TYPE.TXT, TYPE.AAAA, TYPE.DNAME, TYPE.DS, TYPE.RRSIG,
    TYPE.NSEC, TYPE.NSEC, TYPE.DNSKEY, TYPE.NSEC3, TYPE.NSEC3, TYPE.NSEC3PARAM, 65280,
]  # fmt: skip
FORGED = bytes((6, 6, 6, 6))


class Chance:
    """Records and replies of one world."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World()
        self.evil = Signing("bank.test")

    def data(self, kind: int) -> bytes:
        """What a record of the type has, mostly damaged."""
        rnd, bank = self.random, self.world.bank
        right = {
            TYPE.DS: bank.ds(),
            TYPE.DNSKEY: bank.key.data,
            TYPE.NSEC: name(rnd.choice(NAMES)) + rnd.choice((b"\0\1\x40", b"\0\1\x20", b"\0\1\x22")),
            TYPE.NSEC3: b"\1" + rnd.choice((b"\0\0\0\0\x14", b"\1\0\1\0\x14")) + rnd.randbytes(20) + b"\0\1\x40",
            TYPE.CNAME: name(rnd.choice(NAMES)),
            TYPE.DNAME: name(rnd.choice(NAMES)),
            TYPE.NS: name("ns.bank.test"),
            TYPE.SOA: soa("bank.test")[4],
            TYPE.RRSIG: b"\0\1\x0d\2" + bytes(14) + name("bank.test") + bytes(64),
        }.get(kind, b"\1\2\3\4")
        chance = rnd.random()
        if chance < 0.5:
            return right
        if chance < 0.6:
            return rnd.randbytes(rnd.choice((0, 1, 2, 4, 5, 16, 40, 300)))
        damaged = bytearray(right)
        for _ in range(rnd.choice((1, 1, 2, 5))):
            damaged[rnd.randrange(len(damaged))] = rnd.choice((0, 1, 2, 63, 64, 192, 255, rnd.randrange(256)))
        return bytes(damaged[: rnd.randrange(len(damaged) + 1)] if rnd.random() < 0.4 else damaged)

    def section(self) -> list[tuple[bytes, int, int, int, bytes]]:
        """Some sets of records, with signatures or without."""
        rnd, world = self.random, self.world
        out = []
        for _ in range(rnd.choice((0, 0, 1, 1, 2, 3, 6))):
            kind, owner = rnd.choice(KINDS), rnd.choice(NAMES)
            if kind == TYPE.NSEC3 and rnd.random() < 0.8:
                hashed = base64.b32hexencode(rnd.randbytes(20)).decode().lower()
                owner = f"{hashed}.{rnd.choice(('bank.test', 'test'))}"
            ttl = rnd.choice((0, 1, 300, 0x7FFFFFFF))
            records = [(name(owner), kind, 1, ttl, self.data(kind)) for _ in range(rnd.choice((1, 1, 1, 2, 3)))]
            how = {"labels": rnd.randrange(5)} if rnd.random() < 0.2 else {}
            if rnd.random() < 0.2:
                how["signer"] = name(rnd.choice(NAMES))
            if rnd.random() < 0.2:
                how["shown"] = rnd.choice(NAMES)
            try:
                if rnd.random() < 0.6:
                    records = rnd.choice((world.bank, world.bank, world.test, world.root)).signed(records, **how)
                else:
                    records = [(*one[:4], FORGED) if one[1] == TYPE.A else one for one in records]
                    if rnd.random() < 0.7:
                        records = self.evil.signed(records, **how)
            except UnpackError:
                pass  # nobody can sign these
            out += records
        return out

    def disturb(self) -> None:
        """Change one reply, or add to it."""
        rnd, replies = self.random, self.world.replies
        question = rnd.choice(NAMES), rnd.choice((TYPE.A, TYPE.A, TYPE.A, TYPE.DS, TYPE.DNSKEY, TYPE.MX))
        if question in replies and rnd.random() < 0.4:
            answer, authority, rcode = replies[question]
            self.world.put(*question, [*answer, *self.section()], [*authority, *self.section()], rcode)
        else:
            self.world.put(*question, self.section(), self.section(), rnd.choice((0, 0, 3)))


def ask(seed: int, seen: Counter[str]) -> None:
    chance = Chance(seed)
    rnd = chance.random
    for _ in range(rnd.choice((1, 1, 2, 3))):
        chance.disturb()
    with chance.world.resolver() as r:
        for _ in range(3):
            owner = rnd.choice(NAMES)
            kind = rnd.choice((TYPE.A, TYPE.A, TYPE.A, TYPE.DS, TYPE.DNSKEY, TYPE.MX, TYPE.RRSIG, TYPE.DNAME, 255))
            try:
                found = r.resolve(name(owner), kind, 0.1, check=rnd.random() < 0.9, dnssec=rnd.random() < 0.7)
            except DNS_Error as e:
                seen[type(e).__name__] += 1
                continue
            _wire.build(1, 0x8000, name(owner), kind, 1, found.answer, found.authority)
            seen["authentic" if found.authenticated else "insecure"] += 1
            assert not found.authenticated or FORGED not in [one[4] for one in found.answer], seed


@pytest.mark.slow
def test_replies_made_by_chance():
    count = int(os.environ.get("CORO_DNS_FORGED", "60"))
    first = int(os.environ.get("CORO_DNS_FORGED_SEED", random.randrange(1 << 32)))
    seen: Counter[str] = Counter()
    print(f"CORO_DNS_FORGED_SEED={first}")

    def worlds() -> None:
        for seed in range(first, first + count):
            ask(seed, seen)

    coro.run(worlds)
    print(dict(seen))
    assert seen["authentic"] and seen["DNS_Bogus_Error"]
