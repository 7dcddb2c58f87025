"""Sleeping until a time of day: never too early, whatever happens to the clock meanwhile.

No test sets the system's clock. That somebody has set it is told by a pipe in place of the timerfd, and what it then
shows is simulated; that the real descriptor is armed as it should be is read from proc(5).
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import textwrap
import time

import pytest

import coro
from coro import testing
from coro._clock import ticks
from coro.clocks import _timerfd, posix_time, sleep_until, sleeping, tsc_time

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def in_loop(function):
    def run():
        return coro.run(coro.with_timeout, 20, function)

    run.__name__ = function.__name__
    return run


@in_loop
def test_it_ends_at_the_time_and_not_before():
    for when in (
        tsc_time.now_posix_usec() + 20_000,
        posix_time.now_posix_fsec() + 0.02,
        time.time() + 0.02,
        datetime.datetime.now(datetime.UTC) + datetime.timedelta(milliseconds=20),
    ):
        target = sleeping._target(when)
        sleep_until(when)
        assert tsc_time.now_raw_posix_usec() >= target
        assert time.time_ns() // 1000 >= target - 2 * sleeping.TOLERANCE


@in_loop
def test_a_time_that_has_come_does_not_block():
    before = coro.statistics().switches
    for when in (0, time.time() - 1, tsc_time.now_tsc(), -(10**12)):
        sleep_until(when)
    assert coro.statistics().switches == before


def test_an_hour_of_virtual_time():
    def main():
        with testing.virtual_clock(start=1000, autojump=True):
            begin = tsc_time.now_posix_usec()
            sleep_until(begin + 3600 * 10**6)
            assert 0 <= tsc_time.now_posix_usec() - begin - 3600 * 10**6 < 10

    coro.run(main)


def woken_by(change, seconds):
    """How many of three sleepers until `seconds` ahead have ended after `change`, and after their time has come."""
    done = []

    def main():
        with testing.virtual_clock(start=1000) as clock:
            when = tsc_time.now_posix_usec() + round(seconds * 1e6)
            threads = [coro.spawn(lambda: (sleep_until(when), done.append(1))) for _ in range(3)]
            testing.wait_all_blocked()
            change()
            testing.wait_all_blocked()
            counts = [len(done)]
            clock.run_for(seconds)
            testing.wait_all_blocked()
            counts.append(len(done))
            for t in threads:
                t.shutdown()
            return counts

    return coro.run(main)


def test_a_step_past_the_time_ends_the_sleep():
    assert woken_by(lambda: tsc_time.step_time(3600), 1800) == [3, 3]


def test_a_step_back_prolongs_the_sleep():
    assert woken_by(lambda: tsc_time.step_time(-10), 1800) == [0, 0]


def test_a_small_step_changes_little():
    assert woken_by(lambda: tsc_time.step_time(-0.000001), 1800.5) == [0, 0]
    assert woken_by(lambda: tsc_time.step_time(0.5), 1800) == [0, 3]


def test_a_simulated_time_ends_the_sleep():
    assert woken_by(lambda: posix_time.set_time(4 * 10**9), 1800) == [3, 3]


def test_a_step_by_another_os_thread_is_noticed():
    assert woken_by(lambda: coro.in_thread(tsc_time.step_time, 3600), 1800) == [3, 3]


def pretend_kernel(monkeypatch):
    """A pipe in place of the timerfd: a byte says that the system's clock was set."""
    ends = []

    def open_watch():
        ends.extend(os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC))
        return ends[-2]

    monkeypatch.setattr(_timerfd, "open_watch", open_watch)
    monkeypatch.setattr(_timerfd, "arm", lambda fd: False)
    monkeypatch.setattr(_timerfd, "was_set", lambda fd: bool(os.read(fd, 1)))
    return ends


def test_the_kernel_tells_that_the_clock_was_set(monkeypatch):
    """The system's clock is set past the time: the sleep ends, by the descriptor alone."""
    ends = pretend_kernel(monkeypatch)

    @in_loop
    def main():
        sleeper = coro.spawn(sleep_until, time.time() + 3600)
        testing.wait_all_blocked()
        assert len(ends) == 2 and sleeping._watch.sees
        # what relating ticks to the system's clock gives from now on
        real = ticks.update_time_relation
        monkeypatch.setattr(ticks, "update_time_relation", lambda: (real(), ticks.set_correction(7200 * 10**6)))
        monkeypatch.setattr(sleeping, "_agree", lambda: None)
        os.write(ends[1], b"x")
        sleeper.join()

    main()
    os.close(ends[1])
    ticks.set_correction(0)


def test_all_sleepers_share_one_descriptor_which_ends_with_the_last(monkeypatch):
    ends = pretend_kernel(monkeypatch)

    @in_loop
    def main():
        threads = [coro.spawn(sleep_until, time.time() + 3600) for _ in range(10)]
        testing.wait_all_blocked()
        assert len(ends) == 2
        for t in threads[1:]:
            t.shutdown()
        testing.wait_all_blocked()
        assert sleeping._watch.sees
        threads[0].shutdown()
        testing.wait_all_blocked()
        assert not sleeping._watch.sees and sleeping._watch.thread is None
        with pytest.raises(OSError):
            os.fstat(ends[0])
        again = coro.spawn(sleep_until, time.time() + 3600)
        testing.wait_all_blocked()
        assert len(ends) == 4
        again.shutdown()

    main()
    os.close(ends[1])
    os.close(ends[3])


def test_without_the_kernels_help_the_clocks_are_compared(monkeypatch):
    def none():
        raise OSError(38, "no timerfd here")

    monkeypatch.setattr(_timerfd, "open_watch", none)
    monkeypatch.setattr(sleeping, "LONGEST_BLIND", 0.01)

    @in_loop
    def main():
        sleeper = coro.spawn(sleep_until, time.time() + 3600)
        coro.sleep_relative(0.03)
        assert not sleeper.dead and not sleeping._watch.sees
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() + 7200 * 10**9)
        # what relating ticks to the system's clock gives from now on
        relate = ticks.update_time_relation
        monkeypatch.setattr(ticks, "update_time_relation", lambda: (relate(), ticks.set_correction(7200 * 10**6)))
        sleeper.join()

    main()
    ticks.set_correction(0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="timerfd(2) and proc(5) are Linux's")
def test_the_descriptor_is_armed_for_changes_of_the_time_of_day():
    fd = _timerfd.open_watch()
    try:
        assert _timerfd.arm(fd) is False
        with open(f"/proc/self/fdinfo/{fd}") as f:
            info = dict(line.split(": ", 1) for line in f.read().splitlines() if ": " in line)
        assert int(info["clockid"]) == time.CLOCK_REALTIME
        assert int(info["settime flags"], 8) == 3  # TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET
        assert _timerfd.was_set(fd) is False
        assert os.get_inheritable(fd) is False and os.get_blocking(fd) is False
    finally:
        os.close(fd)
    with pytest.raises(OSError):
        _timerfd.arm(fd)


def test_without_a_loop_the_process_sleeps():
    when = tsc_time.now_posix_usec() + 20_000
    sleep_until(when)
    assert tsc_time.now_posix_usec() >= when


@in_loop
def test_interruptions_and_outer_limits_pass():
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.01, sleep_until, time.time() + 3600)
    sleeper = coro.spawn(sleep_until, time.time() + 3600)
    testing.wait_all_blocked()
    sleeper.shutdown()
    sleeper.join()
    assert isinstance(sleeper.exception, coro.Shutdown)


@pytest.mark.parametrize("bad", ["x", None, b"1", object()])
def test_what_is_no_time_is_refused(bad):
    with pytest.raises(TypeError, match="POSIX seconds"):
        sleep_until(bad)


def test_times_that_cannot_be():
    with pytest.raises(ValueError, match="time zone"):
        sleep_until(datetime.datetime(2020, 1, 1))
    with pytest.raises(ValueError):
        sleep_until(float("nan"))
    with pytest.raises(OverflowError):
        sleep_until(float("inf"))


def test_a_child_made_by_fork_has_its_own_watch():
    """In a process of its own: Python warns of a fork beside other OS threads, and pytest may have one."""
    program = """
        import os, time, coro
        from coro import testing
        from coro.clocks import sleep_until

        def main():
            sleeper = coro.spawn(sleep_until, time.time() + 3600)
            testing.wait_all_blocked()
            pid = coro.fork()
            if pid == 0:
                code = 1
                try:
                    sleep_until(time.time() + 0.01)
                    code = 0
                finally:
                    os._exit(code)
            assert coro.waitpid(pid)[1] == 0
            sleeper.shutdown()

        coro.run(main)
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
