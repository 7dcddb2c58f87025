"""What the programs of `cases/` are written with: how one is registered, and how it works from many threads at once.

A program is a function that gets a Work and returns its result, which has to be the same under OS threads and under
emulation, in a form that JSON can hold:

    @case("redis", servers=["redis"])
    def redis(work: Work) -> Any:
        client = library("redis").Redis(port=work.ports["redis"])
        return work.at_once(lambda number: client.incr("counter"))

Libraries are imported by name (`library`), because they have no types where types are checked, and because nothing may
be imported before the emulation is there.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["CASES", "THREADS", "Case", "Work", "case", "library"]

#: How many threads use a library at once.
THREADS = 100
#: Seconds for which a thread keeps its server waiting, where the server can wait. One after the other they would take
#: THREADS times as long, which shows in the time.
PAUSE = 0.2


@dataclasses.dataclass(frozen=True)
class Case:
    """One program."""

    name: str
    function: Callable[[Work], Any]
    distribution: str  #: whose version the table shows
    compiled: bool  #: does the library have C code?
    servers: tuple[str, ...]
    quick: bool  #: does it run at each change?
    setting: str  #: what a program has to do under emulation beyond installing it
    fails: str  #: why it does not work under emulation


CASES: dict[str, Case] = {}


def case(
    name: str,
    distribution: str = "",
    *,
    compiled: bool = False,
    servers: list[str] | None = None,
    quick: bool = False,
    setting: str = "",
    fails: str = "",
) -> Callable[[Callable[[Work], Any]], Callable[[Work], Any]]:
    """Register a program under `name`. The fields are those of Case; `distribution` is `name` by default."""

    def register(function: Callable[[Work], Any]) -> Callable[[Work], Any]:
        assert name not in CASES, f"two programs are named {name}"
        servers_needed = tuple(servers or ())
        CASES[name] = Case(name, function, distribution or name, compiled, servers_needed, quick, setting, fails)
        return function

    return register


def library(name: str) -> Any:
    """The module `name`."""
    return importlib.import_module(name)


class Work:
    """What a program gets."""

    def __init__(self, ports: dict[str, int], folder: Path, emulated: bool, name: str) -> None:
        #: Where the servers listen, by name.
        self.ports = ports
        #: An empty folder of its own.
        self.folder = folder
        self.emulated = emulated
        #: A name for tables, queues and the like that no other run uses.
        self.unique = re.sub(r"\W", "_", f"{name}_{'emulated' if emulated else 'plain'}").lower()
        self.pause = PAUSE

    def at_once(self, function: Callable[[int], Any], threads: int = THREADS) -> list[Any]:
        """What `function` returns for 0, 1 …, each in a thread of its own, all started before the first may begin. An
        exception of one is raised here."""
        results: list[Any] = [None] * threads
        errors: list[BaseException] = []
        start = threading.Barrier(threads)

        def run(number: int) -> None:
            try:
                start.wait(60)
                results[number] = function(number)
            except BaseException as error:
                errors.append(error)

        workers = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if errors:
            raise errors[0]
        return results

    def aside(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function that blocks in C: in a worker OS thread under emulation."""
        if not self.emulated:
            return function(*args)
        import coro

        return coro.in_thread(function, *args)

    def wait_for_port(self, port: int) -> None:
        """Until somebody listens there."""
        import socket

        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 5).close()
                return
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
