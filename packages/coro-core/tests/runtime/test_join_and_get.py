"""What becomes of a thread, asked by others: join() and get(), with and without a limit."""

import traceback

import pytest
from support import in_jumping_run

import coro


def quietly(function, *args):
    """Spawn a thread whose error nobody else is told of."""
    coro.set_exception_notifier(lambda: None)
    return coro.spawn(function, *args)


@pytest.fixture(autouse=True)
def default_notifier():
    yield
    coro.set_exception_notifier(None)


@in_jumping_run
def test_get_returns_the_result():
    t = coro.spawn(lambda: coro.sleep(3) or "done")
    others = [coro.spawn(t.get) for _ in range(3)]
    assert t.get() == "done"
    assert t.get() == "done"
    assert [o.get(timeout=1) for o in others] == ["done"] * 3
    assert coro.spawn(print, end="").get() is None


@in_jumping_run
def test_get_raises_the_very_exception():
    def fail():
        coro.sleep(1)
        raise ValueError("no")

    t = quietly(fail)
    for _ in range(2):
        with pytest.raises(ValueError, match="no") as info:
            t.get()
        assert info.value is t.exception
    names = [frame.name for frame in traceback.extract_tb(info.value.__traceback__)]
    assert "fail" in names  # where it happened is still to be seen


@in_jumping_run
def test_get_of_a_thread_that_has_no_result():
    t = coro.spawn(coro.sleep, 9)
    coro.yield_slice()
    t.shutdown()
    with pytest.raises(coro.CancelledError, match="was shut down") as info:
        t.get()
    assert info.value.args == (t,) and isinstance(info.value.__cause__, coro.Shutdown)
    t = coro.spawn(coro.sleep, 9)
    t.shutdown()
    with pytest.raises(coro.CancelledError, match="before it ran"):
        t.get()


@in_jumping_run
def test_limits_of_join_and_get():
    t = coro.spawn(lambda: coro.sleep(5) or 1)
    before = coro.get_now()
    for call, name in ((t.join, "join"), (t.get, "get")):
        for seconds in (0, -1):
            with pytest.raises(coro.TimeoutError, match=rf"{name}\(\) would have to wait"):
                call(timeout=seconds)
        assert coro.get_now() == before
        with pytest.raises(coro.TimeoutError, match=rf"{name}\(\).*timeout of 1 s"):
            call(1)
        before = coro.get_now()
        with pytest.raises(TypeError, match="number of seconds"):
            call("1")
        with pytest.raises(ValueError, match="NaN"):
            call(float("nan"))
    with pytest.raises(coro.TimeoutError) as info, coro.timeout(1):  # that of the block is nearer
        t.get(timeout=2)
    assert "get()" not in str(info.value)
    assert t.get(timeout=10) == 1
    assert t.join(timeout=0) is None
    with pytest.raises(TypeError):
        t.join(timeout="also of a dead one")


@in_jumping_run
def test_a_thread_does_not_wait_for_itself():
    me = coro.current()
    for call in (me.join, me.get):
        with pytest.raises(AssertionError, match="own end"):
            call()
        with pytest.raises(AssertionError, match="own end"):
            call(timeout=1)


@in_jumping_run
def test_one_that_is_started_later_is_waited_for():
    t = coro.new(lambda: 7)
    with pytest.raises(coro.TimeoutError):
        t.get(timeout=1)
    w = coro.spawn(t.get)
    coro.yield_slice()
    t.start()
    assert w.get() == 7


@in_jumping_run
def test_an_interrupted_get_harms_nobody():
    t = coro.spawn(lambda: coro.sleep(5) or 1)
    waiters = [coro.spawn(t.get, n) for n in (None, 100, None)]
    coro.yield_slice()
    waiters[0].shutdown()
    waiters[1].shutdown()
    coro.wait(waiters[:2])
    assert waiters[2].get() == 1
    assert all(isinstance(w.exception, coro.Shutdown) for w in waiters[:2])


@in_jumping_run
def test_the_outcome_of_a_groups_child():
    with pytest.raises(ExceptionGroup) as info, coro.group() as g:
        good = g.spawn(lambda: "fine")
        coro.yield_slice()
        bad = g.spawn(lambda: 1 / 0)
        coro.sleep(1)
    assert good.get() == "fine"
    with pytest.raises(ZeroDivisionError) as raised:
        bad.get()
    assert raised.value is info.value.exceptions[0] is bad.exception
    assert bad.result is None


def test_get_outside_of_the_loop():
    threads = []
    coro.run(lambda: threads.append(coro.spawn(lambda: 3)))
    assert threads[0].get() == 3
    with pytest.raises(coro.YieldFromMain):
        coro.new(print).get()
    with pytest.raises(coro.TimeoutError):
        coro.new(print).get(timeout=0)
