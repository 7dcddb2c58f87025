"""Data of records between the wire and Python: text for addresses and names, tuples for what has several parts, bytes
for texts and for every type that is not listed here. Names have no dot at the end; the root is ``""``."""

from __future__ import annotations

import ipaddress
from typing import Any

from coro.dns import _wire
from coro.dns._packet.numbers import TYPE_MAP, type_text

__all__ = ["TYPES", "number_of", "type_name", "value_of", "value_or_bytes"]

#: Numbers of the record types.
TYPES = {name: number for number, name in TYPE_MAP.items()}


def number_of(name: str | int) -> int:
    """The number of a type; ``TYPE65280`` is one, too (RFC 3597). Raises ValueError for an unknown one."""
    if isinstance(name, int):
        number = name
    else:
        text = name.upper()
        digits = text[4:] if text.startswith("TYPE") else ""
        number = int(digits) if digits.isascii() and digits.isdigit() else TYPES.get(text, -1)
    if not 0 < number < 65536:
        raise ValueError(f"expected the name of a record type (or TYPE1 to TYPE65535), not {name!r}")
    return number


def type_name(number: int) -> str:
    """The name of a type."""
    return type_text(number)


def _name(data: bytes) -> str:
    text = _wire.to_text(_wire.lower(data))
    return "" if text == "." else text


def _strings(data: bytes) -> list[bytes]:
    out = []
    while data:
        size = data[0]
        if size >= len(data):
            raise ValueError("a string goes on beyond its record")
        out.append(data[1 : 1 + size])
        data = data[1 + size :]
    return out


def _name_end(data: bytes) -> int:
    at = 0
    while data[at]:
        at += data[at] + 1
    return at + 1


def value_of(rtype: int, data: bytes) -> Any:
    """The Python value of a record's data. Raises ValueError if it is none of that type."""
    try:
        if rtype in (1, 28):
            if len(data) != (4 if rtype == 1 else 16):
                raise ValueError(f"an address of {len(data)} bytes")
            return str(ipaddress.ip_address(data))
        if rtype in (2, 5, 12, 39):
            return _name(data)
        if rtype == 15:
            return int.from_bytes(data[:2], "big"), _name(data[2:])
        if rtype == 16:
            return _strings(data)
        if rtype == 13:
            cpu, system = _strings(data)[:2]
            return cpu, system
        if rtype == 33:
            numbers = (int.from_bytes(data[i : i + 2], "big") for i in (0, 2, 4))
            return *numbers, _name(data[6:])
        if rtype == 6:
            middle = _name_end(data)
            end = middle + _name_end(data[middle:])
            serials = [int.from_bytes(data[end + i : end + i + 4], "big") for i in range(0, 20, 4)]
            return _name(data[:middle]), _name(data[middle:end]), *serials
    except IndexError:
        raise ValueError(f"data that is too short for the type {type_name(rtype)}") from None
    return data


def value_or_bytes(rtype: int, data: bytes) -> Any:
    """The same, and the data as it is if it is none of that type."""
    try:
        return value_of(rtype, data)
    except ValueError:
        return data
