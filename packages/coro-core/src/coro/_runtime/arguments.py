"""Checks of arguments that several rooms make, with one wording.

Cost: one call, for functions that are called once per connection at most.
"""

from __future__ import annotations

from typing import Any

__all__ = ["seconds"]


def seconds(name: str, value: Any, least: float) -> float:
    """The argument ``name``, a number of seconds of at least ``least``, as a float.

    TypeError when it is no int or float (a bool is none); ValueError when it is less, or not a number at all (NaN).
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is a number of seconds, not {type(value).__name__}: {value!r}")
    if not value >= least:
        raise ValueError(f"{name} is at least {least} seconds, not {value!r}")
    return float(value)
