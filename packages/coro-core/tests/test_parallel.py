"""in_parallel and parallel_map."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest
from support import advance, in_loop, virtual_clock

import coro
from coro.groups import GroupError
from coro.parallel import FAILURE, SUCCESS, InParallelError, in_parallel, parallel_map

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def slowly(n, value):
    for _ in range(n):
        coro.yield_slice()
    return value


def fail(error):
    coro.yield_slice()
    raise error


@in_loop
def test_results_in_order():
    assert in_parallel([(slowly, (3, "a")), (slowly, (1, "b")), (slowly, (2, "c"))]) == ["a", "b", "c"]
    assert in_parallel((int, (str(n),)) for n in range(3)) == [0, 1, 2]


def test_nothing_to_do_does_not_block():
    assert in_parallel([]) == []  # not even a loop is needed
    with pytest.raises(coro.YieldFromMain):
        in_parallel([(int, ())])


@in_loop
def test_three_sleeps_time_out_or_return_in_order():
    """Three sleeps of five seconds: too long for two seconds, not for seven, and a second call works."""

    def sleeper(n):
        coro.sleep_relative(5)
        return n

    def clock():
        for _ in range(40):
            coro.yield_slice()
            advance(0.25)

    calls = [(sleeper, (n,)) for n in range(3)]
    with virtual_clock():
        coro.spawn(clock)
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(2, in_parallel, calls)
        assert coro.with_timeout(7, in_parallel, calls) == [0, 1, 2]
        advance(5)
        while len(coro.all_threads) > 1:
            coro.yield_slice()


@in_loop
def test_failures():
    a, b = ValueError("a"), SystemExit(3)
    with pytest.raises(InParallelError) as e:
        in_parallel([(fail, (a,)), (slowly, (1, 5)), (fail, (b,)), (fail, (coro.Shutdown,))])
    r = e.value.result_list
    assert [what for what, _ in r] == [FAILURE, SUCCESS, FAILURE, FAILURE]
    assert r[0][1][:2] == (ValueError, a)
    assert r[0][1][2].tb_frame.f_code.co_name == "fail"
    assert r[1] == (SUCCESS, 5)
    assert r[2][1][:2] == (SystemExit, b)
    assert r[3][1][0] is coro.Shutdown
    assert e.value.__cause__ is a
    assert "3 of 4" in str(e.value) and "ValueError" in str(e.value)
    assert (SUCCESS, FAILURE) == ("success", "failure")


@in_loop
def test_call_that_is_cancelled_before_it_runs():
    def cancel():
        for t in list(coro.all_threads.values()):
            if t.name == "victim":
                t.shutdown()

    def victim():
        raise AssertionError

    victim.__qualname__ = "victim"
    with pytest.raises(InParallelError) as e:
        in_parallel([(cancel, ()), (victim, ())])
    assert e.value.result_list[1][1][0] is coro.Shutdown


@in_loop
def test_failures_make_no_cycles():
    class Error(Exception):
        pass

    def call():
        raise Error

    gc.collect()
    gc.disable()
    try:
        try:
            in_parallel([(call, ()), (call, ())])
        except InParallelError as e:
            ref = weakref.ref(e.result_list[1][1][1])
            assert ref() is not None
        assert ref() is None
    finally:
        gc.enable()


@in_loop
def test_interrupted_caller_leaves_its_calls_behind():
    done, told = [], []
    coro.set_exception_notifier(lambda: told.append(sys.exc_info()[0]))

    def call(n):
        coro._yield()
        if n:
            raise KeyError(n)
        done.append(n)

    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.005, in_parallel, [(call, (0,)), (call, (1,))])
    left = [t for t in coro.all_threads.values() if t.name.endswith("call")]
    assert len(left) == 2 and done == []
    for t in left:
        t.schedule()
        t.join()
    coro.set_exception_notifier(None)
    assert done == [0]
    assert told == [KeyError]  # nobody else will ever hear of it


@in_loop
def test_interrupted_caller_shuts_its_calls_down_if_asked():
    with pytest.raises(coro.TimeoutError), coro.timeout(0.005):
        in_parallel([(coro._yield, ())] * 3, shutdown=True)
    coro.yield_slice()
    assert len(coro.all_threads) == 1


@in_loop
def test_entries_that_make_no_sense():
    for entry in (int, (int,), (int, (), {})):
        with pytest.raises(TypeError, match="pairs"):
            in_parallel([(int, ()), entry])
    with pytest.raises(TypeError, match="something to call"):
        in_parallel([(3, ())])
    assert len(coro.all_threads) == 1


# -- parallel_map


@in_loop
def test_map():
    assert parallel_map(slowly, [3, 1, 2], "abc") == ["a", "b", "c"]
    assert parallel_map(int, []) == []
    assert parallel_map(divmod, range(5, 8), [2, 3]) == [(2, 1), (2, 0)]


@in_loop
def test_map_with_a_limit_and_a_lazy_source():
    running = most = ahead = drawn = finished = 0

    def source():
        nonlocal drawn, ahead
        for n in range(30):
            drawn += 1
            ahead = max(ahead, drawn - finished)
            yield n

    def call(n):
        nonlocal running, most, finished
        running += 1
        most = max(most, running)
        slowly(n % 4, None)
        running -= 1
        finished += 1
        return n * n

    assert parallel_map(call, source(), limit=4) == [n * n for n in range(30)]
    assert most == 4
    assert ahead <= 5  # never more than one beyond those that run


@in_loop
def test_map_first_failure_ends_it():
    ran = []

    def call(n):
        ran.append(n)
        coro.yield_slice()
        if n == 2:
            raise KeyError(n)

    with pytest.raises(ExceptionGroup) as e:
        parallel_map(call, range(1000), limit=3)
    assert [type(x) for x in e.value.exceptions] == [KeyError]
    assert len(ran) < 10
    assert len(coro.all_threads) == 1


@in_loop
def test_map_over_a_source_that_fails():
    def source():
        yield 1
        raise OSError

    with pytest.raises(ExceptionGroup) as e:
        parallel_map(int, source())
    assert [type(x) for x in e.value.exceptions] == [OSError]


@in_loop
def test_map_interrupted():
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.005, parallel_map, lambda n: coro._yield(), range(10), limit=2)
    assert len(coro.all_threads) == 1


@in_loop
def test_map_with_a_call_shut_down_from_outside():
    with pytest.raises(GroupError, match="number 1"):
        parallel_map(lambda n: n != 1 or coro.current().shutdown(), range(3))


@in_loop
def test_map_of_nonsense():
    with pytest.raises(TypeError):
        parallel_map(3, [1])
    with pytest.raises(ValueError, match="at least one"):
        parallel_map(int, [1], limit=0)
