"""Time limits and sleeping: with_timeout, coro.timeout, coro.shield, sleep_relative, sleep_absolute.

Most tests use a clock that moves only when told; the few that measure real time use milliseconds.
"""

import socket
import time
import traceback
import weakref

import pytest
from support import advance, virtual_clock

import coro
from coro import _ticks


@pytest.fixture
def clock():
    with virtual_clock():
        yield


def later(seconds):
    """Move the clock and let the loop look at it."""
    advance(seconds)
    coro.yield_slice()
    coro.yield_slice()


# ------------------------------------------------------------------------------------------------- with_timeout


def test_a_result_in_time_is_returned(clock):
    def f(*args, **kwargs):
        coro.sleep_relative(0)
        return args, kwargs

    def main():
        return coro.with_timeout(5, f, 1, delta=2, function=3)

    assert coro.run(main) == ((1,), {"delta": 2, "function": 3})
    assert coro.statistics().timers == 0


def test_expiry_raises_timeout_error_with_the_blocked_call_as_context(clock):
    def inner():
        coro._yield()

    def victim():
        with pytest.raises(coro.TimeoutError) as info:
            coro.with_timeout(5, inner)
        assert info.value.args == ()
        assert info.value.__suppress_context__
        cause = info.value.__context__
        assert type(cause) is coro.Interrupted
        names = [f.name for f in traceback.extract_tb(cause.__traceback__) if f.filename == __file__]
        assert names == ["inner"]
        return "timed out"

    def main():
        t = coro.spawn(victim)
        coro.yield_slice()
        later(4.9)
        assert not t.dead
        later(0.2)
        assert t.dead
        return t.result

    assert coro.run(main) == "timed out"


@pytest.mark.parametrize("delta", [0, 0.0, -1, -1e300, float("-inf"), -(10**400)])
@pytest.mark.parametrize("call", [(coro.sleep_relative, 0), (coro.yield_slice,), (coro._yield,)])
def test_no_time_at_all(delta, call):
    def main():
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(delta, *call)
        with pytest.raises(coro.TimeoutError), coro.timeout(delta):
            call[0](*call[1:])
        return coro.with_timeout(delta, int, "5")  # never blocks, is never interrupted

    assert coro.run(main) == 5


@pytest.mark.parametrize("delta", [1e300, float("inf"), 10**400])
def test_all_the_time_in_the_world(delta):
    def main():
        with coro.timeout(delta):
            coro.yield_slice()
        return coro.with_timeout(delta, coro.yield_slice)

    assert coro.run(main) is None


def test_only_the_scope_that_expired_converts(clock):
    log = []

    def inner():
        try:
            coro.with_timeout(10, coro._yield)
        except coro.TimeoutError:
            log.append("inner")
            raise

    def outer():
        try:
            coro.with_timeout(5, inner)
        except coro.TimeoutError:
            log.append("outer")

    def main():
        t = coro.spawn(outer)
        coro.yield_slice()
        later(6)
        t.join()

    coro.run(main)
    assert log == ["outer"]


def test_the_inner_scope_first_then_the_outer(clock):
    log = []

    def body():
        try:
            coro.with_timeout(1, coro._yield)
        except coro.TimeoutError:
            log.append("inner")
        coro._yield()

    def victim():
        try:
            coro.with_timeout(5, body)
        except coro.TimeoutError:
            log.append("outer")

    def main():
        t = coro.spawn(victim)
        coro.yield_slice()
        later(2)
        assert log == ["inner"]
        later(4)
        t.join()

    coro.run(main)
    assert log == ["inner", "outer"]


def test_two_scopes_that_expire_at_once(clock):
    log = []

    def body():
        try:
            coro.with_timeout(1, coro._yield)
        except coro.TimeoutError:
            log.append("inner")
        coro._yield()
        log.append("not reached")

    def victim():
        try:
            coro.with_timeout(1, body)
        except coro.TimeoutError:
            log.append("outer")

    def main():
        t = coro.spawn(victim)
        coro.yield_slice()
        later(2)
        t.join()

    coro.run(main)
    assert log in (["inner", "outer"], ["outer"])


def test_a_thread_that_always_has_something_to_do_times_out_all_the_same(clock):
    """Its wake-ups arrive; the timeout strikes at the suspension after the first one."""
    log = []

    def busy():
        while True:
            log.append(coro._yield())

    def victim():
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(1, busy)
        log.append("out")

    def main():
        t = coro.spawn(victim)
        coro.yield_slice()
        t.schedule("early")
        coro.yield_slice()
        advance(2)
        t.schedule("in the same pass")
        n = 0
        while not t.dead:
            n += 1
            if not t.scheduled:
                t.schedule(n)
            coro.yield_slice()
        assert n <= 3

    coro.run(main)
    assert log[:2] == ["early", "in the same pass"]
    assert log[-1] == "out"


def test_a_busy_socket_does_not_outrun_its_timeout():
    """Data is there at every poll, and the time is over after 5 ms."""
    a, b = coro.socketpair()

    def echo(s):
        while True:
            s.send(s.recv(10))

    def main():
        t = coro.spawn(echo, b)
        a.send(b"x")
        began = time.monotonic()
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.005, echo, a)
        took = time.monotonic() - began
        t.shutdown()
        t.join()
        return took

    took = coro.run(main)
    a.close()
    b.close()
    assert took < 0.5


def test_an_exception_sent_at_the_deadline_does_not_lose_the_timeout(clock):
    log = []

    def body():
        while True:
            try:
                coro._yield()
            except ValueError:
                log.append("ValueError")

    def victim():
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(1, body)
        log.append("timeout")

    def main():
        def send():
            coro.sleep_relative(1)
            assert t.scheduled  # the timer has fired
            t.raise_exception(ValueError)

        sender = coro.spawn(send)
        t = coro.spawn(victim)
        coro.yield_slice()
        later(1)
        t.join()
        assert sender.exception is None

    coro.run(main)
    assert log == ["ValueError", "timeout"]


def test_shutdown_beats_a_timeout(clock):
    log = []

    def victim():
        try:
            coro.with_timeout(1, coro._yield)
        except coro.Interrupted as exc:
            log.append(type(exc))
            raise

    def main():
        coro.spawn(lambda: (coro.sleep_relative(1), t.shutdown()))
        t = coro.spawn(victim)
        coro.yield_slice()
        later(1)
        t.join()

    coro.run(main)
    assert log == [coro.Shutdown]


def test_leaving_the_scope_first_discards_the_timeout(clock):
    def work():
        advance(2)  # over, but we never block
        return 5

    def main():
        assert coro.with_timeout(1, work) == 5
        with coro.timeout(1) as scope:
            work()
        assert not scope.expired
        coro.yield_slice()
        coro.yield_slice()
        assert coro.statistics().timers == 0

    coro.run(main)


def test_a_noted_timeout_is_discarded_with_its_scope(clock):
    def victim():
        coro.with_timeout(1, coro._yield)  # the wake-up comes in the pass in which the timer fires
        coro._yield()
        return "not interrupted"

    def main():
        t = coro.spawn(victim)
        coro.yield_slice()
        advance(2)
        t.schedule()
        coro.yield_slice()
        coro.yield_slice()
        t.schedule()
        t.join()
        return t.result

    assert coro.run(main) == "not interrupted"


def test_a_swallowed_interruption_is_gone(clock):
    def body():
        try:
            coro._yield()
        except coro.Interrupted:
            pass
        coro._yield()
        return "result"

    def main():
        t = coro.spawn(coro.with_timeout, 1, body)
        coro.yield_slice()
        later(2)
        later(2)
        t.schedule()
        t.join()
        return t.result

    assert coro.run(main) == "result"


def test_other_exceptions_pass_through(clock):
    def fail():
        raise KeyError("x")

    def main():
        with pytest.raises(KeyError):
            coro.with_timeout(1, fail)
        with pytest.raises(KeyError), coro.timeout(1):
            fail()
        with pytest.raises(coro.Interrupted) as info:
            coro.with_timeout(1, lambda: (_ for _ in ()).throw(coro.Interrupted("mine")))
        assert type(info.value) is coro.Interrupted
        assert coro.statistics().timers == 0

    coro.run(main)


def test_a_thread_that_ends_takes_its_timers_along(clock):
    def main():
        t = coro.spawn(coro.with_timeout, 10**6, coro.sleep_relative, 10**6)
        coro.yield_slice()
        assert coro.statistics().timers == 2
        t.shutdown()
        t.join()
        assert coro.statistics().timers == 0

    coro.run(main)


def test_two_timeouts_in_a_row_on_one_socket(clock):
    s = coro.tcp_sock()
    s.bind(("127.0.0.1", 0))
    s.listen(5)

    def victim():
        for _ in range(2):
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(1, s.accept)

    def main():
        t = coro.spawn(victim)
        coro.yield_slice()
        later(2)
        later(2)
        t.join()
        assert t.exception is None

    coro.run(main)
    s.close()


@pytest.mark.parametrize("wrong", ["1", None, [], object(), 1j, float, b"1"])
def test_a_limit_that_is_no_number(wrong):
    def main():
        for call in (lambda: coro.with_timeout(wrong, int), lambda: coro.sleep_relative(wrong)):
            with pytest.raises(TypeError, match="number of seconds"):
                call()
        assert coro.statistics().timers == 0

    coro.run(main)
    for kind in (coro.timeout, coro.shield):
        with pytest.raises(TypeError, match="number of seconds"):
            kind(wrong)


def test_a_limit_that_is_nan():
    def main():
        for call in (lambda: coro.with_timeout(float("nan"), int), lambda: coro.sleep_relative(float("nan"))):
            with pytest.raises(ValueError, match="NaN"):
                call()

    coro.run(main)


def test_numbers_of_other_types_are_fine():
    from decimal import Decimal
    from fractions import Fraction

    class Number:
        def __float__(self):
            return 0.001

    def main():
        for number in (Decimal("0.001"), Number(), True):
            with coro.timeout(number):
                coro.yield_slice()
        for number in (Decimal("0.001"), Fraction(0), Number()):
            coro.sleep_relative(number)

    coro.run(main)


# ------------------------------------------------------------------------------------------------- coro.timeout


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


# ------------------------------------------------------------------------------------------------- shield


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


# ------------------------------------------------------------------------------------------------- sleeping


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
