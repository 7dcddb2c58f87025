"""Primitive fields and field tables: vectors, round trips, limits."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coro.amqp import EncodeError, LimitExceeded, ProtocolError, wire

UTC = datetime.UTC

texts = (
    st.text(max_size=20)
    .filter(lambda text: len(text.encode("utf-8", "ignore")) <= 255)
    .filter(lambda text: not any(0xD800 <= ord(c) <= 0xDFFF for c in text))
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | texts
    | st.binary(max_size=30).map(wire.ByteArray)
    | st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(9999, 1, 1)).map(
        lambda t: t.replace(microsecond=0, tzinfo=UTC)
    )
    | st.builds(lambda number, scale: Decimal(number).scaleb(-scale), st.integers(0, 2**32 - 1), st.integers(0, 20))
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)


@pytest.mark.parametrize(
    ("name", "value", "packed"),
    [
        ("octet", 255, b"\xff"),
        ("bool", True, b"\1"),
        ("short", 258, b"\1\2"),
        ("long", 0x01020304, b"\1\2\3\4"),
        ("longlong", 2**64 - 1, b"\xff" * 8),
        ("timestamp", 1, b"\0\0\0\0\0\0\0\1"),
        ("shortstr", "é", b"\2\xc3\xa9"),
        ("longstr", b"ab", b"\0\0\0\2ab"),
        ("float", 1.5, b"\x3f\xc0\0\0"),
        ("double", 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
        ("decimal", Decimal("12.34"), b"\2\0\0\4\xd2"),
        ("table", {}, b"\0\0\0\0"),
        ("table", {"a": True}, b"\0\0\0\4\1at\1"),
        ("field_array", [None, 1], b"\0\0\0\6VI\0\0\0\1"),
    ],
)
def test_vectors(name: str, value: object, packed: bytes) -> None:
    assert getattr(wire, f"pack_{name}")(value) == packed
    assert getattr(wire, f"unpack_{name}")(b"##" + packed + b"#", 2) == (value, 2 + len(packed))
    for cut in range(len(packed)):
        with pytest.raises(ProtocolError):
            getattr(wire, f"unpack_{name}")(packed[:cut])


@pytest.mark.parametrize(
    ("packed", "value"),
    [
        (b"t\2", True),
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"I\xff\xff\xff\xff", -1),
        (b"i\xff\xff\xff\xff", 2**32 - 1),
        (b"l" + b"\xff" * 8, -1),
        (b"L" + b"\x80" + bytes(7), -(2**63)),
        (b"f\x3f\xc0\0\0", 1.5),
        (b"D\1\0\0\0\x0f", Decimal("1.5")),
        (b"S\0\0\0\1a", "a"),
        (b"S\0\0\0\1\xff", b"\xff"),
        (b"x\0\0\0\1a", b"a"),
        (b"A\0\0\0\4t\1t\0", [True, False]),
        (b"T\0\0\0\0\0\0\0\0", datetime.datetime(1970, 1, 1, tzinfo=UTC)),
        (b"T" + b"\xff" * 8, 2**64 - 1),
        (b"F\0\0\0\3\1aV", {"a": None}),
    ],
)
def test_letters_of_rabbitmq(packed: bytes, value: object) -> None:
    found, end = wire.unpack_field_value(packed)
    assert (found, end) == (value, len(packed))
    assert type(found) is type(value) or isinstance(found, (wire.ByteArray, wire.Timestamp))


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(texts, values, max_size=5))
@example({"deep": [[[[[[[[{}]]]]]]]]})
def test_tables_come_back(table: dict[str, object]) -> None:
    packed = wire.pack_table(table)
    assert wire.unpack_table(packed) == (table, len(packed))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_table_or_a_protocol_error(data: bytes) -> None:
    try:
        _, end = wire.unpack_table(data)
    except ProtocolError:
        return
    assert end <= len(data)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("octet", 256),
        ("octet", -1),
        ("octet", True),
        ("octet", "1"),
        ("short", 65536),
        ("long", 2**32),
        ("longlong", 2**64),
        ("longlong", -1),
        ("timestamp", datetime.datetime(1969, 1, 1)),
        ("shortstr", "x" * 256),
        ("shortstr", "é" * 128),
        ("shortstr", None),
        ("shortstr", "\ud800"),
        ("longstr", 5),
        ("float", 1e39),
        ("float", "1"),
        ("double", 10**400),
        ("decimal", Decimal(-1)),
        ("decimal", Decimal("1e999999999")),
        ("decimal", Decimal("NaN")),
        ("decimal", 1.5),
        ("table", [("a",)]),
        ("table", {5: 1}),
        ("table", {"a": object()}),
        ("field_value", 2**63),
        ("field_value", {1, 2}),
        ("field_array", "ab"),
    ],
)
def test_values_that_do_not_fit(name: str, value: object) -> None:
    with pytest.raises(EncodeError, match="expected"):
        getattr(wire, f"pack_{name}")(value)


def test_numbers_that_are_not_finite() -> None:
    assert wire.unpack_double(wire.pack_double(math.inf))[0] == math.inf
    assert wire.unpack_float(wire.pack_float(-math.inf))[0] == -math.inf
    assert math.isnan(wire.unpack_field_value(wire.pack_field_value(math.nan))[0])


def test_bytes_go_as_strings_unless_asked_otherwise() -> None:
    assert wire.pack_field_value(b"a") == wire.pack_field_value("a") == wire.pack_field_value(bytearray(b"a"))
    assert wire.pack_field_value(wire.ByteArray(b"a"))[:1] == b"x"


def test_short_strings_that_are_not_utf8_go_out_as_they_came() -> None:
    text, _ = wire.unpack_shortstr(b"\3a\xff\xc3")
    assert wire.pack_shortstr(text) == b"\3a\xff\xc3"


def test_times_without_a_zone_are_utc() -> None:
    assert wire.pack_timestamp(datetime.datetime(1970, 1, 2)) == (86400).to_bytes(8, "big")


def test_depth_has_a_limit_in_both_directions() -> None:
    def nested(depth: int) -> dict[str, object]:
        table: dict[str, object] = {}
        for _ in range(depth - 1):
            table = {"a": table}
        return table

    assert wire.unpack_table(wire.pack_table(nested(16)))[0] == nested(16)
    with pytest.raises(EncodeError, match="16 deep"):
        wire.pack_table(nested(17))
    itself: dict[str, object] = {}
    itself["a"] = itself
    with pytest.raises(EncodeError, match="16 deep"):
        wire.pack_table(itself)
    packed = b"\0\0\0\0"
    for _ in range(16):
        packed = (len(packed) + 3).to_bytes(4, "big") + b"\1aF" + packed
    with pytest.raises(LimitExceeded):
        wire.unpack_table(packed)


def test_positions_outside_are_refused() -> None:
    with pytest.raises(ProtocolError, match="position"):
        wire.unpack_octet(b"a", 2)
    with pytest.raises(ProtocolError, match="position"):
        wire.unpack_octet(b"a", -1)
