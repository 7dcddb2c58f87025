"""Somebody on the path, or the owner of a zone, changes replies by chance: takes away signatures, proofs, DS records
and the AA bit, replays what belongs elsewhere, delegates, forges. A signed name then has its own records,
authenticated, or none; and the owner of a zone changes nothing outside it. CORO_DNS_PATHS is how many cases there are,
CORO_DNS_PATHS_SEED repeats them. No sockets: the function that asks a server is replaced."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from dns_forged import Signing
from dns_support import name, record, reply, soa

import coro
from coro.dns import DNS_Error, _wire
from coro.dns._recursive.network import BadReply
from coro.dns._recursive.recursor import ROOT, Recursor
from coro.dns.packet import TYPE

A, NS, CNAME, SOA, DNAME, DS, RRSIG, NSEC, DNSKEY = 1, 2, 5, 6, 39, 43, 46, 47, 48
RIGHT, FORGED = bytes((192, 0, 2, 1)), bytes((6, 6, 6, 6))
ZONES = {"test": 2, "bank.test": 3, "plain.test": 4, "evil.test": 5}  # and the last number of their servers' addresses
SIGNED = ("www.bank.test", "bank.test", "nothing.bank.test", "test")
NAMES = (*SIGNED, ".", "www.plain.test", "plain.test", "www.evil.test", "evil.test", "a.www.evil.test", "ns.bank.test")


class Tree:
    """The right replies: the root, `test` and `bank.test` are signed, `plain.test` and `evil.test` are not."""

    def __init__(self) -> None:
        self.root, self.test, self.bank = Signing("."), Signing("test"), Signing("bank.test")
        self.evil = Signing("bank.test")
        bank, test = self.bank, self.test
        self.delegations = {
            "test": self.root.one("test", DS, test.ds()),
            "bank.test": test.one("bank.test", DS, bank.ds()),
            "plain.test": test.one("plain.test", NSEC, "zz.test. NS RRSIG NSEC"),
            "evil.test": test.one("evil.test", NSEC, "plain.test. NS RRSIG NSEC"),
        }
        self.keys = {
            _wire.to_text(one.zone): one.one(_wire.to_text(one.zone), DNSKEY, one.key.data)
            for one in (self.root, test, bank)
        }
        self.www = bank.one("www.bank.test", A, "192.0.2.1")
        end = bank.one("www.bank.test", NSEC, "bank.test. A RRSIG NSEC") + bank.soa()
        self.missing = bank.one("bank.test", NSEC, "www.bank.test. NS SOA RRSIG NSEC DNSKEY") + bank.soa()
        self.apex = test.one("test", NSEC, "bank.test. NS SOA RRSIG NSEC DNSKEY") + test.soa()
        self.nothing = {"www.bank.test": end, "bank.test": self.missing, "test": self.apex}
        #: What somebody can replay or make: all that is signed, and what only looks like it.
        self.pool = [
            *self.delegations.values(), *self.keys.values(), self.www, end, self.missing, self.apex,
            self.evil.one("bank.test", DS, self.evil.ds()), self.evil.one("www.bank.test", A, "6.6.6.6"),
            self.evil.one("bank.test", DNSKEY, self.evil.key.data), self.evil.one("bank.test", NSEC, "z.test. NS"),
        ]  # fmt: skip

    def answer(self, host: str, text: str, kind: int):
        """Answer, authority, additional, AA and the response code of the server at an address."""
        number = int(host.rpartition(".")[2])
        zone = next((zone for zone, its in ZONES.items() if its == number), ".")
        cut = next(
            (
                one
                for one in sorted(ZONES, key=len)
                if len(name(one)) > len(name(zone)) and _wire.below(name(text), name(one))
                and _wire.below(name(one), name(zone))
            ),
            None,
        )  # fmt: skip
        if cut is not None and (text, kind) != (cut, DS):
            glue = [record(f"ns.{cut}", A, f"127.54.0.{ZONES[cut]}")]
            return [], [record(cut, NS, f"ns.{cut}"), *self.delegations[cut]], glue, False, 0
        if cut is not None:
            known = self.delegations[cut]
            return (known, [], [], True, 0) if known[0][1] == DS else ([], known + self.test.soa(), [], True, 0)
        if kind == DNSKEY and text in self.keys:
            return self.keys[text], [], [], True, 0
        if zone in ("plain.test", "evil.test"):
            return ([record(text, A, "192.0.2.1")] if kind == A else []), [soa(zone)], [], True, 0
        if (text, kind) == ("www.bank.test", A):
            return self.www, [], [], True, 0
        if text in self.nothing:
            return [], self.nothing[text], [], True, 0
        return [], self.missing if zone == "bank.test" else [soa(zone)], [], True, 3


class Path:
    """Changes what servers say."""

    def __init__(self, tree: Tree, rnd: random.Random, often: float, only: str = "") -> None:
        self.tree, self.random, self.often, self.only = tree, rnd, often, only

    def some_records(self):
        rnd = self.random
        owner = rnd.choice(NAMES)
        kind = rnd.choice((A, A, NS, CNAME, DNAME, SOA, DS, RRSIG))
        data = {
            A: FORGED, NS: name(rnd.choice(("ns.evil.test", "ns.bank.test", "ns.a.evil.test"))), SOA: soa(owner)[4],
            DS: self.tree.evil.ds(), RRSIG: self.tree.evil.one("bank.test", A, "6.6.6.6")[1][4],
        }.get(kind, name(rnd.choice(NAMES)))  # fmt: skip
        return [(name(owner), kind, 1, rnd.choice((0, 5, 300, 1 << 31)), data)]

    def ask(self, server, asked, rtype, *_, **__):
        rnd = self.random
        answer, authority, additional, aa, rcode = self.tree.answer(server[0], _wire.to_text(asked), rtype)
        flags = 0
        if (not self.only or server[0] == self.only) and rnd.random() < self.often:
            sections = [list(answer), list(authority), list(additional)]
            for _ in range(rnd.choice((1, 1, 2, 3, 5))):
                how, at = rnd.randrange(12), rnd.randrange(3)
                if how < 3:  # something is left out
                    gone = rnd.choice((DS, RRSIG, NSEC, NS, SOA, A))
                    sections[at] = [one for one in sections[at] if one[1] != gone]
                elif how == 3:
                    sections[at] = []
                elif how == 4:
                    aa = not aa
                elif how == 5:
                    flags = 0x80
                elif how == 6:
                    rcode = rnd.choice((0, 0, 2, 3, 3, 5, 6))
                elif how < 9:  # something of elsewhere
                    sections[at] = [*rnd.choice(self.tree.pool), *(sections[at] if rnd.random() < 0.5 else ())]
                elif how == 9:  # in place of what was there
                    sections[at] = [(*one[:4], FORGED) if one[1] == A else one for one in sections[at]]
                elif how == 10:
                    raise BadReply("no reply in time", True)
                else:
                    sections[at] += self.some_records()
            if self.only:
                sections[rnd.randrange(3)] += [one for _ in range(4) for one in self.some_records()]
            answer, authority, additional = sections
        query = _wire.parse(_wire.build(1, 0, asked, rtype, 1))
        return _wire.parse(reply(query, answer, authority, additional, aa=aa, rcode=rcode, flags=flags))


def cases(count: int, case) -> Counter[str]:
    first = int(os.environ.get("CORO_DNS_PATHS_SEED", random.randrange(1 << 32)))
    print(f"CORO_DNS_PATHS_SEED={first}")
    seen: Counter[str] = Counter()
    tree = Tree()

    def run() -> None:
        for seed in range(first, first + count):
            case(tree, random.Random(seed), seen, seed)

    coro.run(run)
    print(dict(seen))
    return seen


def changed_on_the_path(tree: Tree, rnd: random.Random, seen: Counter[str], seed: int) -> None:
    r = Recursor([("127.54.0.1", 53)], anchors={ROOT: [tree.root.ds()]})
    r.network.ask = Path(tree, rnd, rnd.choice((0.1, 0.3, 0.6))).ask
    for _ in range(4):
        text = rnd.choice((*SIGNED, "www.bank.test", "www.plain.test"))
        kind = rnd.choice((A, A, A, TYPE.MX, DS, NS))
        try:
            found = r.resolve(name(text), kind, 5.0, dnssec=rnd.random() < 0.5)
        except DNS_Error as e:
            seen[type(e).__name__] += 1
            continue
        if text == "www.plain.test":
            seen["unsigned"] += 1
            assert not found.authenticated, seed
            continue
        seen["authentic" if found.answer else "denied"] += 1
        assert found.authenticated, (seed, text, kind, found)
        assert FORGED not in [data for _, data in found.chosen(A)], seed
        if (text, kind) == ("www.bank.test", A):
            assert not found.rcode and [data for _, data in found.chosen(A)] == [RIGHT], (seed, found)
        if (text, kind) == ("bank.test", DS):
            assert [data for _, data in found.chosen(DS)] == [tree.bank.ds()], seed


def changed_by_an_owner(tree: Tree, rnd: random.Random, seen: Counter[str], seed: int) -> None:
    r = Recursor([("127.54.0.1", 53)])
    r.network.ask = Path(tree, rnd, 1.0, "127.54.0.5").ask
    for _ in range(6):
        text = rnd.choice(("www.evil.test", "evil.test", "a.www.evil.test", "www.bank.test", "www.plain.test"))
        try:
            found = r.resolve(name(text), rnd.choice((A, A, NS, CNAME)), 5.0)
        except DNS_Error as e:
            seen[type(e).__name__] += 1
            assert not text.endswith(("bank.test", "plain.test")), (seed, text, e)
            continue
        seen["answer" if found.answer else "nothing"] += 1
        for owner, kind, _, _, data in found.answer:
            assert data != FORGED or _wire.below(owner, name("evil.test")), (seed, owner, kind)
    for key in r.entries.keys():
        entry = r.entries.peek(key)
        assert FORGED not in entry.data or _wire.below(key[:-2], name("evil.test")), (seed, key)
    for zone in r.delegations.keys():
        text = _wire.to_text(zone)
        if not _wire.below(zone, name("evil.test")):
            known = r.delegations.peek(zone).addresses
            assert known == {name(f"ns.{text}"): (f"127.54.0.{ZONES[text]}",)}, (seed, text, known)


@pytest.mark.slow
@pytest.mark.parametrize("case", [changed_on_the_path, changed_by_an_owner])
def test_replies_that_somebody_changes(case):
    seen = cases(int(os.environ.get("CORO_DNS_PATHS", "300")), case)
    assert seen["authentic" if case is changed_on_the_path else "answer"] and sum(seen.values()) > 100
