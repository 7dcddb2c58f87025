"""Arguments that are numbers: the checks that public functions share, so that each mistake is told in one way.

Not for hot paths: a call of a Python function for each check. bool is refused although it is an int, because True in
the place of a count is nearly always an argument in the wrong place.
"""

from __future__ import annotations

from typing import Any

__all__ = ["seconds", "whole"]


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


def seconds(value: Any, what: str, least: float = 0) -> float:
    """Return ``value`` as a float when it is a number of seconds of at least ``least``; infinity is one.

    what: the subject of the error's sentence, the parameter's name say. Raises TypeError for what is no int or float,
    ValueError below ``least`` and for NaN.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} is a number of seconds, not {type(value).__name__}: {value!r}")
    if not value >= least:
        raise ValueError(f"{what} is at least {least} seconds, not {value!r}")
    return float(value)
