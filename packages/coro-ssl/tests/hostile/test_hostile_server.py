"""Broken handshakes of a server, 443 of them, with a client of each back end: no crash, no hang, the right alert.

What is broken, and which alerts are right, is in hostile_server.py.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import hostile_client
import hostile_server
import pytest
import tls_peers
from hostile_client import Case

import coro
from coro import testing

CASES = hostile_server.all_cases()
#: For each Python: every 40th, all kinds among them.
FEW = CASES[::40]


@cache
def context(backend: str) -> Any:
    return tls_peers.client(backend)


def check(backend: str, case: Case) -> None:
    context(backend).forget_sessions()
    outcome = hostile_server.attack(context(backend), case)
    problem = hostile_client.problem(case, outcome)
    assert problem is None, (problem, outcome)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
def test_case(backend: str, case: Case) -> None:
    with testing.no_leaks():
        coro.run(check, backend, case)


@pytest.mark.parametrize("case", FEW, ids=[case.name for case in FEW])
@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
def test_short_form(backend: str, case: Case) -> None:
    coro.run(check, backend, case)


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 300
    assert len({case.name for case in CASES}) == len(CASES)
