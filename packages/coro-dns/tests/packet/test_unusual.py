"""Texts of types whose data is not just one field after the other; examples are from the RFCs."""

from __future__ import annotations

import dns.rdata
import pytest

from coro.dns import packet
from coro.dns.packet import TYPE, PackError, UnpackError, rdata_from_text, rdata_to_text

#: (type, text, the text that we write if it is another one, dnspython reads it too)
TEXTS = [
    # RFC 1876, section 4
    ("LOC", "42 21 54 N 71 06 18 W -24m 30m", "42 21 54.000 N 71 6 18.000 W -24.00m 30.00m 10000.00m 10.00m"),
    ("LOC", "52 14 05 N 00 08 50 E 10m", "52 14 5.000 N 0 8 50.000 E 10.00m 1.00m 10000.00m 10.00m"),
    ("LOC", "32 7 19 S 116 2 25 E 10m", "32 7 19.000 S 116 2 25.000 E 10.00m 1.00m 10000.00m 10.00m"),
    ("LOC", "90 N 180 W -100000 0 90000000 0.05m", "90 0 0.000 N 180 0 0.000 W -100000.00m 0.00m 90000000.00m 0.05m"),
    ("LOC", "0 0 0.001 S 0 0 0.5 W 0.01m", "0 0 0.001 S 0 0 0.500 W 0.01m 1.00m 10000.00m 10.00m"),
    # RFC 1035, section 3.4.2; RFC 2535, section 5.2
    ("WKS", "10.0.0.1 tcp telnet ftp 25", "10.0.0.1 6 21 23 25"),
    ("WKS", "10.0.0.1 17", "10.0.0.1 17"),
    ("NXT", "medium.foo.nil. A MX SIG NXT", "medium.foo.nil. A MX SIG NXT"),
    # RFC 4025, section 3.2
    ("IPSECKEY", "10 1 2 192.0.2.38 AQNRU3mG7TVTO2BkR47usntb102uFJtugbo6BSGvgqt4AQ==", None),
    ("IPSECKEY", "10 0 2 . AQNRU3mG7TVTO2BkR47usntb102uFJtugbo6BSGvgqt4AQ==", None),
    ("IPSECKEY", "10 3 2 Mygateway.example.com. AQNRU3mG7TVTO2BkR47usntb102uFJtugbo6BSGvgqt4AQ==", None),
    ("IPSECKEY", "10 2 2 2001:db8:0:8002::2000:1 AQNRU3mG7TVTO2BkR47usntb102uFJtugbo6BSGvgqt4AQ==", None),
    ("IPSECKEY", "10 0 0 .", None),
    # RFC 8005, section 6
    ("HIP", "2 200100107B1A74DF365639CC39F1D578 AwEAAbdxyhNuSutc5EMzxTs9LBPCIkOFH8cI rvs1.example. RVS2.example.",
     None),
    # RFC 7043, sections 3.2 and 4.2
    ("EUI48", "00-00-5E-00-53-2A", "00-00-5e-00-53-2a"),
    ("EUI64", "00-00-5e-ef-10-00-00-2a", None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "written"), TEXTS)
def test_texts(kind, text, written):
    rtype = getattr(TYPE, kind)
    data = rdata_from_text(rtype, text)
    assert rdata_to_text(rtype, data) == (written or text)
    assert rdata_from_text(rtype, written or text) == data
    if kind != "NXT" and not text.endswith(" ."):
        assert dns.rdata.from_text("IN", kind, text).to_wire() == data
        assert rdata_from_text(rtype, dns.rdata.from_wire("IN", kind, data, 0, len(data)).to_text()) == data


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("LOC", "91 N 0 E 0m"),
        ("LOC", "0 N 180 0 0.001 E 0m"),
        ("LOC", "0 60 N 0 E 0m"),
        ("LOC", "0 N 0 E -100000.01m"),
        ("LOC", "0 N 0 E 0m 90000001m"),
        ("LOC", "0 N 0 E 0m 1m 1m 1m 1m"),
        ("LOC", "0 N 0 E"),
        ("WKS", "10.0.0.1 tcp no-such-service"),
        ("WKS", "10.0.0.1 256 1"),
        ("WKS", "10.0.0.1 6 65536"),
        ("NXT", "a. TYPE128"),
        ("NXT", "a. NOTHING"),
        ("IPSECKEY", "10 0 2 a. AQ=="),
        ("IPSECKEY", "10 4 2 . AQ=="),
        ("IPSECKEY", "10 1 2 2001:db8::1 AQ=="),
        ("IPSECKEY", "256 0 2 . AQ=="),
        ("HIP", "2 2001 AQ"),
        ("HIP", "2 xx AQ=="),
        ("EUI48", "00-00-5e-00-53"),
        ("EUI48", "00:00:5e:00:53:2a"),
        ("EUI48", "00-00-5e-00-53-2a 1"),
        ("EUI64", "00-00-5e-00-53-2a"),
    ],
)
def test_wrong_texts(kind, text):
    with pytest.raises(PackError):
        rdata_from_text(getattr(TYPE, kind), text)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("LOC", bytes((1, 0x12, 0x16, 0x13)) + bytes(12)),  # another version
        ("LOC", bytes((0, 0x1A, 0x16, 0x13)) + b"\x80\0\0\0\x80\0\0\0" + bytes(4)),  # not a digit
        ("LOC", bytes((0, 0x03, 0x16, 0x13)) + b"\x80\0\0\0\x80\0\0\0" + bytes(4)),  # 0 km is written as 0 cm
        ("LOC", bytes((0, 0x12, 0x16, 0x13)) + bytes(12)),  # not on earth
        ("WKS", b"\x0a\0\0\1\6\x80\0"),  # a byte without bits at the end
        ("IPSECKEY", b"\x0a\4\2abc"),
        ("IPSECKEY", b"\x0a\1\2\1\2"),
        ("HIP", b"\0\2\0\1a"),
        ("HIP", b"\1\2\0\1ab\5a"),
        ("EUI48", b"12345"),
        ("EUI64", b""),
    ],
)
def test_data_without_a_text(kind, data):
    rtype = getattr(TYPE, kind)
    text = f"\\# {len(data)} {data.hex().upper()}".rstrip()
    assert rdata_to_text(rtype, data) == text
    assert rdata_from_text(rtype, text) == data


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("NSEC", b"\0\0\2\x40\0"),  # a byte without bits at the end
        ("NSEC3", b"\1\0\0\0\0\1a\0\1\x40\1\1\0"),  # a window without any
    ],
)
def test_data_that_means_the_same_as_other_data(kind, data):
    """Signatures are about the bytes, so the text has them."""
    rtype = getattr(TYPE, kind)
    assert rdata_from_text(rtype, rdata_to_text(rtype, data)) == data


def test_wrong_text_of_fuzzer():
    for kind, text in (("DNSKEY", "256 3 8 \xe9A=="), ("NSEC3", "1 0 0 - \xe9 A"), ("OPENPGPKEY", "\xff"),
                       ("WKS", "192.0.2.1 6 a\0")):  # fmt: skip
        with pytest.raises(PackError):
            rdata_from_text(getattr(TYPE, kind), text)
    with pytest.raises(packet.UnpackError):
        rdata_to_text(TYPE.OPT, b"\0\1\0\2a")


def test_old_algorithms_by_their_names():
    assert rdata_from_text(TYPE.CERT, "PKIX 1 ECC AA==") == rdata_from_text(TYPE.CERT, "1 1 4 AA==")


def test_values():
    loc = rdata_from_text(TYPE.LOC, "0 N 0 E 0m")
    assert packet.rdata_value(TYPE.LOC, loc) == (0, 0x12, 0x16, 0x13, 1 << 31, 1 << 31, 10_000_000)
    assert packet.rdata_value(TYPE.WKS, rdata_from_text(TYPE.WKS, "192.0.2.1 6 7")) == ("192.0.2.1", 6, b"\1")
    assert packet.canonical(TYPE.NXT, rdata_from_text(TYPE.NXT, "A.B. A")) == b"\1a\1b\0\x40"
    hip = rdata_from_text(TYPE.HIP, "2 20 AQ== A.B.")
    assert packet.canonical(TYPE.HIP, hip) == hip and packet.rdata_value(TYPE.HIP, hip) == hip
    with pytest.raises(packet.UnpackError):
        rdata_to_text(TYPE.LOC, b"1")


def place(latitude, longitude, version=0):
    """A LOC so many thousandths of seconds of arc off the equator and the meridian of Greenwich."""
    angles = ((1 << 31) + angle for angle in (latitude, longitude))
    return bytes((version, 0x12, 0x16, 0x13)) + b"".join(angle.to_bytes(4, "big") for angle in angles) + bytes(4)


POLE, DATE_LINE = 90 * 3_600_000, 180 * 3_600_000


@pytest.mark.parametrize(
    "number, data",
    [
        (TYPE.LOC, place(POLE + 1, 0)), (TYPE.LOC, place(-POLE - 1, 0)), (TYPE.LOC, place(0, DATE_LINE + 1)),
        (TYPE.LOC, place(0, -DATE_LINE - 1)), (TYPE.LOC, bytes(16)), (TYPE.EUI48, bytes(5)), (TYPE.EUI48, bytes(7)),
        (TYPE.EUI48, b""), (TYPE.EUI64, bytes(6)), (TYPE.URI, bytes(4)),
    ],
)  # fmt: skip
def test_wire_forms_that_mean_nothing(number, data):
    with pytest.raises(UnpackError):
        packet.rdata_value(number, data)
    text = rdata_to_text(number, data)
    assert text.startswith("\\# ") and rdata_from_text(number, text) == data, "it can be written down all the same"


def test_wire_forms_at_the_edge():
    at = packet.rdata_value(TYPE.LOC, place(POLE, -DATE_LINE))[4:6]
    assert at == ((1 << 31) + POLE, (1 << 31) - DATE_LINE)
    assert packet.rdata_value(TYPE.LOC, place(POLE + 1, 0, version=1))[0] == 1, "which means something else"
    assert packet.rdata_value(TYPE.EUI48, bytes(6)) == bytes(6)
    assert packet.rdata_value(TYPE.URI, bytes(4) + b"a") == (0, 0, b"a")
