"""For pytest: a failed test shows the end of what the programs wrote that run at that moment, and keeps all of it.

A `with` block around the failure tells by itself (`Server.__exit__`); this is for programs that a fixture started for
several tests. The conftest.py of the root loads it.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

from .running import running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.when != "teardown":
        for server in list(running):
            report.sections.append((f"log of {server.name}", server.tell()))
    return report
