"""No byte of a stream is lost, doubled or overtaken, whatever interrupts those who send and receive; see
torture/streams.py.

A few thousand calls here; CORO_SOAK_SECONDS=60 makes it a soak of that length, a third for each number of stack slots.
The seed is chosen at random and printed with the command that repeats the run; CORO_TORTURE_SEED fixes it.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "torture" / "streams.py"
SOAK = float(os.environ.get("CORO_SOAK_SECONDS", 0))
SEED = int(os.environ.get("CORO_TORTURE_SEED", random.randrange(10**6)))


def run(slots, *options, **variables):
    length = ["--seconds", str(SOAK / 3)] if SOAK else ["--steps", "2000"]
    command = [sys.executable, "-X", "faulthandler", *options, str(PROGRAM), *length]
    command += ["--seed", str(SEED), "--slots", str(slots)]
    print("torture run:", *command)
    env = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOAK + 200, env=env)
    assert done.returncode == 0, (
        f"status {done.returncode} of {' '.join(command)}\n{done.stdout}\n{done.stderr[-8000:]}"
    )
    assert done.stderr == ""
    print(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 3, 64])
def test_streams_under_interruptions(slots):
    run(slots)


@pytest.mark.slow
def test_streams_with_debugging_allocator():
    run(3, PYTHONMALLOC="debug")
