"""What `python -m tools.bench run --suite rpc` measures of coro-rpc."""

from __future__ import annotations

from tools.bench._captions import Caption
from tools.bench._suites import Case, Rival

CAPTIONS = {
    "rpc": Caption(
        "Remote calls over TCP on one machine",
        "Processor time of a call (or an item), of client and server together.",
    )
}
DISTRIBUTIONS = {
    "rpyc": "rpyc",
    "pyro5": "Pyro5",
    "zerorpc": "zerorpc",
    "grpcio": "grpcio",
}
# multiprocessing.connection has no calls, no ids and no concurrency: it is what the interpreter needs to move an
# object.
CASES = (
    Case(
        "rpc",
        "one call after the other",
        "calls.py",
        {"what": "sequential", "count": 5_000},
        (
            Rival("multiprocessing", 1.25),
            Rival("rpyc"),
            Rival("pyro5"),
            Rival("zerorpc"),
            Rival("grpcio"),
        ),
    ),
    Case(
        "rpc",
        "100 callers at once",
        "calls.py",
        {"what": "pipelined", "count": 20_000},
        (
            Rival("multiprocessing", 0.8),
            Rival("rpyc", 1 / 3.5),
            Rival("zerorpc"),
            Rival("grpcio", 1 / 25),
        ),
    ),
    Case(
        "rpc",
        "echo of 1 MiB",
        "calls.py",
        {"what": "large", "count": 300},
        (Rival("multiprocessing", 1.0), Rival("rpyc"), Rival("grpcio")),
    ),
    Case(
        "rpc",
        "an item of a stream, a million of them",
        "calls.py",
        {"what": "stream", "count": 1_000_000},
        (Rival("grpcio", 1 / 20, parameters={"count": 50_000}), Rival("zerorpc", parameters={"count": 50_000})),
    ),
)
