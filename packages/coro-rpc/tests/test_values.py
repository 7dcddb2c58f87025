"""Values: what passes, what is refused, and that nothing else escapes."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import pickle
import struct
import sys
import uuid
from typing import Any, NamedTuple

import msgpack
import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st

from coro.rpc import DecodeError, EncodeError
from coro.rpc import plain as plain_client
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
    got = plain_client._loads(pickle.dumps(value, 5))  # what the client in one file reads
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
    try:
        plain_client._loads(bytes(wire))
    except plain_client.DecodeError:
        pass


@pytest.mark.parametrize("value", [Point(1, [2]), Colour.RED, [Point(1, 2), Point(1, 2)], Slots(5)], ids=repr)
def test_registered_classes(value: Any) -> None:
    codec = Pickle([Point, Colour])
    codec.register(Slots, state=True)
    got = through(codec, value)
    assert got == value or got.a == value.a


class Checked(NamedTuple):
    a: int
    b: int = 2


@dataclasses.dataclass
class Bounded:
    low: int
    high: int = dataclasses.field(default=5, kw_only=True)
    width: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low above high")
        self.width = self.high - self.low


@dataclasses.dataclass
class WithInitVar:
    x: dataclasses.InitVar[int]


class Access(enum.IntFlag):
    READ = 1
    WRITE = 2


class Stateful:
    limit = 5

    def __init__(self) -> None:
        self._private = 1

    def may(self) -> bool:
        return False

    @property
    def computed(self) -> int:
        return 1


class Cached:
    made: Any = None

    def __new__(cls) -> Cached:
        Cached.made = Cached.made or object.__new__(cls)
        return Cached.made  # type: ignore[no-any-return]


def test_fields() -> None:
    """Constructors run, with the checks that they make."""
    codec = Pickle([Checked, Bounded, Access, datetime.date, decimal.Decimal])
    codec.register(uuid.UUID, fields=["int"])
    for value in (
        Checked(1),
        Bounded(1, high=4),
        Access.READ | Access.WRITE,
        uuid.UUID(int=5),
        datetime.date(2026, 1, 2),
        decimal.Decimal("1.5"),
        [Checked(1, 3)] * 2,
    ):
        got = through(codec, value)
        assert got == value and type(got) is type(value)
    wire = codec.encode(Bounded(1, high=4))[0]
    with pytest.raises(DecodeError, match="low above high"):
        codec.decode(wire.replace(b"K\x01K\x04", b"K\x09K\x04"), [])
    with pytest.raises(DecodeError, match="2 fields"):
        codec.decode(b"\x80\x05" + wire[11:].replace(b"K\x01K\x04\x86", b"K\x01\x85"), [])
    before = len(Access._value2member_map_)
    with pytest.raises(DecodeError, match="flags"):
        codec.decode(codec.encode(Access.READ)[0].replace(b"K\x01", b"K\x40"), [])
    assert len(Access._value2member_map_) == before
    with pytest.raises(TypeError, match="InitVar"):
        codec.register(WithInitVar)
    with pytest.raises(TypeError, match="__new__"):
        codec.register(Cached, state=True)
    with pytest.raises(TypeError, match="__new__"):
        codec.register(Colour, state=True)


def test_state_sets_attributes_that_are_free_and_no_others() -> None:
    codec = Pickle()
    codec.register(Stateful, state=True)
    value = Stateful()
    value.limit = 7
    got = through(codec, value)
    assert vars(got) == {"_private": 1, "limit": 7}
    wire = codec.encode(value)[0]
    for name in (b"__clas", b"__a", b"may", b"computed"):
        for old in (b"limit", b"_private"):
            changed = wire.replace(bytes([len(old)]) + old, bytes([len(name)]) + name)
            changed = b"\x80\x05" + changed[11:]  # without the frame, whose length has changed
            with pytest.raises(DecodeError, match="leaves free"):
                codec.decode(changed, [])


number = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.booleans() | st.none()
key = st.recursive(
    number | st.text(max_size=8) | st.binary(max_size=8), lambda one: st.lists(one, max_size=3).map(tuple)
)


@given(st.sets(key, max_size=300))
@settings(max_examples=100, deadline=None)
def test_ordinary_keys_cost_a_few_steps_a_byte(keys: set[Any]) -> None:
    for value in (dict.fromkeys(keys), keys, frozenset(keys)):
        data = pickle.dumps(value, 5)
        values.check(data)
        assert values.last_steps() <= 8 * len(data) + 500_000
    JSON().decode(b"[1,{}]", [])
    assert values.last_steps() <= 8 * 6


def chain(size: int) -> list[int]:
    """Small integers that lie along one way through a table of this many slots, for two thirds of them."""
    found, at = [], 1
    for _ in range(size * 2 // 3 - 4):
        found.append(at)
        at = (at * 5 + 1) & (size - 1)
    return found


MODULUS = 2**61 - 1
COLLIDING: dict[str, list[Any]] = {
    "integers with one hash": [1 + i * MODULUS for i in range(4000)],
    "negative integers with one hash": [-5 - i * MODULUS for i in range(4000)],
    "a chain of floats, and a key at its end": [*map(float, chain(8192)), *[2.0**61] * 4000],
    "tuples of these": [(1 + i * MODULUS, "x") for i in range(4000)],
    "nested tuples of these": [((7, 1 + i * MODULUS), 5) for i in range(4000)],
    "tuples of tuples": [((), 1 + i * MODULUS) for i in range(4000)],
    "frozensets with one hash": [frozenset([1 + i * MODULUS]) for i in range(4000)],
    "large frozensets": [frozenset(range(i, i + 70)) for i in range(900)],
    "a chain, and a key at its end": chain(8192) + [1 + MODULUS] * 4000,
}


def written(value: Any) -> bytes:
    """A value as the opcodes that make it, without a memo."""
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if isinstance(value, int):
        return b"\x8a\x0a" + value.to_bytes(10, "little", signed=True)
    if isinstance(value, str):
        return b"\x8c" + bytes([len(value)]) + value.encode()
    return b"(" + b"".join(map(written, value)) + (b"t" if isinstance(value, tuple) else b"\x91")


@pytest.mark.parametrize("what", COLLIDING)
def test_keys_that_collide_are_refused(what: str) -> None:
    """By the pickle codec in a dict, a set and a frozenset, and by MessagePack where it has such keys."""
    forms = ((b"}(", b"u.", b"N"), (b"\x8f(", b"\x90.", b""), (b"(", b"\x91.", b""))
    for head, tail, each in forms[: 1 if "chain" in what else 3]:  # (a set has another table, and other chains)
        body = b"".join(written(k) + each for k in COLLIDING[what])
        with pytest.raises(DecodeError, match="collide"):
            values.check(b"\x80\x05" + head + body + tail)
    keys = [k for k in COLLIDING[what] if isinstance(k, float) or isinstance(k, int) and abs(k) < 2**63]
    if len(keys) > 4000:
        packed = b"".join(msgpack.packb(k) + b"\xc0" for k in keys)
        with pytest.raises(DecodeError, match="collide"):
            MessagePack().decode(b"\xdf" + len(keys).to_bytes(4, "big") + packed, [])


def test_long_texts_that_are_compared_again_and_again_are_refused() -> None:
    """Two equal texts of a megabyte: each time one is looked up, it is compared with the other as a whole."""
    text = b"X" + (1 << 20).to_bytes(4, "little") + b"a" * (1 << 20)
    data = b"\x80\x05(" + text + b"\x94" + text + b"\x94}(" + b"h\x00Nh\x01N" * 20_000 + b"ut."
    with pytest.raises(DecodeError, match="steps"):
        values.check(data)


short_key = st.recursive(
    number | st.integers(-3, 3),
    lambda one: st.lists(one, max_size=3).map(tuple) | st.frozensets(one, max_size=4),
    max_leaves=8,
)


@given(short_key)
@settings(max_examples=300, deadline=None)
def test_hashes_are_those_of_the_interpreter(key: Any) -> None:
    """Integers that have the interpreter's hash of a key, before the key: each is looked at."""
    hashed = hash(key)
    others = [(abs(hashed) + i * MODULUS) * (-1 if hashed < 0 else 1) for i in range(300)]
    if abs(hashed) >= MODULUS or any(hash(i) != hashed for i in others) or key in others:
        return  # no integer has this hash
    steps = []
    for last in (key, "a text"):
        values.check(pickle.dumps({**dict.fromkeys(others), last: None}, 5))
        steps.append(values.last_steps())
    assert steps[0] >= steps[1] + 200  # (the text may meet some by chance)


ORDINARY = {
    "texts, then numbers": {**{str(i): 1 for i in range(1500)}, **dict.fromkeys(range(10000), 1)},
    "pairs without an order": {frozenset((i, i + 1)) for i in range(20_000)},
    "pairs in tuples": {(1, frozenset((i,))) for i in range(5000)},
    "coordinates": {(i / 10, j / 10): None for i in range(150) for j in range(150)},
    "times": {1_700_000_000 + i * 60: i for i in range(50_000)},
    "numbers of all kinds": {**dict.fromkeys(range(5000), 0), **{i + 0.25: 0 for i in range(5000)}, True: 1, None: 2},
}


@pytest.mark.parametrize("what", ORDINARY)
def test_many_ordinary_keys_pass(what: str) -> None:
    data = pickle.dumps(ORDINARY[what], 5)
    assert Pickle().decode(data, []) == ORDINARY[what]
    assert values.last_steps() <= 8 * len(data)


numbers = st.integers(0, 200) | st.integers(-(2**80), 2**80) | st.integers(-40, 40).map(lambda i: 1 + i * MODULUS)
#: Opcodes in any order, most of which make sense: what a sender can write who looks for the dearest message.
opcode = st.one_of(
    st.sampled_from([b"K\x01", b"N", b")", b"]", b"}", b"\x8f", b"(", b"t", b"e", b"u", b"\x90", b"\x91", b"\x94"]),
    st.sampled_from([b"\x85", b"\x86", b"\x87", b"a", b"s", b"\x88"]),
    st.integers(0, 12).map(lambda i: b"h" + bytes([i])),
    numbers.map(lambda i: b"\x8a\x0b" + i.to_bytes(11, "little", signed=True)),
    st.floats().map(lambda x: b"G" + struct.pack(">d", x)),
    st.integers(1, 255).map(lambda n: b"\x8c" + bytes([n]) + b"a" * n),
    st.lists(numbers, min_size=9, max_size=40).map(
        lambda them: b"}(" + b"".join(b"\x8a\x0b" + i.to_bytes(11, "little", signed=True) + b"N" for i in them) + b"u"
    ),
)


def dearest(codec: Any, data: bytes, what: str) -> None:
    """Let hypothesis look for messages that cost the most for their size; none costs more than is said."""
    try:
        codec.decode(data, [])
    except DecodeError:
        pass
    steps = values.last_steps()
    target(float(steps), label=f"steps of {what}")
    target(steps / (len(data) + 1), label=f"steps of {what} a byte")
    # One opcode beyond the bound is counted before it is refused.
    assert steps <= min(8 * len(data) + 500_000, 20_000_000) + 64 * len(data) + 1000


@given(st.lists(opcode, max_size=60), st.integers(1, 40))
@settings(max_examples=300, deadline=None)
@pytest.mark.parametrize("codec", [Pickle(), Pickle([Point])], ids=["plain", "classes"])
def test_no_pickle_costs_more_than_is_said(codec: Any, opcodes: list[bytes], times: int) -> None:
    body = b"".join(opcodes)
    dearest(codec, b"\x80\x05" + body + b".", "a value")
    dearest(codec, b"\x80\x05](" + body * times + b"e.", "a list")


packed = st.recursive(
    numbers.filter(lambda i: -(2**63) <= i < 2**64) | st.floats() | st.text(max_size=9) | st.none() | st.booleans(),
    lambda one: st.lists(one, max_size=9) | st.lists(st.tuples(one, one), max_size=40).map(tuple),
    max_leaves=60,
)


def pack(value: Any) -> bytes:
    """As MessagePack; a tuple of pairs is a map, whose keys may be there more than once."""
    if isinstance(value, tuple):
        return b"\xdf" + len(value).to_bytes(4, "big") + b"".join(pack(k) + pack(v) for k, v in value)
    if isinstance(value, list):
        return b"\xdd" + len(value).to_bytes(4, "big") + b"".join(map(pack, value))
    return bytes(msgpack.packb(value))


@given(packed, st.integers(1, 40))
@settings(max_examples=300, deadline=None)
def test_no_message_pack_and_no_json_costs_more_than_is_said(value: Any, times: int) -> None:
    dearest(MessagePack(), pack([value] * times), "MessagePack")
    dearest(JSON(), repr([value] * times).encode("utf-8", "replace"), "JSON")


@pytest.mark.parametrize("kind", [dict.fromkeys, set])
def test_the_model_of_the_tables_grows_as_they_do(kind: Any) -> None:
    """Where the interpreter's table takes more memory, the model copies its keys, too."""
    sizes, steps = [], []
    for n in range(9, 3000):
        made: Any = kind([])
        for i in range(n):
            made.add(i) if kind is set else made.setdefault(i)
        sizes.append(sys.getsizeof(made))
        values.check(
            b"\x80\x05"
            + (b"\x8f(" if kind is set else b"}(")
            + b"".join(b"M" + i.to_bytes(2, "little") + (b"" if kind is set else b"N") for i in range(n))
            + (b"\x90." if kind is set else b"u.")
        )
        steps.append(values.last_steps())
    grown = [i for i in range(1, len(sizes)) if sizes[i] > sizes[i - 1]]
    copied = [i for i in range(1, len(steps)) if steps[i] - steps[i - 1] > 20]
    # A dict grows when a key comes that it has no room for, the model when the room is used up: one key earlier.
    assert len(grown) >= 4 and all(min(abs(i - j) for j in copied) <= 1 for i in grown if i > 10), (grown, copied)


def test_classes_are_refused_on_both_sides() -> None:
    with pytest.raises(EncodeError, match="register its class"):
        Pickle().encode(Point(1, 2))
    with pytest.raises(EncodeError, match="register its class"):
        Pickle([Colour]).encode([Point(1, 2)])
    data = pickle.dumps(Point(1, 2), 5)
    with pytest.raises(DecodeError, match="NEWOBJ"):
        Pickle().decode(data, [])
    with pytest.raises(DecodeError, match="Point"):
        Pickle([Colour]).decode(Pickle([Point]).encode(Point(1, 2))[0], [])
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
