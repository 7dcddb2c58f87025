"""Fixtures for tests that look after the whole process; those of every package are in the conftest.py of the root."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# pytest itself puts no folder on the path when it imports by file (`--import-mode=importlib`); the helpers lie here.
sys.path.insert(0, str(Path(__file__).parent))

import coro


@pytest.fixture
def leaves_no_profiler():
    """After the test no profiler runs; one that does is stopped, so that it does not measure the next test."""
    yield
    left = coro.get_the_profiler()
    if left is not None:
        left.stop()
    assert left is None
