"""`dump`: elements as text for people, a line each, with places, types and values.

    >>> from coro.asn1 import ber, dump
    >>> print(dump(ber.SEQUENCE(ber.INTEGER(34), ber.OCTET_STRING(b"line"))))
       0   9: SEQUENCE
       2   1:   INTEGER 34
       5   4:   OCTET STRING 'line'

Reads anything that `ber.decode` reads, and more: what is wrong is a line of its own, and what came before it is shown.
"""

from __future__ import annotations

from coro.asn1 import ber
from coro.asn1.exceptions import DecodeError

__all__ = ["dump"]

_CLASSES = {0x40: "APPLICATION ", 0x80: "", 0xC0: "PRIVATE "}


def dump(data: bytes, *, max_lines: int = 10_000, max_value: int = 64) -> str:
    """A line for each element of data: its place, the bytes of its content, its type, and its value.

    data: any number of elements.  max_lines: how many lines at most.  max_value: characters of a value at most; longer
    ones are cut and end in "...".  Raises nothing: bytes that are no elements are said to be so in the last line.
    """
    lines: list[str] = []
    ends = [len(data)]
    at = 0
    data = bytes(data)
    while at < len(data):
        if len(lines) >= max_lines:
            lines.append(f"... {len(data) - at} more bytes")
            break
        try:
            (tag, flags, length), begin = ber.decode(data, at, just_tlv=True)
            if begin + length > ends[-1]:
                raise DecodeError(f"{length} bytes of content, but {ends[-1] - begin} are there")
        except DecodeError as exc:
            lines.append(f"{at:4}    : error: {exc}")
            break
        structured = flags & ber.FLAGS_STRUCTURED
        deep = len(ends) > ber.MAX_DEPTH
        text = _name(tag, flags)
        if not structured or deep:
            text += _value(data, at, begin, begin + length, tag, flags, max_value)
        lines.append(f"{at:4} {length:3}: {'  ' * (len(ends) - 1)}{text}")
        at = begin
        if structured and not deep:
            ends.append(begin + length)
        else:
            at += length
        while len(ends) > 1 and at == ends[-1]:
            ends.pop()
    return "\n".join(lines)


def _name(tag: int, flags: int) -> str:
    kind = flags & 0xC0
    if kind:
        return f"[{_CLASSES[kind]}{tag}]"
    name = ber.TAG_TABLE.get(tag)
    return name.replace("_", " ") if name else f"[UNIVERSAL {tag}]"


def _value(data: bytes, at: int, begin: int, end: int, tag: int, flags: int, max_value: int) -> str:
    if flags:
        return _octets(data[begin:end], max_value)
    try:
        value = ber.decode(data[at:end], text=True)[0]
    except DecodeError as exc:
        return f" error: {exc}"
    if value is None:
        return ""
    if isinstance(value, tuple):
        if value[0] == "oid":
            return " " + ".".join(map(str, value[1]))
        if value[0] == "bitstring":
            unused, octets = value[1]
            return f" {len(octets) * 8 - unused} bits{_octets(octets, max_value)}"
        return _octets(value[2], max_value)
    if isinstance(value, bytes):
        return _octets(value, max_value)
    if isinstance(value, str):
        return _cut(f" {value!r}", max_value)
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return _cut(f" {value:#x}", max_value)
    return f" {value}"


def _octets(octets: bytes, max_value: int) -> str:
    """Printable ones as text, others in hexadecimal."""
    head = octets[: max_value + 1]
    if not head:
        return ""
    if all(32 <= byte < 127 for byte in head):
        return _cut(f" {head.decode('ascii')!r}", max_value)
    return _cut(f" {head.hex()}", max_value)


def _cut(text: str, max_value: int) -> str:
    return text if len(text) <= max_value + 1 else text[: max_value + 1] + "..."
