"""Damaged messages about zones, and damaged files: an answer or none, an error of ours or none, and never anything
else. CORO_DNS_DAMAGED says how many; the seed is printed, and CORO_DNS_SEED repeats a run."""

from __future__ import annotations

import os
import random

import pytest
from dns_support import in_loop, name, record, soa
from zone_servers import KEY, ORIGIN, plain

import coro
from coro.dns import _wire, tsig
from coro.dns._zone.transfer import Receiver
from coro.dns.exceptions import DNS_Transfer_Error, DNS_Zone_Error
from coro.dns.server import Server
from coro.dns.tsig import Key
from coro.dns.zone import Primary, Secondary, Zone

COUNT = int(os.environ.get("CORO_DNS_DAMAGED", "1500"))
SEED = pytest.mark.parametrize(
    "seed", [int(os.environ.get("CORO_DNS_SEED", random.randrange(1 << 32)))], ids=["chance"]
)
TYPES = [1, 2, 5, 6, 15, 16, 28, 33, 39, 43, 46, 47, 50, 250, 251, 252, 255, 65280]
OTHER = Key("other.test", b"another secret")


def damaged(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(chance.choice([0, 1, 1, 2, 5])):
        at = chance.randrange(len(out) + 1)
        what = chance.randrange(4)
        if what == 0 and at < len(out):
            out[at] = chance.choice([0, 1, 0xC0, 0xFF, chance.randrange(256)])
        elif what == 1:
            del out[at : at + chance.choice([1, 2, 10])]
        elif what == 2:
            out[at:at] = chance.randbytes(chance.choice([1, 2, 10]))
        else:
            other = chance.randrange(len(out) + 1)
            out[at:at] = out[other : other + chance.randrange(20)]
    return bytes(out)


def records(chance: random.Random, count: int) -> list[tuple[bytes, int, int, int, bytes]]:
    names = [ORIGIN, "www." + ORIGIN, "new." + ORIGIN, "sub." + ORIGIN, "elsewhere.test", "*." + ORIGIN]
    found = []
    for _ in range(count):
        rtype = chance.choice(TYPES)
        data = chance.choice([b"", b"\xc0\0\2\1", name("www." + ORIGIN), chance.randbytes(chance.randrange(40)),
                              soa(ORIGIN)[4], b"\0\x0a" + name("www." + ORIGIN)])  # fmt: skip
        klass = chance.choice([1, 1, 1, 254, 255, 3])
        found.append((name(chance.choice(names)), rtype, klass, chance.choice([0, 0, 300, 1 << 31]), data))
    return found


def message(chance: random.Random) -> bytes:
    """A question, a transfer, a notification or an update; perhaps signed."""
    opcode = chance.choice([0, 0, 4, 5, 5, 5])
    rtype = chance.choice(TYPES) if not opcode else 6
    out = _wire.build(
        chance.randrange(65536), opcode << 11 | chance.choice([0, 0x100, 0x10]),
        name(chance.choice([ORIGIN, "www." + ORIGIN])), rtype, chance.choice([1, 1, 1, 255]),
        records(chance, chance.randrange(3)), records(chance, chance.randrange(4)),
        udp_size=chance.choice([0, 512, 1232]), dnssec_ok=chance.random() < 0.5,
    )  # fmt: skip
    if chance.random() < 0.3:
        return damaged(out, chance)
    if chance.random() < 0.8:
        out = tsig.sign(out, chance.choice([KEY, KEY, KEY, OTHER]))[0]
    return out if chance.random() < 0.3 else damaged(out, chance)


@SEED
@in_loop
def test_messages_to_a_server(seed):
    print("seed", seed)
    chance = random.Random(seed)
    zone = Zone.from_text(plain(), ORIGIN)
    services = [Primary(zone, transfer=[KEY], update=[KEY]), Secondary("copy.test", ["192.0.2.1"])]
    server = Server(zones=services, addresses=[])
    codes = set()
    for number in range(COUNT):
        query = message(chance)
        datagram = chance.random() < 0.5
        replies = server._replies(query, "192.0.2.7", datagram)
        for reply in replies or ():
            parsed = _wire.parse(reply)
            assert parsed.is_reply and reply[:2] == query[:2]
            assert not datagram or len(reply) <= 1232
            codes.add(parsed.rcode)
        if number % 50 == 0:
            # whatever came, the zone is one
            assert Zone.from_text(zone.to_text(), ORIGIN).to_text() == zone.to_text()
            coro.yield_slice()
    assert {0, 1, 5, 9} <= codes


@SEED
@in_loop
def test_transfers_that_come(seed):
    """Records in any order, with any data: a zone, or an error."""
    print("seed", seed)
    chance = random.Random(seed)
    zone = Zone.from_text("$TTL 300\n@ SOA ns admin 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n", ORIGIN)
    done = 0
    for _ in range(COUNT // 3):
        serials = [
            zone._data.soa[1][0][:-20] + chance.choice([1, 2, 3]).to_bytes(4, "big") + bytes(16) for _ in range(4)
        ]
        good = [(name(ORIGIN), 6, 1, 300, one) for one in serials] + [record("a." + ORIGIN, 1, "192.0.2.1")]
        receiver = Receiver(name(ORIGIN), chance.choice([None, zone._data]), most=100)
        try:
            for _ in range(chance.randrange(2, 12)):
                one = chance.choice(good) if chance.random() < 0.9 else records(chance, 1)[0]
                receiver.take([(*one[:3], one[3] & 0x7FFFFFFF, one[4])])  # as a message is read
                if receiver.done:
                    done += 1
                    if receiver.zone is not None:
                        text = Zone(receiver.zone).to_text()
                        assert Zone.from_text(text, ORIGIN).to_text() == text
                    break
        except DNS_Transfer_Error:
            pass
    assert done


@SEED
@in_loop
def test_files(seed):
    print("seed", seed)
    chance = random.Random(seed)
    text = plain(3).encode()
    good = 0
    for _ in range(COUNT // 15):
        changed = damaged(text, chance).decode("latin-1")
        try:
            zone = Zone.from_text(changed, ORIGIN, limit=10_000)
        except DNS_Zone_Error:
            continue
        good += 1
        assert Zone.from_text(zone.to_text(), ORIGIN).to_text() == zone.to_text()
    assert good
