"""coro.rate_limiter: how many in which time, in which order, and what an interruption leaves behind."""

import pytest
from support import in_jumping_loop, in_jumping_run

import coro
import coro.testing


def now():
    return coro.get_now() / coro.ticks_per_sec


@in_jumping_loop
def test_so_many_a_second():
    limiter, began = coro.rate_limiter(10, burst=5), now()
    for _ in range(45):
        limiter.acquire()
    assert 4.0 <= now() - began < 4.5  # 5 at once, and 40 more in 4 seconds
    coro.sleep(100)
    assert limiter.statistics() == (5.0, 0, 45)


@in_jumping_loop
def test_rates_below_one_and_blocks():
    limiter, began = coro.rate_limiter(1, per=60), now()
    assert limiter.burst == 1
    for _ in range(3):
        with limiter:
            pass
    assert 119.999 < now() - began < 121  # a sum of seconds since the machine started is rounded
    assert coro.rate_limiter(2.5).burst == 3 and coro.rate_limiter(0.1).burst == 1


@in_jumping_loop
def test_first_come_first_served():
    limiter, log = coro.rate_limiter(1, burst=3), []
    limiter.acquire(3)

    def want(name, n):
        limiter.acquire(n)
        log.append(name)

    threads = [coro.spawn(want, *who) for who in (("big", 3), ("small", 1), ("other", 1))]
    coro.sleep(0.5)
    assert limiter.acquire(blocking=False) is False
    coro.sleep(2.1)
    assert limiter.acquire(blocking=False) is False  # there are two, but somebody is waiting
    assert limiter.statistics().waiting == 3
    coro.wait(threads)
    assert log == ["big", "small", "other"]


@in_jumping_loop
def test_interruptions_cost_no_token_and_no_place():
    limiter, log = coro.rate_limiter(1), []
    limiter.acquire()

    def want(name):
        limiter.acquire()
        log.append((name, round(now() - began)))

    began = now()
    threads = [coro.spawn(want, name) for name in "abc"]
    coro.sleep(0.5)
    threads[0].shutdown()
    coro.wait(threads)
    assert log == [("b", 1), ("c", 2)]


@in_jumping_loop
def test_limits():
    limiter = coro.rate_limiter(1)
    assert limiter.acquire(timeout=0) is True
    for seconds in (0, -1):
        before = coro.get_now()
        with pytest.raises(coro.TimeoutError, match="rate_limiter"):
            limiter.acquire(timeout=seconds)
        assert coro.get_now() == before
    with pytest.raises(coro.TimeoutError, match=r"0\.5 s"):
        limiter.acquire(timeout=0.5)
    assert limiter.acquire(timeout=1) is True
    with coro.move_on_after(0.5) as scope:
        limiter.acquire(timeout=2)
    assert scope.expired


def test_without_a_loop():
    limiter = coro.rate_limiter(1)
    assert limiter.acquire() is True
    assert limiter.acquire(blocking=False) is False
    with pytest.raises(coro.YieldFromMain):
        limiter.acquire(timeout=1)
    assert "1 in 1 s" in repr(limiter)


def test_what_is_refused():
    for arguments, error in (
        (("1",), TypeError),
        ((True,), TypeError),
        ((0,), ValueError),
        ((float("inf"),), ValueError),
        ((float("nan"),), ValueError),
        ((1, 0), ValueError),
        ((1, "1"), TypeError),
        ((1, 1, 0), ValueError),
        ((1, 1, 1.5), TypeError),
    ):
        with pytest.raises(error):
            coro.rate_limiter(*arguments)
    limiter = coro.rate_limiter(5)
    for n, error in ((6, ValueError), (-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="tokens"):
            limiter.acquire(n)
    with pytest.raises(TypeError, match="number of seconds"):
        limiter.acquire(timeout="1")
    with pytest.raises(ValueError, match="contradict"):
        limiter.acquire(timeout=1, blocking=False)


@in_jumping_run
def test_other_os_threads_are_refused():
    limiter = coro.rate_limiter(1)
    with pytest.raises(coro.WrongThreadError):
        coro.in_thread(limiter.acquire)
    assert limiter.statistics().taken == 0


def test_a_virtual_clock_that_was_ahead_leaves_no_debt():
    limiter = coro.rate_limiter(1, burst=2)

    def use():
        with coro.testing.virtual_clock(autojump=True):
            for _ in range(50):
                limiter.acquire()

    coro.run(use)
    assert limiter.statistics().tokens >= 0
