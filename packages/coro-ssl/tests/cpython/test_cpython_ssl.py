"""CPython's own tests of TLS connections against `coro.ssl.sock`."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import classic_sockets

pytestmark = [pytest.mark.slow, pytest.mark.newest]

#: How many tests have to pass with connections of coro.ssl.sock, on each Python from 3.11 on.
LEAST = 45


def run(report: Path, *tests: str) -> dict[str, tuple[str, int, str]]:
    """What became of each test: the outcome, the number of connections, and what it said."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", classic_sockets.__file__, str(report), *tests],
        cwd=report.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
        check=False,
    )
    outcomes = {}
    for line in report.read_text().splitlines():
        name, outcome, connections, said = json.loads(line)
        outcomes[name] = (outcome, connections, said)
    assert outcomes.pop("", ("crash",))[0] == "end", (outcomes, done.stdout[-4000:])
    return outcomes


@pytest.mark.skipif(
    importlib.util.find_spec("test.test_ssl") is None, reason="CPython's tests are missing: libpython3.x-testsuite"
)
def test_connections(tmp_path: Path) -> None:
    outcomes = run(tmp_path / "report")
    failed = {
        name: said
        for name, (outcome, _, said) in outcomes.items()
        if outcome not in ("pass", "skip") and not any(re.search(one, name) for one in classic_sockets.DIFFERENT)
    }
    assert not failed, "\n".join(f"{name}: {said[-2000:]}" for name, said in failed.items())
    assert sum(outcome == "pass" and connections > 0 for outcome, connections, _ in outcomes.values()) >= LEAST
