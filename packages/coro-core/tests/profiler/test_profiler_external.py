"""Sampling profilers that look from outside see coro threads: the frames of whichever thread runs, as deep as they are.

Each takes samples of a program that is nearly always in one chain of calls; all but one sample in twenty must show that
chain whole or be taken while the program starts.
"""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest

LOAD = """
    import time, coro
    def spin(seconds):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for _ in range(2000):
                pass
    def deeper(n):
        if n:
            return deeper(n - 1)
        spin(0.002)
        coro.yield_slice()
    def worker(until):
        while time.perf_counter() < until:
            deeper(10)
    def main():
        until = time.perf_counter() + 3
        for t in [coro.spawn(worker, until) for _ in range(20)]:
            t.join()
    coro.run(main)
"""


# As `python -m profiling.sampling`, but the program may take its time to start: on a busy machine 5 s are not enough.
PATIENT_SAMPLER = """
import sys
from profiling.sampling import cli
cli._SYNC_TIMEOUT_SEC = 100
try:
    cli.main()
except PermissionError as e:
    sys.exit(f"Permission: {e}")
"""


@pytest.fixture
def load(tmp_path):
    path = tmp_path / "load.py"
    path.write_text(textwrap.dedent(LOAD))
    return path


def judge(file):
    """From lines "frame;frame;frame count": samples in a thread's spin(), whole and not."""
    whole = broken = 0
    for line in file.read_text().splitlines():
        stack, count = line.rsplit(" ", 1)
        if "spin" in stack:
            if stack.count("deeper") == 11 and "worker" in stack:
                whole += int(count)
            else:
                broken += int(count)
    assert whole > 50, file.read_text()[:2000]
    assert broken < 0.05 * (whole + broken)


def missing(text):
    if os.environ.get("CORO_REQUIRE_SERVERS") == "1" and sys.version_info[:2] == (3, 12):
        pytest.fail(text)
    pytest.skip(text)


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.skipif(sys.version_info < (3, 15), reason="Python's own sampling profiler came with 3.15")
def test_pythons_own_sampling_profiler_sees_threads(load, tmp_path):
    out = tmp_path / "out.txt"
    # Stopped for each sample: else how many readings are torn depends on what else the machine does.
    sampler = [sys.executable, "-c", PATIENT_SAMPLER, "run", "--blocking", "-r", "500"]
    command = [*sampler, "--collapsed", "-o", out, load]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if "ermission" in done.stdout + done.stderr:
        pytest.skip("processes may not be looked into here")
    assert done.returncode == 0, done.stderr
    errors = [line for line in done.stdout.splitlines() if line.startswith("Error rate:")]
    assert not errors or float(errors[0].split(":")[1]) < 5, done.stdout
    judge(out)


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="py-spy knows Python up to 3.13")
def test_py_spy_sees_threads(load, tmp_path):
    program = shutil.which("py-spy", path=os.path.dirname(sys.executable)) or shutil.which("py-spy")
    if program is None:
        missing("needs py-spy: install the Python package py-spy")
    out = tmp_path / "out.txt"
    command = [program, "record", "-r", "100", "-f", "raw", "-o", out, "--", sys.executable, load]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if "ermission" in done.stderr:
        pytest.skip("processes may not be looked into here")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "Samples:" in line]
    samples, errors = (int(line.split(name)[1].split()[0]) for name in ("Samples:", "Errors:"))
    assert errors < 0.05 * samples, line
    judge(out)
