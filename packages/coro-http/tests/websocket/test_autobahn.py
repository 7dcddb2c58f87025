"""A sample of Autobahn's test suite, in both roles; all of it is the soak http-autobahn."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from real_programs import missing


@pytest.mark.slow
@pytest.mark.parametrize("role", ["server", "client"])
def test_a_sample(role: str) -> None:
    spec = importlib.util.spec_from_file_location("autobahn_suite", Path(__file__).with_name("autobahn.py"))
    assert spec is not None and spec.loader is not None
    suite = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = suite
    spec.loader.exec_module(suite)
    program = suite.find_wstest()
    if program is None:
        missing("needs wstest of Autobahn's test suite (Python 2.7), see autobahn.py", required=False)
    verdicts, bad = suite.run(program, role, suite.SAMPLE)
    assert sum(verdicts.values()) > 40 and bad == []
