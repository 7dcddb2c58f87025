"""Arguments that are numbers: the checks that public functions share, so that each mistake is told in one way.

Not for hot paths: a call of a Python function for each check. bool is refused although it is an int, because True in
the place of a count is nearly always an argument in the wrong place.

A number of seconds is the same thing everywhere. `number_of_seconds` says what one is, and the scheduler asks it, too,
about all that is neither a float nor a small int. There are two uses:

* A limit or a pause (``timeout=``, ``coro.timeout``): a negative number counts as 0. It comes from subtracting times.
* A setting (``drain_timeout=``, ``budget=``): `seconds` refuses what is below the least that makes sense.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["number_of_seconds", "seconds", "whole"]


def whole(value: Any, what: str, least: int | None = None, most: int | None = None) -> int:
    """Return ``value`` when it is an int from ``least`` to ``most`` (None: no such bound).

    what: what the error is to name, "the port" say. Raises TypeError for anything but an int, bool included,
    and ValueError outside the bounds.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if (least is None or value >= least) and (most is None or value <= most):
            return value
        raise ValueError(f"expected {what} as {_range(least, most)}, not {value}")
    raise TypeError(f"expected {what} as {_range(least, most)}, not {type(value).__name__}: {value!r}")


def _range(least: int | None, most: int | None) -> str:
    if least is not None and most is not None:
        return f"an int from {least} to {most}"
    return "an int" if least is None else f"an int of at least {least}"


def number_of_seconds(value: Any, what: str | None = None) -> float:
    """Return ``value`` as a float when it is a number of seconds: an int, a float or another number with
    ``__float__()``, a Decimal or Fraction say. Infinity is one, and so is what is too large for a float.

    what: the subject of the error's sentence, the parameter's name say. Raises TypeError for anything else, bool
    included, and ValueError for NaN.
    """
    if isinstance(value, bool) or not hasattr(type(value), "__float__"):
        raise TypeError(f"{_expected(what)} a number of seconds, not {type(value).__name__}: {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    if number != number:
        raise ValueError(f"{_expected(what)} a number of seconds, not NaN")
    return number


def _expected(what: str | None) -> str:
    return "expected" if what is None else f"{what} is"


def seconds(value: Any, what: str, least: float = 0) -> float:
    """The same for a setting: ValueError below ``least``, too."""
    number = number_of_seconds(value, what)
    if number < least:
        raise ValueError(f"{what} is at least {least} seconds, not {value!r}")
    return number
