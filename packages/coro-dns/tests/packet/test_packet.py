"""The codec: vectors, limits, values of each type, texts."""

from __future__ import annotations

import dns.name
import dns.rdata
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coro.dns import packet
from coro.dns._packet.numbers import type_number
from coro.dns._packet.text import tokens
from coro.dns.packet import Header, Packer, PackError, Unpacker, UnpackError


def test_names_of_rfc_1035():
    """The example of section 4.1.4."""
    p = Packer()
    p.addbytes(bytes(20))
    p.addname("f.ISI.ARPA")
    p.addbytes(bytes(8))
    p.addname("Foo.F.isi.arpa")
    p.addbytes(bytes(18))
    p.addname("arpa")
    p.addbytes(bytes(26))
    p.addname("")
    data = p.getbuf()
    assert data[20:32] == b"\x01f\x03ISI\x04ARPA\x00"
    assert data[40:46] == b"\x03Foo\xc0\x14"
    assert data[64:66] == b"\xc0\x1a"
    assert data[92:] == b"\x00"
    u = Unpacker(data)
    u.getbytes(20)
    assert u.getname() == "f.isi.arpa"
    u.getbytes(8)
    assert u.getname() == "foo.f.isi.arpa"
    u.getbytes(18)
    assert u.getname() == "arpa"
    u.getbytes(26)
    assert u.getname() == ""
    assert u.place == len(data) == len(p)


def test_a_message():
    h = Header()
    h.id = 3141
    h.qdcount = h.ancount = h.arcount = 1
    p = Packer()
    p.addHeader(h)
    p.addQuestion("glerg.org", packet.TYPE.CNAME, packet.CLASS.IN)
    p.addCNAME("glerg.org", packet.CLASS.IN, 3000, "blerb.com")
    p.addHINFO("brodig.com", packet.CLASS.IN, 5000, b"vax", b"vms")
    header, *rest = Unpacker(p.getbuf()).unpack()
    assert header.id == 3141
    assert rest == [
        [("glerg.org", 5, 1)],
        [("glerg.org", "CNAME", "IN", 3000, "blerb.com")],
        [],
        [("brodig.com", "HINFO", "IN", 5000, (b"vax", b"vms"))],
    ]


def test_every_bit_of_the_header():
    for bit in range(16):
        data = b"\x12\x34" + (1 << bit).to_bytes(2, "big") + bytes(8)
        header = Unpacker(data).getHeader()
        p = Packer()
        p.addHeader(header)
        assert p.getbuf() == data
    assert "id=4660" in repr(header)


def test_the_typed_methods():
    p = Packer()
    p.addA("a.example", 1, "192.0.2.1")
    p.addAAAA("a.example", 2, "2001:db8::1")
    p.addNS("example", "IN", 3, "ns.example")
    p.addPTR("p.example", "IN", 4, "a.example.")
    p.addMX("example", "CH", 5, 10, "mail.example")
    p.addSOA("example", "IN", 6, "ns.example", "who.example", 0xFFFFFFFF, 2, 3, 4, 5)
    p.addTXT("example", 1, 7, [b"one", b""])
    p.addRRheader("example", "TYPE65280", "CLASS9", 8)
    p.addbytes(b"abc")
    p.endRR()
    p.addRR("example", "SRV", "IN", 9, (1, 2, 3, "host.example"))
    u = Unpacker(p.getbuf())
    assert [u.getRR() for _ in range(9)] == [
        ("a.example", "A", "IN", 1, "192.0.2.1"),
        ("a.example", "AAAA", "IN", 2, "2001:db8::1"),
        ("example", "NS", "IN", 3, "ns.example"),
        ("p.example", "PTR", "IN", 4, "a.example"),
        ("example", "MX", "CH", 5, (10, "mail.example")),
        ("example", "SOA", "IN", 6, ("ns.example", "who.example", 0xFFFFFFFF, 2, 3, 4, 5)),
        ("example", "TXT", "IN", 7, [b"one", b""]),
        ("example", 65280, 9, 8, b"abc"),
        ("example", "SRV", "IN", 9, (1, 2, 3, "host.example")),
    ]
    u.ensure(0)
    with pytest.raises(UnpackError):
        u.ensure(1)


def test_primitives():
    p = Packer()
    p.addbyte(255)
    p.add16bit(0x12345)
    p.add32bit(-1)
    p.addaddr("192.0.2.255")
    p.addstring(b"abc")
    u = Unpacker(p.getbuf())
    assert (u.getbyte(), u.get16bit(), u.get32bit(), u.getaddr(), u.getstring()) == (
        255, 0x2345, 0xFFFFFFFF, "192.0.2.255", b"abc",
    )  # fmt: skip
    for method in (u.getbyte, u.get16bit, u.get32bit, u.getaddr, u.getstring, u.getname, u.getHeader, u.getRR):
        with pytest.raises(UnpackError):
            method()
    assert packet.unpack16bit(packet.pack16bit(0x12345)) == 0x2345
    assert packet.unpack32bit(packet.pack32bit(-2)) == 0xFFFFFFFE
    assert packet.addr2bin("192.0.2.1") == 0xC0000201 == packet.addr2bin(0xC0000201)
    assert packet.bin2addr(0xC0000201) == "192.0.2.1"
    for wrong in ("1.2.3", "1.2.3.256", "1.2.3.x", ""):
        with pytest.raises(ValueError):
            packet.addr2bin(wrong)
    assert [packet.dot_sane(name) for name in ("", "a.b", ".a", "a.", "a..b")] == [True, True, False, False, False]
    assert packet.TYPE_MAP[28] == "AAAA" and packet.TYPE_MAP[10] == "NULL" and packet.RCODE_MAP[16] == "BADVERS"


def test_names_that_cannot_be():
    p = Packer()
    p.addname("a.example")
    before = p.getbuf()
    for wrong in ("b." + "x" * 64, ".".join(["x" * 63] * 4), "\\256", "b\\", "b\\1", "b\u00e4", 3):
        with pytest.raises(PackError):
            p.addname(wrong)
        with pytest.raises(PackError):
            p.addCNAME("new.example", 1, 0, wrong)
    assert p.getbuf() == before
    p.addname("new.example")  # its first try was taken back: nothing may point there
    assert Unpacker(p.getbuf()[len(before) :]).getbytes(4) == b"\3new"
    q = Packer()
    q.addname("." + ".".join(["x" * 63] * 3 + ["y" * 61]) + "..")
    assert len(q) == 255


def test_data_that_cannot_be():
    p = Packer()
    for rtype, data in (
        ("A", "192.0.2"), ("A", 5), ("AAAA", "192.0.2.1"), ("MX", (1,)), ("MX", (65536, "a")), ("MX", (-1, "a")),
        ("TXT", []), ("TXT", [b"x" * 256]), ("SRV", 7), ("DS", (1, 2, 3, "text")),
        ("HTTPS", (1, "", [(1, b""), (1, b"")])),
        ("TYPE65280", "text"), ("NSEC", ("", [65536])), ("APL", [(1, 2, 3)]), ("TXT", [b"x" * 255] * 257),
    ):  # fmt: skip
        with pytest.raises(PackError):
            p.addRR("a", rtype, "IN", 0, data)
    for wrong in (
        ("a", "NOTYPE", "IN", 0, b""),
        ("a", 1, 65536, 0, b""),
        ("a", 1, 1, -1, b""),
        ("a", 1, 1, 1 << 32, b""),
    ):
        with pytest.raises(PackError):
            p.addRR(*wrong)
    with pytest.raises(PackError):
        p.endRR()
    with pytest.raises(PackError):
        p.addbyte(256)
    assert p.getbuf() == b""


def test_many_names_compress():
    p = Packer()
    names = [f"host{i}.zone{i % 7}.example" for i in range(5000)]
    for name in names:
        p.addname(name)
    assert len(p) < 5000 * 15
    u = Unpacker(p.getbuf())
    assert [u.getname() for _ in names] == names


def test_edns():
    h = Header()
    h.arcount = 1
    p = Packer()
    p.addHeader(h)
    p.addOPT(4096, True, 0, 1, [(10, b"12345678"), (12, b"")])
    u = Unpacker(p.getbuf())
    u.unpack()
    assert u.edns == (4096, True, 0, 1, [(10, b"12345678"), (12, b"")])
    u = Unpacker(bytes(12))
    u.unpack()
    assert u.edns is None
    two = p.getbuf()[:11] + b"\2" + 2 * p.getbuf()[12:]
    with pytest.raises(UnpackError):
        Unpacker(two).unpack()


def test_options():
    for code, data, value in (
        (8, bytes.fromhex("0001180cc00002"), ("192.0.2.0", 24, 12)),
        (8, bytes.fromhex("0002200020010db8"), ("2001:db8::", 32, 0)),
        (10, bytes(8), (bytes(8), b"")),
        (10, bytes(24), (bytes(8), bytes(16))),
        (15, b"\0\x12no", (18, "no")),
        (12, bytes(7), 7),
        (11, b"\0\x64", 10.0),
        (9, b"\0\0\0\7", 7),
        (9, b"", None),
        (3, b"me", b"me"),
    ):
        assert packet.option_value(code, data) == value
        assert packet.option_data(code, value) == data
    for code, data in ((8, b""), (8, bytes.fromhex("0001210000")), (8, bytes.fromhex("000117 00c00203")),
                       (10, bytes(9)), (15, b"\0"), (11, b"\0")):  # fmt: skip
        with pytest.raises(UnpackError):
            packet.option_value(code, data)
    for code, value in ((8, ("x", 1, 1)), (8, ("192.0.2.1", 33, 0)), (10, (b"", b"")), (15, 3), (12, -1), (99, "x")):
        with pytest.raises(PackError):
            packet.option_data(code, value)


def test_the_top_bit_of_a_ttl():
    """RFC 2181, section 8."""
    assert Unpacker(b"\0\0\1\0\1\x80\0\0\1\0\4abcd").getRR()[3] == 0
    assert Unpacker(b"\0\0\1\0\1\x7f\xff\xff\xff\0\4abcd").getRR()[3] == 0x7FFFFFFF


def test_data_of_another_length():
    for data in (b"\0\0\1\0\1\0\0\0\0\0\5abcde", b"\0\0\1\0\1\0\0\0\0\0\3abc", b"\0\0\x10\0\1\0\0\0\0\0\2\5a",
                 b"\0\0\2\0\1\0\0\0\0\0\1\1a\0", b"\0\0\x10\0\1\0\0\0\0\0\0"):  # fmt: skip
        with pytest.raises(UnpackError):
            Unpacker(data).getRR()
    assert Unpacker(b"\0\0\1\0\xff\0\0\0\0\0\0").getRR() == ("", "A", 255, 0, b"")  # of an UPDATE


TEXTS = [
    ("A", "192.0.2.1"),
    ("TXT", r'"a b" "\"\\\007"'),
    ("MX", "10 Mail.Example."),
    ("RRSIG", "A 8 2 300 20300101000000 20200101000000 7 example. AQID"),
    ("NSEC", "b.example. A MX TYPE65280"),
    ("NSEC3", "1 1 12 AABB 2VPTU5TIMAMQTTGL4LUU9KG21E0AOR3S A RRSIG"),
    ("NSEC3PARAM", "1 0 0 -"),
    ("HTTPS", r'1 . alpn="h2,f\\\\oo\\,bar" port=8443 ipv4hint=192.0.2.1 ech=AAQBAgME ipv6hint=2001:db8::1 key99="x"'),
    ("SVCB", "1 a. mandatory=alpn,port alpn=\"h2\" no-default-alpn port=1"),
    ("CAA", '0 issue "ca.example"'),
    ("APL", "1:192.0.2.0/24 !2:2001:db8::/32"),
    ("NSAP", "0x47000580"),
    ("TYPE731", r"\# 3 ABCDEF"),
    ("TLSA", "3 1 1 " + 32 * "AB"),
    ("URI", '10 1 "ftp://example.org/"'),
    ("SSHFP", "1 2 " + 32 * "AB"),
]  # fmt: skip


@pytest.mark.parametrize(("rtype", "text"), TEXTS)
def test_texts(rtype, text):
    number = type_number(rtype)
    data = packet.rdata_from_text(number, text)
    assert packet.rdata_to_text(number, data) == text
    assert dns.rdata.from_text("IN", rtype, text).to_wire() == data
    generic = f"\\# {len(data)} {data.hex()}"
    assert packet.rdata_from_text(number, generic) == data
    packet.rdata_value(number, data)
    packet.canonical(number, data)


def test_names_in_texts():
    assert packet.rdata_from_text(15, "10 mail", "example") == b"\0\x0a\4mail\7example\0"
    assert packet.rdata_from_text(15, "10 mail", "example.") == b"\0\x0a\4mail\7example\0"
    assert packet.rdata_from_text(2, "@", "example") == b"\7example\0"
    assert packet.rdata_from_text(2, r"a\.", "example") == b"\2a.\7example\0"
    assert packet.canonical(15, b"\0\x0a\4MAIL\0") == b"\0\x0a\4mail\0"
    assert packet.canonical(47, b"\1A\0\0\1\x40") == b"\1A\0\0\1\x40"  # RFC 6840, section 5.1
    assert tokens('a ( "b ; c"\n d ) ; e\n f') == ["a", "b ; c", "d", "f"]


@pytest.mark.parametrize(("rtype", "text"), [
    (1, "192.0.2"), (1, "192.0.2.1 x"), (1, ""), (1, r"\# 3 010203"), (1, r"\# 4 0102"), (15, "x mail."),
    (15, "70000 a."), (2, "a..b."), (16, '"x'), (43, "1 2 3 xyz"), (48, "1 3 8 !!"),
    (46, "A 8 2 300 2030 1x 7 e. AQID"), (65, "1 . alpn"), (65, "1 . port=70000"), (65, "1 . foo=1"),
    (65, "1 . no-default-alpn=1"), (42, "3:1/2"),
    (41, "x"), (65280, "x"), (22, "47"), (50, "1 0 0 - !! A"), (2, "\u00e4."), (65, "1 . ipv4hint=x"),
    (47, "a. NOTYPE"), (16, r'"\256"'),
])  # fmt: skip
def test_wrong_texts(rtype, text):
    with pytest.raises(PackError):
        packet.rdata_from_text(rtype, text)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.binary(min_size=1, max_size=63), max_size=3))
def test_any_name(labels):
    wire = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    text = Unpacker(wire).getname()
    p = Packer()
    p.addname(text)
    assert p.getbuf() == wire.lower()  # lengths are below 64, so they are no letters
    assert dns.name.from_text(text + ".").to_wire() == dns.name.from_wire(wire, 0)[0].canonicalize().to_wire()


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 300) | st.sampled_from((32768, 32769, 65280)), st.binary(max_size=80))
def test_any_data(rtype, data):
    """What can be read can be written, and as text, too."""
    try:
        value = packet.rdata_value(rtype, data)
    except UnpackError:
        return
    p = Packer()
    p.addRR("", rtype, 1, 0, value)
    again = p.getbuf()[11:]
    assert packet.rdata_value(rtype, again) == value
    text = packet.rdata_to_text(rtype, data)
    assert packet.rdata_value(rtype, packet.rdata_from_text(rtype, text)) == value


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes(data):
    for read in (lambda: Unpacker(data).unpack(), lambda: Unpacker(bytes(12) + data).getRR()):
        try:
            read()
        except UnpackError:
            pass
