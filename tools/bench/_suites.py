"""What is measured: the suites, their cases, and the bars.

A case is one workload with one set of parameters; its rivals are the peers that do the same work, or coro itself under
easier conditions. A bar is the ratio of our figure to a rival's that must not be exceeded, or, with no rival, our own
figure. Cost: a table.

A package brings its own: `bench/suite.py` in its folder has CASES, DISTRIBUTIONS of the form of those here and CAPTIONS
of the form of those in `_captions`, made with `from tools.bench._suites import Case, Rival`; the workloads lie beside
it. What it counts the instructions of is named in COUNTED there, and done by `bench/counted.py`.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from tools.dev import packages

from ._captions import CAPTIONS

WORKLOADS = Path(__file__).resolve().parent / "workloads"
KIB = 1024
# How much longer a program may take under the profiler: 3.11 has no sys.monitoring.
PROFILED = 1.6 if sys.version_info >= (3, 12) else 2.5


@dataclass(frozen=True)
class Rival:
    """A peer that our figure is held against.

    bar: greatest ratio ours/theirs allowed, if any.
    runs, parameters, load: for a rival that is one of the peers under other conditions: which, and what differs.
    """

    peer: str
    bar: float | None = None
    runs: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    load: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One workload with one set of parameters.

    kind: "process" (the workload measures itself) or "server" (a server under load, measured from outside).
    metric: a key of METRICS.
    own_bar: limit for our own figure in the metric's unit, for what is promised without a peer.
    floor: the rival that does no more than what the task takes. A bar that asks for less than a tenth above it cannot
        be kept by any program, whatever the machine and its kernel make of the task: that tenth stands in its place.
    load: for a server, the client program and its numbers. c_server, c_files: the program of the peer "c", and what
        files in the folder it is given.
    folder: where the workload is, and a client program of its own. package: the distribution that is measured.
    needs: what pip installs for everybody who takes part.
    """

    suite: str
    name: str
    workload: str
    parameters: dict[str, Any]
    rivals: tuple[Rival, ...]
    kind: str = "process"
    metric: str = "cpu"
    own_bar: float | None = None
    floor: str = ""
    client: str = "echo_load"
    c_server: str = "echo_server"
    c_files: tuple[str, ...] = ()
    load: dict[str, int] = field(default_factory=dict)
    folder: Path = WORKLOADS
    package: str = packages.CORE_NAME
    needs: tuple[str, ...] = ()

    @property
    def peers(self) -> tuple[str, ...]:
        """Everybody that takes part, ours first."""
        return ("coro", *(rival.peer for rival in self.rivals))

    def run_by(self, peer: str) -> tuple[str, dict[str, Any], dict[str, int]]:
        """The peer's name for the workload program, its parameters and its load."""
        for rival in self.rivals:
            if rival.peer == peer:
                return rival.runs or peer, self.parameters | rival.parameters, self.load | rival.load
        return peer, self.parameters, self.load


@dataclass(frozen=True)
class Metric:
    """How a figure comes from a measurement: `key`, divided by the number of operations unless `whole`, in `unit`."""

    key: str
    unit: str
    scale: float = 1.0
    whole: bool = False


METRICS = {
    "cpu": Metric("cpu", "ns", 1e9),
    "wall": Metric("wall", "ns", 1e9),
    "bytes": Metric("bytes", "bytes", whole=True),  # per thread or connection already
    "resident": Metric("resident", "MB", 1e-6, whole=True),
    "start": Metric("start", "s", whole=True),
    "end": Metric("end", "s", whole=True),
    "slowdown": Metric("slowdown", "times", whole=True),  # how much longer a computation takes than alone
    "delay": Metric("delay", "us", whole=True),  # until somebody is told
}


def _switch(threads: int, bar: float) -> Case:
    return Case(
        "switch",
        f"{threads} threads in a ring",
        "switch.py",
        {"threads": threads, "hops": 5_000_000},
        (Rival("greenlet", bar),),
    )


def _depth(threads: int, name: str, bar: float) -> Case:
    return Case(
        "depth",
        f"switch 50 Python frames deep, {name}",
        "depth.py",
        {"threads": threads, "depth": 50, "hops": 600_000},
        (Rival("coro, one deep", bar, "coro", {"depth": 1}),),
    )


def _memory(depth: int, bar: float) -> Case:
    return Case(
        "memory",
        f"parked, {depth} call{'s' * (depth > 1)} deep",
        "memory.py",
        {"threads": 100_000, "depth": depth},
        (Rival("greenlet"), Rival("asyncio")),
        metric="bytes",
        own_bar=bar,
    )


def _million(metric: str, name: str, bar: float) -> Case:
    return Case("million", name, "million.py", {"threads": 1_000_000}, (), metric=metric, own_bar=bar)


def _timers(pending: int) -> Case:
    return Case(
        "timers",
        f"set and cancel beside {pending} others",
        "timers.py",
        {"pending": pending, "count": 100_000},
        (Rival("uvloop"), Rival("gevent"), Rival("asyncio")),
    )


def _os_thread(load: str, bar: float) -> Case:
    return Case(
        "os-threads",
        f"pure Python beside a loop that is {load}",
        "os_thread.py",
        {"load": load, "seconds": 1.0},
        (),
        metric="slowdown",
        own_bar=bar,
    )


def _children(percent: int, bar: float | None) -> Case:
    return Case(
        "children",
        f"1000 children, {percent}th percentile from exit to wake",
        "children.py",
        {"count": 1_000, "percent": percent},
        (),
        metric="delay",
        own_bar=bar,
    )


def _profiled(program: str, name: str, bench: str, bar: float | None) -> Case:
    """A program under the profiler against itself without it, for a quarter of a second or more."""
    rival = Rival("unprofiled", bar, "coro", {"bench": ""})
    count = 2_000_000 if program in ("ring", "steps") else 200_000
    parameters = {"program": program, "count": count, "threads": 100, "bench": bench}
    return Case("profiler", f"{name}, {bench}", "profiled.py", parameters, (rival,))


def _echo(connections: int, requests: int = 60_000) -> Case:
    return Case(
        "echo",
        f"64 bytes, {connections} connection{'s' * (connections > 1)}",
        "echo_server.py",
        {},
        (
            Rival("c", 1.25),
            Rival("uvloop-protocol", 0.95),
            Rival("uvloop-streams", 0.65),
            Rival("gevent", 0.55),
        ),
        kind="server",
        floor="c",
        load={"connections": connections, "size": 64, "requests": requests},
    )


def _emulated(what: str, name: str, count: int = 200_000) -> Case:
    """What the standard library offers, under emulation and under gevent's patches."""
    parameters = {"what": what, "count": count}
    return Case("emulation", name, "emulated.py", parameters, (Rival("gevent", 0.5), Rival("threads")))


def _growth(workload: str, name: str, crowd: str, parameters: dict[str, Any], bar: float) -> Case:
    """The same operation among 100 000 others and among 100, `crowd` being the parameter that says how many."""
    rival = Rival("coro, 100", bar, "coro", {crowd: 100})
    return Case("growth", name, workload, {crowd: 100_000, **parameters}, (rival,))


_CORE: tuple[Case, ...] = (
    _switch(2, 0.4),
    _switch(1_000, 0.55),
    _switch(10_000, 0.6),
    Case(
        "slice",
        "1000 threads yield their slice",
        "slice.py",
        {"threads": 1_000, "turns": 300_000},
        (Rival("gevent", 0.12), Rival("uvloop", 0.35), Rival("asyncio"), Rival("trio")),
    ),
    _depth(2, "stacks in place", 1.15),
    _depth(1_000, "stacks copied at every switch", 1.6),
    Case(
        "depth",
        "json, email and logging 0 to 15 calls deep, worst ratio to the main stack",
        "library.py",
        {"rounds": 60, "calls": 10},
        (),
        metric="slowdown",
        own_bar=1.15,
    ),
    Case(
        "spawn",
        "start, run, end, 1000 at a time",
        "spawn.py",
        {"batch": 1_000, "count": 100_000},
        (Rival("gevent", 0.25), Rival("uvloop", 0.8), Rival("asyncio"), Rival("trio"), Rival("threads")),
    ),
    Case(
        "timeouts",
        "with_timeout of a trivial function, 100 000 timers pending",
        "timeouts.py",
        {"pending": 100_000, "calls": 200_000},
        (Rival("gevent", 0.25), Rival("asyncio", 0.15)),
    ),
    Case(
        "sleepers",
        "100 000 threads sleep a random time below a second",
        "sleepers.py",
        {"threads": 100_000},
        (Rival("gevent", 0.35), Rival("uvloop", 0.6)),
    ),
    Case(
        "fifo",
        "push in one thread, pop in another",
        "handover.py",
        {"items": 200_000},
        (Rival("gevent", 0.2), Rival("asyncio", 0.2), Rival("trio"), Rival("threads")),
    ),
    _memory(1, 1.7 * KIB),
    _memory(5, 2.2 * KIB),
    _memory(20, 4.5 * KIB),
    Case(
        "memory",
        "idle TCP connection, its thread in recv",
        "echo_server.py",
        {},
        (Rival("gevent", 0.5), Rival("uvloop-protocol"), Rival("uvloop-streams")),
        kind="server",
        metric="bytes",
        own_bar=2.7 * KIB,
        load={"connections": 9_000, "size": 64, "requests": 9_000},
    ),
    _million("resident", "a million parked threads, resident", 1_900),
    _million("start", "a million parked threads, time to start them", 4),
    _million("end", "a million parked threads, time to wake and end them", 4),
    _echo(1, 30_000),
    _echo(100),
    _echo(1_000),
    _echo(9_000, 90_000),
    Case(
        "bulk",
        "echo of 64 KiB, 10 connections",
        "echo_server.py",
        {},
        (Rival("uvloop-protocol", 1.0), Rival("c")),
        kind="server",
        metric="wall",
        floor="c",
        load={"connections": 10, "size": 65_536, "requests": 20_000},
    ),
    Case(
        "connections",
        "connect, one request, close, 100 at a time",
        "echo_server.py",
        {},
        (Rival("uvloop-streams", 1 / 1.5), Rival("gevent", 1 / 2), Rival("c")),
        kind="server",
        floor="c",
        client="connect_load",
        load={"connections": 100, "size": 64, "requests": 15_000},
    ),
    _emulated("lock", "threading.Lock, nobody waits", 2_000_000),
    _emulated("crowd", "threading.Lock, wanted by 100 threads"),
    _emulated("queue", "queue.Queue, from one thread to another"),
    _emulated("event", "threading.Event, from one thread to another"),
    _emulated("socket", "socket, 64 bytes from one thread to another"),
    _emulated("select", "select.select before each recv of 64 bytes"),
    Case(
        "emulation",
        "Flask on werkzeug's own server, 50 connections at a time",
        "flask_server.py",
        {},
        (Rival("gevent", 1.0), Rival("threads")),
        kind="server",
        client="connect_load",
        load={"connections": 50, "size": 0, "requests": 6_000},
        needs=("flask",),
    ),
    _growth("switch.py", "switch in a ring of 100 000 against 100", "threads", {"hops": 2_000_000}, 4),
    Case(
        "growth",
        "echo request, 100 000 connections against 100",
        "echo_server.py",
        {},
        (Rival("coro, 100", 4, "coro", load={"connections": 100}),),
        kind="server",
        load={"connections": 100_000, "size": 64, "requests": 200_000},
    ),
    _growth(
        "spawn.py", "spawn beside 100 000 parked threads against 100", "parked", {"batch": 1_000, "count": 200_000}, 2.5
    ),
    _growth("timeouts.py", "insert and cancel, 100 000 timers pending against 100", "pending", {"calls": 300_000}, 2.5),
    _timers(1_000),
    _timers(10_000),
    _timers(100_000),
    _timers(500_000),
    Case(
        "timers",
        "memory left of 500000",
        "timers.py",
        {"pending": 500_000, "count": 0},
        (),
        metric="bytes",
        own_bar=16,
    ),
    _os_thread("yielding", 5.0),
    _os_thread("switching", 5.0),
    _os_thread("talking", 5.0),
    _os_thread("idle", 1.25),
    _children(50, 20_000),
    _children(99, None),
    _profiled("requests", "requests through queues", "ticks", PROFILED),
    _profiled("echo", "messages through socket pairs", "ticks", PROFILED),
    _profiled("ring", "nothing but switches", "ticks", PROFILED),
    _profiled("steps", "a small function between switches", "ticks", PROFILED),
    _profiled("requests", "requests through queues", "rusage", None),
    _profiled("echo", "messages through socket pairs", "rusage", None),
    _profiled("ring", "nothing but switches", "rusage", None),
    _profiled("steps", "a small function between switches", "rusage", None),
    Case(
        "children",
        "from a signal to its handler, loop idle",
        "signals.py",
        {"count": 100},
        (Rival("uvloop"), Rival("asyncio")),
        metric="delay",
        own_bar=50_000,
    ),
)

# What pip installs for each peer; a peer that is not named here comes with Python or with this folder.
DISTRIBUTIONS: dict[str, str] = {
    "greenlet": "greenlet",
    "gevent": "gevent",
    "uvloop": "uvloop",
    "uvloop-protocol": "uvloop",
    "uvloop-streams": "uvloop",
    "trio": "trio",
}


def _of_package(package: Path) -> ModuleType | None:
    """The suite of a package, if it has one."""
    path = package / "bench" / "suite.py"
    if not path.exists():
        return None
    name = f"bench_of_{package.name.replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _all(root: Path = packages.ROOT) -> tuple[tuple[Case, ...], dict[Path, tuple[str, ...]]]:
    """The cases of coro-core and of all packages; the programs whose instructions are counted, and for what."""
    cases = list(_CORE)
    counted: dict[Path, tuple[str, ...]] = {
        WORKLOADS / "counted.py": ("switch", "evacuated", "echo", "request", "spawn", "timeout", "fifo"),
    }
    for package in packages.others(root):
        module = _of_package(package)
        if module is not None:
            cases += [replace(case, folder=package / "bench", package=package.name) for case in module.CASES]
            DISTRIBUTIONS.update(getattr(module, "DISTRIBUTIONS", {}))
            CAPTIONS.update(getattr(module, "CAPTIONS", {}))
            if hasattr(module, "COUNTED"):
                counted[package / "bench" / "counted.py"] = module.COUNTED
    return tuple(cases), counted


CASES, COUNTED = _all()
SUITES: tuple[str, ...] = tuple(dict.fromkeys(case.suite for case in CASES))
