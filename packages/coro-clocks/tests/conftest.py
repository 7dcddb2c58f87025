"""Fixtures for tests that look after the whole process; those of every package are in the conftest.py of the root."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# pytest itself puts no folder on the path when it imports by file (`--import-mode=importlib`); the helpers lie here.
sys.path.insert(0, str(Path(__file__).parent))

from coro._clock import ticks
from coro.clocks import _wall, mach_time


@pytest.fixture(autouse=True)
def the_time_of_day_is_put_back():
    """No test leaves a simulated or corrected time, or another counter, to the next."""
    yield
    _wall.set_time(0)
    _wall.correct(0)
    mach_time.install()
    assert ticks.correction == 0
