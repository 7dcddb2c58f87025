"""What a reader is told about the figures: the title of each suite, what was measured, the names of those who took
part, and figures with units that people read easily.

Pictures (`_plots`) and tables (`_tables`) share it, so that both use the same words. A package says the same of its own
suite in CAPTIONS of its `bench/suite.py`. Cost: a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

SPACE = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Caption:
    """What is said of a suite.

    title: a few words. measured: a sentence: which figure this is, of what. names: what those who take part are called
    in this suite, where coro competes with itself.
    """

    title: str
    measured: str
    names: dict[str, str] = field(default_factory=dict)


_DEEP = {"coro": "50 calls deep", "coro, one deep": "1 call deep"}
_CROWD = {"coro": "among 100 000", "coro, 100": "among 100"}
_WATCHED = {"coro": "with the profiler", "unprofiled": "without it"}

CAPTIONS: dict[str, Caption] = {
    "switch": Caption("Switching between threads", "Processor time of one switch to the next thread of a ring."),
    "slice": Caption("Giving way to all others", "Processor time for each turn that a thread gives up and gets back."),
    "depth": Caption(
        "Switching deep in calls",
        "Processor time of one switch, 50 calls deep and one call deep; and how many times as long library code takes "
        "in a thread as on the main stack.",
        _DEEP,
    ),
    "spawn": Caption("Starting and ending threads", "Processor time to start, run and end one thread or task."),
    "timeouts": Caption("A time limit around a call", "Processor time to set a limit, call a function and cancel it."),
    "sleepers": Caption("Many sleepers", "Processor time for each sleeping thread or task: start it, wake it, end it."),
    "fifo": Caption("Handing over through a queue", "Processor time for one item: push, switch, pop."),
    "memory": Caption("Memory of what waits", "Resident memory for each waiting thread, task or connection."),
    "million": Caption("A million threads", "Resident memory of all together, and elapsed time for all together."),
    "echo": Caption("Echo servers", "Processor time of the server for each request of 64 bytes and its answer."),
    "bulk": Caption("Large messages", "Elapsed time for each message of 64 KiB and its echo."),
    "connections": Caption(
        "Short connections", "Processor time of the server to accept a connection, answer once and close it."
    ),
    "emulation": Caption(
        "The standard library's threads",
        "Processor time of an operation of threading, queue, socket and select under emulation; and of a server, for a "
        "request.",
    ),
    "growth": Caption(
        "What grows with the number of threads",
        "Processor time of the same operation of coro among 100 000 others and among 100.",
        _CROWD,
    ),
    "timers": Caption(
        "Setting and cancelling timers",
        "Processor time to set one timer and cancel it; and the memory for each timer that is left at the end.",
    ),
    "os-threads": Caption(
        "Computing beside the loop",
        "How many times as long pure Python code takes in another OS thread as it would take alone; 2 is a fair share "
        "beside a loop that always has work.",
    ),
    "children": Caption(
        "Signals and child processes", "Elapsed time from the event to the moment when the program knows of it."
    ),
    "profiler": Caption(
        "What the profiler costs",
        "Processor time for each operation of a program, with the profiler and without it. With coro.bench (ticks) it "
        "takes times only, with coro.rusage_bench (rusage) it also asks the kernel.",
        _WATCHED,
    ),
}

PEERS = {
    "c": "C, epoll",
    "uvloop-protocol": "uvloop, protocol",
    "uvloop-streams": "uvloop, streams",
    "threads": "OS threads",
}

#: The units of the measurements, each with those to use when figures are larger: how many times, and the name.
LARGER = {
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs")),
    "us": ((1e6, "s"), (1e3, "ms")),
    "bytes": ((1024**2, "MiB"), (1024, "KiB")),
    "MB": ((1e3, "GB"),),
}
SPELLED = {"us": "µs"}
WORDS = {
    "ns": "nanoseconds",
    "us": "microseconds",
    "µs": "microseconds",
    "ms": "milliseconds",
    "s": "seconds",
    "times": "times as long",
}
ENOUGH = 10  # A larger unit is used when the greatest figure is at least so many of it.


@dataclass(frozen=True)
class Unit:
    """A unit as people read it: `name`, and how many of the measured unit it is."""

    name: str
    size: float = 1.0

    @property
    def words(self) -> str:
        """The unit spelled out, for an axis."""
        return WORDS.get(self.name, self.name)

    def show(self, value: float) -> str:
        """A measured value, with the unit."""
        return f"{number(value / self.size)}{SPACE}{self.name}"

    def show_limit(self, value: float) -> str:
        """A bar, with the unit."""
        return f"{limit(value / self.size)}{SPACE}{self.name}"


def unit_for(measured: str, values: Iterable[float]) -> Unit:
    """The unit in which all of `values`, measured in `measured`, are shown."""
    greatest = max(values, default=0.0)
    for size, name in LARGER.get(measured, ()):
        if greatest >= ENOUGH * size:
            return Unit(name, size)
    return Unit(SPELLED.get(measured, measured))


def number(value: float) -> str:
    """A figure with three digits that count, its thousands apart."""
    text = f"{value:,.0f}".replace(",", SPACE) if abs(value) >= 99.95 else f"{value:#.3g}"
    return text.replace("-", "\N{MINUS SIGN}")


def limit(value: float) -> str:
    """A bar: as it was set, without digits that say nothing."""
    return number(value) if abs(value) >= 99.95 else f"{value:.3g}"


def ratio(value: float) -> str:
    """A ratio: two digits after the point, or the two that count if it is below a tenth."""
    return f"{value:.2f}" if value >= 0.0995 else f"{value:#.2g}"


def caption(suite: str) -> Caption:
    """What is said of a suite; of one that nobody described, its name."""
    return CAPTIONS.get(suite) or Caption(suite.capitalize(), "")


def case_name(case: dict[str, Any]) -> str:
    """A case as readers see it: a capital letter first, thousands apart."""
    name = re.sub(r"\d{4,}", lambda found: f"{int(found[0]):,}".replace(",", SPACE), case["case"])
    name = re.sub(r"(?<=\d) (?=\d{3}\b)", SPACE, name)
    return name if "_" in name.split()[0] else name[:1].upper() + name[1:]  # the name of a function stays as it is


def peer_name(case: dict[str, Any], peer: str) -> str:
    """What somebody who takes part in a case is called there."""
    names = caption(case["suite"]).names
    against_itself = any(line["rival"] in names for line in case["lines"])
    return (names.get(peer) if against_itself else None) or PEERS.get(peer, peer)


def peers(case: dict[str, Any]) -> list[str]:
    """Everybody of whom the run says something in this case, coro first, then the rivals in their order."""
    known = [peer for peer in ("coro", *(line["rival"] for line in case["lines"]), *case["figures"]) if peer]
    spoken_of = {peer for peer, spread in case["figures"].items() if spread} | set(case["failures"])
    return [peer for peer in dict.fromkeys(known) if peer in spoken_of]


def median(case: dict[str, Any], peer: str) -> float | None:
    """The middle figure of somebody who takes part; None: not measured."""
    spread = case["figures"].get(peer)
    return None if spread is None else float(spread["median"])


def medians(case: dict[str, Any]) -> list[float]:
    """The middle figures of all who were measured."""
    found = (median(case, peer) for peer in peers(case))
    return [value for value in found if value is not None]


def conditions(run: dict[str, Any], cases: Iterable[dict[str, Any]] | None = None) -> str:
    """Where and how a run was made; with the versions of those who took part in `cases`, or of all."""
    took_part = None if cases is None else {"coro-core"}.union(*map(peers, cases))
    system = re.sub(r"(\d+\.\d+)\S*", r"\1", run["system"])  # what a kernel was built for tells nobody anything
    known = {name: version for name, version in run["versions"].items() if version and _among(name, took_part)}
    versions = ", ".join(f"{name} {version}" for name, version in known.items())
    times = run["rounds"]
    return (
        f"CPython {run['python']}, {system} on {run['machine']}, {run['cores']} cores; {versions}. "
        f"Medians of {times} interleaved round{'s' * (times != 1)}, {run['when'][:10]}."
    )


def _among(distribution: str, took_part: set[str] | None) -> bool:
    """Whether a distribution belongs to somebody who took part: uvloop does to "uvloop-streams"."""
    return took_part is None or any(peer.startswith(distribution) for peer in took_part)
