"""For pytest, as tools.dev runs it: a line for each file of tests when it is over, instead of a dot for each test.

A log of several runs side by side is read line by line, and a line that grows is none. The file named by
CORO_TEST_STATUS always holds the test that runs, for whoever wonders why nothing is said; that costs some 30 us for
each test. A failure is told at once, with the reasons at the end, as pytest does.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

_STATUS = os.environ.pop("CORO_TEST_STATUS", "")
#: What passes without a word.
QUIET = ("passed", "skipped", "xfailed")


class Progress:
    """Counts the outcomes of the file that runs."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.total = self.over = 0
        self.begun = time.monotonic()
        self.counts: Counter[str] = Counter()

    def line(self, text: str) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(text)

    @pytest.hookimpl
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.total = len(session.items)
        self.begun = time.monotonic()

    @pytest.hookimpl
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if _STATUS:
            Path(_STATUS).write_text(nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> Generator[None, tuple[str, str, object], tuple[str, str, object]]:
        category, letter, word = yield
        return (category, "", "") if category in QUIET else (category, letter, word)

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.counts["failed"] += 1
            self.line(f"FAILED {report.nodeid}" + (f" ({report.when})" if report.when != "call" else ""))
        elif report.skipped:
            self.counts["skipped"] += 1
        elif report.when == "call":
            self.counts["passed"] += 1

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        result = yield
        self.over += 1
        if nextitem is None or nextitem.path != item.path:
            found = ", ".join(f"{number} {kind}" for kind, number in self.counts.items()) or "nothing"
            name = item.nodeid.partition("::")[0].partition("/tests/")[2] or item.path.name
            seconds = time.monotonic() - self.begun
            self.line(f"{100 * self.over // self.total:3} % {name}: {found} in {seconds:.1f} s")
            self.counts.clear()
            self.begun = time.monotonic()
        return result


def pytest_configure(config: pytest.Config) -> None:
    if config.get_verbosity() <= 0:
        config.pluginmanager.register(Progress(config))
