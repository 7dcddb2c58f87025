"""coro.testing.no_leaks: each kind of thing that can be left behind is found, named, and nothing else is."""

import gc
import os
import subprocess
import sys
import threading
import time
import tracemalloc
import types

import pytest

import coro
from coro import testing
from coro.testing import _leaks


@pytest.fixture(autouse=True)
def clean(leaves_nothing):
    yield


def leaks_of(function, **options):
    """What no_leaks says about a function, inside a loop."""

    def main():
        kept = []  # a leak is what is still referred to
        try:
            with testing.no_leaks(**options):
                kept.append(function())
        except testing.LeakError as e:
            return e.leaks
        return []

    return coro.run(main)


def nothing():
    a, b = coro.socketpair()
    a.send(b"x")
    b.recv(1)
    a.close()
    b.close()
    t = coro.spawn(coro.sleep_relative, 0.001)
    with coro.timeout(1):
        t.join()
    ended = coro.spawn(coro._yield)
    coro.yield_slice()
    ended.shutdown()  # will end in a moment
    cycle = [coro.spawn(int)]
    cycle.append(cycle)


def test_nothing_left_is_nothing_said():
    assert leaks_of(nothing) == []
    with testing.no_leaks(strict=True):
        coro.run(nothing)


def test_a_living_thread():
    (leak,) = leaks_of(lambda: coro.spawn(coro.sleep_relative, 1000, thread_name="dreamer"))
    assert "dreamer" in leak and "in a sleep" in leak
    (leak,) = leaks_of(lambda: coro.spawn(coro._yield))
    assert "until somebody schedules it" in leak


def test_a_thread_that_never_ran():
    def main():
        with coro.no_switch():
            before = _leaks.census()
            t = coro.spawn(int)
            (leak,) = _leaks.differences(before, _leaks.census())
            assert "has not run yet" in leak
        t.join()

    coro.run(main)


def test_daemons_only_when_asked_for():
    def start():
        return coro.spawn(coro._yield, daemon=True)

    assert leaks_of(start) == []
    assert len(leaks_of(start, daemons=True)) == 1


def test_threads_from_before_are_not_blamed():
    def main():
        other = coro.spawn(sleeper)
        coro.yield_slice()
        with testing.no_leaks():
            coro.sleep_relative(0.002)
        other.shutdown()

    def sleeper():
        while True:
            coro.sleep_relative(0.001)

    coro.run(main)


def test_sockets_and_their_descriptors():
    found = leaks_of(lambda: coro.socketpair())
    assert len([leak for leak in found if leak.startswith("descriptor") and "socket:" in leak]) == 2 == len(found)
    found = leaks_of(lambda: coro.socketpair(), strict=True)
    assert "2 more socket objects (2, before 0)" in found


def test_closed_sockets_that_are_still_referred_to_are_no_leak():
    def closed():
        pair = coro.socketpair()
        for s in pair:
            s.close()
        return pair

    assert leaks_of(closed) == []
    assert len(leaks_of(closed, strict=True)) == 1


def test_a_plain_descriptor():
    opened = []
    (leak,) = leaks_of(lambda: opened.append(os.open(os.devnull, os.O_RDONLY)))
    assert leak == f"descriptor {opened[0]}: /dev/null"
    os.close(opened[0])


def interrupt_a_worker(goes_on):
    """A thread waits for a worker that keeps a file open until `goes_on` is set, and is ended."""
    opened = threading.Event()

    def work():
        with open(os.devnull):
            opened.set()
            goes_on.wait()

    thread = coro.spawn(coro.in_thread, work)
    while not opened.is_set():
        coro.yield_slice()
    thread.shutdown()
    thread.join()


def test_a_worker_whose_caller_was_interrupted_may_come_to_its_end(monkeypatch):
    """What it has open until then is no leak."""
    goes_on = threading.Event()
    sleep = time.sleep

    def slept(seconds):
        goes_on.set()  # so it is waited for
        sleep(seconds)

    monkeypatch.setattr(_leaks, "time", types.SimpleNamespace(sleep=slept, monotonic=time.monotonic))
    with testing.no_leaks():
        coro.run(interrupt_a_worker, goes_on)
    assert goes_on.is_set()


def test_a_worker_that_does_not_end_leaks(monkeypatch):
    goes_on = threading.Event()
    monkeypatch.setattr(_leaks, "PATIENCE", 0.0)
    try:
        with pytest.raises(_leaks.LeakError, match="/dev/null"):
            with testing.no_leaks():
                coro.run(interrupt_a_worker, goes_on)
    finally:
        goes_on.set()


def test_a_descriptor_that_was_replaced():
    def main():
        fd = os.open(os.devnull, os.O_RDONLY)
        with pytest.raises(testing.LeakError, match=f"descriptor {fd}: .*zero"), testing.no_leaks():
            os.close(fd)
            assert os.open("/dev/zero", os.O_RDONLY) == fd
        os.close(fd)

    coro.run(main)


def test_a_handler():
    a, b = coro.socketpair()

    def main():
        with pytest.raises(testing.LeakError, match="handler .*got_something"), testing.no_leaks():
            coro.set_handler((a.fd, coro.EVFILT.READ), got_something)
        coro.remove_handler((a.fd, coro.EVFILT.READ))
        with testing.no_leaks():
            coro.set_handler((a.fd, coro.EVFILT.READ), got_something)
            coro.remove_handler((a.fd, coro.EVFILT.READ))

    def got_something(event):
        pass

    coro.run(main)
    a.close()
    b.close()


def test_a_timer_of_no_living_thread():
    def scope():
        limit = coro.timeout(1000)
        limit.__enter__()
        return limit

    (leak,) = leaks_of(scope)
    assert leak == "1 more timers, of no living thread"


def test_settings_of_the_process():
    limit = sys.getrecursionlimit()
    try:
        with pytest.raises(testing.LeakError, match=f"recursion limit is {limit + 100}"), testing.no_leaks():
            sys.setrecursionlimit(limit + 100)
    finally:
        sys.setrecursionlimit(limit)

    def notify():
        pass

    (leak,) = leaks_of(lambda: coro.set_exception_notifier(notify) and None)
    assert "notify" in leak
    coro.set_exception_notifier(None)
    clock = testing.virtual_clock()
    (leak,) = leaks_of(clock.__enter__)
    assert leak == "a virtual clock is installed"
    clock.__exit__(None, None, None)


def test_thread_objects_when_strict():
    kept = []
    with pytest.raises(testing.LeakError, match="1 more thread objects"), testing.no_leaks(strict=True):
        coro.run(lambda: kept.append(coro.spawn(int)))
    with testing.no_leaks():
        coro.run(lambda: kept.append(coro.spawn(int)))
    kept.clear()


def test_an_exception_goes_first():
    with pytest.raises(KeyError), testing.no_leaks():
        fd = os.open(os.devnull, os.O_RDONLY)
        raise KeyError
    os.close(fd)


def test_the_error_lists_everything():
    error = testing.LeakError(["one", "two"])
    assert str(error) == "left behind:\n  one\n  two"
    assert error.leaks == ["one", "two"]
    assert isinstance(error, AssertionError)


def test_where_it_was_made_if_known():
    tracemalloc.start(5)
    try:
        (leak,) = leaks_of(lambda: coro.spawn(coro.sleep_relative, 1000))
    finally:
        tracemalloc.stop()
        gc.collect()
    assert "made at " in leak and __file__ in leak


def test_without_proc_the_rest_is_still_checked(monkeypatch):
    def refuse(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "listdir", refuse)
    found = leaks_of(lambda: coro.socketpair())
    assert found == ["2 more socket objects (2, before 0)"]


def test_outside_of_loops():
    with testing.no_leaks():
        subprocess.run([sys.executable, "-c", ""], check=True)
    with pytest.raises(testing.LeakError, match="descriptor"), testing.no_leaks():
        fd = os.open(os.devnull, os.O_RDONLY)
    os.close(fd)
