"""NTP packets as bytes and back, without any I/O: RFC 5905 section 7.3, RFC 4330 section 4.

A `Packet` has the fields of the header as they stand on the wire, as ints, so that the way there and back is exact for
every value; properties and functions turn them into seconds and POSIX nanoseconds.  What follows the header (extension
fields, a message authentication code) is skipped: its lengths are looked at no further than that the whole is not
absurdly long.

An NTP timestamp counts seconds since 1900 modulo 2**32, so it means another moment every 136 years.  `to_posix_ns`
takes the one nearest to a moment that the caller knows.

Cost: about 2 us to decode a packet.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = [
    "CLIENT",
    "HEADER_BYTES",
    "MOST_BYTES",
    "SERVER",
    "Packet",
    "PeerError",
    "decode",
    "encode",
    "from_posix_ns",
    "to_posix_ns",
]

#: Length of the header.
HEADER_BYTES = 48
#: No server has reason to send more: an answer is as long as the question, plus a code, plus a few extension fields.
MOST_BYTES = 1024
#: Modes of a packet.
CLIENT = 3
SERVER = 4

#: Seconds from 1900 to 1970.
_EPOCH = 2208988800
_ERA = 1 << 32
_LAYOUT = struct.Struct(">BBBbiI4sQQQQ")


class PeerError(Exception):
    """The other side's fault, or the network's: no packet came, or none that can be used.  The message says why.

    kiss: the code of a kiss of death such as "RATE", else None.
    """

    def __init__(self, message: str, kiss: str | None = None) -> None:
        super().__init__(message)
        self.kiss = kiss


@dataclass(frozen=True, slots=True)
class Packet:
    """The header of an NTP packet; every field as it stands on the wire.

    Timestamps are 64-bit ints, seconds since 1900 in the upper half, a fraction in the lower.  The constructor raises
    ValueError for a value that its field has no room for.
    """

    #: Leap indicator: 0 nothing, 1 and 2 a leap second at the end of the day, 3 the clock is not synchronised.
    leap: int = 0
    version: int = 4
    mode: int = CLIENT
    #: Steps to a reference clock; 0 for a kiss of death.
    stratum: int = 0
    #: log2 of seconds.
    poll: int = 0
    precision: int = 0
    #: 16.16 bit fixed point seconds; the delay is signed.
    root_delay: int = 0
    root_dispersion: int = 0
    #: Four bytes: a name, an address or, with stratum 0, the code of a kiss of death.
    reference_id: bytes = b"\0\0\0\0"
    reference: int = 0
    #: The transmit timestamp of the question.
    originate: int = 0
    receive: int = 0
    transmit: int = 0

    def __post_init__(self) -> None:
        limits = (
            *(("leap", 0, 3), ("version", 0, 7), ("mode", 0, 7), ("stratum", 0, 255), ("poll", 0, 255)),
            *(("precision", -128, 127), ("root_delay", -(1 << 31), (1 << 31) - 1), ("root_dispersion", 0, _ERA - 1)),
            *((name, 0, (1 << 64) - 1) for name in ("reference", "originate", "receive", "transmit")),
        )
        for name, low, high in limits:
            value = getattr(self, name)
            if not isinstance(value, int) or not low <= value <= high:
                raise ValueError(f"expected {name} as an int from {low} to {high}, got {value!r}")
        if not isinstance(self.reference_id, bytes) or len(self.reference_id) != 4:
            raise ValueError(f"expected reference_id as four bytes, got {self.reference_id!r}")

    @property
    def root_distance(self) -> float:
        """Seconds by which the server's time may be wrong: half the delay to its source, plus the dispersion."""
        return abs(self.root_delay) / 131072 + self.root_dispersion / 65536

    @property
    def kiss(self) -> str | None:
        """The code of a kiss of death such as "RATE", or None."""
        if self.stratum:
            return None
        return self.reference_id.rstrip(b"\0 ").decode("ascii", "backslashreplace")


def encode(packet: Packet) -> bytes:
    """The 48 bytes of a packet."""
    p = packet
    return _LAYOUT.pack(
        *(p.leap << 6 | p.version << 3 | p.mode, p.stratum, p.poll, p.precision, p.root_delay, p.root_dispersion),
        *(p.reference_id, p.reference, p.originate, p.receive, p.transmit),
    )


def decode(data: bytes | bytearray | memoryview) -> Packet:
    """The packet in `data`; what follows its header is skipped.

    Raises PeerError, and nothing else, when the length or the version cannot be an NTP packet's.
    """
    size = memoryview(data).nbytes
    if size < HEADER_BYTES:
        raise PeerError(f"an NTP packet has {HEADER_BYTES} bytes or more, this one {size}")
    if size > MOST_BYTES or size % 4:
        raise PeerError(f"an NTP packet has a multiple of 4 bytes, at most {MOST_BYTES}; this one {size}")
    first, stratum, poll, precision, delay, dispersion, ref_id, *stamps = _LAYOUT.unpack_from(data)
    version = first >> 3 & 7
    if not 1 <= version <= 4:
        raise PeerError(f"expected an NTP packet of version 1 to 4, got version {version}")
    return Packet(first >> 6, version, first & 7, stratum, poll, precision, delay, dispersion, ref_id, *stamps)


def from_posix_ns(ns: int) -> int:
    """POSIX time in nanoseconds (any int) as an NTP timestamp, to the nearest."""
    return ((ns << 32) + 500_000_000) // 1_000_000_000 + (_EPOCH << 32) & (1 << 64) - 1


def to_posix_ns(stamp: int, near_ns: int) -> int:
    """An NTP timestamp as POSIX nanoseconds, to the nearest: of the moments it can mean the nearest to `near_ns`.

    Raises ValueError for a stamp that is no 64-bit number.
    """
    if not 0 <= stamp < 1 << 64:
        raise ValueError(f"expected an NTP timestamp of 64 bits, got {stamp}")
    ns = (((stamp - (_EPOCH << 32)) * 1_000_000_000) + (1 << 31)) >> 32
    era = _ERA * 1_000_000_000
    return ns + (2 * (near_ns - ns) + era) // (2 * era) * era
