"""One measurement: start the workload in a process of its own, collect its figures.

Two kinds. A "process" workload measures itself and prints JSON. A "server" workload is put under load: it gets one
core, the load client another (where there are two), and the server's CPU clock is read from outside,
exactly around a counted number of requests, so that neither start-up nor the connecting phase is part of
it. A server may have processes of its own (a master with workers): they count, too, as they are when the load is ready.
Cost: the clock of another process is one system call (clock_getcpuclockid(3)), with nanosecond
resolution, where /proc/PID/stat counts in hundredths of a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import time
from typing import IO, Any

from ._env import Environment
from ._suites import Case

ADDRESS = "127.0.0.1"
SPARE_DESCRIPTORS = 100  # of each process, for everything but the connections
PATIENCE = 120.0  # seconds after which a workload that says nothing is given up
_libc = ctypes.CDLL(None, use_errno=True)

Figures = dict[str, float]


class MeasurementFailure(Exception):
    """A workload ended with an error or said nothing for too long. The message carries its last words."""


def cpu_clock(pid: int) -> float:
    """CPU seconds (user and system, all threads) that process `pid` has used. OSError if it is gone."""
    clock = ctypes.c_int()
    error = _libc.clock_getcpuclockid(pid, ctypes.byref(clock))
    if error:
        raise OSError(error, os.strerror(error))
    return time.clock_gettime(clock.value)


def family(pid: int) -> list[int]:
    """The process and those that it and they have started, where the kernel tells; otherwise the process alone."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):  # it has ended meanwhile, or there is no such file
            for thread in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{thread}/children") as f:
                    found += map(int, f.read().split())
    return found


def _cores() -> tuple[set[int] | None, set[int] | None]:
    """The server's core and the load client's; None: leave it to the kernel."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    cores = sorted(os.sched_getaffinity(0))
    return ({cores[0]}, {cores[1]}) if len(cores) > 1 else (None, None)


class _Program:
    """A child process with line-wise conversation, killed with its descendants at the end of its `with` block."""

    def __init__(self, command: list[str], variables: dict[str, str], core: set[int] | None = None) -> None:
        self.command = command
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(command, env=variables, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        if core:
            os.sched_setaffinity(self.child.pid, core)

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *exc: object) -> None:
        for pid in family(self.child.pid)[1:] if self.child.poll() is None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.child.kill()
        self.child.communicate()

    def read(self) -> str:
        """The next line of its output. MeasurementFailure when it ends or keeps silent."""
        stdout: IO[str] = self.child.stdout  # type: ignore[assignment]
        ready, _, _ = select.select([stdout], [], [], PATIENCE)
        line = stdout.readline() if ready else ""
        if not line:
            self.child.kill()
            _, errors = self.child.communicate()
            what = "ended" if ready else f"said nothing for {PATIENCE:.0f} s"
            tail = "\n".join(errors.splitlines()[-12:])
            raise MeasurementFailure(f"{' '.join(self.command)} {what} (status {self.child.returncode}):\n{tail}")
        return line

    def say(self, text: str) -> None:
        """Send it a line."""
        stdin: IO[str] = self.child.stdin  # type: ignore[assignment]
        stdin.write(text + "\n")
        stdin.flush()


def measure(environment: Environment, case: Case, peer: str) -> Figures:
    """Figures of one run of `case` by `peer`: count, cpu and wall in seconds, and what the workload adds.

    Raises MeasurementFailure.
    """
    return (_server if case.kind == "server" else _process)(environment, case, peer)


def _workload(environment: Environment, case: Case, peer: str, parameters: dict[str, Any]) -> list[str]:
    return [str(environment.python), str(case.folder / case.workload), peer, json.dumps(parameters)]


def _process(environment: Environment, case: Case, peer: str) -> Figures:
    name, parameters, _ = case.run_by(peer)
    with _Program(_workload(environment, case, name, parameters), environment.variables) as program:
        return dict(json.loads(program.read()))


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _descriptors(connections: int) -> int:
    """How many connections there can be: as many as wanted, where the limit on descriptors allows or can be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_DESCRIPTORS
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
        except (ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_DESCRIPTORS)


def _server(environment: Environment, case: Case, peer: str) -> Figures:
    client_program = environment.compiled(case.client, case.folder)
    name, parameters, load = case.run_by(peer)
    connections = _descriptors(load["connections"])
    if name == "c":
        command = [str(environment.compiled(case.c_server, case.folder)), ADDRESS]
        command += [str(case.folder / name) for name in case.c_files]
    else:
        command = _workload(environment, case, name, {"address": ADDRESS, **parameters})
    server_core, client_core = _cores()
    with _Program(command, environment.variables, server_core) as server:
        port = server.read().strip()
        before = _resident(server.child.pid)
        numbers = [str(connections), str(load["size"]), str(load["requests"])]
        with _Program([str(client_program), ADDRESS, port, *numbers], environment.variables, client_core) as client:
            client.read()
            processes = family(server.child.pid)
            clock = sum(map(cpu_clock, processes))
            client.say("go")
            figures: Figures = json.loads(client.read())
            figures["cpu"] = sum(map(cpu_clock, processes)) - clock
            figures["count"] = figures.pop("requests")
            figures["connections"] = connections
            figures["bytes"] = (_resident(server.child.pid) - before) / connections
            # Near 1 for the client alone would mean that the client was the bottleneck.
            figures["server_busy"] = figures["cpu"] / figures["wall"]
            figures["client_busy"] = figures["client_cpu"] / figures["wall"]
    return figures
