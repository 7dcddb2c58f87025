"""The program that takes pictures of the manual: what it does without a browser, and colours of a terminal."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "tools/manual_screens.py"


@pytest.mark.parametrize("options, status", [([], 1), (["--if-possible"], 0)])
def test_without_a_browser_it_says_so(tmp_path: Path, options: list[str], status: int) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *options, "html", str(tmp_path / "screens")],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == status
    assert "expected Chromium on PATH" in done.stdout + done.stderr
    assert not (tmp_path / "screens").exists()


def test_colours_of_a_terminal() -> None:
    spec = importlib.util.spec_from_file_location("manual_screens", PROGRAM)
    assert spec is not None and spec.loader is not None
    screens = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(screens)
    text = "a < b \x1b[1;35mKeyError\x1b[0m: \x1b[35m1\x1b[0m"
    assert screens.coloured(text) == (
        'a &lt; b <span style="font-weight:bold;color:#c678dd">KeyError</span>: <span style="color:#c678dd">1</span>'
    )
