"""`coro.asn1.ber`: each type both ways, with vectors of X.690 and of the original coro, and what is refused."""

from __future__ import annotations

import datetime
import math
import struct

import pytest
from asn1_values import ber_values
from hypothesis import given, settings
from hypothesis import strategies as st

from coro.asn1 import ber

H = bytes.fromhex


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "020100"),
        (-1, "0201ff"),
        (127, "02017f"),
        (128, "02020080"),
        (-128, "020180"),
        (-129, "0202ff7f"),
        (255, "020200ff"),
        (256, "02020100"),
        (65537, "0203010001"),
        (1 << 31, "02050080000000"),
        ((1 << 63) - 1, "02087fffffffffffffff"),
        (-(1 << 63), "02088000000000000000"),
        (1 << 63, "0209008000000000000000"),
    ],
)
def test_integer(number: int, encoded: str) -> None:
    assert ber.INTEGER(number) == H(encoded)
    assert ber.decode(H(encoded), strict=True) == (number, len(encoded) // 2)
    enumerated = H("0a" + encoded[2:])
    assert ber.ENUMERATED(number) == enumerated
    assert ber.decode(enumerated) == (number, len(enumerated))
    assert ber.encode_long_integer(number) == H(encoded)[2:]


def test_long_integers() -> None:
    assert ber.INTEGER(1 << 10000) == H("028204e301") + bytes(1250)
    for digits in (10, 100, 1000, 10_000):
        for number in (10**digits, -(10**digits), 1 << digits, -(1 << digits)):
            assert ber.decode(ber.INTEGER(number), strict=True)[0] == number


def test_vector_of_several_types() -> None:
    data = ber.SEQUENCE(
        ber.SET(ber.INTEGER(34), ber.INTEGER(19), ber.OCTET_STRING(b"fishing line")),
        ber.OBJID([2, 3, 4, 5, 6, 88]),
        ber.OCTET_STRING(b"spaghetti"),
        ber.BOOLEAN(True),
        ber.BOOLEAN(False),
    )
    assert len(data) == 48
    assert data == H(
        "302e 3114 020122 020113 040c66697368696e67206c696e65 06055304050658 0409737061676865747469 0101ff 010100"
    )
    value = [[34, 19, b"fishing line"], ("oid", [2, 3, 4, 5, 6, 88]), b"spaghetti", True, False]
    assert ber.decode(data) == (value, 48)
    assert ber.decode(b"xx" + data + b"yy", 2) == (value, 50)
    assert ber.decode(memoryview(bytearray(data))) == (value, 48)


@pytest.mark.parametrize(
    ("arcs", "encoded"),
    [
        ([1, 2, 840, 113549], "06062a864886f70d"),
        ([2, 5, 4, 3], "0603550403"),
        ([0, 0], "060100"),
        ([0, 39], "060127"),
        ([1, 0], "060128"),
        ([1, 39], "06014f"),
        ([2, 0], "060150"),
        ([2, 39], "060177"),
        ([2, 40], "060178"),
        ([2, 47], "06017f"),
        ([2, 48], "06028100"),
        ([2, 100, 3], "0603813403"),  # the example of X.690, 8.19.5, is {2 100 3}
        ([2, 999, 3], "0603883703"),
        ([1, 3, 1 << 35], "06072b818080808000"),
        ([2, 25, (1 << 128) - 1], "060f6983ffffffffffffffffffffffffffffffffff7f"),
    ],
)
def test_object_identifier(arcs: list[int], encoded: str) -> None:
    data = ber.OBJID(arcs)
    if arcs != [2, 25, (1 << 128) - 1]:
        assert data == H(encoded)
    assert ber.decode(data, strict=True) == (("oid", arcs), len(data))


@pytest.mark.parametrize("arcs", [[], [1], [3, 1], [0, 40], [1, 40], [1, -2], [-1, 1], [1, 2, 1 << 140]])
def test_object_identifier_out_of_range(arcs: list[int]) -> None:
    with pytest.raises(ber.EncodeError):
        ber.OBJID(arcs)


@pytest.mark.parametrize(
    "encoded", ["0600", "060180", "06022a80", "06032a8001", "06022b81", "0616" + "2a" + "ff" * 20 + "7f"]
)
def test_object_identifier_malformed(encoded: str) -> None:
    with pytest.raises(ber.DecodeError):
        ber.decode(H(encoded))


def test_strings() -> None:
    assert ber.OCTET_STRING(b"") == H("0400")
    assert ber.OCTET_STRING(bytearray(b"a")) == H("040161")
    assert ber.UTF8_STRING("中") == H("0c03e4b8ad")
    assert ber.UTF8_STRING(b"raw") == H("0c03726177")
    assert ber.decode(H("0c03e4b8ad"))[0] == "中"
    assert ber.decode(H("13025a41"))[0] == ("PRINTABLE_STRING", 19, b"ZA")
    assert ber.decode(H("1d0161"))[0] == ("unknown", 29, b"a")
    with pytest.raises(ber.EncodeError, match="UTF-8"):
        ber.UTF8_STRING("\ud800")
    with pytest.raises(ber.DecodeError, match="expected UTF-8 in the string at byte 2"):
        ber.decode(H("0c02c328"))
    with pytest.raises(TypeError, match="expected bytes"):
        ber.OCTET_STRING("text")  # type: ignore[arg-type]


def test_bit_string() -> None:
    assert ber.BITSTRING(3, b"\xf8") == H("030203f8")
    assert ber.decode(H("030203f8"), strict=True)[0] == ("bitstring", (3, b"\xf8"))
    assert ber.BITSTRING(0, b"") == H("030100")
    assert ber.decode(H("030100"), strict=True)[0] == ("bitstring", (0, b""))
    for unused, data in ((8, b"x"), (-1, b"x"), (1, b"")):
        with pytest.raises(ber.EncodeError, match="unused"):
            ber.BITSTRING(unused, data)
    for encoded in ("030208f8", "030101"):
        with pytest.raises(ber.DecodeError, match="unused"):
            ber.decode(H(encoded))
    assert ber.decode(H("030203ff"))[0] == ("bitstring", (3, b"\xff"))
    with pytest.raises(ber.DecodeError, match="unused bits are zero"):
        ber.decode(H("030203ff"), strict=True)


def test_what_is_lenient_without_content() -> None:
    """The original coro accepted these; strict does not."""
    for encoded, value in (("0200", 0), ("0a00", 0), ("0100", False), ("0300", ("bitstring", (0, b"")))):
        assert ber.decode(H(encoded)) == (value, 2)
        with pytest.raises(ber.DecodeError):
            ber.decode(H(encoded), strict=True)


def test_boolean_and_null() -> None:
    assert ber.decode(H("010101"))[0] is True
    assert ber.decode(H("0500"))[0] is None
    assert ber.NULL() == H("0500")
    with pytest.raises(ber.DecodeError, match="00 or ff"):
        ber.decode(H("010101"), strict=True)
    for encoded in ("0102ffff", "050100"):
        with pytest.raises(ber.DecodeError):
            ber.decode(H(encoded))
    # What follows is read from the right place: the first is refused as a whole.
    with pytest.raises(ber.DecodeError):
        ber.decode(H("3006050101020105"))


# -- REAL


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0.0, "0900"),
        (1.0, "0903800001"),
        (-1.0, "0903c00001"),
        (0.5, "090380ff01"),
        (10.0, "0903800105"),
        (math.inf, "090140"),
        (-math.inf, "090141"),
        (5e-324, "090481fbce01"),
        (2.0**1000, "09048103e801"),
        (math.pi, "090980d003243f6a8885a3"),
    ],
)
def test_real(number: float, encoded: str) -> None:
    assert ber.encode_double(number) == H(encoded)
    assert ber.decode(H(encoded), strict=True) == (number, len(encoded) // 2)


def test_real_minus_zero_and_nan() -> None:
    assert ber.encode_double(-0.0) == H("090143")
    assert math.copysign(1, ber.decode(H("090143"))[0]) == -1
    assert math.isnan(ber.decode(ber.encode_double(math.nan))[0])


@given(st.floats(allow_nan=False))
def test_real_round_trip(number: float) -> None:
    value, _ = ber.decode(ber.encode_double(number), strict=True)
    assert struct.pack("d", value) == struct.pack("d", number)


@pytest.mark.parametrize(
    ("encoded", "number"),
    [
        ("0903900001", 1.0),
        ("0903900101", 8.0),  # base 8
        ("0903a00101", 16.0),  # base 16
        ("09038c0001", 8.0),  # scaled by 2**3
        ("090481000002", 2.0),
        ("0905830200 0001", 1.0),  # the length of the exponent in a byte of its own
        ("090401313233", 123.0),
        ("09050220312e35", 1.5),
        ("090602312c323530", 1.25),
        ("09060331452b3033", 1000.0),
        ("09070331352e452d31", 1.5),
        ("090481800001", 0.0),  # 2**-32768
        ("090480ce01ff", (511) * 2.0**-50),
    ],
)
def test_real_of_others(encoded: str, number: float) -> None:
    assert ber.decode(H(encoded)) == (number, len(encoded) // 2)


@pytest.mark.parametrize(
    "encoded",
    [
        "0903b00001",  # the reserved base
        "09028000",  # no mantissa
        "090180",
        "09028300",
        "0903830100",
        "0904817fff01",  # 2**32767
        "090883047fffffff01ff",
        "090144",  # a special value that is none
        "09024000",
        "090104",  # a decimal form that is none
        "0903013120",
        "0902012b",
        "090401315f32",  # underscores are no digits
        "090703316539393939",  # 1e9999
    ],
)
def test_real_malformed(encoded: str) -> None:
    with pytest.raises(ber.DecodeError):
        ber.decode(H(encoded))


@pytest.mark.parametrize(
    "encoded", ["0903800002", "09048000 0001".replace(" ", ""), "0903900001", "090481000001", "090401313233"]
)
def test_real_that_is_not_der(encoded: str) -> None:
    ber.decode(H(encoded))
    with pytest.raises(ber.DecodeError, match="DER|form"):
        ber.decode(H(encoded), strict=True)


# -- tags, classes, lengths


def test_tags_and_classes() -> None:
    assert ber.TLV(5, ber.FLAGS_CONTEXT, b"a", b"b") == H("85026162")
    assert ber.TLV(31, ber.FLAGS_CONTEXT) == H("9f1f00")
    assert ber.TLV(128, ber.FLAGS_PRIVATE | ber.FLAGS_STRUCTURED) == H("ff810000")
    assert ber.TLV((1 << 28) - 1, 0) == H("1fffffff7f00")
    assert ber.APPLICATION(3, True, ber.NULL()) == H("63020500")
    assert ber.CONTEXT(3, False, b"x") == H("830178")
    assert ber.CHOICE(3, True) == 0xA3
    assert ber.decode(H("63020500"))[0] == ("application", 3, [None])
    assert ber.decode(H("830178"))[0] == ("context", 3, b"x")
    assert ber.decode(H("ff810000"))[0] == ("private", 128, [])
    for tag, flags in ((1 << 28, 0), (-1, 0), (1, 1), (1, 0x100)):
        with pytest.raises(ber.EncodeError):
            ber.TLV(tag, flags)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 255, 256, 65535, 65536, (1 << 24) - 1, 1 << 24])
def test_lengths(size: int) -> None:
    data = ber.OCTET_STRING(bytes(size))
    assert len(data) == size + 2 + (0 if size < 128 else (size.bit_length() + 7) // 8)
    assert ber.decode(data, strict=True) == (bytes(size), len(data))


def test_just_the_header() -> None:
    assert ber.decode(H("3003"), just_tlv=True) == ((16, 0x20, 3), 2)
    assert ber.decode(H("00bf8148820101"), 1, True) == ((200, 0xA0, 257), 7)


@pytest.mark.parametrize(
    ("encoded", "error"),
    [
        ("", ber.InsufficientData),
        ("30", ber.InsufficientData),
        ("1f", ber.InsufficientData),
        ("1f81", ber.InsufficientData),
        ("3082", ber.InsufficientData),
        ("308201", ber.InsufficientData),
        ("300102", ber.InsufficientData),
        ("0402ff", ber.InsufficientData),
        ("30030205ff", ber.InsufficientData),  # an element longer than the one around it
        ("30850000000001", ber.LengthTooLong),
        ("048480000000", ber.LengthTooLong),
        ("0484ffffffff", ber.LengthTooLong),
        ("04ff", ber.DecodeError),
        ("1f8001", ber.MultiByteTag),
        ("1f1e00", ber.MultiByteTag),
        ("1fffffffff7f00", ber.MultiByteTag),
        ("30800000", ber.IndefiniteLength),
        ("04800000", ber.IndefiniteLength),
        ("1000", ber.DecodeError),  # a primitive SEQUENCE
        ("2203020105", ber.DecodeError),  # a constructed INTEGER
        ("2500", ber.DecodeError),
    ],
)
def test_malformed(encoded: str, error: type[ber.DecodeError]) -> None:
    with pytest.raises(ber.DecodeError) as caught:
        ber.decode(H(encoded))
    assert type(caught.value) is error


def test_limits_of_the_caller() -> None:
    data = ber.SEQUENCE(ber.SEQUENCE(ber.SEQUENCE(ber.NULL())))
    assert ber.decode(data, max_depth=3)[0] == [[[None]]]
    with pytest.raises(ber.DecodeError, match="nested at most 2 deep"):
        ber.decode(data, max_depth=2)
    assert ber.decode(data, max_element=8)[1] == 8
    with pytest.raises(ber.LengthTooLong, match="at most 7 bytes"):
        ber.decode(data, max_element=7)
    for wrong in ({"max_depth": 0}, {"max_depth": 201}, {"pos": -1}):
        with pytest.raises(ValueError, match="expected a"):
            ber.decode(data, **wrong)  # type: ignore[call-overload]


def test_nesting_ends_at_a_hundred() -> None:
    deepest = ber.NULL()
    for _ in range(100):
        deepest = ber.SEQUENCE(deepest)
    value, _ = ber.decode(deepest)
    for _ in range(100):
        (value,) = value
    assert value is None
    with pytest.raises(ber.DecodeError, match="100 deep"):
        ber.decode(ber.SEQUENCE(deepest))


# -- strings in segments, indefinite lengths


def test_strings_in_segments() -> None:
    assert ber.decode(H("240704016104026263"))[0] == b"abc"
    assert ber.decode(H("2c070402e4b80401ad"))[0] == "中"
    assert ber.decode(H("2308030200f0030204f0"))[0] == ("bitstring", (4, b"\xf0\xf0"))
    assert ber.decode(H("24052403040161"))[0] == b"a"
    for encoded in ("240302010a", "2308030204f0030200f0"):
        with pytest.raises(ber.DecodeError):
            ber.decode(H(encoded))
    with pytest.raises(ber.DecodeError, match="one piece"):
        ber.decode(H("2403040161"), strict=True)


def test_indefinite_lengths() -> None:
    data = H("3080 020101 2480 040161 0000 a280 0500 0000 0000 ff")
    assert ber.decode(data, indefinite=True) == ([1, b"a", ("context", 2, [None])], len(data) - 1)
    with pytest.raises(ber.IndefiniteLength):
        ber.decode(data)
    with pytest.raises(ber.IndefiniteLength):
        ber.decode(data, indefinite=True, strict=True)
    for size in range(1, len(data) - 1):
        with pytest.raises(ber.DecodeError):
            ber.decode(data[:size], indefinite=True)
    # The content of a type without a mapping is given as it is, without its end.
    assert ber.decode(H("288005000000"), indefinite=True) == (("EXTERNAL", 8, b"\x05\x00"), 6)
    with pytest.raises(ber.DecodeError, match="100 deep"):
        ber.decode(H("3080") * 200, indefinite=True)
    with pytest.raises(ber.DecodeError):
        ber.decode(H("3080" + "0500" * 100 + "0000"), indefinite=True, max_element=100)


# -- DER


@pytest.mark.parametrize(
    "encoded",
    ["308100", "30820000", "02020001", "0202ff80", "0281017f", "3106020102020101", "13024040"],
)
def test_not_der(encoded: str) -> None:
    ber.decode(H(encoded))
    with pytest.raises(ber.DecodeError):
        ber.decode(H(encoded), strict=True, text=True)


def test_sets_of_der_are_sorted() -> None:
    by_tag = ber.SET(ber.INTEGER(300), ber.OCTET_STRING(b""), ber.UTF8_STRING("a"), ber.CONTEXT(0, False, b""))
    by_bytes = ber.SET(*sorted([ber.SEQUENCE(ber.INTEGER(n)) for n in (5, 1, 300, 1)]))
    for data in (by_tag, by_bytes, ber.SET()):
        assert ber.decode(data, strict=True)[1] == len(data)
    with pytest.raises(ber.DecodeError, match="sorted"):
        ber.decode(ber.SET(ber.OCTET_STRING(b"a"), ber.INTEGER(1)), strict=True)


# -- text and times


def test_text() -> None:
    cases = [
        (12, "é".encode(), "é"),
        (18, b"12 3", "12 3"),
        (19, b"Hello (1)", "Hello (1)"),
        (20, b"\xe9", "é"),
        (22, b"a@b", "a@b"),
        (26, b"x", "x"),
        (28, "é".encode("utf-32-be"), "é"),
        (30, "é".encode("utf-16-be"), "é"),
    ]
    for tag, raw, expected in cases:
        assert ber.decode(ber.TLV(tag, 0, raw), text=True, strict=True)[0] == expected
    for tag, raw in ((18, b"1a"), (19, b"a@b"), (22, b"\xe9"), (28, b"abc"), (30, b"a")):
        with pytest.raises(ber.DecodeError):
            ber.decode(ber.TLV(tag, 0, raw), text=True, strict=True)


UTC = datetime.UTC


@pytest.mark.parametrize(
    ("tag", "raw", "moment"),
    [
        (23, b"491231235959Z", datetime.datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (23, b"500101000000Z", datetime.datetime(1950, 1, 1, tzinfo=UTC)),
        (23, b"9901020304+0130", datetime.datetime(1999, 1, 2, 1, 34, tzinfo=UTC)),
        (24, b"20500102030405Z", datetime.datetime(2050, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (24, b"20200102030405.25Z", datetime.datetime(2020, 1, 2, 3, 4, 5, 250_000, tzinfo=UTC)),
        (24, b"2020010203.5Z", datetime.datetime(2020, 1, 2, 3, 30, tzinfo=UTC)),
        (24, b"202001020304,5-0100", datetime.datetime(2020, 1, 2, 4, 4, 30, tzinfo=UTC)),
        (24, b"20200102030405", datetime.datetime(2020, 1, 2, 3, 4, 5)),
    ],
)
def test_times(tag: int, raw: bytes, moment: datetime.datetime) -> None:
    assert ber.decode(ber.TLV(tag, 0, raw), times=True)[0] == moment
    assert ber.decode(ber.TLV(tag, 0, raw))[0] == (ber.TAG_TABLE[tag], tag, raw)


@pytest.mark.parametrize(
    ("tag", "raw"),
    [
        (23, b"991301000000Z"),
        (23, b"990101000000"),
        (23, b"99010100000Z"),
        (23, b"990101000060Z"),
        (23, "99010100000\u0661Z".encode()),
        (24, b"20200230000000Z"),
        (24, b"00000101000000Z"),
        (24, b"99991231235959.9-2400"),
        (24, b"20200101000000.Z"),
        (24, b""),
    ],
)
def test_times_malformed(tag: int, raw: bytes) -> None:
    with pytest.raises(ber.DecodeError):
        ber.decode(ber.TLV(tag, 0, raw), times=True)


@pytest.mark.parametrize(
    ("tag", "raw"),
    [(23, b"9901020304Z"), (23, b"990102030405+0000"), (24, b"20200102030405"), (24, b"20200102030405.50Z")],
)
def test_times_that_are_not_der(tag: int, raw: bytes) -> None:
    ber.decode(ber.TLV(tag, 0, raw), times=True)
    with pytest.raises(ber.DecodeError, match="DER"):
        ber.decode(ber.TLV(tag, 0, raw), times=True, strict=True)


# -- whole values


@pytest.mark.slow
@settings(max_examples=150)
@given(ber_values)
def test_round_trip(value: object) -> None:
    data = ber.encode(value)
    assert ber.decode(data, strict=True) == (value, len(data))


def test_encode_says_what_it_cannot_write() -> None:
    assert ber.encode(("SET", 17, [2, 1])) == H("3106020101020102")
    assert ber.encode(("ENUMERATED", 10, 3)) == H("0a0103")
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(ber.EncodeError, match="cycle"):
        ber.encode(circle)
    with pytest.raises(ber.EncodeError, match="cycle"):
        ber.encode(("SET", 17, circle))
    for wrong in ({}, object(), ("context", 1), ("SET", 16, []), ("nothing", 1, b""), (), ("unknown", 1, 1.5)):
        with pytest.raises(TypeError, match="expected"):
            ber.encode(wrong)
