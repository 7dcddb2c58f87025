"""What IANA has registered: types by name, words for numbers, parameters of services; and what must not be taken."""

from __future__ import annotations

import dns.rdata
import dns.rdatatype
import pytest

from coro.dns.packet import TYPE, PackError, rdata_from_text, rdata_to_text


@pytest.mark.parametrize(
    ("rtype", "text"),
    [
        (TYPE.DSYNC, "CDS 1 5359 rr-endpoint.example."),
        (TYPE.HHIT, "gwppM2ZmOCAwMDBhYw=="),
        (TYPE.BRID, "gwppM2ZmOCAwMDBhYw=="),
        (TYPE.NID, "10 0014:4fff:ff20:ee64"),
        (TYPE.L32, "10 10.1.2.0"),
        (TYPE.L64, "10 2001:0db8:1140:1000"),
        (TYPE.LP, "10 l64-subnet.example."),
        (TYPE.AMTRELAY, "10 0 0 ."),
        (TYPE.AMTRELAY, "10 1 1 203.0.113.15"),
        (TYPE.AMTRELAY, "10 0 2 2001:db8::15"),
        (TYPE.AMTRELAY, "128 1 3 amtrelays.example.com."),
        (TYPE.RESINFO, '"qnamemin" "exterr=15-17"'),
        (TYPE.WALLET, '"BTC" "wallet"'),
        (TYPE.CLA, '"TCP-v4-v6"'),
    ],
)
def test_newer_types(rtype, text):
    """They are read and written by name, as another library does where it knows them."""
    data = rdata_from_text(rtype, text)
    assert rdata_to_text(rtype, data) == text
    kind = dns.rdatatype.to_text(rtype)
    if not kind.startswith("TYPE") and not text.startswith(("CDS", "gwpp", '"TCP')):
        assert dns.rdata.from_text("IN", rtype, text).to_wire() == data


def test_names_of_types():
    names = "DSYNC HHIT BRID NID L32 L64 LP NXNAME DOA AMTRELAY RESINFO WALLET CLA IPN".split()
    assert [getattr(TYPE, name) for name in names] == [66, 67, 68, 104, 105, 106, 107, 128, *range(259, 265)]


@pytest.mark.parametrize(
    ("rtype", "words", "numbers"),
    [
        (TYPE.DS, "1 RSASHA256 SHA-256 " + 32 * "ab", "1 8 2 " + 32 * "ab"),
        (TYPE.CDS, "1 ED25519 sha384 " + 48 * "ab", "1 15 4 " + 48 * "ab"),
        (TYPE.KEY, "NOAUTH|ZONE EMAIL RSASHA1 AQAB", "33024 2 5 AQAB"),
        (TYPE.KEY, "HOST DNSSEC DSA AQAB", "512 3 3 AQAB"),
        (TYPE.DSYNC, "CSYNC NOTIFY 53 a.example.", "CSYNC 1 53 a.example."),
    ],
)
def test_words_for_numbers(rtype, words, numbers):
    assert rdata_from_text(rtype, words) == rdata_from_text(rtype, numbers)


@pytest.mark.parametrize(
    ("text", "hexadecimal"),
    [
        ("1 . key1=\\002h2", "000100" "00010003026832"),
        ("1 . key5=foo0", "000100" "00050004666f6f30"),
        ("1 . key3=\\001\\187", "000100" "0003000201bb"),
        ("1 . alpn=h2 no-default-alpn", "000100" "00010003026832" "00020000"),
        ("1 . mandatory=port,alpn alpn=h2 port=443", "000100" "0000000400010003" "00010003026832" "0003000201bb"),
        ("1 . tls-supported-groups=29,23", "000100" "00090004001d0017"),
        ("1 . docpath", "000100" "000a0000"),
        ("1 . docpath=dns,q", "000100" "000a000603646e730171"),
    ],
)  # fmt: skip
def test_parameters_of_services(text, hexadecimal):
    """RFC 9460, section 2.1: keyN has the bytes themselves, whether N has a name or not."""
    data = rdata_from_text(TYPE.SVCB, text)
    assert data.hex() == hexadecimal
    assert rdata_from_text(TYPE.SVCB, rdata_to_text(TYPE.SVCB, data)) == data


@pytest.mark.parametrize(
    "text",
    [
        "1 . mandatory=alpn",
        "1 . mandatory=mandatory",
        "1 . mandatory=mandatory,alpn alpn=h2",
        "1 a.example. mandatory=key123,key123 key123=abc",
        "1 . key0=\\000 alpn=h2",
        "1 . key0=\\000\\003\\000\\001 alpn=h2 port=1",
        "1 . no-default-alpn",
        "1 . key2=\"\"",
        "1 . key3=\\001",
        "1 . key4=\\001\\002\\003",
        "1 . key1=\\009h2",
        "1 . tls-supported-groups=29,29",
        "1 . tls-supported-groups=65536",
        "1 . tls-supported-groups=x",
        "1 . alpn=h2 alpn=h3",
    ],
)  # fmt: skip
def test_services_that_are_malformed(text):
    """RFC 9460, sections 2.2, 7.1, 8 and appendix D.3."""
    with pytest.raises(PackError):
        rdata_from_text(TYPE.SVCB, text)


@pytest.mark.parametrize(
    ("rtype", "text"),
    [
        (TYPE.DS, "1 8 2 abcd"),
        (TYPE.DS, "1 8 1 " + 19 * "ab"),
        (TYPE.DS, "1 8 4 " + 32 * "ab"),
        (TYPE.DS, "1 8 0 00"),
        (TYPE.CDS, "1 8 2 abcd"),
        (TYPE.GPOS, "91 0 0"),
        (TYPE.GPOS, "0 -180.5 0"),
        (TYPE.GPOS, "here 0 0"),
        (TYPE.GPOS, "0 0 nan"),
        (TYPE.URI, '1 1 ""'),
        (TYPE.NID, "1 0014:4fff:ff20"),
        (TYPE.L64, "1 0014:4fff:ff20:eeeee"),
        (TYPE.L64, "65536 0:0:0:0"),
        (TYPE.L32, "1 2001:db8::"),
        (TYPE.AMTRELAY, "1 2 0 ."),
        (TYPE.AMTRELAY, "1 0 1 2001:db8::1"),
        (TYPE.AMTRELAY, "1 0 4 x"),
        (TYPE.AMTRELAY, "1 0 0 a."),
    ],
)
def test_values_that_make_no_sense(rtype, text):
    with pytest.raises(PackError):
        rdata_from_text(rtype, text)


def test_values_at_their_limits():
    for rtype, text in ((TYPE.GPOS, "-90 180.0 -1.5"), (TYPE.CDS, "0 0 0 00"), (TYPE.DS, "1 8 99 00")):
        assert rdata_from_text(rtype, text)


@pytest.mark.parametrize(
    "data", [b"", b"\1", b"\1\1", b"\1\x81\1\2\3", b"\1\3\3abc", b"\1\4abc", b"\1\0x", bytes(9), bytes(11)]
)
def test_wire_forms_without_a_text_of_their_own(data):
    for rtype in (TYPE.AMTRELAY, TYPE.NID, TYPE.L64):
        text = rdata_to_text(rtype, data)
        assert rdata_from_text(rtype, text) == data
