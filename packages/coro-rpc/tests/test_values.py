"""Values: what passes, what is refused, and that nothing else escapes."""

from __future__ import annotations

import dataclasses
import enum
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coro.rpc import DecodeError, EncodeError
from coro.rpc._wire import values
from coro.rpc.codecs import JSON, MessagePack, Pickle

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.binary(max_size=20).map(bytearray)
    | st.frozensets(st.integers(), max_size=4),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.tuples(st.integers()), inner, max_size=5)
        | st.sets(st.integers(), max_size=4)
    ),
    max_leaves=25,
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=25,
)


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: Any


class Colour(enum.Enum):
    RED = 1


class Slots:
    __slots__ = ("a",)

    def __init__(self, a: Any = None) -> None:
        self.a = a


def through(codec: Any, value: Any) -> Any:
    data, buffers = codec.encode(value)
    return codec.decode(data, [bytes(b) if isinstance(b, memoryview) else b for b in buffers])


@given(plain)
@settings(max_examples=150, deadline=None)
def test_every_plain_value_passes(value: Any) -> None:
    got = through(Pickle(), value)
    assert got == value and type(got) is type(value)


@given(plain, st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_pickles_of_older_protocols_pass_or_are_refused(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    try:
        classes = values.check(data)
    except DecodeError:
        assert protocol < 5
    else:
        assert classes or pickle.loads(data) == value


@given(json_values)
@settings(max_examples=60, deadline=None)
def test_json_and_message_pack(value: Any) -> None:
    assert through(JSON(), value) == value
    if "9223372036854775808" not in repr(value):
        assert through(MessagePack(), value) == value


@given(st.binary(max_size=80))
@settings(max_examples=300, deadline=None)
@pytest.mark.parametrize("codec", [Pickle(), Pickle([Point]), JSON(), MessagePack()], ids=lambda c: c.name)
def test_bytes_that_mean_nothing(codec: Any, data: bytes) -> None:
    for whole in (data, b"\x80\x05" + data + b"."):
        try:
            codec.decode(whole, [])
        except DecodeError as e:
            assert "expected" in str(e)


@given(plain, st.data())
@settings(max_examples=100, deadline=None)
def test_damaged_pickles(value: Any, data: Any) -> None:
    wire = bytearray(pickle.dumps(value, 5))
    for _ in range(data.draw(st.integers(1, 3))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    try:
        Pickle(max_memory=1 << 20).decode(bytes(wire), [])
    except DecodeError:
        pass


@pytest.mark.parametrize("value", [Point(1, [2]), Colour.RED, [Point(1, 2), Point(1, 2)], Slots(5)], ids=repr)
def test_registered_classes(value: Any) -> None:
    got = through(Pickle([Point, Colour, Slots]), value)
    assert got == value or got.a == value.a


def test_classes_are_refused_on_both_sides() -> None:
    with pytest.raises(EncodeError, match="register its class"):
        Pickle().encode(Point(1, 2))
    with pytest.raises(EncodeError, match="register its class"):
        Pickle([Colour]).encode([Point(1, 2)])
    data = pickle.dumps(Point(1, 2), 5)
    with pytest.raises(DecodeError, match="Point"):
        Pickle().decode(data, [])
    with pytest.raises(TypeError, match="at the top of a module"):
        Pickle([lambda: None])


def test_shared_and_cyclic_values() -> None:
    inner = [1]
    got = through(Pickle(), [inner, inner, (inner,)])
    assert got[0] is got[1] is got[2][0]
    loop: list[Any] = []
    loop.append(loop)
    got = Pickle().decode(pickle.dumps(loop, 5), [])
    assert got[0] is got


def test_large_bytes_travel_beside_the_pickle() -> None:
    big = bytes(100_000)
    data, buffers = Pickle().encode(("name", {"data": big}, [big]))
    assert len(data) < 200 and [len(b) for b in buffers] == [100_000] * 2
    view = memoryview(bytearray(big))
    with pytest.raises(EncodeError):
        Pickle().encode(view)


def test_mutable_buffers_are_copied_when_they_are_encoded() -> None:
    source = bytearray(b"a" * 100_000)
    data, buffers = Pickle().encode([pickle.PickleBuffer(source)])
    source[:1] = b"b"
    assert Pickle().decode(data, buffers) == [bytearray(b"a" * 100_000)]


@pytest.mark.parametrize("codec", [Pickle(), JSON(), MessagePack()], ids=lambda c: c.name)
def test_what_cannot_be_encoded(codec: Any) -> None:
    loop: list[Any] = []
    loop.append(loop)
    for value in (object(), lambda: None, Ellipsis):
        with pytest.raises(EncodeError, match="expected"):
            codec.encode(value)
    if codec.name != "pickle5":
        with pytest.raises(EncodeError):
            codec.encode(loop)


def test_depth() -> None:
    deep: Any = None
    for _ in range(99):
        deep = [deep]
    assert through(Pickle(), deep) == deep
    with pytest.raises(EncodeError, match="max_depth"):
        Pickle().encode([[deep]])
    with pytest.raises(DecodeError, match="nested"):
        JSON().decode(b"[" * 101 + b"]" * 101, [])
    with pytest.raises(DecodeError, match="nested"):
        MessagePack().decode(b"\x91" * 101 + b"\xc0", [])


def test_message_pack_that_is_cut_or_too_long() -> None:
    codec = MessagePack()
    for data in (b"", b"\x92\x01", b"\x01\x02", b"\xdd\xff\xff\xff\xff", b"\xdb\x00\x00", b"\xc6\x7f\xff\xff\xff"):
        with pytest.raises(DecodeError):
            codec.decode(data, [])
