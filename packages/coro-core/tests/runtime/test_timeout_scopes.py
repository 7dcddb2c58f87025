"""Time limits of blocks (coro.timeout), protected clean-up (coro.shield), and sleeping.

Most tests use a clock that moves only when told; the few that measure real time use milliseconds.
"""

import contextlib
import socket
import time
import weakref

import pytest
from support import advance, virtual_clock

import coro
from coro._clock import ticks as _ticks

pytestmark = pytest.mark.poller


@pytest.fixture
def clock():
    with virtual_clock():
        yield


def later(seconds):
    """Move the clock and let the loop look at it."""
    advance(seconds)
    coro.yield_slice()
    coro.yield_slice()


# -------------------------------------------------------------------------------- coro.move_on_after


def test_a_limit_that_does_not_raise(clock):
    log = []

    def victim():
        with coro.move_on_after(1) as scope:
            coro._yield()
            log.append("not reached")
        assert scope.expired
        with scope:  # may be used again
            log.append("in time")
        assert not scope.expired
        with pytest.raises(KeyError), scope:
            raise KeyError
        assert not scope.expired

    def main():
        t = coro.spawn(victim)
        coro.yield_slice()
        later(2)
        t.get()
        assert log == ["in time"]

    coro.run(main)


@pytest.mark.parametrize("inner, outer", [("timeout", "move_on_after"), ("move_on_after", "timeout")])
def test_nested_limits_of_both_kinds(clock, inner, outer):
    def victim(first, second):
        with pytest.raises(coro.TimeoutError) if "timeout" in reached(first, second) else contextlib.nullcontext():
            with getattr(coro, outer)(second) as out, getattr(coro, inner)(first) as within:
                coro._yield()
        assert (within.expired, out.expired) == (first < second, second < first)

    def reached(first, second):
        return [inner if first < second else outer]

    def main():
        for limits in ((1, 2), (2, 1)):
            t = coro.spawn(victim, *limits)
            coro.yield_slice()
            later(1.5)
            t.get()

    coro.run(main)


def test_a_shutdown_goes_through_a_limit_that_does_not_raise(clock):
    def victim():
        with coro.move_on_after(1) as scope:
            scopes.append(scope)
            coro._yield()

    scopes = []

    def main():
        t = coro.spawn(victim)
        coro.yield_slice()
        t.shutdown()
        t.join()
        assert isinstance(t.exception, coro.Shutdown)
        assert not scopes[0].expired

    coro.run(main)


def test_a_generator_carries_a_limit_that_does_not_raise(clock):
    def numbers():
        with coro.move_on_after(1) as scope:
            scopes.append(scope)
            while True:
                yield 1

    scopes = []

    def main():
        g = numbers()
        next(g)
        advance(2)
        with pytest.raises(coro.Interrupted) as info:  # strikes where the thread waits, outside of the block
            later(0)
        with pytest.raises(StopIteration):
            g.throw(info.value)
        assert scopes[0].expired
        g = numbers()
        next(g)
        g.close()
        later(2)
        coro.yield_slice()  # closing it has ended the limit
        assert not scopes[1].expired

    coro.run(main)


@pytest.mark.parametrize("wrong, error", [("1", TypeError), (None, TypeError), (float("nan"), ValueError)])
def test_what_a_limit_that_does_not_raise_refuses(wrong, error):
    with pytest.raises(error, match="number of seconds"):
        coro.move_on_after(wrong)


# -------------------------------------------------------------------------------- coro.sleep


def test_sleep(clock):
    def main():
        log = []
        t = coro.spawn(lambda: coro.sleep(1.5) or log.append("awake"))
        coro.spawn(log.append, "other")
        coro.sleep(0)
        assert log == ["other"]
        later(1)
        assert not log[1:]
        later(1)
        assert log == ["other", "awake"]
        t.join()
        for wrong, error in (("1", TypeError), (None, TypeError), (-1, ValueError), (float("nan"), ValueError)):
            with pytest.raises(error, match="number of seconds"):
                coro.sleep(wrong)

    coro.run(main)


def test_sleep_without_a_loop():
    before = time.monotonic()
    coro.sleep(0.01)
    assert time.monotonic() - before >= 0.01
    coro.sleep(0)
    with pytest.raises(ValueError, match="at least 0"):
        coro.sleep(-1)


# -------------------------------------------------------------------------------- coro.timeout


def test_the_block_form(clock):
    def victim():
        with pytest.raises(coro.TimeoutError) as info, coro.timeout(1) as scope:
            coro._yield()
        assert scope.expired
        assert type(info.value.__context__) is coro.Interrupted
        with scope:  # may be used again
            pass
        assert not scope.expired

    def main():
        t = coro.spawn(victim)
        coro.yield_slice()
        later(2)
        t.join()
        assert t.exception is None

    coro.run(main)


def test_a_scope_is_not_entered_twice(clock):
    def main():
        with coro.timeout(1) as scope:
            with pytest.raises(RuntimeError, match="in use"), scope:
                pass
        with coro.shield(1) as scope:
            with pytest.raises(RuntimeError, match="in use"), scope:
                pass
        with coro.no_switch() as scope:
            with pytest.raises(RuntimeError, match="in use"), scope:
                pass
        coro.yield_slice()

    coro.run(main)


def test_scopes_without_a_thread():
    for scope in (coro.timeout(1), coro.shield(1)):
        with pytest.raises(coro.YieldFromMain), scope:
            pass


def generator(log, seconds):
    with coro.timeout(seconds) as scope:
        while True:
            try:
                yield scope
            except GeneratorExit:
                log.append("closed")
                raise


def test_a_generator_that_yields_inside_a_scope_leaves_the_limit_on_for_its_thread(clock):
    """What the documentation says of scopes that are open across a yield: the limit belongs to the thread, not to the
    generator. When it strikes the consumer, no with block is there to turn it into a TimeoutError."""
    log = []

    def consumer():
        g = generator(log, 1)
        scope = next(g)
        try:
            coro._yield()
        except coro.Interrupted as exc:
            assert type(exc) is coro.Interrupted
            log.append("struck outside")
        g.close()
        assert not scope.expired
        coro.yield_slice()

    def main():
        t = coro.spawn(consumer)
        coro.yield_slice()
        later(2)
        t.join()
        assert t.exception is None

    coro.run(main)
    assert log == ["struck outside", "closed"]


def test_a_generator_that_is_closed_in_time_takes_its_limit_along(clock):
    log = []

    def main():
        g = generator(log, 1)
        next(g)
        del g
        assert log == ["closed"]
        later(2)
        assert coro.statistics().timers == 0

    coro.run(main)


def test_a_scope_carried_to_another_thread_is_closed_for_the_thread_that_opened_it(clock):
    log = []

    def opener(box):
        g = generator(log, 1)
        next(g)
        box.append(g)
        coro._yield()
        return "not interrupted"

    def main():
        box = []
        t = coro.spawn(opener, box)
        coro.yield_slice()
        box.pop().close()
        later(2)
        t.schedule()
        t.join()
        assert t.result == "not interrupted"
        coro.yield_slice()

    coro.run(main)
    assert log == ["closed"]


def test_a_scope_outlives_the_thread_that_opened_it(clock):
    box = []

    def opener():
        g = generator([], 1)
        next(g)
        box.append(g)

    def main():
        t = coro.spawn(opener)
        t.join()
        gone = weakref.ref(t)
        later(2)
        box.pop().close()
        del t
        coro.yield_slice()
        coro.yield_slice()
        assert gone() is None

    coro.run(main)


# -------------------------------------------------------------------------------- shield


def test_shutdown_waits_for_the_end_of_a_shield(clock):
    log = []

    def victim():
        with coro.shield(10):
            coro._yield()
            log.append("cleaned up")
        log.append("left")
        coro._yield()
        log.append("not reached")

    def main():
        t = coro.spawn(victim)
        coro.yield_slice()
        t.shutdown()
        coro.yield_slice()
        assert log == []
        t.schedule()
        t.join()
        assert isinstance(t.exception, coro.Shutdown)

    coro.run(main)
    assert log == ["cleaned up", "left"]


def test_outer_timeouts_wait_for_the_end_of_a_shield_and_inner_ones_do_not(clock):
    log = []

    def victim():
        with pytest.raises(coro.TimeoutError), coro.timeout(1):
            with coro.shield(100):
                with pytest.raises(coro.TimeoutError), coro.timeout(5):
                    coro._yield()
                log.append("inner")
                coro._yield()
                log.append("cleaned up")
            coro._yield()
        log.append("outer")

    def main():
        t = coro.spawn(victim)
        coro.yield_slice()
        later(2)
        assert log == []
        later(4)
        assert log == ["inner"]
        t.schedule()
        t.join()

    coro.run(main)
    assert log == ["inner", "cleaned up", "outer"]


def test_a_shield_has_its_own_limit(clock):
    def victim():
        with pytest.raises(coro.TimeoutError), coro.shield(1):
            coro._yield()
        return "limited"

    def main():
        t = coro.spawn(victim)
        coro.yield_slice()
        t.shutdown()
        later(2)
        t.join()
        return t.result

    assert coro.run(main) == "limited"


def test_exceptions_of_users_arrive_inside_a_shield(clock):
    log = []

    def victim():
        with coro.shield(10):
            for _ in range(2):
                try:
                    coro._yield()
                except ValueError:
                    log.append("ValueError")
            log.append("cleaned up")

    def main():
        t = coro.spawn(victim)
        coro.yield_slice()
        t.raise_exception(ValueError)
        t.shutdown()
        t.raise_exception(ValueError)
        t.join()

    coro.run(main)
    assert log == ["ValueError", "ValueError", "cleaned up"]


def test_shields_nest(clock):
    log = []

    def victim():
        with coro.shield(10):
            with coro.shield(10):
                coro._yield()
            coro._yield()
            log.append("still shielded")
        coro._yield()

    def main():
        t = coro.spawn(victim)
        coro.yield_slice()
        t.shutdown()
        for _ in range(2):
            t.schedule()
            coro.yield_slice()
        t.join()

    coro.run(main)
    assert log == ["still shielded"]


# -------------------------------------------------------------------------------- sleeping


def test_sleeps_end_in_order_of_their_time(clock):
    log = []

    def sleeper(seconds):
        coro.sleep_relative(seconds)
        log.append(seconds)

    def main():
        threads = [coro.spawn(sleeper, s) for s in (5, 1, 3, 2, 4)]
        coro.yield_slice()
        for _ in range(5):
            later(1)
        for t in threads:
            t.join()

    coro.run(main)
    assert log == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("sleep", [lambda: coro.sleep_relative(-3), lambda: coro.sleep_absolute(-3)])
def test_times_gone_by_let_the_others_run_once(sleep):
    log = []

    def main():
        coro.spawn(log.append, 1)
        assert sleep() is None
        return list(log)

    assert coro.run(main) == [1]


def test_sleep_absolute():
    def main():
        before = time.monotonic()
        coro.sleep_absolute(coro.get_now() + _ticks.from_duration(0.005))
        assert time.monotonic() - before >= 0.0049
        t = coro.spawn(coro.sleep_absolute, 10**40)
        coro.yield_slice()
        assert not t.dead
        t.shutdown()
        for wrong in (1.5, "1", None):
            with pytest.raises(TypeError, match="ticks"):
                coro.sleep_absolute(wrong)

    coro.run(main)


def test_a_sleep_is_never_too_short():
    def main():
        for ms in (1, 2, 5, 10):
            before = time.monotonic_ns()
            coro.sleep_relative(ms / 1000)
            assert time.monotonic_ns() - before >= ms * 1_000_000 - 1000

    coro.run(main)


def test_short_sleeps_do_not_spin():
    """200 sleeps of 0.9 ms: one poll each that waits, and next to no CPU time."""

    def main():
        before = coro.statistics()
        cpu = time.process_time()
        for _ in range(200):
            coro.sleep_relative(0.0009)
        after = coro.statistics()
        return after.polls - before.polls, time.process_time() - cpu, after.timers_fired - before.timers_fired

    polls, cpu, fired = coro.run(main)
    assert fired == 200
    assert polls <= 210
    assert cpu < 0.1


def test_an_interruption_at_the_moment_of_expiry_is_not_lost(clock):
    log = []

    def sleeper():
        try:
            coro.sleep_relative(1)
            log.append("slept")
            coro.yield_slice()
        except ValueError:
            log.append("interrupted")

    def main():
        t = coro.spawn(sleeper)
        coro.yield_slice()
        advance(1)

        def send():
            assert t.scheduled
            t.raise_exception(ValueError)

        hit = coro.spawn(lambda: (coro.sleep_relative(0), send()))
        coro.yield_slice()
        hit.join()
        t.join()

    coro.run(main)
    assert log[-1] == "interrupted"


def test_a_descriptor_in_the_pass_of_the_deadline_wins_or_loses_whole():
    """Whatever the outcome, the next wait on the socket works."""
    a, b = socket.socketpair()

    def main():
        outcomes = set()
        for n in range(50):
            b.send(b"x")
            try:
                coro.with_timeout(n * 1e-6, coro.wait_for, a, coro.EVFILT.READ)
                outcomes.add("ready")
            except coro.TimeoutError:
                outcomes.add("timeout")
            assert a.recv(10)
        return outcomes

    assert coro.run(main) <= {"ready", "timeout"}
    a.close()
    b.close()
