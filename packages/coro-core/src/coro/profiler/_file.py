"""The file of a profile: eleven magic bytes and four pickles of plain data.

The pickles are (1) (name of the bench class, headings, time of the dump), (2) {function: (calls, own values, aggregate
values)}, (3) {caller: [(callee, count), ...]}, (4) a dictionary with the rest: threads with their trees of calls, ticks
waited, and how long a tick is. Programs that read the first three need not know the fourth. The reader takes numbers,
strings and containers and nothing else: a pickle that names a class or function is refused. Cost: that of the pickles.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import stat
import tempfile
from dataclasses import dataclass, field
from typing import IO, Any, NoReturn

from coro.profiler._accounts import Node

MAGIC = b"SHRAP_PROF1"

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


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise ProfileError(f"the profile names {module}.{name}: one that was written by coro holds plain data only")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise ProfileError("the profile refers to something outside of the file")


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
    """Read a profile from ``filename``. No code of the file is run. ProfileError when it is no profile, OSError when it
    cannot be read."""
    with open(filename, "rb") as file:
        magic = file.read(len(MAGIC))
        if magic != MAGIC:
            raise ProfileError(
                f"{os.fspath(filename)} is not a profile: it begins with {magic!r} instead of {MAGIC!r}; "
                "give a file that coro.profiler wrote"
            )
        parts: list[Any] = []
        try:
            for _ in range(4):
                parts.append(_PlainUnpickler(file).load())
        except ProfileError:
            raise
        except EOFError as e:
            if len(parts) != 3:
                raise ProfileError(
                    f"{os.fspath(filename)} ends too early: part {len(parts) + 1} is missing; "
                    "was it copied whole?"
                ) from e
        except Exception as e:
            raise ProfileError(f"{os.fspath(filename)} is damaged in part {len(parts) + 1}: {e}") from e
    try:
        return _checked(parts)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as e:
        raise ProfileError(f"{os.fspath(filename)} is not laid out as a profile: {e}") from e


def _checked(parts: list[Any]) -> Profile:
    """Build the object of what was read, everything converted to the type it must have."""
    name, headings, when = parts[0]
    profile = Profile(
        str(name),
        tuple(map(str, headings)),
        float(when),
        {str(f): (int(calls), _numbers(own), _numbers(whole)) for f, (calls, own, whole) in parts[1].items()},
        {str(f): [(str(callee), int(count)) for callee, count in callees] for f, callees in parts[2].items()},
    )
    if len(parts) == 4:
        rest = parts[3]
        profile.ticks_per_second = float(rest["ticks_per_second"])
        profile.elapsed = int(rest["elapsed"])
        profile.values = tuple(map(str, rest["values"]))
        profile.names = list(map(str, rest["names"]))
        profile.places = [(str(file), int(line), str(function)) for file, line, function in rest["places"]]
        profile.waited = {str(f): (int(own), int(whole)) for f, (own, whole) in rest["waited"].items()}
        profile.dropped = int(rest["dropped"])
        width = 3 + 1 + len(profile.values)
        for number, thread, ended, slices, nodes in rest["threads"]:
            depth = -1
            for node in nodes:
                if len(node) != width or not all(type(n) is int for n in node):
                    raise ValueError(f"a node of a thread's tree has other values than {width} integers")
                if not 0 <= node[0] <= depth + 1 or not 0 <= node[1] < min(len(profile.names), len(profile.places)):
                    raise ValueError("a thread's tree is not one")
                depth = node[0]
            profile.threads.append(ThreadProfile(int(number), str(thread), bool(ended), int(slices), list(nodes)))
    return profile


def _numbers(values: Any) -> Numbers:
    if not all(type(v) in (int, float) for v in values):
        raise TypeError("a value is not a number")
    return tuple(values)
