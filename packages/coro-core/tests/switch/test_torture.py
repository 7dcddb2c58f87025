"""The torture test, in processes of its own; see torture/. A seed is chosen at random and printed with the command that
repeats the run; CORO_TORTURE_SEED fixes it."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1] / "torture"
SEED = int(os.environ.get("CORO_TORTURE_SEED", random.randrange(10**6)))


def run(script, *arguments, env=None, options=()):
    command = [sys.executable, "-X", "faulthandler", *options, str(HERE / script), *map(str, arguments)]
    print("torture run:", *command)
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env={**os.environ, **(env or {})})
    what = f"status {done.returncode} of {' '.join(command)}\n{done.stdout}\n{done.stderr[-8000:]}"
    assert done.returncode == 0, what
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
@pytest.mark.each_python
@pytest.mark.parametrize("slots", [1, 3, 64])
def test_thousands_of_threads(slots):
    print(run("run.py", "--slots", slots, "--threads", 1500, "--seed", SEED + slots))


@pytest.mark.slow
@pytest.mark.each_python
def test_more_threads_alive_than_ever_fit_the_slots():
    print(run("run.py", "--slots", 3, "--threads", 2000, "--alive", 2000, "--steps", 2, "--cheap", "--seed", SEED))


@pytest.mark.slow
@pytest.mark.each_python
@pytest.mark.parametrize("slots", [1, 64])
def test_with_debugging_allocator_and_development_mode(slots):
    print(run("run.py", "--slots", slots, "--threads", 250, "--seed", SEED, env={"PYTHONMALLOC": "debug"},
              options=("-X", "dev")))  # fmt: skip


@pytest.mark.slow
@pytest.mark.each_python
@pytest.mark.parametrize("slots", [1, 3, 64])
def test_shutdown_at_every_suspension(slots):
    print(run("script.py", "--slots", slots))


@pytest.mark.slow
@pytest.mark.each_python
@pytest.mark.parametrize("options", [(), ("--emulation", "--slots", 3), ("--debug", "--slots", 1)])
def test_steps_of_asyncio(options):
    print(run("asyncio_steps.py", "--seconds", 3, "--tasks", 150, "--seed", SEED, *options))
