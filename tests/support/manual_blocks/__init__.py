"""Runs the code blocks of the manual and of the READMEs: what a reader copies has to work.

    python tests/support/manual_blocks docs/basics/threads.rst

runs one page. `reading` finds the blocks and the notes that belong to them, `running` runs those of Python in a process
of their own, `commands` looks at what stands in blocks for the shell. docs/contributing/writing.rst tells authors what
notes there are. The tests of a distribution call `pages` and `check`.

Cost: a process for each page that has Python, 0.1 to 0.3 s each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from manual_blocks import commands, reading

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 120  # seconds for a part of a page, which ends by itself when a block hangs


def pages(package: str) -> list[str]:
    """The pages that the tests of a distribution run, as paths from the root. coro-core has what nobody else has."""
    of_others: list[str] = []
    mine: list[str] = []
    for folder in sorted((ROOT / "packages").iterdir()):
        name = folder.name.removeprefix("coro-")
        found = [f"packages/{folder.name}/README.md", f"docs/packages/{name}.rst", f"docs/reference/{name}.rst"]
        # A package with more than one page calls the others NAME_something.
        more = [path for part in ("packages", "reference") for path in (ROOT / "docs" / part).glob(f"{name}_*.rst")]
        found += sorted(str(path.relative_to(ROOT)) for path in more)
        if folder.name == package:
            mine += found
        elif folder.name != "coro-core":
            of_others += found
    if package == "coro-core":
        every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.rst"))]
        mine += [str(path.relative_to(ROOT)) for path in every if "_build" not in path.parts]
    return [path for path in dict.fromkeys(mine) if path not in of_others and (ROOT / path).is_file()]


def check(page: str) -> None:
    """Run a page. Raises AssertionError, whose text names page and line and says what happened."""
    blocks = reading.read(ROOT, page)
    commands.check(ROOT, blocks)
    for number, part in enumerate(reading.parts(blocks)):
        if not any(block.runs for block in part):
            continue
        with tempfile.TemporaryDirectory(prefix="manual-") as folder:
            done = subprocess.run(
                [sys.executable, str(Path(__file__).parent), page, str(number)],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": ""},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PATIENCE,
                check=False,
            )
        if done.returncode:
            raise AssertionError(f"{page}: expected its code blocks to run\n{done.stdout}{done.stderr}")
