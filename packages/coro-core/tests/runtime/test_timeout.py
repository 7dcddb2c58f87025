"""Time limits of calls: with_timeout.

Most tests use a clock that moves only when told.
"""

import traceback

import pytest
from support import advance, virtual_clock

import coro

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


# -------------------------------------------------------------------------------- with_timeout


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


def test_a_busy_socket_does_not_outrun_its_timeout(clock):
    """Data is there at every poll, and the limit strikes within a turn or two of the moment it is over."""
    a, b = coro.socketpair()
    turns = []

    def echo(s):
        while True:
            s.send(s.recv(10))
            turns.append(s)
            if len(turns) == 200:
                advance(10)
            assert len(turns) < 1000

    def main():
        t = coro.spawn(echo, b)
        a.send(b"x")
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(5, echo, a)
        took = len(turns)
        t.shutdown()
        t.join()
        return took

    took = coro.run(main)
    a.close()
    b.close()
    assert 200 <= took <= 204


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


@pytest.mark.parametrize("wrong", ["1", None, [], object(), 1j, float, b"1", True])
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
        def __init__(self, value):
            self.value = value

        def __float__(self):
            return self.value

    def main():
        for number in (Decimal("60"), Number(60.0)):
            with coro.timeout(number):
                coro.yield_slice()
        for number in (Decimal("0.001"), Fraction(0), Number(0.001)):
            coro.sleep_relative(number)

    coro.run(main)
