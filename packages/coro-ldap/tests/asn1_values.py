"""Values for tests of the codec: strategies of hypothesis, damage, and certificates."""

from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import strategies as st

#: An OBJECT IDENTIFIER: below 0 and 1 the second arc is under 40.
oids = st.one_of(
    st.tuples(st.integers(0, 1), st.integers(0, 39)), st.tuples(st.just(2), st.integers(0, 1 << 40))
).flatmap(lambda head: st.lists(st.integers(0, 1 << 130), max_size=6).map(lambda rest: [*head, *rest]))


def pyasn1_writes_short(number: int) -> bool:
    """Not for -128, -32768 and so on, which pyasn1 writes with an octet more than X.690, 8.3.2, allows."""
    return number >= 0 or (-number).bit_length() % 8 != 0 or -number & (-number - 1) != 0


bit_strings = st.tuples(st.integers(0, 7), st.binary(min_size=1, max_size=20)).map(
    lambda pair: (pair[0], pair[1][:-1] + bytes((pair[1][-1] >> pair[0] << pair[0],)))
)

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)

#: What `ber.encode` writes and `ber.decode` gives back.
ber_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-(1 << 200), 1 << 200),
        st.floats(allow_nan=False),
        st.binary(max_size=200),
        texts,
        oids.map(lambda arcs: ("oid", arcs)),
        bit_strings.map(lambda pair: ("bitstring", pair)),
        st.binary(max_size=20).map(lambda raw: ("PRINTABLE_STRING", 19, raw)),
        st.tuples(st.sampled_from(["application", "context", "private"]), st.integers(0, (1 << 28) - 1), st.binary()),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.tuples(
            st.sampled_from(["application", "context", "private"]), st.integers(0, 200), st.lists(inner, max_size=4)
        ),
    ),
    max_leaves=25,
)


def damaged(data: bytes, choice: random.Random, count: int) -> Iterator[bytes]:
    """Copies of the data with bytes changed, put in, left out, repeated or cut off."""
    for _ in range(count):
        copy = bytearray(data)
        for _ in range(choice.randrange(1, 4)):
            at = choice.randrange(len(copy) + 1)
            kind = choice.randrange(6)
            if kind < 2 and at < len(copy):
                copy[at] = choice.choice((0, 1, 0x1F, 0x30, 0x7F, 0x80, 0x81, 0x84, 0xFF, choice.randrange(256)))
            elif kind == 2:
                copy[at:at] = choice.randbytes(choice.randrange(1, 5))
            elif kind == 3:
                del copy[at : at + choice.randrange(1, 5)]
            elif kind == 4:
                copy[at:at] = copy[at : at + choice.randrange(1, 20)]
            else:
                del copy[at:]
        yield bytes(copy)
