"""Fixtures of this package; those of every package are in the conftest.py of the root."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

# pytest itself puts no folder on the path when it imports by file (`--import-mode=importlib`); the helpers lie here.
sys.path.insert(0, str(Path(__file__).parent))

# How long one example takes says nothing on a machine that does other things, too.
settings.register_profile("coro", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("coro")
