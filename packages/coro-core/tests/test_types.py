"""What type checkers say about programs that use coro: mistakes are found, and correct programs pass.

mypy reads the installed package as a user's mypy would; it takes ten seconds, and the answer is the same on each
Python. pyright, where it is installed, has to find the same mistakes.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MISTAKES = HERE / "typed" / "mistakes.py"
DOCS = HERE.parents[2] / "docs"

#: Seconds after which a checker counts as hung.
LIMIT = 250

pytestmark = pytest.mark.slow


def wrong_lines() -> set[int]:
    lines = MISTAKES.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("  # wrong")}


@pytest.fixture(scope="module")
def mypy_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed for this Python; pip install mypy")
    return tmp_path_factory.mktemp("mypy")


def mypy(cache: Path, *files: Path) -> str:
    """What ``mypy --strict`` says. Without the settings of this repository: a user has not got them."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(cache)]
    done = subprocess.run(
        [*command, "--no-error-summary", *map(str, files)], capture_output=True, text=True, timeout=LIMIT, cwd=cache
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def compare(found: dict[int, str]) -> None:
    wanted = wrong_lines()
    assert len(wanted) >= 40
    assert {line: text for line, text in found.items() if line not in wanted} == {}
    text = MISTAKES.read_text().splitlines()
    assert [text[line - 1] for line in sorted(wanted - set(found))] == []


def test_mypy_finds_every_mistake_and_nothing_else(mypy_cache):
    errors = re.findall(r"^[^:]+:(\d+): error: (.*)$", mypy(mypy_cache, MISTAKES), re.M)
    compare({int(line): text for line, text in errors})


def test_pyright_finds_every_mistake_and_nothing_else():
    program = shutil.which("pyright")
    if program is None:
        pytest.skip("pyright is not installed; npm install -g pyright")
    done = subprocess.run(
        [program, "--outputjson", "--pythonpath", sys.executable, str(MISTAKES)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    found = [d for d in json.loads(done.stdout)["generalDiagnostics"] if d["severity"] == "error"]
    compare({d["range"]["start"]["line"] + 1: d["message"] for d in found})


@pytest.mark.skipif(not DOCS.is_dir(), reason="the manual is in the repository only")
@pytest.mark.parametrize("folder", ["tutorial", "examples"])
def test_programs_of_the_manual_are_typed(mypy_cache, folder):
    assert mypy(mypy_cache, *sorted((DOCS / folder).glob("*.py"))) == ""
