"""The values of REAL (ITU-T X.690, 8.5): binary with bases 2, 8 and 16, decimal, and the special ones.

Every result is the float nearest to the number sent.  Work grows with the bytes received, never with an exponent:
pyasn1's CVE-2026-59886 was an exponent that made it compute a number of gigabytes.
"""

from __future__ import annotations

import re

from coro.asn1.exceptions import DecodeError, InsufficientData

__all__ = ["real_value"]

_SPECIAL = {0x40: float("inf"), 0x41: float("-inf"), 0x42: float("nan"), 0x43: -0.0}
#: Bits that one step of the exponent stands for; base 11 is reserved.
_BASES = (1, 3, 4)
#: The longest text of a decimal number.  A float needs at most 767 digits to be told from its neighbours.
_MAX_DECIMAL = 1000

# ISO 6093, numerical representations 1 to 3. The patterns look at each character once.
_NR = {
    1: re.compile(rb" *[+-]?[0-9]+"),
    2: re.compile(rb" *[+-]?(?:[0-9]+[.,][0-9]*|[.,][0-9]+)"),
    3: re.compile(rb" *[+-]?(?:[0-9]+[.,]?[0-9]*|[.,][0-9]+)[Ee][+-]?[0-9]+"),
}
# X.690, 11.3.2: an integral mantissa without zeros at its ends, a full stop, and the shortest exponent.
_DER = re.compile(rb"-?[1-9](?:[0-9]*[1-9])?\.E(?:\+0|-?[1-9][0-9]*)")


def real_value(content: bytes, at: int, strict: bool) -> float:
    """The number of this content, which began at byte `at`.  Raises DecodeError, also for numbers beyond a float."""
    if not content:
        return 0.0
    first = content[0]
    if first & 0x80:
        return _binary(content, at, strict)
    if first & 0x40:
        if len(content) != 1 or first not in _SPECIAL:
            raise DecodeError(f"expected one of the special values 40 to 43 of a REAL at byte {at}")
        return _SPECIAL[first]
    return _decimal(content, at, strict)


def _binary(content: bytes, at: int, strict: bool) -> float:
    first = content[0]
    base = first >> 4 & 3
    if base == 3:
        raise DecodeError(f"expected the base 2, 8 or 16 of a REAL at byte {at}, got the reserved one")
    size = (first & 3) + 1
    begin = 1
    if size == 4:
        if len(content) < 2:
            raise InsufficientData(f"the REAL at byte {at} ends before its exponent")
        size = content[1]
        begin = 2
    exponent_bytes, mantissa_bytes = content[begin : begin + size], content[begin + size :]
    if size == 0 or len(exponent_bytes) != size or not mantissa_bytes:
        raise InsufficientData(f"the REAL at byte {at} ends before its mantissa")
    exponent = int.from_bytes(exponent_bytes, "big", signed=True) * _BASES[base] + (first >> 2 & 3)
    mantissa = int.from_bytes(mantissa_bytes, "big")
    if strict and not _is_der(first, exponent_bytes, mantissa_bytes):
        raise DecodeError(f"expected DER, where a REAL has base 2, an odd mantissa and no leading zeros, at byte {at}")
    sign = -1.0 if first & 0x40 else 1.0
    top = mantissa.bit_length() + exponent
    if mantissa == 0 or top < -1080:
        return sign * 0.0
    try:
        if top > 1024:
            raise OverflowError
        # int / int rounds once and correctly, in the subnormal range, too.
        value = float(mantissa << exponent) if exponent >= 0 else mantissa / (1 << -exponent)
    except OverflowError:
        raise DecodeError(f"expected a number that fits into a float at byte {at}, got one above 2**1023") from None
    return sign * value


def _is_der(first: int, exponent: bytes, mantissa: bytes) -> bool:
    shortest = len(exponent) == 1 or not (
        (exponent[0] == 0 and exponent[1] < 0x80) or (exponent[0] == 0xFF and exponent[1] >= 0x80)
    )
    return first & 0x3C == 0 and (first & 3) < 3 and shortest and mantissa[0] != 0 and mantissa[-1] & 1 == 1


def _decimal(content: bytes, at: int, strict: bool) -> float:
    pattern = _NR.get(content[0])
    text = content[1:]
    if pattern is None:
        raise DecodeError(f"expected the form 1, 2 or 3 of a decimal REAL at byte {at}, got {content[0]}")
    if len(text) > _MAX_DECIMAL:
        raise DecodeError(f"expected a decimal REAL of at most {_MAX_DECIMAL} characters at byte {at}, got {len(text)}")
    if pattern.fullmatch(text) is None or (strict and (content[0] != 3 or _DER.fullmatch(text) is None)):
        raise DecodeError(f"expected a decimal number of the form {content[0]} at byte {at}, got {text!r:.60}")
    value = float(text.strip(b" ").replace(b",", b"."))
    if value in (_SPECIAL[0x40], _SPECIAL[0x41]):
        raise DecodeError(f"expected a number that fits into a float at byte {at}, got {text!r:.60}")
    return value
