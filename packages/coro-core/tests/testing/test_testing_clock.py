"""coro.testing: the virtual clock, and waiting until everybody is blocked."""

import threading
import time

import pytest
from support import ok, program

import coro
from coro import testing
from coro._clock import ticks as _ticks


@pytest.fixture(autouse=True)
def clean(leaves_nothing):
    yield


def run(function, *args):
    return coro.run(function, *args)


def test_time_stands_still_until_it_is_told_to_move():
    log = []

    def sleeper(seconds):
        coro.sleep_relative(seconds)
        log.append(seconds)

    def main():
        with testing.virtual_clock() as clock:
            for seconds in (10, 20, 30):
                coro.spawn(sleeper, seconds)
            testing.wait_all_blocked()
            assert log == [] and clock.elapsed == 0
            clock.advance(19.999)
            testing.wait_all_blocked()
            assert log == [10]
            clock.advance(20)
            testing.wait_all_blocked()
            assert log == [10, 20, 30]
            assert clock.elapsed == pytest.approx(39.999)
            assert clock.jumps == 0

    run(main)


def test_a_move_of_the_clock_is_no_latency_of_the_thread_that_made_it():
    outcome = program("""
        import coro
        from coro import testing
        def main():
            with testing.virtual_clock(start=3600) as clock:
                clock.advance(3600)
                coro.yield_slice()
                clock.run_for(3600)
            coro.yield_slice()
        coro.run(main)
    """)
    assert (outcome.code, outcome.err) == (0, "")


def test_advance_moves_everything_that_tells_the_time():
    def main():
        real = time.time()
        with testing.virtual_clock() as clock:
            ticks, usec, now, now_usec = coro.get_now(), coro.get_usec(), coro.now, coro.now_usec
            assert abs(usec / 1e6 - real) < 60
            clock.advance(100)
            second = coro.ticks_per_sec
            assert (coro.get_now() - ticks) / second == pytest.approx(100)
            assert (coro.get_usec() - usec) / 1e6 == pytest.approx(100, abs=1e-5)
            assert (coro.now - now) / second == pytest.approx(100, abs=0.1)
            assert (coro.now_usec - now_usec) / 1e6 == pytest.approx(100, abs=0.1)
        assert abs(coro.get_usec() / 1e6 - time.time()) < 60

    run(main)


def test_limits_follow_the_virtual_clock():
    def main():
        with testing.virtual_clock(autojump=True) as clock:
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(100, coro.sleep_relative, 200)
            assert clock.elapsed == pytest.approx(100)
            with pytest.raises(coro.TimeoutError), coro.timeout(50):
                coro._yield()
            assert clock.elapsed == pytest.approx(150)
            coro.sleep_absolute(coro.get_now() + coro.ticks_per_sec * 7)
            assert clock.elapsed == pytest.approx(157)

    run(main)


def test_autojump_takes_one_timer_after_the_other_and_no_real_time():
    log = []

    def ticker(name, period, times):
        for _ in range(times):
            coro.sleep_relative(period)
            log.append((name, round(clock.elapsed, 6)))

    def main():
        threads = [coro.spawn(ticker, "a", 3600, 3), coro.spawn(ticker, "b", 5000, 2)]
        for t in threads:
            t.join()

    begin = time.monotonic()
    with testing.virtual_clock(autojump=True) as clock:
        run(main)
    assert time.monotonic() - begin < 30
    assert log == [("a", 3600), ("b", 5000), ("a", 7200), ("b", 10000), ("a", 10800)]
    assert clock.jumps == 5


def test_autojump_lets_data_in_flight_come_first():
    def main():
        a, b = coro.socketpair()
        with a, b, testing.virtual_clock(autojump=True) as clock:

            def echo():
                while data := a.recv(100):
                    a.send(data)

            t = coro.spawn(echo)
            for i in range(50):
                b.send(b"%d" % i)
                assert coro.with_timeout(1, b.recv, 100) == b"%d" % i
            assert clock.elapsed == 0
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(1, b.recv, 100)
            assert clock.elapsed == pytest.approx(1)
            b.close()
            t.join()

    run(main)


def test_autojump_waits_for_worker_os_threads():
    def main():
        with testing.virtual_clock(autojump=True) as clock:
            assert coro.with_timeout(1000, coro.in_thread, time.sleep, 0.05) is None
            assert clock.elapsed == 0

    from coro import offload

    before = offload.set_max_workers(1)
    try:
        run(main)
    finally:
        offload.set_max_workers(before)


def test_autojump_may_wait_for_quiet_in_real_time():
    def main():
        with testing.virtual_clock(autojump=0.05) as clock:
            begin = time.monotonic()
            coro.sleep_relative(1000)
            assert 0.04 < time.monotonic() - begin < 30
            assert clock.autojump == 0.05
            clock.autojump = False
            assert clock.autojump is False
            clock.autojump = True
            assert clock.autojump is True
            coro.sleep_relative(1000)
            assert clock.elapsed == pytest.approx(2000)

    run(main)


def test_run_for_goes_from_timer_to_timer():
    log = []

    def beat():
        while True:
            coro.sleep_relative(1)
            log.append(round(clock.elapsed, 6))

    def main():
        nonlocal clock
        with testing.virtual_clock() as clock:
            t = coro.spawn(beat)
            clock.run_for(4.5)
            assert log == [1, 2, 3, 4]
            assert clock.elapsed == pytest.approx(4.5)
            clock.run_for(0)
            clock.run_for(0.5)
            assert log == [1, 2, 3, 4, 5]
            t.shutdown()
            coro.yield_slice()
            clock.run_for(100)
            assert clock.elapsed == pytest.approx(105)

    clock = None
    run(main)


def test_limits_from_before_the_block_go_on_by_the_real_clock():
    def main():
        with coro.timeout(1000) as limit:
            with testing.virtual_clock(autojump=True):
                coro.sleep_relative(900)
            coro.sleep_relative(0.001)
        assert not limit.expired

    run(main)


@pytest.mark.parametrize("wrong", [lambda: testing.virtual_clock(autojump=-1), lambda: testing.virtual_clock(start=-1)])
def test_nonsense_is_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        wrong()


def test_misuse_is_refused():
    clock = testing.virtual_clock()
    for call in (clock.advance, clock.run_for):
        with pytest.raises(RuntimeError, match="not in use"):
            call(1)
    with clock:
        with pytest.raises(ValueError, match="never goes back"):
            clock.advance(-1)
        with pytest.raises(ValueError, match="never goes back"):
            clock.advance(float("nan"))
        with pytest.raises(RuntimeError, match="already installed"), testing.virtual_clock():
            pass
        clock.advance(1)
        with pytest.raises(coro.YieldFromMain):
            clock.run_for(1)
    assert not _ticks.virtual_is_installed()
    with pytest.raises(ValueError, match="cushion"):
        testing.wait_all_blocked(-1)
    with pytest.raises(coro.YieldFromMain):
        testing.wait_all_blocked()


def test_a_start_may_be_given():
    with testing.virtual_clock(start=5):
        assert coro.get_now() / coro.ticks_per_sec == pytest.approx(5)


def test_a_loop_ends_under_a_clock_that_stands_still():
    """The grace period passes though nobody advances the clock."""

    def stubborn():
        a, b = coro.socketpair()
        with a, b:
            while True:
                try:
                    a.recv(1)
                except coro.Shutdown:
                    if coro.get_now() > late:
                        raise

    def main():
        coro.spawn(stubborn)
        coro.yield_slice()

    with testing.virtual_clock() as clock:
        late = coro.get_now() + coro.ticks_per_sec
        begin = time.monotonic()
        run(main)
        assert clock.elapsed >= 5
    assert time.monotonic() - begin < 4


def test_a_clock_that_nobody_can_advance_is_a_deadlock():
    assert ok("""
        import coro
        from coro import testing
        def main():
            other = coro.spawn(coro.sleep_relative, 7, thread_name="other")
            with testing.virtual_clock():
                try:
                    coro.sleep_relative(5)
                except coro.DeadlockError as e:
                    print("nobody is left to call advance" in str(e), len(e.threads))
            other.shutdown()
        coro.run(main)
        def second():
            coro.sleep_relative(1)
        try:
            with testing.virtual_clock():
                coro.run(second)
        except coro.DeadlockError as e:
            print("autojump=True" in str(e))
        """) == ["True 2", "True"]


def test_deadlocks_without_timers_are_found_as_ever():
    assert ok("""
        import coro
        from coro import testing
        for autojump in (True, False):
            with testing.virtual_clock(autojump=autojump):
                try:
                    coro.run(coro._yield)
                except coro.DeadlockError as e:
                    print("the only thread" in str(e))
        """) == ["True", "True"]


# -- waiting until all are blocked


def test_wait_all_blocked_waits_for_runnable_threads_only():
    log = []

    def busy(n):
        for _ in range(n):
            coro.yield_slice()
        log.append(n)

    def main():
        coro.spawn(busy, 5)
        coro.spawn(busy, 50)
        blocked = coro.spawn(coro._yield)
        sleeping = coro.spawn(coro.sleep_relative, 1000)
        testing.wait_all_blocked()
        assert log == [5, 50]
        for t in (blocked, sleeping):
            t.shutdown()

    run(main)


def test_several_may_wait_and_all_go_on():
    log = []

    def waiter(name):
        testing.wait_all_blocked()
        log.append(name)

    def main():
        for name in "abc":
            coro.spawn(waiter, name)
        testing.wait_all_blocked()
        log.append("main")
        coro.yield_slice()
        assert sorted(log) == ["a", "b", "c", "main"]

    run(main)


def test_a_cushion_waits_for_peers_outside():
    def main():
        a, b = coro.socketpair()
        gate = threading.Event()
        log = []
        with a, b:
            t = coro.spawn(lambda: log.append(a.recv(10)))
            coro.spawn(lambda: (coro.in_thread(gate.wait), b.send(b"late")))
            testing.wait_all_blocked()
            assert log == []
            gate.set()
            testing.wait_all_blocked(cushion=0.2)
            assert log == [b"late"]
            t.join()

    run(main)


def test_a_smaller_cushion_goes_first_and_jumps_come_between():
    log = []

    def main():
        with testing.virtual_clock(autojump=True):

            def sleeper():
                coro.sleep_relative(10)
                log.append("slept")

            def long():
                testing.wait_all_blocked(cushion=0.02)
                log.append("long")

            threads = [coro.spawn(long), coro.spawn(sleeper)]
            testing.wait_all_blocked()
            log.append("short")
            for t in threads:
                t.join()

    run(main)
    assert log == ["short", "slept", "long"]


def test_an_interrupted_wait_leaves_nothing():
    def main():
        t = coro.spawn(testing.wait_all_blocked, 1000)
        coro.yield_slice()
        assert "all other threads" in repr(t.waiting_for)
        t.schedule()  # a wake-up that means nothing
        coro.yield_slice()
        assert not t.dead
        t.shutdown()
        t.join()
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, testing.wait_all_blocked, 1000)

    run(main)
    from coro.testing import _idle

    assert _idle._watchers == []
