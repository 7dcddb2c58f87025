"""The programs, by what their libraries do. Each file registers its own when it is imported."""

from __future__ import annotations

from tools.libraries.work import CASES, Case


def load() -> dict[str, Case]:
    """All programs, by name."""
    from tools.libraries.cases import brokers, clients, compute, databases, jobs, web

    assert brokers and clients and compute and databases and jobs and web
    return CASES
