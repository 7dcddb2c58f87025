"""`coro.asn1.python`: exact types, exact bytes, and DecodingError for everything that is not written."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import io
import math
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coro.asn1 import ber, python
from coro.asn1.data_file import DataFileReader
from coro.asn1.exceptions import DecodeError, InsufficientData
from coro.log import asn1 as log_asn1

NESTED = [12, b"thirteen", (14, 15, {16: 17, 18: 19}, False), [[[[[[None]]]]]]]


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ([], "3000"),
        ([0, 1, 2], "3009020100020101020102"),
        ((0, 1, 2), "a009020100020101020102"),
        ((), "a000"),
        (3.1415926535, "8308400921fb54411744"),
        (-0.0, "83088000000000000000"),
        (None, "0500"),
        (True, "0101ff"),
        ({2, 1}, "a206020101020102"),
        (frozenset({1}), "a403020101"),
        (decimal.Decimal("1.50"), "8604312e3530"),
        (uuid.UUID(int=1), "871000000000000000000000000000000001"),
        ({1: 2, 3: b"hi"}, "a111a006020101020102a00702010304026869"),
        (1 << 128, "021101" + "00" * 16),
        ("中國", "0c06e4b8ade59c8b"),
        (
            NESTED,
            f"303802010c0408{b'thirteen'.hex()}"
            + "a01b02010e02010fa110a006020110020111a006020112020113010100300c300a30083006300430020500",
        ),
    ],
)
def test_vectors(value: object, encoded: str) -> None:
    assert python.encode(value) == bytes.fromhex(encoded)
    assert python.decode(bytes.fromhex(encoded)) == (value, len(encoded) // 2)


@pytest.mark.parametrize(
    ("value", "size"), [({1: 2, 3: b"hi"}, 19), (1 << 128, 19), ("中國", 8), (NESTED, 58), (-(10**77), 35)]
)
def test_sizes(value: object, size: int) -> None:
    data = python.encode(value)
    assert len(data) == size
    assert python.decode(data) == (value, size)


def same(one: object, other: object) -> bool:
    """Equal, of the same types, and NaN equal to itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other) or (one != one and other != other)  # type: ignore[arg-type]
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))  # type: ignore[attr-defined]
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))  # type: ignore[arg-type]
    return repr(one) == repr(other) if isinstance(one, decimal.Decimal) else one == other


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 300), 1 << 300),
    st.floats(),
    st.binary(max_size=30),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.datetimes(
        timezones=st.sampled_from([None, datetime.UTC, datetime.timezone(datetime.timedelta(hours=-9, minutes=-30))])
    ),
)
keys = st.one_of(st.booleans().map(str), st.integers(), st.binary(max_size=5), st.text("abc", max_size=3))
everything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.sets(keys, max_size=4),
        st.frozensets(keys, max_size=4),
    ),
    max_leaves=20,
)


@pytest.mark.slow
@settings(max_examples=150)
@given(everything)
def test_round_trip(value: object) -> None:
    data = python.encode(value)
    again, end = python.decode(data, exact=True)
    assert end == len(data)
    assert same(again, value)


@pytest.mark.slow
@given(st.dictionaries(keys, st.sets(keys), max_size=6))
def test_canonical(value: dict[object, object]) -> None:
    backwards = dict(reversed(value.items()))
    assert python.encode(value, canonical=True) == python.encode(backwards, canonical=True)
    assert python.decode(python.encode(value, canonical=True))[0] == value


def test_decimals_that_are_no_numbers() -> None:
    for text in ("NaN", "-NaN", "sNaN12", "Infinity", "-Infinity", "-0", "1E+30", "-1.50E-7"):
        assert repr(python.decode(python.encode(decimal.Decimal(text)))[0]) == repr(decimal.Decimal(text))


def test_exact_types() -> None:
    class Colour(enum.IntEnum):
        RED = 1

    for wrong in (
        Colour.RED,
        collections.OrderedDict(),
        object(),
        bytearray(b""),
        1j,
        range(3),
        collections.namedtuple("P", "x")(1),
    ):
        with pytest.raises(python.EncodingError, match="no subclass"):
            python.encode(wrong)
        with pytest.raises(TypeError):
            python.encode([wrong])


def test_nesting() -> None:
    value: object = None
    for _ in range(100):
        value = [value]
    assert python.decode(python.encode(value))[0] == value
    for deeper in ([value], (value,), {1: value}):
        with pytest.raises(python.EncodingError, match="nested"):
            python.encode(deeper)
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(python.EncodingError, match="cycle"):
        python.encode(circle)


@pytest.mark.parametrize(
    "data",
    [
        ber.CONTEXT(1, True, ber.INTEGER(1)),  # a dict of something else than pairs
        ber.CONTEXT(1, True, ber.CONTEXT(0, True, ber.INTEGER(1))),
        ber.CONTEXT(1, True, ber.CONTEXT(0, True, ber.SEQUENCE() + ber.NULL())),  # a key that cannot be one
        ber.CONTEXT(1, True, ber.CONTEXT(0, True, ber.INTEGER(1) + ber.NULL()) * 2),
        ber.CONTEXT(2, True, ber.SEQUENCE()),
        ber.CONTEXT(2, True, ber.INTEGER(1) + ber.INTEGER(1)),
        ber.CONTEXT(2, True, ber.INTEGER(1) + ber.BOOLEAN(True)),  # equal in Python
        ber.CONTEXT(3, False, b"1234567"),
        ber.CONTEXT(3, True, b""),
        ber.CONTEXT(0, False, b""),
        ber.CONTEXT(5, False, b"yesterday"),
        ber.CONTEXT(5, False, b"2020-01-01"),
        ber.CONTEXT(6, False, b"1_0"),
        ber.CONTEXT(6, False, b" 1"),
        ber.CONTEXT(6, False, "\u0661".encode()),
        ber.CONTEXT(7, False, b"short"),
        ber.CONTEXT(8, True, python.encode("name")),
        ber.CONTEXT(9, False, b""),
        ber.APPLICATION(0, True, b""),
        ber.TLV(2, 0),
        ber.TLV(1, 0, b"ab"),
        ber.TLV(5, 0, b"a"),
        ber.TLV(12, 0, b"\xff"),
        ber.TLV(9, 0),
        ber.TLV(4, ber.FLAGS_STRUCTURED),
        b"\x30\x80\x00\x00",
        b"\x1f\x80\x01\x00",
    ],
)
def test_what_nobody_wrote(data: bytes) -> None:
    with pytest.raises(python.DecodingError):
        python.decode(data)


def test_what_is_cut_off_or_followed() -> None:
    data = python.encode(NESTED)
    for size in range(len(data)):
        with pytest.raises(InsufficientData):
            python.decode(data[:size])
    assert python.decode(data + b"x") == (NESTED, len(data))
    with pytest.raises(python.DecodingError, match="1 bytes follow"):
        python.decode(data + b"x", exact=True)
    with pytest.raises(python.DecodingError, match="at most 57 bytes"):
        python.decode(data, max_size=57)
    assert python.decode(b"xx" + data, 2) == (NESTED, len(data) + 2)


class Point:
    def __init__(self, x: int, y: int) -> None:
        self.x, self.y = x, y

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and (self.x, self.y) == (other.x, other.y)

    __hash__ = None  # type: ignore[assignment]


def read_point(plain: object) -> Point:
    x, y = plain  # type: ignore[misc]
    return Point(x, y)


def test_registered_classes() -> None:
    registry = python.Registry()
    registry.register(Point, "point", lambda point: (point.x, point.y), read_point)
    data = python.encode([Point(1, 2)], registry=registry)
    assert python.decode(data, registry=registry)[0] == [Point(1, 2)]
    assert repr(registry) == "<Registry of point>"
    with pytest.raises(python.EncodingError):
        python.encode(Point(1, 2))
    for other in (None, python.Registry()):
        with pytest.raises(python.DecodingError, match="registered class"):
            python.decode(data, registry=other)
    wrong = ber.CONTEXT(8, True, python.encode("point") + python.encode(5))
    with pytest.raises(python.DecodingError, match="refused: TypeError") as caught:
        python.decode(wrong, registry=registry)
    assert isinstance(caught.value.__cause__, TypeError)
    for cls, name in ((Point, "other"), (Exception, "point"), (int, "int")):
        with pytest.raises(ValueError, match="expected a class|registered already"):
            registry.register(cls, name, str, str)


@pytest.mark.slow
@given(everything)
def test_the_same_bytes_as_binary_logs(value: object) -> None:
    """coro.log writes the types that both have in the same way, and its reader reads ours."""
    if any(name in repr(value) for name in ("Decimal", "UUID", "datetime", "frozenset")):
        return
    from coro.log import _ber

    assert _ber.encode(value) == python.encode(value)
    assert same(_ber.decode(python.encode(value)), value)
    assert issubclass(log_asn1.DecodeError, ValueError) and issubclass(DecodeError, ValueError)


def test_records_of_binary_logs() -> None:
    """Each reads the records that the other has written, with nothing left over."""
    items = ("text", 5, b"bytes", [1.5, None, {"a": (1, 2)}], {1, 2}, True)
    file = io.BytesIO()
    log_asn1.Logger(file).log(*items)
    record = file.getvalue()
    assert record[:4] == log_asn1.MAGIC and int.from_bytes(record[4:8], "big") == len(record) - 8
    (when, found), _ = python.decode(record, 8, exact=True)
    assert found == items and type(when) is int

    ours = python.encode((17, items))
    record = log_asn1.MAGIC + len(ours).to_bytes(4, "big") + ours
    assert [one[2:] for one in log_asn1.records(io.BytesIO(record * 2))] == [(17, items)] * 2
    # Without the frames, a log is a data file.
    assert list(DataFileReader(io.BytesIO(ours * 2))) == [(17, items)] * 2
