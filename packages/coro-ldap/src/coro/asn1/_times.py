"""UTCTime and GeneralizedTime (ITU-T X.680, 46 and 47; X.690, 11.7 and 11.8) as datetime.

What datetime cannot hold is an error: a leap second, and more than six digits of a second are cut.
"""

from __future__ import annotations

import datetime
import re

from coro.asn1.exceptions import DecodeError

__all__ = ["generalized_time", "utc_time"]

_ZONE = rb"(?:(Z)|([+-])([0-9]{2})([0-9]{2})?)?"
_UTC = re.compile(rb"([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})?" + _ZONE)
_GENERALIZED = re.compile(
    rb"([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})(?:([0-9]{2})([0-9]{2})?)?(?:[.,]([0-9]{1,32}))?" + _ZONE
)


def _zone(groups: tuple[bytes | None, ...]) -> datetime.tzinfo | None:
    z, sign, hours, minutes = groups
    if z:
        return datetime.UTC
    if sign is None or hours is None:
        return None
    if int(hours) > 23 or int(minutes or 0) > 59:
        raise ValueError("the difference from UTC is out of range")
    difference = datetime.timedelta(hours=int(hours), minutes=int(minutes or 0))
    return datetime.timezone(-difference if sign == b"-" else difference)


def utc_time(content: bytes, at: int, strict: bool) -> datetime.datetime:
    """The moment of a UTCTime; two digits of the year from 50 on are 19xx (RFC 5280, 4.1.2.5.1)."""
    match = _UTC.fullmatch(content)
    # A zone has four digits here, and there always is one.
    if match is None or (match[7] is None and match[10] is None):
        raise DecodeError(f"expected a UTCTime YYMMDDhhmm[ss] with Z or a difference at byte {at}, got {content!r:.40}")
    if strict and (match[6] is None or match[7] is None):
        raise DecodeError(f"expected DER, where a UTCTime is YYMMDDhhmmssZ, at byte {at}, got {content!r:.40}")
    year, month, day, hour, minute, second = (int(group or 0) for group in match.groups()[:6])
    year += 1900 if year >= 50 else 2000
    try:
        return datetime.datetime(year, month, day, hour, minute, second, tzinfo=_zone(match.groups()[6:]))
    except ValueError as exc:
        raise DecodeError(f"expected a date and time at byte {at}, got {content!r:.40}: {exc}") from None


def generalized_time(content: bytes, at: int, strict: bool) -> datetime.datetime:
    """The moment of a GeneralizedTime; without a zone it is local time, and the datetime has none."""
    match = _GENERALIZED.fullmatch(content)
    if match is None:
        raise DecodeError(
            f"expected a GeneralizedTime YYYYMMDDhh[mm[ss]][.fraction][zone] at byte {at}, got {content!r:.40}"
        )
    fraction = match[7]
    if strict and (match[6] is None or match[8] is None or b"," in content or (fraction or b"1").endswith(b"0")):
        raise DecodeError(
            f"expected DER, where a GeneralizedTime is YYYYMMDDhhmmss[.f]Z without zeros at the end, at byte {at}, "
            f"got {content!r:.40}"
        )
    year, month, day, hour, minute, second = (int(group or 0) for group in match.groups()[:6])
    try:
        when = datetime.datetime(year, month, day, hour, minute, second, tzinfo=_zone(match.groups()[7:]))
        if fraction is not None:
            # Of the last unit given: an hour, a minute or a second.
            unit = 1_000_000 * (1 if match[6] else 60 if match[5] else 3600)
            when += datetime.timedelta(microseconds=int(fraction) * unit // 10 ** len(fraction))
        return when
    except (ValueError, OverflowError) as exc:
        raise DecodeError(f"expected a date and time at byte {at}, got {content!r:.40}: {exc}") from None
