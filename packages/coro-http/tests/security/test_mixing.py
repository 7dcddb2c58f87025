"""Some hundred requests of clients that pipeline, break off and are interrupted; the torture itself is
torture/mixing.py, and a soak of this package runs it for a minute."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "torture"))
import mixing


@pytest.mark.slow
def test_nothing_of_one_connection_reaches_another() -> None:
    seed = int(os.environ.get("CORO_MIXING_SEED", time.time_ns() % 1000000))
    print(f"CORO_MIXING_SEED={seed}")
    mixing.run(seed, 60.0, 400)
