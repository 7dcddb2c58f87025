"""No object that `__new__` made alone can crash the process; see fuzz/half_made.py, which does the work."""

import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import half_made

import coro

PROGRAM = Path(half_made.__file__)


@pytest.fixture(scope="module")
def outcomes():
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", str(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    lines = [line.rpartition("\n")[2].split(" ", 1) for line in done.stdout.splitlines()]
    return {line[0]: line[1] for line in lines if len(line) == 2}, done.stdout + done.stderr


@pytest.mark.parametrize("name", half_made.classes())
def test_what_new_made_alone_works_or_raises(outcomes, name):
    ended, output = outcomes
    assert ended.get(name) == "ok", output


def test_classes_are_found():
    assert {coro.sock, coro.case, coro.mutex, coro.fifo, coro.coro, coro.timeout} <= set(half_made.classes().values())


def test_a_select_of_a_case_about_nothing():
    nothing = coro.case.__new__(coro.case)
    with pytest.raises(TypeError, match="about nothing"):
        coro.run(coro.select, nothing)
