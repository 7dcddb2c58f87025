"""The frame codec: vectors for other languages, chunk borders at every byte, limits, hypothesis."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coro.rpc import ProtocolError
from coro.rpc._wire import frames
from coro.rpc._wire.frames import KINDS, FrameReader, encode, preamble

#: What the manual gives as test vectors.
VECTORS = [
    ("REQUEST", 1, b"hello", "0000000502000000000000000000000168656c6c6f"),
    ("CANCEL", 1, b"", "00000000050000000000000000000001"),
    ("CREDIT_DOWN", 258, b"\0\0\1\0", "000000040a000000000000000000010200000100"),
    (
        "REQUEST",
        2,
        b"\0\0\0\3\0\0\3\xe8add\0\0[1,2]",
        "0000001202000000000000000000000200000003000003e861646400005b312c325d",
    ),
    ("REPLY", 2, b"\0\x003", "00000003030000000000000000000002000033"),
    ("GOODBYE", 0, b"\0\1no", "000000040d000000000000000000000000016e6f"),
]


def feed_all(reader: FrameReader, data: bytes, step: int) -> list[tuple[int, int, bytes]]:
    out = []
    for at in range(0, len(data), step):
        out += reader.feed(data[at : at + step])
    return out


def test_preamble() -> None:
    assert preamble(16777216, 1048576).hex() == "636f726f2d7073010100000000100000"


@pytest.mark.parametrize("kind, number, payload, wire", VECTORS)
def test_vectors(kind: str, number: int, payload: bytes, wire: str) -> None:
    assert encode(KINDS[kind], number, payload).hex() == wire
    reader = FrameReader()
    assert reader.feed(preamble() + bytes.fromhex(wire)) == [(KINDS[kind], number, payload)]
    assert reader.idle and reader.peer_max_packet == 16777216 and reader.peer_window == 1048576


def test_borders_at_every_byte() -> None:
    wire = (
        preamble() + b"".join(encode(KINDS[k], n, p) for k, n, p, _ in VECTORS) + encode(2, 9, b"abcdefgh" * 4, chunk=5)
    )
    wanted = [(KINDS[k], n, p) for k, n, p, _ in VECTORS] + [(2, 9, b"abcdefgh" * 4)]
    for step in range(1, len(wire) + 1):
        assert feed_all(FrameReader(), wire, step) == wanted


def test_chunks_of_packets_mix() -> None:
    def split(number: int, payload: bytes) -> list[bytes]:
        whole = encode(2, number, payload, chunk=4)
        sizes, at = [], 0
        while at < len(whole):
            n = 16 + int.from_bytes(whole[at : at + 4], "big")
            sizes.append(whole[at : at + n])
            at += n
        return sizes

    a, b = split(1, b"0123456789"), split(2, b"abcdefgh")
    mixed = preamble() + a[0] + b[0] + encode(1, 7, b"small") + a[1] + b[1] + a[2]
    assert feed_all(FrameReader(), mixed, 3) == [(1, 7, b"small"), (2, 2, b"abcdefgh"), (2, 1, b"0123456789")]


@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, 3, 4, 6, 8]), st.integers(1, 2**64 - 1), st.binary(max_size=300)), max_size=8
    ),
    st.integers(1, 64),
    st.integers(1, 100),
)
@settings(max_examples=60, deadline=None)
def test_round_trips(packets: list[tuple[int, int, bytes]], step: int, chunk: int) -> None:
    wire = preamble() + b"".join(encode(k, n, p, chunk=chunk) for k, n, p in packets)
    reader = FrameReader()
    assert feed_all(reader, wire, step) == packets
    assert reader.pending == 0


@given(st.binary(max_size=200), st.integers(1, 50))
@settings(max_examples=200, deadline=None)
def test_nothing_but_protocol_errors(data: bytes, step: int) -> None:
    reader = FrameReader(max_packet=100)
    try:
        feed_all(reader, preamble() + data, step)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            reader.feed(b"")


def header(length: int, kind: int = 2, flags: int = 0, zero: int = 0, number: int = 1) -> bytes:
    return length.to_bytes(4, "big") + bytes([kind, flags]) + zero.to_bytes(2, "big") + number.to_bytes(8, "big")


@pytest.mark.parametrize(
    "wire",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"coro-ps\x02" + bytes(8),
        preamble() + header(1, kind=0),
        preamble() + header(1, kind=14),
        preamble() + header(1, flags=4),
        preamble() + header(1, flags=2),
        preamble() + header(1, zero=1),
        preamble() + header(frames.CHUNK + 1),
        preamble() + header(1, kind=5),
        preamble() + header(3, kind=9),
        preamble() + header(65, kind=11),
        preamble() + header(0, flags=1),
        preamble() + header(4, kind=13, flags=1),
    ],
)
def test_refused(wire: bytes) -> None:
    with pytest.raises(ProtocolError, match="expected"):
        feed_all(FrameReader(), wire, 1)


def test_limits_of_a_packet() -> None:
    reader = FrameReader(max_packet=10)
    assert reader.feed(preamble() + encode(2, 1, bytes(10))) == [(2, 1, bytes(10))]
    assert reader.feed(encode(2, 2, bytes(10), chunk=3)) == [(2, 2, bytes(10))]
    with pytest.raises(ProtocolError, match="at most 10 bytes"):
        reader.feed(encode(2, 3, bytes(11), chunk=4))


def test_limit_of_incomplete_packets() -> None:
    reader = FrameReader(max_parts=2)
    reader.feed(preamble())
    for number in (1, 2):
        reader.feed(header(1, flags=1, number=number) + b"x")
    with pytest.raises(ProtocolError, match="at most 2 incomplete"):
        reader.feed(header(1, flags=1, number=3) + b"x")


def test_memory_grows_with_what_comes() -> None:
    reader = FrameReader()
    reader.feed(preamble() + header(frames.CHUNK) + b"x")
    assert reader.pending == 1


def test_what_nobody_wants_passes() -> None:
    reader = FrameReader()
    reader.feed(preamble() + header(3, flags=1) + b"abc")
    reader.skip(2, 1)
    assert reader.pending == 0
    assert reader.feed(header(3, flags=1) + b"def" + header(1, number=2) + b"x") == [(2, 2, b"x")]
    assert reader.feed(header(2) + b"gh" + header(1) + b"i") == [(2, 1, b"i")]


def test_skipping_in_the_middle_of_a_frame() -> None:
    reader = FrameReader()
    reader.feed(preamble() + header(3, flags=1) + b"a")
    reader.skip(2, 1)
    assert reader.feed(b"bc" + header(1) + b"d" + header(1) + b"e") == [(2, 1, b"e")]


def test_pieces_are_one_payload() -> None:
    wire = (
        header(2, flags=1) + b"ab" + header(2, flags=3) + b"cd" + header(1, flags=1) + b"e" + header(1, flags=2) + b"f"
    )
    for step in range(1, len(wire)):
        reader = FrameReader()
        reader.feed(preamble())
        assert feed_all(reader, wire, step) == [(2, 1, b"abcdef")]


def test_local_mistakes() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        FrameReader(max_packet=0)
    with pytest.raises(OverflowError):
        preamble(max_packet=1 << 32)


def test_the_fuzz_target_runs_over_its_corpus() -> None:
    """The target of tests/fuzz, with its corpus and each prefix of its entries."""
    import importlib.util
    from pathlib import Path

    folder = Path(__file__).parent / "fuzz"
    spec = importlib.util.spec_from_file_location("fuzz_wire", folder / "fuzz_wire.py")
    assert spec is not None and spec.loader is not None
    target = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(target)
    entries = sorted((folder / "corpus").iterdir())
    assert len(entries) >= 6
    for entry in entries:
        data = entry.read_bytes()
        for end in range(len(data) + 1):
            target.one_input(data[:end])
