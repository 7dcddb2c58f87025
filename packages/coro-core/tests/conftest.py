"""Fixtures for tests that look after the whole process: what a test leaves behind fails that test. And the choice of
the poller they run on: `pytest --poller fake-kqueue` takes the one of the BSDs, over an imitation of kqueue(2)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# pytest itself puts no folder on the path when it imports by file (`--import-mode=importlib`); the helpers lie here.
sys.path.insert(0, str(Path(__file__).parent))

import coro
from coro import testing

# Set for pytest's own output, it would make print() of the programs that tests start write a line and its end
# apart, and two processes with one standard output would mix them.
os.environ.pop("PYTHONUNBUFFERED", None)


def pytest_addoption(parser):
    parser.addoption(
        "--poller",
        choices=("system", "fake-kqueue"),
        default="system",
        help="run on the system's own poller, or on that for kqueue(2) with an imitation of it",
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "epoll_only(reason): about epoll itself, so not run on another poller")
    if config.getoption("--poller") == "fake-kqueue":
        import fake_kqueue

        fake_kqueue.use()


def pytest_report_header(config):
    return f"poller: {config.getoption('--poller')}"


def pytest_collection_modifyitems(config, items):
    if config.getoption("--poller") == "system":
        return
    for item in items:
        for mark in item.iter_markers("epoll_only"):
            item.add_marker(pytest.mark.skip(reason=f"about epoll: {mark.args[0]}"))


@pytest.fixture
def leaves_nothing():
    """After the test no loop runs, there are no more thread objects, sockets and descriptors than before, nobody is
    bound to a slot, and the recursion limit and the exception notifier are what they were."""
    with testing.no_leaks(strict=True):
        yield


@pytest.fixture
def leaves_no_profiler():
    """After the test no profiler runs; one that does is stopped, so that it does not measure the next test."""
    yield
    left = coro.get_the_profiler()
    if left is not None:
        left.stop()
    assert left is None
