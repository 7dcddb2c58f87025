"""Messages of DNS between bytes and Python values (RFC 1035, section 4); no I/O.

    Unpacker, Packer, Header     read and write a message
    TYPE, CLASS, OPCODE ...      numbers, and maps from a number to its name
    rdata_to_text ...            data of records as the text of zone files
    option_value, option_data    what EDNS options say

All types of records come in one shape, ``(name, type, class, ttl, data)``. ``UnpackError`` is all that a peer's bytes
can raise.
"""

from __future__ import annotations

from typing import Any

from coro.dns._packet.codec import (
    Header,
    Packer,
    PackError,
    Unpacker,
    UnpackError,
    canonical,
    pack16bit,
    pack32bit,
    unpack16bit,
    unpack32bit,
    value_of,
)
from coro.dns._packet.numbers import (
    CLASS,
    CLASS_MAP,
    EDNS,
    OPCODE,
    OPCODE_MAP,
    QCLASS,
    RCODE,
    RCODE_MAP,
    TYPE,
    TYPE_MAP,
)
from coro.dns._packet.options import option_data, option_value
from coro.dns._packet.text import rdata_from_text, rdata_to_text
from coro.dns._packet.unusual import check

__all__ = [
    "CLASS",
    "CLASS_MAP",
    "EDNS",
    "OPCODE",
    "OPCODE_MAP",
    "QCLASS",
    "RCODE",
    "RCODE_MAP",
    "TYPE",
    "TYPE_MAP",
    "Header",
    "PackError",
    "Packer",
    "UnpackError",
    "Unpacker",
    "addr2bin",
    "bin2addr",
    "canonical",
    "dot_sane",
    "option_data",
    "option_value",
    "pack16bit",
    "pack32bit",
    "rdata_from_text",
    "rdata_to_text",
    "rdata_value",
    "unpack16bit",
    "unpack32bit",
]


def rdata_value(rtype: int, data: bytes, klass: int = 1) -> Any:
    """The value of a record's ``data`` in wire form, as ``Unpacker.getRR`` gives it, for the type and class with these
    numbers. Raises UnpackError if it does not fit the type. ``getRR`` takes messages as they are, but here that is also
    raised for a LOC that is not on earth (:rfc:`1876`), an EUI48 or EUI64 of another length (:rfc:`7043`), and an empty
    URI (:rfc:`7553`)."""
    value = value_of(rtype, data, klass)
    check(rtype, data)
    return value


def addr2bin(addr: str | int) -> int:
    """The number of an IPv4 address that is given as text; a number is returned as it is. Raises ValueError if there
    are not four parts, each a number up to 255."""
    if isinstance(addr, int):
        return addr
    parts = addr.split(".")
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() and int(part) < 256 for part in parts):
        raise ValueError(f"expected four numbers up to 255 with dots between them, not {addr!r}")
    return int.from_bytes(map(int, parts), "big")


def bin2addr(n: int) -> str:
    """The text of the IPv4 address with the number ``n``; only its lowest 32 bits count."""
    return ".".join(str(n >> shift & 255) for shift in (24, 16, 8, 0))


def dot_sane(name: str) -> bool:
    """Are there no dots at the beginning or the end of ``name``, nor two in a row? The empty name is sane."""
    return not (name.startswith(".") or name.endswith(".") or ".." in name)
