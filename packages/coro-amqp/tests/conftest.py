"""Makes the helpers beside it importable, as pytest itself does not (`--import-mode=importlib`); what modules share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def cluster():
    """Three nodes of RabbitMQ 3. A test that stops one starts it again."""
    import real_programs

    with real_programs.RabbitMQCluster(3) as cluster:
        yield cluster
