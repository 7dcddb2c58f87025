"""Reading DER (X.690), as much as certificates and revocation lists need.

Every function raises `Malformed` for bytes that are not what they should be, and nothing else. Lengths are checked
against what is there before anything is cut out; there is no recursion.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Malformed", "Part", "bits", "boolean", "integer", "moment", "oid", "one", "parts", "text"]

SEQUENCE, SET, INTEGER, BIT_STRING, OCTET_STRING, OID, BOOLEAN = 0x30, 0x31, 2, 3, 4, 6, 1
UTC_TIME, GENERALIZED_TIME = 23, 24


class Malformed(ValueError):
    """The bytes are not DER, or not what the structure has in this place."""


class Part(NamedTuple):
    """One element: its tag, its content, and all its bytes."""

    tag: int
    content: bytes
    whole: bytes


def one(data: bytes, at: int = 0) -> tuple[Part, int]:
    """The element that begins at ``at``, and where the next one begins."""
    if len(data) - at < 2:
        raise Malformed("an element is cut off")
    tag, length, begin = data[at], data[at + 1], at + 2
    if tag & 0x1F == 0x1F:
        raise Malformed("a tag of several bytes, which certificates do not have")
    if length >= 0x80:
        count = length & 0x7F
        if not 1 <= count <= 4 or len(data) - begin < count:
            raise Malformed("a length that DER does not have")
        length = int.from_bytes(data[begin : begin + count], "big")
        if length < 0x80 or data[begin] == 0:
            raise Malformed("a length that is not written as short as possible")
        begin += count
    end = begin + length
    if end > len(data):
        raise Malformed("an element is longer than what it is in")
    return Part(tag, data[begin:end], data[at:end]), end


def parts(data: bytes) -> Iterator[Part]:
    """All elements of ``data``."""
    at = 0
    while at < len(data):
        part, at = one(data, at)
        yield part


def only(data: bytes, tag: int) -> bytes:
    """The content of the one element that ``data`` is, which has this tag."""
    part, end = one(data)
    if end != len(data) or part.tag != tag:
        raise Malformed(f"one element with tag {tag} was expected, not {part.tag}, or more follows it")
    return part.content


def expect(part: Part | None, tag: int, what: str) -> bytes:
    """The content of ``part``, which must have this tag."""
    if part is None or part.tag != tag:
        raise Malformed(f"{what}: tag {tag} was expected, not {part.tag if part else 'the end'}")
    return part.content


def integer(content: bytes) -> int:
    """A whole number (X.690, 8.3)."""
    if not content:
        raise Malformed("a number without digits")
    return int.from_bytes(content, "big", signed=True)


def boolean(content: bytes) -> bool:
    """A truth value (X.690, 11.1)."""
    if content not in (b"\0", b"\xff"):
        raise Malformed("a truth value that DER does not have")
    return content == b"\xff"


def bits(content: bytes) -> bytes:
    """The bytes of a bit string of whole bytes."""
    if not content or content[0]:
        raise Malformed("a bit string that is no whole number of bytes")
    return content[1:]


def named_bits(content: bytes) -> set[int]:
    """The numbers of the bits that are set."""
    if not content or content[0] > 7 or (len(content) == 1 and content[0]):
        raise Malformed("a bit string whose unused bits cannot be")
    return {8 * i + b for i, byte in enumerate(content[1:]) for b in range(8) if byte & 0x80 >> b}


def oid(content: bytes) -> str:
    """An object identifier as dotted numbers."""
    if not content or content[-1] & 0x80:
        raise Malformed("an object identifier is cut off")
    numbers: list[int] = []
    value = 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if value.bit_length() > 128:
            raise Malformed("an object identifier with a number of more than 128 bits")
        if not byte & 0x80:
            if numbers:
                numbers.append(value)
            else:
                first = min(value // 40, 2)
                numbers += [first, value - 40 * first]
            value = 0
    return ".".join(map(str, numbers))


def moment(part: Part) -> int:
    """A time, in POSIX seconds (RFC 5280, 4.1.2.5)."""
    try:
        digits = part.content.decode("ascii")
    except UnicodeDecodeError:
        raise Malformed("a time that is not digits") from None
    if part.tag == UTC_TIME and len(digits) == 13:
        year = int(digits[:2]) if digits[:2].isdigit() else -1
        digits = f"{1900 + year if year >= 50 else 2000 + year}{digits[2:]}"
    elif part.tag != GENERALIZED_TIME or len(digits) != 15:
        raise Malformed("a time in a form that certificates do not have")
    if not digits.endswith("Z") or not digits[:-1].isdigit():
        raise Malformed("a time that is not in UTC with seconds")
    year, month, day, hour, minute, second = int(digits[:4]), *(int(digits[i : i + 2]) for i in range(4, 14, 2))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61 and year):
        raise Malformed("a time that does not exist")
    return calendar.timegm((year, month, day, hour, minute, second, 0, 0, 0))


def text(part: Part) -> str:
    """A text, whichever of the kinds of strings that names have."""
    encoding = {12: "utf-8", 19: "ascii", 22: "ascii", 20: "latin-1", 30: "utf-16-be", 28: "utf-32-be"}.get(part.tag)
    if encoding is None:
        return part.content.hex()
    try:
        return part.content.decode(encoding)
    except UnicodeDecodeError:
        raise Malformed("a text that is not in the encoding that its tag says") from None
