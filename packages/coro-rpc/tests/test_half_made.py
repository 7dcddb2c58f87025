"""No object of a compiled class can crash the process, whole or half made; see half_made in tests/support."""

from pathlib import Path

import half_made
import pytest

outcomes = half_made.fixture("coro-rpc", Path(__file__).with_name("rpc_samples.py"))


@pytest.mark.parametrize("name", half_made.names("coro-rpc"))
def test_no_use_of_a_class_crashes(outcomes, name):
    outcomes.check(name)
