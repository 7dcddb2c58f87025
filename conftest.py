"""What holds for the tests of every package: the poller they run on, what is looked at after a test, the collector.

`pytest --poller fake-kqueue` takes the poller of the BSDs, over an imitation of kqueue(2) that coro-core's tests have.

The collector. Whoever looks for what a test has left behind has to collect garbage first, and a full collection looks
at every object there is: some 200 000 of them, nearly all of them modules, test functions and fixtures that never go
away. So what is alive after the tests have been collected, and whatever a file of tests has left alive for good, is
frozen (gc.freeze): no collection looks at it any more. That loosens no check. A census compares two moments of one
test, and whatever is made between the two is not frozen. Cost: one full collection for each file; it saves a third of
the processor time of the suite.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

import pytest

# Shows with a failed test what the servers wrote that ran meanwhile.
pytest_plugins = ["real_programs.plugin"]

# Set for pytest's own output, it would make print() of the programs that tests start write a line and its end
# apart, and two processes with one standard output would mix them.
os.environ.pop("PYTHONUNBUFFERED", None)

# A thread that holds the processor for long because the machine is busy is no fault of a test, nor of the programs that
# it starts. A test of the warning itself sets the limit that it needs.
os.environ["CORO_LATENCY_WARNING"] = "0"

FAKE_KQUEUE = Path(__file__).parent / "packages" / "coro-core" / "tests"

_frozen_before: Path | None = None


def pytest_addoption(parser):
    parser.addoption(
        "--poller",
        choices=("system", "fake-kqueue"),
        default="system",
        help="run on the system's own poller, or on that for kqueue(2) with an imitation of it",
    )


def pytest_configure(config):
    # A shell that starts a job in the background has it ignore SIGINT, and every program a test starts would, too.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--poller") == "fake-kqueue":
        sys.path.insert(0, str(FAKE_KQUEUE))
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


def pytest_runtest_protocol(item, nextitem):
    global _frozen_before
    if item.path != _frozen_before:
        _frozen_before = item.path
        gc.collect()
        gc.freeze()


@pytest.fixture
def leaves_nothing():
    """After the test no loop runs, there are no more thread objects, sockets and descriptors than before, nobody is
    bound to a slot, and the recursion limit and the exception notifier are what they were."""
    from coro import testing

    with testing.no_leaks(strict=True):
        yield
