"""Messages in wire form: against dnspython, and against what hostile peers send."""

from __future__ import annotations

import random

import dns.exception
import dns.message
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coro.dns import _values, _wire

RECORDS = [
    ("A", "192.0.2.1"), ("AAAA", "2001:db8::1"), ("NS", "ns.example."), ("CNAME", "other.example."),
    ("SOA", "ns.example. host.example. 1 2 3 4 5"), ("MX", "10 mail.example."), ("TXT", '"some" "text"'),
    ("SRV", "1 2 3 srv.example."), ("PTR", "p.example."), ("HINFO", '"a" "b"'), ("RP", "a.example. b.example."),
    ("DNAME", "d.example."), ("AFSDB", "1 afs.example."), ("CAA", '0 issue "ca"'), ("NAPTR", '1 2 "u" "s" "!a!b!" .'),
    ("TLSA", "3 1 1 " + "0f" * 32), ("KX", "1 kx.example."), ("PX", "1 a.example. b.example."),
    ("TYPE65280", r"\# 3 010203"),
]  # fmt: skip


def random_message(dice: random.Random) -> bytes:
    """One that dnspython makes, compressed as it likes."""
    names = ["example.", "www.example.", "a.b.example.", "x.org.", "."]
    message = dns.message.make_query(dice.choice(names), dice.choice(["A", "MX", "TXT"]), use_edns=dice.choice([0, -1]))
    message.flags |= dns.flags.QR
    for section in (message.answer, message.authority, message.additional):
        for _ in range(dice.randrange(4)):
            rtype, text = dice.choice(RECORDS)
            section.append(dns.rrset.from_text(dice.choice(names), dice.randrange(1 << 31), "IN", rtype, text))
    return message.to_wire()


def told(data: bytes) -> list[list[tuple[str, int, int, int, bytes]]]:
    """The sections as dnspython reads them."""
    message = dns.message.from_wire(data, one_rr_per_rrset=True)
    return [
        [(str(s.name).lower(), int(s.rdtype), int(s.rdclass), s.ttl, r.to_wire()) for s in section for r in s]
        for section in (message.answer, message.authority, message.additional)
    ]


def ours(message: _wire.Message) -> list[list[tuple[str, int, int, int, bytes]]]:
    def text(name: bytes) -> str:
        return _wire.to_text(name) if name == b"\0" else _wire.to_text(name) + "."

    return [
        [(text(owner), *rest) for owner, *rest in section]
        for section in (message.answer, message.authority, message.additional)
    ]


@pytest.mark.slow
def test_the_same_as_dnspython() -> None:
    dice = random.Random(1)
    for _ in range(500):
        data = random_message(dice)
        message = _wire.parse(data)
        assert ours(message) == told(data)
        again = _wire.build(
            message.id, message.flags, message.question, message.qtype, message.qclass,
            message.answer, message.authority, message.additional, udp_size=message.udp_size,
        )  # fmt: skip
        assert ours(_wire.parse(again)) == told(again) == told(data)
        assert len(_wire.ttl_places(again)) == sum(map(len, told(data)))


@pytest.mark.slow
def test_damaged_messages() -> None:
    """They are a ValueError, or a message: never anything else, never slow."""
    dice = random.Random(2)
    for _ in range(5000):
        data = bytearray(random_message(dice))
        for _ in range(dice.randrange(1, 6)):
            data[dice.randrange(len(data))] = dice.choice((0, 1, 63, 64, 0xC0, 255, dice.randrange(256)))
        damaged = bytes(data[: dice.randrange(len(data) + 1)] if dice.random() < 0.3 else data)
        try:
            message = _wire.parse(damaged)
        except ValueError:
            continue
        for section in (message.answer, message.authority, message.additional):
            for record in section:
                try:
                    _values.value_of(record[1], record[4])
                except ValueError:
                    pass
        _wire.build(1, 0, message.question or b"\0", 1, 1, message.answer, message.authority, message.additional)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    try:
        _wire.parse(data)
    except ValueError:
        pass


@pytest.mark.parametrize(
    "tail",
    [
        b"\xc0\x0c",  # a pointer to itself
        b"\xc0\x0e\xc0\x0c",  # forwards
        b"\x01a\xc0\x0c",  # a loop
        b"\x40",  # kinds of labels that do not exist
        b"\x80",
        b"\x3fshort",
        b"\x3f" + b"a" * 63 + (b"\x3f" + b"a" * 63) * 3 + b"\x01a\0",  # 258 bytes
    ],
)
def test_names_that_are_none(tail: bytes) -> None:
    with pytest.raises(ValueError):
        _wire.parse(bytes(4) + b"\0\1" + bytes(6) + tail + b"\0\1\0\1")


def test_announced_but_not_there() -> None:
    with pytest.raises(ValueError, match="announces more"):
        _wire.parse(bytes(6) + b"\xff\xff" + bytes(4) + bytes(100))


def test_a_bomb_of_names() -> None:
    """Each of many records points to the longest name: the sum is limited."""
    name = (b"\x3f" + b"a" * 63) * 3 + b"\x3d" + b"a" * 61 + b"\0"
    record = b"\xc0\x0c\0\x0e\0\1\0\0\0\0\0\4\xc0\x0c\xc0\x0c"  # MINFO: two names
    count = (65535 - 300) // len(record)
    data = bytes(4) + b"\0\1" + count.to_bytes(2, "big") + bytes(4) + name + b"\0\1\0\1" + record * count
    with pytest.raises(ValueError, match="MiB"):
        _wire.parse(data)


def test_names_as_text() -> None:
    assert _wire.from_text("WWW.Example.") == b"\3www\7example\0"
    assert _wire.from_text(".") == _wire.from_text("") == b"\0"
    assert _wire.to_text(b"\0") == "."
    assert _wire.from_text(r"a\.b.c\032d") == b"\3a.b\3c d\0"
    assert _wire.to_text(b"\3a.b\3c d\0") == r"a\.b.c\032d"
    for wrong in ("a..b", ".a", "a" * 64, ".".join(["a" * 63] * 4), "a\\", "a\\25", "a\\256", "ä"):
        with pytest.raises(ValueError):
            _wire.from_text(wrong)
    assert _wire.below(b"\3www\7example\0", b"\7example\0")
    assert not _wire.below(b"\12wwwexample\0", b"\7example\0")
    assert not _wire.below(b"\4\7exa\0", b"\3exa\0")
    assert _wire.below(b"\1a\0", b"\0")
    assert _wire.parent(b"\1a\1b\0") == b"\1b\0"
    assert _wire.labels(b"\1a\1b\0") == 2


def test_what_does_not_fit_is_left_out() -> None:
    records = [(b"\1a\0", 1, 1, 5, bytes(4))] * 100
    cut = _wire.parse(_wire.build(1, 0x8000, b"\1a\0", 1, 1, records, udp_size=1232, limit=512))
    assert cut.truncated and 25 < len(cut.answer) < 35 and cut.udp_size == 1232
    glue = _wire.parse(_wire.build(1, 0x8000, b"\1a\0", 1, 1, records[:1], (), records, limit=512))
    assert not glue.truncated and len(glue.answer) == 1 and 20 < len(glue.additional) < 35


def test_four_thousand_addresses() -> None:
    records = [(b"\1a\0", 1, 1, 5, bytes((192, 0, i >> 8, i & 255))) for i in range(4000)]
    data = _wire.build(1, 0x8000, b"\1a\0", 1, 1, records)
    assert len(data) == 12 + 7 + 4000 * 16
    assert _wire.parse(data).answer == records
