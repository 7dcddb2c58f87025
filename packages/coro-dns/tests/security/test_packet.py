"""Messages that are made to cost: pointers, counts, names."""

from __future__ import annotations

import pytest

from coro.dns.packet import Unpacker, UnpackError


def header(*counts):
    return bytes(4) + b"".join(n.to_bytes(2, "big") for n in counts)


@pytest.mark.parametrize(
    "name",
    [
        b"\xc0\x0c",  # to itself
        b"\xc0\x0e\xc0\x0c",  # forwards, and back
        b"\1a\xc0\x0c",  # to its own beginning
        b"\xc0\xff",  # beyond the end
        b"\x40a\0",
        b"\x80a\0",
        b"\5ab",
        b"\x3f" + b"x" * 63 + b"\x3f" + b"x" * 63 + b"\x3f" + b"x" * 63 + b"\x3f" + b"x" * 63 + b"\0",
    ],
)
def test_bad_names(name):
    with pytest.raises(UnpackError):
        u = Unpacker(header(1, 0, 0, 0) + name + b"\0\1\0\1")
        u.getHeader()
        u.getname()
    with pytest.raises(UnpackError):
        Unpacker(header(1, 0, 0, 0) + name).unpack()


def test_a_chain_of_pointers_goes_back_only():
    """Each name points to the one before it: all are read, and none costs more than 127 labels."""
    data = bytearray(b"\1a\0")
    places = [0]
    for _ in range(200):
        places.append(len(data))
        data += b"\1a" + (0xC000 | places[-2]).to_bytes(2, "big")
    u = Unpacker(bytes(data))
    count = 0
    with pytest.raises(UnpackError, match="255"):
        while True:
            u.getname()
            count += 1
    assert count == 127


def test_counts_beyond_the_bytes():
    for counts in ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 65535, 0), (0, 0, 0, 65535), (65535,) * 4):
        with pytest.raises(UnpackError, match="announces"):
            Unpacker(header(*counts)).unpack()
    with pytest.raises(UnpackError, match="after the end"):
        Unpacker(header(0, 0, 0, 0) + b"x").unpack()


def test_names_that_expand():
    """A message of 64 KiB whose records all point to different, long names is refused, not expanded to megabytes."""
    long = b"".join(b"\1\1" for _ in range(127)) + b"\0"
    data = bytearray(header(1, 5000, 0, 0) + long + b"\0\1\0\1")
    while len(data) + 13 <= 65535:
        data += b"\xc0\x0c\0\2\0\1\0\0\0\0\0\2" + b"\xc0\x0c"
    count = (len(data) - 12 - len(long) - 4) // 14
    data[6:8] = count.to_bytes(2, "big")
    whole = Unpacker(bytes(data)).unpack()
    assert len(whole[2]) == count
    assert len({id(record[0]) for record in whole[2]}) == 1  # made once
    many = bytearray(header(0, 0, 0, 0) + long)
    places = range(12, 12 + 254 - 100, 2)
    i = 0
    while len(many) + 14 <= 65535:
        at = (0xC000 | places[i % len(places)]).to_bytes(2, "big")
        many += at + b"\0\2\0\1\0\0\0\0\0\2" + at
        i += 1
    u = Unpacker(bytes(many[: 12 + len(long)]) + bytes(many[12 + len(long) :]))
    u.getbytes(12 + len(long))
    with pytest.raises(UnpackError, match="expand"):
        for _ in range(i):
            u.getRR()


def test_many_addresses_are_linear():
    """4000 address records: the names of the owners are one object."""
    record = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4"
    data = header(1, 4000, 0, 0) + b"\1a\7example\0\0\1\0\1"
    data += b"".join(record + bytes((192, 0, i >> 8, i & 255)) for i in range(4000))
    answers = Unpacker(data).unpack()[2]
    assert len(answers) == 4000 and answers[-1] == ("a.example", "A", "IN", 0, "192.0.15.159")
