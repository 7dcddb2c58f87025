"""What tests of all kinds share: threads of a loop as tests, programs in a process of their own, a clock that obeys.

A test that ends a loop by signals, hangs on purpose or forks has no business in the process that pytest runs in. Such
programs get a time limit and leave their output; every other test runs in a loop of its own, see `in_loop`, or calls
`coro.run` itself.
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import coro
from coro import testing
from coro._clock import ticks
from coro._poll import choose, kqueue

#: Seconds after which a program counts as hung. Generous: the machine may be busy, and nothing waits for it normally.
LIMIT = 60

#: A shell that starts the tests in the background has them ignore SIGINT, and programs inherit that.
PROLOGUE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); del signal\n"


def on_kqueue() -> bool:
    """Do the tests run on the poller for kqueue(2)?  It knows amounts, and has other descriptors of its own."""
    return choose.choose() is kqueue.KqueuePoller


def in_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a test as a thread of its own loop; one that hangs fails after LIMIT seconds."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return coro.run(coro.with_timeout, LIMIT, function, *args, **kwargs)

    return run


def in_jumping_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same under a virtual clock that jumps when nobody can run; fixtures are made outside of the loop."""

    @functools.wraps(function)
    def test(**fixtures: Any) -> None:
        with testing.virtual_clock(autojump=0.05):
            testing.run_in_loop(function, **fixtures)

    return test


def in_jumping_run(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for tests that leave threads running, or whose threads fail; a test that hangs fails as well."""

    @functools.wraps(function)
    def test(**fixtures: Any) -> None:
        with testing.virtual_clock(autojump=0.05):
            coro.run(coro.with_timeout, 1e6, function, **fixtures)

    return test


def until(condition: Callable[[], object]) -> None:
    """Let the others run until it is so."""
    while not condition():
        coro.yield_slice()


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def program(source: str, *options: str, limit: float = LIMIT) -> Outcome:
    """Run a program text in a new interpreter and return what came of it. subprocess.TimeoutExpired when it hangs."""
    with tempfile.TemporaryDirectory() as folder:  # programs leave files: a UNIX socket bound to "text", say
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", *options, "-c", PROLOGUE + textwrap.dedent(source)],
            capture_output=True,
            text=True,
            timeout=limit,
            cwd=folder,
        )
    return Outcome(done.returncode, done.stdout, done.stderr)


def ok(source: str, *options: str) -> list[str]:
    """The output lines of a program that has to succeed without writing to stderr."""
    outcome = program(source, *options)
    assert outcome.code == 0, outcome.err
    # A slice that took long because the machine is busy is no fault of the program's.
    complaints = [line for line in outcome.err.splitlines() if " High Latency: (" not in line]
    assert complaints == [], outcome.err
    return outcome.lines


@contextlib.contextmanager
def virtual_clock() -> Iterator[None]:
    """Time stands still but for advance(). It goes on from the present, so the limit of `in_loop` is twenty seconds
    away, whatever the machine's own clock reads; a test advances by less than that."""
    with testing.virtual_clock():
        yield


def advance(seconds: float) -> None:
    """Move the virtual clock."""
    ticks.advance_virtual(round(seconds * 1e9))
