"""The stack swap of this machine's processor, tested without Python; run.py also does the others."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MACHINES = {"x86_64": "x86_64", "i686": "i386", "i386": "i386", "aarch64": "aarch64", "arm64": "aarch64"}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_native_swap() -> None:
    run = Path(__file__).with_name("run.py")
    name = MACHINES[platform.machine()]
    done = subprocess.run(
        [sys.executable, run, "--require", name], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "swap: ok" in done.stdout
