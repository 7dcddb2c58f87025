"""coro in subinterpreters: the import is refused there in plain words, and takes nothing from the main interpreter."""

import subprocess
import sys

import pytest
from support import LIMIT

START = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

def create(kind):
    if hasattr(interpreters, "exec"):
        return interpreters.create("legacy" if kind == "shared" else "isolated")
    return interpreters.create(isolated=kind != "shared")

def attempt(kind, code="import coro"):
    number = create(kind)
    try:
        if hasattr(interpreters, "exec"):
            failed = interpreters.exec(number, code)
            print(failed.formatted if failed else "imported")
        else:
            try:
                interpreters.run_string(number, code)
                print("imported")
            except interpreters.RunFailedError as e:
                print(e)
    finally:
        interpreters.destroy(number)
"""
REFUSAL = "coro runs only in the main interpreter of a process, and this is subinterpreter"


def run(program):
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", START + program], capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("kind", ["shared", "own"])
@pytest.mark.parametrize("order", ["before", "after", "both"])
def test_the_main_interpreter_keeps_coro(kind, order):
    before = f"attempt({kind!r})\n" * (order != "after")
    after = f"attempt({kind!r})\n" * (order != "before")
    lines = run(f"{before}import coro\ncoro.run(print, 'ran')\n{after}coro.run(print, 'ran')")
    refusals = [line for line in lines if REFUSAL in line]
    assert len(refusals) == (2 if order == "both" else 1) and all("ImportError" in line for line in refusals)
    assert len(lines) == len(refusals) + 2 and lines.count("ran") == 2, lines


@pytest.mark.parametrize("kind", ["shared", "own"])
def test_inside_of_a_loop(kind):
    lines = run(f"import coro\ncoro.run(attempt, {kind!r})\ncoro.run(print, 'ran')")
    assert REFUSAL in lines[0] and lines[1:] == ["ran"]


def test_a_second_attempt_says_the_same():
    code = "for i in range(2):\\n try:\\n  import coro\\n except ImportError as e:\\n  print(e)"
    lines = run(f"attempt('shared', '{code}')\nimport coro\ncoro.run(print, 'ran')")
    assert [REFUSAL in line for line in lines] == [True, True, False, False]
    assert lines[2:] == ["imported", "ran"]
