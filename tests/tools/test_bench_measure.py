"""Which processes are measured: a server and all that it has started, and all of them end with it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tools.bench._measure import _Program, cpu_clock, family

#: Starts one that starts one that computes for a while; each says its number.
PROGRAM = """
import os, subprocess, sys, time
depth = int(sys.argv[1])
print(os.getpid(), flush=True)
if depth:
    subprocess.run([sys.executable, "-c", sys.argv[2], str(depth - 1), sys.argv[2]])
else:
    while time.process_time() < 0.1:
        pass
    print("done", flush=True)
    time.sleep(600)
"""


def state_of(pid: int) -> str:
    return subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()


@pytest.mark.skipif(not os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"), reason="a kernel's option")
def test_a_program_with_descendants():
    command = [sys.executable, "-c", PROGRAM, "2", PROGRAM]
    with _Program(command, dict(os.environ)) as program:
        pids = [int(program.read()) for _ in range(3)]
        assert program.read() == "done\n"
        assert family(program.child.pid) == pids
        assert sum(map(cpu_clock, pids)) >= cpu_clock(pids[2]) >= 0.1
    for pid in pids:
        while state_of(pid) not in ("", "Z"):  # gone, or not yet reaped by those who inherited it
            pass


def test_one_that_is_gone():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert family(child.pid) == [child.pid]
