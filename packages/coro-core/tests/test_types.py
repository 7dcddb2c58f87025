"""What type checkers say about programs that use coro: mistakes are found, and correct programs pass.

mypy and pyright read the installed package as a user's would; each takes ten seconds. Their answers are the same on
each Python, so they are installed for one (3.12, see the package's pyproject.toml). pyright comes as basedpyright,
which brings the program it runs on; in its "standard" mode it says what pyright says.
"""

from __future__ import annotations

import importlib.util
import json
import os
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


@pytest.fixture(scope="module")
def pyright(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, dict[int, str]]:
    """The errors that pyright finds, by file and line, in the file of mistakes and in the programs of the manual."""
    program = shutil.which("basedpyright", path=str(Path(sys.executable).parent)) or shutil.which("pyright")
    if program is None:
        message = "pyright is not installed for this Python; pip install basedpyright"
        if os.environ.get("CORO_REQUIRE_SERVERS") == "1" and sys.version_info[:2] == (3, 12):
            pytest.fail(message)
        pytest.skip(message)
    folder = tmp_path_factory.mktemp("pyright")
    # A configuration of its own: what lies above the files is this repository's.
    settings = {"typeCheckingMode": "standard", "include": [str(path) for path in (MISTAKES, *programs())]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [program, "--outputjson", "--pythonpath", sys.executable, "--project", str(folder)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd=folder,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["summary"]["filesAnalyzed"] == 1 + len(programs())
    found: dict[Path, dict[int, str]] = {}
    for diagnostic in answer["generalDiagnostics"]:
        if diagnostic["severity"] == "error":
            lines = found.setdefault(Path(diagnostic["file"]), {})
            lines[diagnostic["range"]["start"]["line"] + 1] = diagnostic["message"]
    return found


def programs() -> list[Path]:
    """The programs of the manual that need coro-core alone: not their tests, not the one written for gevent, and not
    those in folders named for other packages, which are not installed here."""
    found = [*DOCS.glob("tutorial/*.py"), *DOCS.glob("examples/**/*.py")]
    others = [DOCS / "examples" / path.name.removeprefix("coro-") for path in DOCS.parent.glob("packages/coro-*")]
    found = [path for path in found if path.parent not in others]
    return sorted(path for path in found if not path.name.startswith("test_") and path.stem != "checker_gevent")


def test_pyright_finds_every_mistake_and_nothing_else(pyright):
    compare(pyright[MISTAKES])


@pytest.mark.skipif(not DOCS.is_dir(), reason="the manual is in the repository only")
def test_programs_of_the_manual_are_typed_for_pyright(pyright):
    assert len(programs()) > 10
    assert {str(path): lines for path, lines in pyright.items() if path != MISTAKES} == {}


@pytest.mark.skipif(not DOCS.is_dir(), reason="the manual is in the repository only")
@pytest.mark.parametrize("folder", ["tutorial", "examples"])
def test_programs_of_the_manual_are_typed(mypy_cache, folder):
    assert mypy(mypy_cache, *sorted((DOCS / folder).glob("*.py"))) == ""
