"""What is measured: the suites, their cases, and the bars.

A case is one workload with one set of parameters; its rivals are the peers that do the same work. A bar is
the ratio of our figure to a rival's that must not be exceeded (or, with no rival, our own figure); a goal
is a stricter one that is printed beside it and decides nothing yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KIB = 1024


@dataclass(frozen=True)
class Rival:
    """A peer that our figure is held against. `bar`: greatest ratio ours/theirs allowed, if any."""

    peer: str
    bar: float | None = None
    goal: float | None = None


@dataclass(frozen=True)
class Case:
    """One workload with one set of parameters.

    kind: "process" (the workload measures itself) or "echo" (a server under load, measured from outside).
    metric: "cpu" (CPU nanoseconds per operation) or "bytes" (resident bytes per thread).
    own_bar, own_goal: limits for our own figure in the metric's unit, for what is promised without a peer.
    """

    suite: str
    name: str
    workload: str
    parameters: dict[str, Any]
    rivals: tuple[Rival, ...]
    kind: str = "process"
    metric: str = "cpu"
    own_bar: float | None = None
    own_goal: float | None = None
    load: dict[str, int] = field(default_factory=dict)

    @property
    def peers(self) -> tuple[str, ...]:
        """Everybody that takes part, ours first."""
        return ("coro", *(rival.peer for rival in self.rivals))


def _switch(threads: int, bar: float, goal: float) -> Case:
    return Case(
        "switch",
        f"{threads} threads in a ring",
        "switch.py",
        {"threads": threads, "hops": 1_000_000},
        (Rival("greenlet", bar, goal),),
    )


def _memory(depth: int, bar: float | None, goal: float) -> Case:
    return Case(
        "memory",
        f"parked, {depth} call{'s' * (depth > 1)} deep",
        "memory.py",
        {"threads": 100_000, "depth": depth},
        (Rival("greenlet"), Rival("asyncio")),
        metric="bytes",
        own_bar=bar,
        own_goal=goal,
    )


def _echo(connections: int) -> Case:
    return Case(
        "echo",
        f"64 bytes, {connections} connections",
        "echo_server.py",
        {},
        (
            Rival("c", goal=1.25),
            Rival("uvloop-protocol", 1.0, 0.95),
            Rival("uvloop-streams", goal=0.65),
            Rival("gevent", 0.6, 0.55),
        ),
        kind="echo",
        load={"connections": connections, "size": 64, "requests": 60_000},
    )


CASES: tuple[Case, ...] = (
    _switch(2, 0.6, 0.4),
    _switch(1_000, 0.8, 0.55),
    _switch(10_000, 0.8, 0.6),
    Case(
        "slice",
        "1000 threads yield their slice",
        "slice.py",
        {"threads": 1_000, "turns": 300_000},
        (Rival("gevent", goal=0.12), Rival("uvloop", goal=0.35), Rival("asyncio")),
    ),
    Case(
        "spawn",
        "start, run, end, 1000 at a time",
        "spawn.py",
        {"batch": 1_000, "count": 100_000},
        (Rival("gevent", goal=0.25), Rival("uvloop", goal=0.8), Rival("asyncio")),
    ),
    _memory(1, 1.9 * KIB, 1.7 * KIB),
    _memory(5, None, 2.2 * KIB),
    _memory(20, None, 4.5 * KIB),
    _echo(100),
    _echo(1_000),
)

SUITES: tuple[str, ...] = tuple(dict.fromkeys(case.suite for case in CASES))

# What pip installs for each peer; a peer that is not named here comes with Python or with this folder.
DISTRIBUTIONS: dict[str, str] = {
    "greenlet": "greenlet",
    "gevent": "gevent",
    "uvloop": "uvloop",
    "uvloop-protocol": "uvloop",
    "uvloop-streams": "uvloop",
}
