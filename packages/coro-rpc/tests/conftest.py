"""Fixtures and helpers of these tests; those of every package are in the conftest.py of the root."""

from __future__ import annotations

import sys
from pathlib import Path

# pytest itself puts no folder on the path when it imports by file (`--import-mode=importlib`); the helpers lie here.
sys.path.insert(0, str(Path(__file__).parent))
