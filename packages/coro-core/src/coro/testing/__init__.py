"""Tools for testing programs that use coro: time and order under control, streams in memory, faults, leaks.

    from coro import testing

    with testing.virtual_clock(autojump=True):
        coro.sleep_relative(3600)       # takes no time

Everything here is pure Python on top of the runtime, and costs a program that does not use it nothing.
``coro.testing.faults`` has the fault-injecting stream, ``coro.testing.pytest_plugin`` runs tests inside loops; the
latter is loaded only when asked for, and nothing else here needs pytest.
"""

from __future__ import annotations

from coro.testing import faults
from coro.testing._clock import virtual_clock
from coro.testing._idle import wait_all_blocked
from coro.testing._leaks import LeakError, no_leaks
from coro.testing._memory import memory_stream, stream_pair
from coro.testing._order import random_order
from coro.testing._runner import ThreadCrashed, TimeLimitExceeded, coro_test, run_in_loop
from coro.testing._sequencer import BrokenSequence, sequencer
from coro.testing.faults import faulty_stream

__all__ = [
    "BrokenSequence",
    "LeakError",
    "ThreadCrashed",
    "TimeLimitExceeded",
    "coro_test",
    "faults",
    "faulty_stream",
    "memory_stream",
    "no_leaks",
    "random_order",
    "run_in_loop",
    "sequencer",
    "stream_pair",
    "virtual_clock",
    "wait_all_blocked",
]
