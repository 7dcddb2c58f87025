"""Fixtures for tests that look after the whole process: what a test leaves behind fails that test."""

from __future__ import annotations

import gc
import os
import sys

import pytest

import coro
from coro import _scheduler


def open_descriptors() -> int | None:
    """How many descriptors this process has; None where the system has no /proc."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return None


@pytest.fixture
def leaves_nothing():
    """After the test no loop runs, there are no more thread objects and descriptors than before, no slot has a thread,
    nothing traces, and the recursion limit and the exception notifier are what they were."""
    gc.collect()
    threads, descriptors, limit = coro.get_live_coros(), open_descriptors(), sys.getrecursionlimit()
    notifier = coro.set_exception_notifier(None)
    coro.set_exception_notifier(notifier)
    yield
    assert not coro.coro_is_running()
    assert sys.getrecursionlimit() == limit
    assert coro.set_exception_notifier(notifier) is notifier
    gc.collect()
    assert coro.get_live_coros() == threads
    assert not any(_scheduler._slot_owners())
    assert open_descriptors() == descriptors
