"""Random flags, sizes and addresses over all calls of socks, and of emulated sockets; see fuzz/socket_calls.py, which
tells how to do the same for long, and under AddressSanitizer.

The same calls each time; CORO_SOAK_SECONDS=60 makes it a soak of that length with a seed chosen at random, which is
printed with the command that repeats the run. CORO_TORTURE_SEED fixes it.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "fuzz" / "socket_calls.py"
SOAK = float(os.environ.get("CORO_SOAK_SECONDS", 0))
SEED = os.environ.get("CORO_TORTURE_SEED") or (random.randrange(10**6) if SOAK else 1)


@pytest.mark.slow
@pytest.mark.parametrize("how", [[], ["--emulation"]], ids=["socks", "emulated sockets"])
@pytest.mark.parametrize("allocator", ["pymalloc", "debug"])
def test_any_flag_and_size(how, allocator):
    length = ["--seconds", str(SOAK / 4)] if SOAK else ["--steps", "1500"]
    command = [sys.executable, "-X", "faulthandler", str(PROGRAM), *length, "--seed", str(SEED), *how]
    print("fuzz:", *command)
    env = {**os.environ, "PYTHONMALLOC": allocator}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOAK + 200, env=env)
    assert done.returncode == 0, (
        f"status {done.returncode} of {' '.join(command)}\n{done.stdout}\n{done.stderr[-8000:]}"
    )
    assert done.stderr == ""
