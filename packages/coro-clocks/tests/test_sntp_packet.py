"""NTP packets: the way there and back, limits, eras, and another implementation's opinion."""

from __future__ import annotations

import dataclasses
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coro.clocks.sntp_packet import (
    HEADER_BYTES,
    MOST_BYTES,
    Packet,
    PeerError,
    decode,
    encode,
    from_posix_ns,
    to_posix_ns,
)

U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
PACKETS = st.builds(
    Packet,
    leap=st.integers(0, 3),
    version=st.integers(1, 4),
    mode=st.integers(0, 7),
    stratum=st.integers(0, 255),
    poll=st.integers(0, 255),
    precision=st.integers(-128, 127),
    root_delay=st.integers(-(2**31), 2**31 - 1),
    root_dispersion=U32,
    reference_id=st.binary(min_size=4, max_size=4),
    reference=U64,
    originate=U64,
    receive=U64,
    transmit=U64,
)


@given(PACKETS, st.binary(max_size=64).map(lambda b: b[: len(b) // 4 * 4]))
def test_every_packet_survives_the_wire(packet, tail):
    data = encode(packet)
    assert len(data) == HEADER_BYTES
    assert decode(data) == decode(bytearray(data + tail)) == decode(memoryview(data)) == packet


@settings(max_examples=500)
@given(st.binary(max_size=1100))
def test_bytes_are_a_packet_or_refused(data):
    try:
        packet = decode(data)
    except PeerError:
        assert len(data) < 48 or len(data) > MOST_BYTES or len(data) % 4 or not 1 <= data[0] >> 3 & 7 <= 4
    else:
        assert encode(packet) == data[:48]
        assert packet.root_distance >= 0
        assert packet.kiss is None or isinstance(packet.kiss, str)


@given(PACKETS)
def test_another_implementation_reads_the_same(packet):
    ntplib = pytest.importorskip("ntplib")
    theirs = ntplib.NTPPacket()
    theirs.from_data(encode(packet))
    assert (theirs.leap, theirs.version, theirs.mode, theirs.stratum) == (
        *(packet.leap, packet.version, packet.mode),
        packet.stratum,
    )
    assert theirs.precision == packet.precision
    assert theirs.poll % 256 == packet.poll
    assert theirs.root_dispersion % 65536 == packet.root_dispersion / 65536
    if packet.root_delay >= 0:  # theirs takes it for unsigned
        assert theirs.root_delay == packet.root_delay / 65536
    assert struct.pack("!I", theirs.ref_id) == packet.reference_id
    for name, field in (("ref", "reference"), ("orig", "originate"), ("recv", "receive"), ("tx", "transmit")):
        assert abs(getattr(theirs, f"{name}_timestamp") - getattr(packet, field) / 2**32) < 1e-6


@given(st.floats(1e9, 4e9))
def test_another_implementations_questions_are_read(seconds):
    ntplib = pytest.importorskip("ntplib")
    question = ntplib.NTPPacket(version=4, mode=3, tx_timestamp=seconds)
    packet = decode(question.to_data())
    assert (packet.version, packet.mode) == (4, 3)
    assert abs(packet.transmit / 2**32 - seconds) < 1e-6


@given(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62))
def test_times_survive_within_half_an_era(ns, far):
    near = ns + far % (2**31 * 10**9) - 2**30 * 10**9
    assert to_posix_ns(from_posix_ns(ns), near) == ns


@given(U64, st.integers(-(2**70), 2**70))
def test_a_timestamp_means_the_nearest_moment_it_can(stamp, near):
    ns = to_posix_ns(stamp, near)
    assert abs(ns - near) <= 2**31 * 10**9
    assert from_posix_ns(ns) - stamp in (
        0,
        *range(-3, 4),
        2**64 - 1,
        1 - 2**64,
        2**64 - 2,
        2 - 2**64,
        2**64 - 3,
        3 - 2**64,
    )


def test_known_times():
    assert from_posix_ns(0) == 2208988800 << 32
    assert from_posix_ns(500_000_000) == (2208988800 << 32) + (1 << 31)
    # RFC 4330 section 3: the first second of the next era, 7 February 2036 06:28:16 UTC
    assert from_posix_ns(2_085_978_496 * 10**9) == 0
    assert to_posix_ns(0, 2_085_978_000 * 10**9) == 2_085_978_496 * 10**9
    assert to_posix_ns(0, -2_208_988_000 * 10**9) == -2_208_988_800 * 10**9
    for bad in (-1, 2**64):
        with pytest.raises(ValueError):
            to_posix_ns(bad, 0)


@pytest.mark.parametrize("size", [0, 1, 47, 49, 50, 1025, 1028, 65507])
def test_lengths_that_no_packet_has(size):
    with pytest.raises(PeerError, match="bytes"):
        decode(b"\x23" * size)


@pytest.mark.parametrize("version", [0, 5, 6, 7])
def test_versions_that_nobody_speaks(version):
    with pytest.raises(PeerError, match="version"):
        decode(bytes([version << 3 | 4]) + bytes(47))


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        *(("leap", 4), ("version", 8), ("mode", -1), ("stratum", 256), ("poll", -1), ("precision", 128)),
        *(("root_delay", 2**31), ("root_dispersion", -1), ("reference_id", b"abc"), ("reference_id", "abcd")),
        *(("originate", 2**64), ("receive", -1), ("transmit", 1.0)),
    ],
)
def test_values_that_a_field_has_no_room_for(field, bad):
    with pytest.raises(ValueError, match=field):
        Packet(**{field: bad})


def test_a_kiss_of_death():
    assert Packet(stratum=0, reference_id=b"RATE").kiss == "RATE"
    assert Packet(stratum=0, reference_id=b"X\0\0\0").kiss == "X"
    assert Packet(stratum=0, reference_id=b"\xff\0\0\0").kiss == "\\xff"
    assert Packet(stratum=1, reference_id=b"GPS\0").kiss is None


def test_root_distance():
    assert Packet(root_delay=-65536, root_dispersion=65536).root_distance == 1.5
    assert dataclasses.replace(Packet(), root_delay=2).root_distance == 2 / 131072


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=80), PACKETS.map(encode)))
def test_the_fuzz_target(data):
    from fuzz_sntp_packet import one_input

    one_input(data)
