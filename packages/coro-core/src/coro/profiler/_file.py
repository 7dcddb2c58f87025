"""The file of a profile: eleven magic bytes and four pickles of plain data.

The pickles are (1) (name of the bench class, headings, time of the dump), (2) {function: (calls, own values, aggregate
values)}, (3) {caller: [(callee, count), ...]}, (4) a dictionary with the rest: threads with their trees of calls, ticks
waited, and how long a tick is. Programs that read the first three need not know the fourth. The reader takes numbers,
strings and containers and nothing else: a pickle that names a class or function is refused. A file from elsewhere
causes no more work than its size is worth: each value has exactly the type it must have, and as a pickle may have the
same list or string in it many times, what is gone through is counted. Cost: see `_pickles`.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import stat
import tempfile
from dataclasses import dataclass, field
from typing import IO, Any

from coro.profiler._accounts import Node
from coro.profiler._pickles import Damaged, read_pickle

MAGIC = b"SHRAP_PROF1"
#: Bytes of a file. A session has at most a million nodes, of some 20 bytes each.
MAX_SIZE = 256 * 1024 * 1024
#: Characters that a byte of the file may stand for: a name is written once, and then a number of it, of two bytes.
CHARACTERS_PER_BYTE = 1000
#: The sum of the depths of all nodes: a million of them, each a hundred calls deep.
MAX_STEPS = 100_000_000
#: The last second of the year 9999, which is the last that Python shows.
LATEST = 253402300799

#: (file, first line, qualified name); "~" and 0 for what is not Python
FunctionPlace = tuple[str, int, str]
Numbers = tuple[int | float, ...]


class ProfileError(ValueError):
    """The file is not a profile, or it is damaged, or it has more than plain data in it."""


@dataclass
class ThreadProfile:
    """One thread's part: its number (0: the scheduler, -1: threads beyond those that are kept apart), its name, whether
    it has ended, how many slices it ran, and its tree of calls as (depth, function, calls, ticks waited, own
    values...)."""

    number: int
    name: str
    ended: bool
    slices: int
    nodes: list[Node]


@dataclass
class Profile:
    """What a session measured.

    bench, headings, time: name of the bench class, what its values are called, and the POSIX time of the end.
    functions: {function: (calls, own values, aggregate values)}. calls: {caller: [(callee, count), ...]}.
    The rest is empty for a file without the fourth part: ticks_per_second, elapsed (ticks), values (what the numbers of
    the trees are), names and places of the functions that the trees number, threads, waited ({function: (own,
    aggregate)} in ticks), dropped (calls that were charged to their callers because there were too many paths).
    """

    bench: str
    headings: tuple[str, ...]
    time: float
    functions: dict[str, tuple[int, Numbers, Numbers]]
    calls: dict[str, list[tuple[str, int]]]
    ticks_per_second: float = 0.0
    elapsed: int = 0
    values: tuple[str, ...] = ("ticks",)
    names: list[str] = field(default_factory=list)
    places: list[FunctionPlace] = field(default_factory=list)
    threads: list[ThreadProfile] = field(default_factory=list)
    waited: dict[str, tuple[int, int]] = field(default_factory=dict)
    dropped: int = 0


def dump(profile: Profile, file: IO[bytes]) -> None:
    """Write a profile to an open binary file."""
    file.write(MAGIC)
    rest = {
        "ticks_per_second": profile.ticks_per_second,
        "elapsed": profile.elapsed,
        "values": profile.values,
        "names": profile.names,
        "places": profile.places,
        "threads": [(t.number, t.name, t.ended, t.slices, t.nodes) for t in profile.threads],
        "waited": profile.waited,
        "dropped": profile.dropped,
    }
    for part in ((profile.bench, profile.headings, profile.time), profile.functions, profile.calls, rest):
        pickle.dump(part, file, protocol=4)


def save(profile: Profile, filename: str | os.PathLike[str]) -> None:
    """Write a profile to the file ``filename``. The file is replaced as a whole, so there is never half a profile under
    the name, and a symbolic link is not followed. Only the user may read it. A device or a named pipe is written to,
    not replaced. OSError as from open(), TypeError for what is no profile."""
    if not isinstance(profile, Profile):
        raise TypeError(f"expected a Profile, as stop() and load() return, not {type(profile).__name__}: {profile!r}")
    filename = os.path.abspath(os.fspath(filename))
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(filename).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
            # Replacing it would take /dev/null away from everybody, where the user may do that.
            with open(filename, "wb") as file:
                dump(profile, file)
            return
    handle, part = tempfile.mkstemp(prefix=os.path.basename(filename), dir=os.path.dirname(filename))
    try:
        with open(handle, "wb") as file:
            dump(profile, file)
        os.replace(part, filename)
    except BaseException:
        os.unlink(part)
        raise


def load(filename: str | os.PathLike[str]) -> Profile:
    """Read a profile from ``filename``. No code of the file is run, and time and memory are bounded by its size.
    ProfileError when it is no profile, OSError when it cannot be read."""
    with open(filename, "rb") as file:
        magic = file.read(len(MAGIC))
        if magic != MAGIC:
            raise ProfileError(
                f"{os.fspath(filename)} is not a profile: it begins with {magic!r} instead of {MAGIC!r}; "
                "give a file that coro.profiler wrote"
            )
        data = file.read(MAX_SIZE + 1)
    if len(data) > MAX_SIZE:
        raise ProfileError(f"{os.fspath(filename)} is larger than {MAX_SIZE} bytes, which is more than a profile takes")
    parts: list[Any] = []
    at = 0
    while len(parts) < 4 and (at < len(data) or len(parts) < 3):
        try:
            part, at = read_pickle(data, at)
        except Damaged as e:
            number = len(parts) + 1
            if at == len(data):
                raise ProfileError(
                    f"{os.fspath(filename)} ends too early: part {number} is missing; was it copied whole?"
                ) from None
            raise ProfileError(f"{os.fspath(filename)} is damaged in part {number}: {e}") from None
        parts.append(part)
    try:
        return _Reader(len(data)).profile(parts)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as e:
        raise ProfileError(f"{os.fspath(filename)} is not laid out as a profile: {e}") from None


class _Reader:
    """Builds the object of what was read. No value is converted, and none is shown: there may be no end to its repr.

    Invariant: the number of items and of characters that are looked at is bounded by the size of the file."""

    def __init__(self, size: int) -> None:
        self._items = size
        self._characters = CHARACTERS_PER_BYTE * size
        self._steps = MAX_STEPS

    def profile(self, parts: list[Any]) -> Profile:
        """TypeError, ValueError, KeyError when it is not one."""
        name, headings, when = self._sequence(parts[0], 3)
        profile = Profile(
            self._text(name),
            tuple(map(self._text, self._sequence(headings))),
            self._number(when),
            {self._text(f): self._function(values, len(headings)) for f, values in self._table(parts[1])},
            {self._text(f): [self._call(call) for call in self._sequence(c)] for f, c in self._table(parts[2])},
        )
        if not 0 <= profile.time <= LATEST:
            raise ValueError("the time of its end is none")
        if len(parts) == 4:
            self._fill(profile, parts[3])
        return profile

    def _fill(self, profile: Profile, rest: Any) -> None:
        """The fourth part."""
        if type(rest) is not dict:
            raise TypeError("the fourth part is no dictionary")
        profile.ticks_per_second = self._number(rest["ticks_per_second"])
        profile.elapsed = self._integer(rest["elapsed"])
        profile.values = tuple(map(self._text, self._sequence(rest["values"])))
        profile.names = list(map(self._text, self._sequence(rest["names"])))
        for place in self._sequence(rest["places"]):
            file, line, function = self._sequence(place, 3)
            profile.places.append((self._text(file), self._integer(line), self._text(function)))
        for function, values in self._table(rest["waited"]):
            own, whole = self._sequence(values, 2)
            profile.waited[self._text(function)] = self._integer(own), self._integer(whole)
        profile.dropped = self._integer(rest["dropped"])
        if not profile.ticks_per_second > 0 or not profile.values or len(profile.names) != len(profile.places):
            raise ValueError("it does not say how long a tick is, what was measured, or where each function is")
        for thread in self._sequence(rest["threads"]):
            number, name, ended, slices, nodes = self._sequence(thread, 5)
            if type(ended) is not int and type(ended) is not bool:
                raise TypeError("the state of a thread is neither true nor false")
            tree = self._tree(nodes, 3 + 1 + len(profile.values), len(profile.names))
            profile.threads.append(
                ThreadProfile(self._integer(number), self._text(name), bool(ended), self._integer(slices), tree)
            )

    def _tree(self, nodes: Any, width: int, functions: int) -> list[Node]:
        depth = -1
        tree: list[Node] = []
        for node in self._sequence(nodes):
            if len(self._sequence(node)) != width or not all(type(n) is int for n in node):
                raise ValueError(f"a node of a thread's tree has other values than {width} integers")
            if not 0 <= node[0] <= depth + 1 or not 0 <= node[1] < functions:
                raise ValueError("a thread's tree is not one")
            depth = node[0]
            self._steps -= depth  # where each path is written down, it takes that
            if self._steps < 0:
                raise ValueError("the trees of its threads are too deep")
            tree.append(tuple(node))
        if not tree:
            raise ValueError("a thread's tree has no root")
        return tree

    def _function(self, values: Any, width: int) -> tuple[int, Numbers, Numbers]:
        calls, own, whole = self._sequence(values, 3)
        return self._integer(calls), self._numbers(own, width), self._numbers(whole, width)

    def _call(self, call: Any) -> tuple[str, int]:
        callee, count = self._sequence(call, 2)
        return self._text(callee), self._integer(count)

    def _numbers(self, values: Any, width: int) -> Numbers:
        return tuple(v if type(v) is int else self._number(v) for v in self._sequence(values, width))

    def _sequence(self, value: Any, length: int | None = None) -> Any:
        if type(value) is not list and type(value) is not tuple:
            raise TypeError(f"expected a list or a tuple, not {type(value).__name__}")
        if length is not None and len(value) != length:
            raise ValueError(f"expected {length} items, not {len(value)}")
        self._count(len(value))
        return value

    def _table(self, value: Any) -> Any:
        if type(value) is not dict:
            raise TypeError(f"expected a dictionary, not {type(value).__name__}")
        self._count(len(value))
        return value.items()

    def _count(self, items: int) -> None:
        self._items -= items
        if self._items < 0:
            raise ValueError("it has the same lists in it again and again")

    def _text(self, value: Any) -> str:
        if type(value) is not str:
            raise TypeError(f"expected a str, not {type(value).__name__}")
        self._characters -= len(value)
        if self._characters < 0:
            raise ValueError("it has the same long strings in it again and again")
        return value

    def _integer(self, value: Any) -> int:
        if type(value) is not int:
            raise TypeError(f"expected an int, not {type(value).__name__}")
        return value

    def _number(self, value: Any) -> float:
        if type(value) is not int and type(value) is not float:
            raise TypeError(f"expected a number, not {type(value).__name__}")
        if not math.isfinite(value):
            raise ValueError("a value is not finite")
        return float(value)
