"""pytest plugin that runs tests inside a loop: `-p coro.testing.pytest_plugin`, or in a top-level conftest.py
`pytest_plugins = ["coro.testing.pytest_plugin"]`.

It has to be asked for: coro-core has no entry point for pytest, because one would be active in every test run of
everybody who merely has coro installed.

A test marked `@pytest.mark.coro` (or every test, with `coro_mode = auto`) runs from the set-up of its fixtures to their
end in one thread of a loop of its own, so fixtures of function scope may block, spawn threads and keep sockets like the
test itself. The whole protocol of the test is run there; reports are pytest's own. Fixtures of a wider scope work, but
the threads they start end with the loop of the first test that uses them.

Cost: a loop and an OS thread for each test, about 0.3 ms, and the census of the leak check.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from _pytest._code.code import ReprFileLocation, TerminalRepr
from _pytest._io import TerminalWriter
from _pytest.runner import runtestprotocol

import coro
from coro._runtime import scheduler
from coro.testing import _frames, _leaks, _runner
from coro.testing._clock import virtual_clock
from coro.testing._order import random_order

__all__ = ["coro_autojump_clock", "coro_clock", "coro_random_order"]

MODES = ("strict", "auto")


class _Message(TerminalRepr):
    """How a failure is shown that this plugin has found: its text says everything, and our frames nothing."""

    def __init__(self, item: pytest.Item, error: BaseException) -> None:
        self.text = f"{type(error).__name__}: {error}"
        path, line, _ = item.reportinfo()
        self.reprcrash = ReprFileLocation(str(path), (line or 0) + 1, self.text)

    def toterminal(self, tw: TerminalWriter) -> None:
        for line in self.text.splitlines():
            tw.line(line, red=True)


@dataclass
class _Settings:
    timeout: float | None
    leaks: bool


@dataclass
class _State:
    """What is known of the test that runs now."""

    settings: _Settings
    watch: _runner.Watch
    census: _leaks.Census
    failed: bool = False
    orders: list[random_order] = field(default_factory=list)


_STATE = pytest.StashKey[_State]()
_present: _State | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("coro")
    group.addoption(
        "--coro-random-order", action="store_true", help="run the threads of each test in a loop in a random order"
    )
    group.addoption(
        "--coro-seed",
        type=int,
        metavar="N",
        help="the seed of random orders of threads (default: CORO_TEST_SEED or a new one for each test)",
    )
    parser.addini(
        "coro_mode",
        "strict: tests marked `coro` run inside a loop; auto: all but those marked `no_coro`",
        default="strict",
    )
    parser.addini("coro_timeout", "seconds that a test in a loop may take; 0 for any time", default="60")
    parser.addini("coro_leaks", "look for what tests in a loop leave behind", type="bool", default=True)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "coro(timeout=..., leaks=...): run the test and its fixtures inside a loop of coro; timeout is in seconds of "
        "real time, None for no limit; leaks=False does not look for what is left behind",
    )
    config.addinivalue_line("markers", "no_coro: run the test outside any loop although coro_mode is auto")
    if config.getini("coro_mode") not in MODES:
        raise pytest.UsageError(f"coro_mode is 'strict' or 'auto', not {config.getini('coro_mode')!r}")
    _default_timeout(config)


def pytest_report_header(config: pytest.Config) -> str | None:
    if config.getini("coro_mode") == "strict" and not config.getoption("--coro-random-order"):
        return None
    order = "random" if config.getoption("--coro-random-order") else "usual"
    return f"coro: {coro.__version__}, mode {config.getini('coro_mode')}, {order} order of threads"


def _default_timeout(config: pytest.Config) -> float | None:
    text = config.getini("coro_timeout")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise pytest.UsageError(f"coro_timeout is a number of seconds of at least 0, not {text!r}")
    return seconds or None


def _settings(item: pytest.Item) -> _Settings | None:
    """How to run this test inside a loop, or None: not at all. UsageError for a marker with wrong arguments."""
    marker = item.get_closest_marker("coro")
    if item.get_closest_marker("no_coro") or (marker is None and item.config.getini("coro_mode") != "auto"):
        return None
    arguments = dict(marker.kwargs) if marker is not None else {}
    timeout = arguments.pop("timeout", _default_timeout(item.config))
    leaks = arguments.pop("leaks", item.config.getini("coro_leaks"))
    if arguments or (marker is not None and marker.args):
        raise pytest.UsageError(f"{item.nodeid}: the marker coro takes timeout=... and leaks=... only")
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0):
        raise pytest.UsageError(f"{item.nodeid}: the timeout is a number of seconds above 0, or None, not {timeout!r}")
    return _Settings(timeout, bool(leaks))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        _settings(item)  # says what is wrong with a marker before anything runs


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    settings = _settings(item)
    if settings is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    done = False

    def main() -> None:
        nonlocal done
        _protocol(item, nextitem, settings)
        done = True

    try:
        coro.run(main)
    except (SystemExit, coro.Interrupted) as e:
        # Reported by the test itself, which was interrupted by it, if that came to its end.
        if not done:
            _report_error(item, e)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _protocol(item: pytest.Item, nextitem: pytest.Item | None, settings: _Settings) -> None:
    """Set-up, call and teardown, inside the loop."""
    global _present
    with ExitStack() as stack:
        watch = stack.enter_context(_runner.Watch(settings.timeout))
        state = _present = item.stash[_STATE] = _State(settings, watch, _leaks.first_census())
        if item.config.getoption("--coro-random-order"):
            state.orders.append(stack.enter_context(random_order(item.config.getoption("--coro-seed"))))
        try:
            runtestprotocol(item, nextitem=nextitem)
        except (KeyboardInterrupt, pytest.exit.Exception) as e:
            # pytest would tear the fixtures down at the end of the session, where there is no loop for them.
            try:
                item.ihook.pytest_runtest_teardown(item=item, nextitem=None)
            except Exception as error:
                e.add_note(f"the teardown after it failed: {error!r}")
            raise
        finally:
            _present = None
            del item.stash[_STATE]


def _report_error(item: pytest.Item, error: BaseException) -> None:
    def fail() -> None:
        raise error

    call = pytest.CallInfo.from_call(fail, "call")
    item.ihook.pytest_runtest_logreport(report=item.ihook.pytest_runtest_makereport(item=item, call=call))


def _judge(state: _State | None) -> None:
    """After a phase that succeeded: did anything go wrong outside the test's own thread?"""
    if state is None:
        return
    state.watch.raise_crashes()
    if scheduler._exit_pending():
        pytest.fail("the loop was told to end (coro.set_exit), and the rest of the test with it", pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    result = yield
    _judge(item.stash.get(_STATE, None))
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    result = yield
    _judge(item.stash.get(_STATE, None))
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    result = yield
    state = item.stash.get(_STATE, None)
    if state is not None and not state.failed:
        _judge(state)
        if state.settings.leaks:
            found = _leaks.find(state.census)
            state.watch.raise_crashes()
            if found:
                raise _leaks.LeakError(found)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Generator[None, Any, Any]:
    state = _present
    if state is None or fixturedef.scope == "function":
        return (yield)
    before = _leaks.census()
    try:
        return (yield)
    finally:
        # What a fixture of a wider scope keeps is not this test's leak.
        state.census.add(_leaks.census(), before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    state = item.stash.get(_STATE, None)
    ours = None
    if state is not None and call.excinfo is not None and not item.config.getoption("fulltrace"):
        error = call.excinfo.value
        if _frames.shorten(error):
            call.excinfo = pytest.ExceptionInfo.from_exception(error)
        elif isinstance(error, (_runner.ThreadCrashed, _leaks.LeakError)):
            ours = error
    report = yield
    if ours is not None and report.failed:
        report.longrepr = _Message(item, ours)
    if state is not None and state.watch.crashes and (report.failed or state.failed):
        # Of a teardown that succeeded pytest shows only what has its name in it.
        when = "in the teardown" if report.when == "teardown" else "meanwhile"
        report.sections.append((f"Threads that failed {when}", state.watch.describe_crashes()))
        state.watch.crashes = []
    if state is not None and report.failed:
        state.failed = True
        for order in state.orders:
            report.sections.append(("Order of threads", f"{order.describe()}; so does --coro-seed={order.seed}"))
    return report


@pytest.fixture
def coro_clock() -> Iterator[virtual_clock]:
    """A virtual clock that stands still until it is told to advance."""
    with virtual_clock() as clock:
        yield clock


@pytest.fixture
def coro_autojump_clock() -> Iterator[virtual_clock]:
    """A virtual clock that jumps to the next timer whenever all threads are blocked."""
    with virtual_clock(autojump=True) as clock:
        yield clock


@pytest.fixture
def coro_random_order(request: pytest.FixtureRequest) -> Iterator[random_order]:
    """A random order of threads; the seed is shown when the test fails, and `--coro-seed` repeats it."""
    with random_order(request.config.getoption("--coro-seed")) as order:
        if _present is not None:
            _present.orders.append(order)
        yield order
