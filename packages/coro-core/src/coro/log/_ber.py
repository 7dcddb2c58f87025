"""The values of binary log records as BER (ITU-T X.690): a small closed set of types, both ways, with limits.

    int     INTEGER, two's complement, as short as possible        02
    None    NULL                                                   05
    bytes   OCTET STRING                                           04
    str     UTF8String                                             0c
    bool    BOOLEAN                                                01
    list    SEQUENCE                                               30
    tuple   [0] constructed                                        a0
    dict    [1] constructed, of tuples (key, value)                a1
    set     [2] constructed                                        a2
    float   [3] primitive, eight bytes IEEE 754, big end first     83

Subclasses are written as the type above them, and any other object as the text of its ``repr``: a log has to take what
comes. Lengths are definite, one to five bytes.

Reading checks every length against the bytes there are before anything is allocated, and the depth of nesting; whatever
is wrong is a ``DecodeError``. Sets are written in the order of their encodings, so that equal records are equal bytes.

Cost: a Python call per value, about 1 us each way. coro-ldap has the complete codec; coro-core depends on nothing.
"""

from __future__ import annotations

import struct
from typing import Any

__all__ = ["DecodeError", "decode", "encode"]

#: Values inside values. A record is (time, (items...)), so this leaves 98 for the items.
MAX_DEPTH = 100
#: A record that is longer is refused, both ways: the length field could say 4 GiB.
MAX_SIZE = 256 * 1024 * 1024

_BOOLEAN, _INTEGER, _OCTETS, _NULL, _UTF8, _SEQUENCE = 0x01, 0x02, 0x04, 0x05, 0x0C, 0x30
_TUPLE, _DICT, _SET, _FLOAT = 0xA0, 0xA1, 0xA2, 0x83


class DecodeError(ValueError):
    """The bytes are no value as ``encode`` writes them: cut, of an unknown type, nested too deep, or too long."""


def _element(tag: int, data: bytes) -> bytes:
    size = len(data)
    if size < 128:
        return bytes((tag, size)) + data
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + data


def encode(value: Any, depth: int = 0) -> bytes:
    """The bytes of a value. Never fails for want of a type; ValueError for values nested deeper than 100, or longer
    than 256 MiB, which nobody could read back."""
    if depth >= MAX_DEPTH:
        raise ValueError(
            f"expected values nested at most {MAX_DEPTH} deep in a record, got deeper ones (or a cycle); "
            "log a part, or their repr()"
        )
    encoded = _encode(value, depth)
    if len(encoded) > MAX_SIZE:
        raise ValueError(f"a record has at most {MAX_SIZE} bytes, this one {len(encoded)}; log a part of it")
    return encoded


def _encode(value: Any, depth: int) -> bytes:
    if value is None:
        return b"\x05\x00"
    if isinstance(value, bool):
        return b"\x01\x01\xff" if value else b"\x01\x01\x00"
    if isinstance(value, int):
        bits = (value if value >= 0 else ~value).bit_length()
        return _element(_INTEGER, int(value).to_bytes(bits // 8 + 1, "big", signed=True))
    if isinstance(value, str):
        return _element(_UTF8, str.encode(value, "utf-8", "backslashreplace"))
    if isinstance(value, (bytes, bytearray)):
        return _element(_OCTETS, bytes(value))
    if isinstance(value, float):
        return _element(_FLOAT, struct.pack(">d", value))
    if isinstance(value, list):
        return _element(_SEQUENCE, b"".join([encode(item, depth + 1) for item in value]))
    if isinstance(value, tuple):
        return _element(_TUPLE, b"".join([encode(item, depth + 1) for item in value]))
    if isinstance(value, dict):
        return _element(_DICT, b"".join([encode(item, depth + 1) for item in value.items()]))
    if isinstance(value, (set, frozenset)):
        return _element(_SET, b"".join(sorted(encode(item, depth + 1) for item in value)))
    try:
        text = repr(value)
    except Exception as exc:
        text = f"<unprintable {type(value).__name__}: repr() raised {type(exc).__name__}>"
    return _element(_UTF8, text.encode("utf-8", "backslashreplace"))


def decode(data: bytes) -> Any:
    """The value of these bytes, which it has to fill to the end. DecodeError when they are none."""
    value, end = _decode(data, 0, len(data), 0)
    if end != len(data):
        raise DecodeError(f"expected one value, but {len(data) - end} bytes follow it")
    return value


def _decode(data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    """The value that begins at ``at`` and may go up to ``end``; and where it ends."""
    if depth >= MAX_DEPTH:
        raise DecodeError(f"values are nested more than {MAX_DEPTH} deep")
    if end - at < 2:
        raise DecodeError(f"expected type and length at byte {at}, but the data ends")
    tag, size = data[at], data[at + 1]
    at += 2
    if size >= 128:
        count = size & 127
        if not 1 <= count <= 4:
            raise DecodeError(f"expected a length of 1 to 4 bytes at byte {at - 1}, not of {count}")
        if end - at < count:
            raise DecodeError(f"expected {count} bytes of length at byte {at}, but the data ends")
        size = int.from_bytes(data[at : at + count], "big")
        at += count
    if size > end - at:
        raise DecodeError(f"the value at byte {at} should have {size} bytes, but {end - at} are left")
    stop = at + size
    if tag in (_SEQUENCE, _TUPLE, _DICT, _SET):
        items = []
        while at < stop:
            item, at = _decode(data, at, stop, depth + 1)
            items.append(item)
        return _container(tag, items, stop), stop
    return _simple(tag, data[at:stop], at), stop


def _container(tag: int, items: list[Any], at: int) -> Any:
    if tag == _SEQUENCE:
        return items
    if tag == _TUPLE:
        return tuple(items)
    try:
        if tag == _SET:
            return set(items)
        if any(type(item) is not tuple or len(item) != 2 for item in items):
            raise DecodeError(f"expected pairs in the dictionary that ends at byte {at}")
        return dict(items)
    except TypeError:
        raise DecodeError(f"a list, dictionary or set is a key or member in what ends at byte {at}") from None


def _simple(tag: int, content: bytes, at: int) -> Any:
    if tag == _INTEGER:
        return int.from_bytes(content, "big", signed=True)
    if tag == _UTF8:
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as exc:
            raise DecodeError(f"the text at byte {at} is no UTF-8: {exc.reason}") from None
    if tag == _OCTETS:
        return content
    if tag == _NULL and not content:
        return None
    if tag == _BOOLEAN and len(content) <= 1:
        return content not in (b"", b"\0")
    if tag == _FLOAT and len(content) == 8:
        return struct.unpack(">d", content)[0]
    raise DecodeError(f"a value of type {tag:#04x} with {len(content)} bytes at byte {at} is none of a log's")
