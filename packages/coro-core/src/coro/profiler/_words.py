"""How a profile is put into words and units for people: times, names of functions, whose code it is, groups of threads.

A file holds ticks and full names, which programs read; nothing of this goes into it. Cost: a few string operations for
each function.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from coro import exceptions
from coro.profiler._file import FunctionPlace, Profile, ThreadProfile

__all__ = ["CORO", "LIBRARY", "OWN", "Column", "columns", "groups", "owner_of", "owners", "parts_of"]

#: Whose code a function is: of the program that was profiled, of coro, of Python or another library.
OWN, CORO, LIBRARY = "own", "coro", "library"

#: What the fields of getrusage(2) are called here; those that are not named keep their names.
USAGE_WORDS = {
    "utime": "user CPU",
    "stime": "system CPU",
    "minflt": "page faults",
    "majflt": "page faults read from disk",
    "inblock": "blocks read",
    "oublock": "blocks written",
    "nvcsw": "waits for the system",
    "nivcsw": "preemptions",
    "nsignals": "signals",
    "nswap": "swaps",
}

_LINE = re.compile(r":(\d+)(#\d+)?$")
_NUMBER = re.compile(r"\d+")
_LIBRARY = re.compile(r"[/\\](site-packages|dist-packages|lib(64)?[/\\]python\d[^/\\]*)[/\\]")
_CORO = re.compile(r"[/\\](site-packages|dist-packages)[/\\]coro[/\\]")
_HERE = os.path.dirname(os.path.abspath(exceptions.__file__)) + os.sep


class Column:
    """A value of the tables: heading, factor from the stored number to the shown one, digits behind the point, and
    whether a value for each call is worth a column of its own (its heading and factor)."""

    def __init__(
        self, heading: str, factor: float = 1.0, digits: int = 0, per_call: tuple[str, float, int] | None = None
    ) -> None:
        self.heading = heading
        self.factor = factor
        self.digits = digits
        self.per_call = per_call

    def text(self, value: float) -> str:
        """A stored number as it is shown: nothing for what would be a zero."""
        return "" if self.is_zero(value) else f"{value * self.factor:,.{self.digits}f}"

    def is_zero(self, value: float) -> bool:
        """Is nothing left of the number when it is shown?"""
        return round(abs(value * self.factor), self.digits) == 0


def columns(profile: Profile) -> tuple[list[Column], Column, Column]:
    """A column for each of the profile's values, one for the time that was used, and one for the time that threads
    waited. A profile that does not say how long a tick is has ticks."""
    second = profile.ticks_per_second
    if second:
        time = Column("ms", 1e3 / second, 3, ("µs/call", 1e6 / second, 2))
        waited = Column("waited ms", 1e3 / second, 3)
    else:
        time = Column("ticks", 1.0, 0, ("ticks/call", 1.0, 1))
        waited = Column("waited ticks")
    found = []
    for heading in profile.headings:
        if heading == "ticks":
            found.append(time)
        elif heading in ("utime", "stime"):
            found.append(Column(f"{USAGE_WORDS[heading]} ms", 1e3, 3))
        else:
            found.append(Column(USAGE_WORDS.get(heading, heading)))
    return found, time, waited


def parts_of(name: str) -> tuple[str, str]:
    """What a function is called, and where it is: ``("handle", "shop/server.py:41")``, ``("list.append",
    "builtins")``; the second part is empty where nothing is known."""
    line = _LINE.search(name)
    head = name[: line.start()] if line else name
    place, colon, function = head.rpartition(":")
    if not colon or not place or not function:
        return name, ""
    return function, f"{place}:{line[1]}" if line else place


def owner_of(name: str, place: FunctionPlace | None) -> str:
    """Whose code a function is, by the file it is in: one below ``site-packages`` or a folder of Python itself is a
    library's, one that is compiled a library's or coro's, every other one the program's own."""
    if place is None or place[0] == "~":
        return CORO if name.startswith(("coro.", "coro:", "<")) else LIBRARY
    file = place[0]
    if file.startswith(_HERE) or _CORO.search(file):
        return CORO
    return LIBRARY if file.startswith("<frozen") or _LIBRARY.search(file) else OWN


def owners(profile: Profile) -> dict[str, str]:
    """{function: whose code it is}; empty for a profile that does not say where its functions are."""
    return {name: owner_of(name, place) for name, place in zip(profile.names, profile.places, strict=False)}


def groups(threads: Iterable[ThreadProfile]) -> list[tuple[str, list[ThreadProfile]]]:
    """The threads by what they are called, each kind under its common name; a single thread under its own."""
    found: dict[str, list[ThreadProfile]] = {}
    for thread in threads:
        kind = thread.name if thread.number <= 0 else _NUMBER.sub("*", thread.name)
        found.setdefault(kind, []).append(thread)
    named = []
    for members in found.values():
        named.append((_common([t.name for t in members]), members))
    return named


def _common(names: list[str]) -> str:
    """What names say that differ in numbers only; the numbers that are the same in all of them stay."""
    if len(set(names)) == 1:
        return names[0]
    between = _NUMBER.split(names[0])
    numbers = zip(*map(_NUMBER.findall, names), strict=True)
    shown = [found[0] if len(set(found)) == 1 else "*" for found in numbers]
    return "".join(part for pair in zip(between, [*shown, ""], strict=True) for part in pair)
