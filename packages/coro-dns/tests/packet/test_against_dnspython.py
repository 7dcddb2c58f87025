"""Messages by chance, right ones and wrong ones: what we read is what dnspython reads, what we write it reads alike.

`CORO_DNS_MESSAGES` says how many of each; the soak takes 100 000.
"""

from __future__ import annotations

import os
import random

import dns.exception
import dns.message
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import pytest
from packet_messages import message, mutated

from coro.dns import packet
from coro.dns._packet.codec import data_of, fields_of, kinds_of
from coro.dns._packet.numbers import type_number

MESSAGES = int(os.environ.get("CORO_DNS_MESSAGES", "300"))
SEED = int(os.environ.get("CORO_DNS_SEED") or random.SystemRandom().getrandbits(32))


def unpack(data):
    return packet.Unpacker(data).unpack()


def records_of(theirs):
    out = []
    for rrset in (*theirs.answer, *theirs.authority, *theirs.additional):
        for rdata in rrset:
            wire = rdata.to_wire() if rdata is not None else b""
            out.append((rrset.name.to_wire().lower(), rrset.rdtype, rrset.rdclass, rrset.ttl, wire))
    return out


def ours(records):
    out = []
    for owner, rtype, klass, ttl, data in records:
        if rtype == "OPT":
            continue
        number = rtype if isinstance(rtype, int) else type_number(rtype)
        klass = klass if isinstance(klass, int) else getattr(packet.CLASS, klass)
        kinds = kinds_of(number, klass)
        if kinds and not isinstance(data, bytes) or kinds in ("e", "m"):
            data = data_of(number, [data] if len(kinds) == 1 else data, klass)
        p = packet.Packer()
        p.addname(owner)
        out.append((p.getbuf(), number, klass, ttl, data))
    return out


def folded(records):
    """Names within data in small letters: ours are. Letters count in no comparison of names."""
    # a set: dnspython joins records that are the same, as those are that differ only in letters
    return sorted(
        {(owner, rtype, klass, ttl, lowered(rtype, klass, data)) for owner, rtype, klass, ttl, data in records}
    )


def lowered(rtype, klass, data):
    fields = fields_of(rtype, data, klass, True) if data or klass < 254 else None
    return data if fields is None else data_of(rtype, fields, klass)


def rewritten(data):
    """The message that we write from what we have read."""
    u = packet.Unpacker(data)
    header, questions, *sections = u.unpack()
    p = packet.Packer()
    p.addHeader(header)
    for question in questions:
        p.addQuestion(*question)
    for section in sections:
        for owner, rtype, klass, ttl, value in section:
            if rtype == "OPT":
                p.addOPT(*u.edns)
            else:
                p.addRR(owner, rtype, klass, ttl, value)
    return p.getbuf()


@pytest.mark.slow
def test_right_messages():
    print(f"CORO_DNS_SEED={SEED}")
    r = random.Random(SEED)
    for _ in range(MESSAGES):
        theirs = message(r)
        data = theirs.to_wire(max_size=65535)
        header, questions, answer, authority, additional = unpack(data)
        assert header.id == theirs.id
        assert len(questions) == 1
        expected = folded(records_of(theirs))
        assert folded(ours((*answer, *authority, *additional))) == expected
        again = dns.message.from_wire(rewritten(data))
        assert folded(records_of(again)) == expected
        assert (again.flags, again.rcode(), again.edns) == (theirs.flags, theirs.rcode(), theirs.edns)
        assert [o.to_wire() for o in again.options] == [o.to_wire() for o in theirs.options]


@pytest.mark.slow
def test_texts():
    """Each data as text and back: ours from theirs, theirs from ours."""
    r = random.Random(SEED)
    for _ in range(MESSAGES // 4):
        for *_, rtype, klass, _ttl, data in records_of(message(r)):
            text = packet.rdata_to_text(rtype, data)
            assert packet.rdata_from_text(rtype, text) == data, text
            assert dns.rdata.from_text(klass, rtype, text).to_wire() == data, text
            theirs = dns.rdata.from_wire(klass, rtype, data, 0, len(data))
            assert packet.rdata_from_text(rtype, theirs.to_text()) == data, theirs.to_text()
            assert theirs.to_digestable() == packet.canonical(rtype, data) or rtype in (18, 26, 35, 36, 17)


@pytest.mark.slow
def test_wrong_messages():
    print(f"CORO_DNS_SEED={SEED}")
    r = random.Random(SEED + 1)
    read = 0
    for _ in range(MESSAGES):
        data = mutated(r, message(r).to_wire(max_size=65535))
        try:
            whole = unpack(data)
        except packet.UnpackError:
            continue
        read += 1
        try:
            theirs = dns.message.from_wire(data, one_rr_per_rrset=True)
        except (dns.exception.DNSException, ValueError, AssertionError):
            continue  # they look closer at some data
        if theirs.opcode() in (4, 5):
            continue
        assert folded(ours((*whole[2], *whole[3], *whole[4]))) == folded(records_of(theirs))
        rewritten(data)
    assert read
    if MESSAGES < 1000:
        return
    assert read > MESSAGES / 20


@pytest.mark.parametrize("length", (0, 11, 12, 500))
def test_noise(length):
    r = random.Random(SEED + length)
    for _ in range(200):
        try:
            unpack(r.randbytes(length))
        except packet.UnpackError:
            pass
