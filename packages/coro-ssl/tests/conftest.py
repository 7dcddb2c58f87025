"""Fixtures for tests of this package; those of every package are in the conftest.py of the root."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import pytest

# pytest itself puts no folder on the path when it imports by file (`--import-mode=importlib`); the helpers lie here.
sys.path.insert(0, str(Path(__file__).parent))

# `_tlslite` before any test imports tlslite: it keeps a warning of that quiet.
from coro.ssl import _tlslite, testing


def pytest_report_header(config):
    return f"{ssl.OPENSSL_VERSION}, tlslite-ng {_tlslite.LIBRARY}"


@pytest.fixture(scope="session")
def authority() -> testing.CA:
    return testing.CA()
