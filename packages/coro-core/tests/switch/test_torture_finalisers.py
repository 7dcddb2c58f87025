"""Finalisers run by the collector in foreign OS threads beside a busy loop; see torture/finalisers.py.

A few seconds here; CORO_SOAK_SECONDS=60 makes it a soak of that length. The seed is chosen at random and printed with
the command that repeats the run; CORO_TORTURE_SEED fixes it.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "torture" / "finalisers.py"
SECONDS = float(os.environ.get("CORO_SOAK_SECONDS", 2))
SEED = int(os.environ.get("CORO_TORTURE_SEED", random.randrange(10**6)))


def run(*options, **variables):
    command = [sys.executable, "-X", "faulthandler", *options, str(PROGRAM), "--seconds", str(SECONDS)]
    command += ["--seed", str(SEED)]
    print("torture run:", *command)
    env = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 200, env=env)
    assert done.returncode == 0, (
        f"status {done.returncode} of {' '.join(command)}\n{done.stdout}\n{done.stderr[-8000:]}"
    )
    assert done.stderr == ""
    print(done.stdout)


@pytest.mark.slow
@pytest.mark.each_python
def test_finalisers_in_foreign_os_threads():
    run()


@pytest.mark.slow
@pytest.mark.each_python
def test_finalisers_with_debugging_allocator_and_development_mode():
    run("-X", "dev", PYTHONMALLOC="debug")
