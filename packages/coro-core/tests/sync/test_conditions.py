"""condition_variable, inverted_semaphore, event, latch and barrier: who is woken, and that no wake-up is lost."""

import pytest
from sync_names import Stop, barrier, condition_variable, event, in_loop, inverted_semaphore, latch, settle, start

import coro

# ------------------------------------------------------------------------------------------------- condition_variable


@in_loop
def test_wakes_carry_arguments_in_order_of_waiting():
    c, log = condition_variable(), []
    assert c.wake_one() is False and c.wake_n(3) == 0 and c.wake_all() is None
    threads = [start(log, n, c.wait) for n in range(5)]
    settle()
    assert len(c) == 5 and c.waiting == tuple(c._waiting) == tuple(threads)
    assert c.wake_one((1, 2)) is True
    assert c.wake_n(2, "x") == 2
    assert len(c) == 2
    c.wake_all()
    settle()
    assert log == [(0, (1, 2)), (1, "x"), (2, "x"), (3, ()), (4, ())]
    assert c.statistics() == (0, 5, 3)
    assert c.wake_n(0) == 0
    assert "0 waiting" in repr(c)
    with pytest.raises(ValueError):
        c.wake_n(-1)
    with pytest.raises(TypeError):
        c.wake_n("1")


@in_loop
def test_a_spurious_wake_is_no_wake():
    c, log = condition_variable(), []
    t = start(log, "t", c.wait)
    settle()
    t.schedule("nonsense")
    settle()
    assert log == []
    t.schedule("nonsense")
    assert c.wake_one("real") is True
    t.join()
    assert log == [("t", "real")]


@pytest.mark.parametrize("order", ["interrupt, wake", "wake, interrupt"])
@pytest.mark.parametrize("wake", ["wake_one", "wake_n"])
def test_a_wake_up_that_meets_an_interruption_is_passed_on(order, wake):
    @in_loop
    def test():
        c, log = condition_variable(), []
        threads = [start(log, n, c.wait) for n in range(5)]
        sixth = start(log, "sixth", c.wait)
        settle()
        for step in order.split(", "):
            if step == "wake":
                assert (c.wake_one("a") if wake == "wake_one" else c.wake_n(1, "a")) == 1
            else:
                for t in threads:
                    t.shutdown()
        sixth.join()
        settle()
        assert (
            sorted(log, key=str) == sorted([(n, coro.Shutdown) for n in range(5)] + [("sixth", "a")], key=str)
            and len(c) == 0
        )

    test()


@in_loop
def test_wake_all_is_for_those_who_wait_then():
    c, log = condition_variable(), []
    first = start(log, "first", c.wait)
    settle()
    c.wake_all()
    later = start(log, "later", c.wait)
    first.raise_exception(Stop)
    settle()
    assert log == [("first", Stop)] and len(c) == 1
    later.shutdown()


@in_loop
def test_raise_all_and_the_deprecated_timeout():
    c, log = condition_variable(), []
    for n in range(3):
        start(log, n, c.wait)
    settle()
    c.raise_all(Stop)
    assert len(c) == 0
    settle()
    assert log == [(n, Stop) for n in range(3)]
    with pytest.raises(TypeError, match="exception class or instance"):
        c.raise_all(3)
    with pytest.warns(DeprecationWarning), pytest.raises(coro.TimeoutError):
        c.wait_timeout(0)
    c.raise_all(Stop())


def test_wakes_without_a_loop():
    c = condition_variable()
    c.wake_all()
    assert c.wake_one() is False
    with pytest.raises(coro.YieldFromMain):
        c.wait()
    assert len(c) == 0


# ------------------------------------------------------------------------------------------------- inverted_semaphore


@in_loop
def test_zero_is_remembered_by_those_who_waited_for_it():
    s, log = inverted_semaphore(), []
    s.block_till_zero()
    s.acquire(2)
    threads = [start(log, n, s.block_till_zero) for n in range(2)]
    settle()
    threads[0].schedule()
    settle()
    s.release()
    settle()
    assert log == [] and (s.value, int(s)) == (1, 1) and s.waiting == tuple(threads)
    s.release(1)
    s.acquire(3)  # before they have run
    settle()
    assert log == [(0, None), (1, None)]
    with pytest.raises(ValueError, match="more would be given back"):
        s.release(4)
    assert s.value == 3
    for bad in (-1, 1 << 70):
        with pytest.raises(ValueError):
            s.acquire(bad)
        with pytest.raises(ValueError):
            s.release(bad)
        with pytest.raises(ValueError):
            inverted_semaphore(bad)
    s.release(3)
    with s:
        assert s.value == 1
    assert s.statistics() == (0, 0, 2) and "at 0" in repr(s)


@pytest.mark.parametrize("order", ["interrupt, wake", "wake, interrupt"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: (x := inverted_semaphore(1), x.block_till_zero, x.release),
        lambda: (x := event(), x.wait, x.set),
        lambda: (x := latch(), x.wait, x.count_down),
    ],
)
def test_five_interrupted_the_sixth_goes_on(make, order):
    @in_loop
    def test():
        what, wait, go = make()
        log = []
        threads = [start(log, n, wait) for n in range(5)]
        sixth = start(log, "sixth", wait)
        settle()
        for step in order.split(", "):
            if step == "wake":
                go()
            else:
                for t in threads:
                    t.shutdown()
        sixth.join()
        settle()
        assert (
            sorted(log[:6], key=str) == sorted([(n, coro.Shutdown) for n in range(5)] + [("sixth", None)], key=str)
            and what.waiting == ()
        )

    test()


# ------------------------------------------------------------------------------------------------- event, latch


@in_loop
def test_event():
    e, log = event(), []
    start(log, "t", e.wait, e.is_set)
    settle()
    assert not e.is_set() and e.statistics() == (False, 1, 1) and "not set" in repr(e)
    e.set()
    e.clear()
    settle()
    assert log == [("t", None), ("t", False)]
    e.set()
    e.wait()
    assert e.statistics() == (True, 0, 0)


def test_event_and_latch_without_a_loop():
    for what, go in ((e := event(), e.set), (x := latch(), x.count_down)):
        with pytest.raises(coro.YieldFromMain):
            what.wait()
        go()
        what.wait()
        assert what.waiting == ()


@in_loop
def test_latch():
    x, log = latch(3), []
    start(log, "t", x.wait)
    x.count_down()
    settle()
    assert log == [] and x.missing == 2 and not x.is_open and x.statistics() == (False, 2, 1)
    assert "2 missing" in repr(x)
    x.count_down(5)
    settle()
    assert log == [("t", None)] and x.is_open and "open" in repr(x)
    x.wait()
    assert latch(0).is_open
    with pytest.raises(ValueError):
        latch(-1)
    with pytest.raises(TypeError):
        x.count_down(1.0)


# ------------------------------------------------------------------------------------------------- barrier


@in_loop
def test_barrier_lets_groups_through():
    b, log = barrier(3), []
    for n in range(7):
        start(log, n, b.wait)
    settle()
    assert log == [(2, 2), (0, 0), (1, 1), (5, 2), (3, 0), (4, 1)] or sorted(log) == [(n, n % 3) for n in range(6)]
    assert len(b.waiting) == 1 and b.statistics() == (3, 1, 2) and "1 of 3" in repr(b)
    b.waiting[0].shutdown()
    assert barrier(1).wait() == 0
    with pytest.raises(ValueError):
        barrier(0)


@in_loop
def test_an_interrupted_thread_has_not_come():
    b, log = barrier(2), []
    gone = start(log, "gone", b.wait)
    settle()
    gone.shutdown()
    stays = start(log, "stays", b.wait)
    settle()
    assert log == [("gone", coro.Shutdown)] and b.waiting == (stays,)
    stays.schedule()
    settle()
    assert b.wait() == 1
    stays.join()
    assert log[1:] == [("stays", 0)]


@in_loop
def test_an_interruption_after_the_barrier_opened_harms_nobody():
    b, log = barrier(2), []
    first = start(log, "first", b.wait)
    settle()
    assert b.wait() == 1
    first.raise_exception(Stop)
    settle()
    assert log == [("first", Stop)] and b.waiting == ()
