"""coro.wait and coro.as_completed: results, order, what is left behind when they are broken off."""

import gc
import weakref

import pytest
from support import in_jumping_run

import coro


def after(seconds, result=None):
    def body():
        coro.sleep(seconds)
        if isinstance(result, BaseException):
            raise result
        return result

    return coro.spawn(body)


@pytest.fixture
def quiet():
    """Errors of threads are what these tests are about."""
    coro.set_exception_notifier(lambda: None)
    yield
    coro.set_exception_notifier(None)


# ------------------------------------------------------------------------------------------------- wait


@in_jumping_run
def test_wait_for_all():
    threads = [after(n, n) for n in (3, 1, 2)]
    done, late = coro.wait(threads)
    assert done == set(threads) and late == set()
    assert [t.get() for t in threads] == [3, 1, 2]
    assert coro.wait(threads) == (set(threads), set())  # all dead already
    assert coro.wait([]) == (set(), set())


@in_jumping_run
def test_wait_for_the_first():
    threads = [after(n) for n in (3, 1, 2)]
    result = coro.wait(iter(threads), return_when=coro.FIRST_COMPLETED)
    assert result.done == {threads[1]}
    assert result.not_done == {threads[0], threads[2]}
    assert coro.wait(threads, return_when=coro.FIRST_COMPLETED).done == {threads[1]}


@in_jumping_run
def test_wait_for_the_first_error(quiet):
    threads = [after(1), after(2, ValueError()), after(3)]
    assert coro.wait(threads, return_when=coro.FIRST_EXCEPTION) == (set(threads[:2]), {threads[2]})
    threads = [after(1), after(2)]
    assert coro.wait(threads, return_when=coro.FIRST_EXCEPTION) == (set(threads), set())


@in_jumping_run
def test_wait_does_not_raise_when_its_time_is_over():
    threads = [after(1), after(5)]
    assert coro.wait(threads, timeout=0) == (set(), set(threads))
    assert coro.wait(threads, timeout=2) == ({threads[0]}, {threads[1]})
    assert coro.wait(threads, timeout=-1) == ({threads[0]}, {threads[1]})
    with pytest.raises(coro.TimeoutError), coro.timeout(1):  # the limit of a block is another matter
        coro.wait(threads, timeout=2)
    assert coro.wait(threads, timeout=2) == (set(threads), set())


@in_jumping_run
def test_what_wait_refuses():
    t = after(1)
    for wrong in (t, None, 3):
        with pytest.raises(TypeError, match=r"several threads"):
            coro.wait(wrong)
        with pytest.raises(TypeError, match=r"several threads"):
            coro.as_completed(wrong)
    with pytest.raises(TypeError, match=r"coro\.spawn"):
        coro.wait([t, 1])
    with pytest.raises(ValueError, match="FIRST_COMPLETED"):
        coro.wait([t], return_when="first")
    for call in (coro.wait, coro.as_completed):
        with pytest.raises(TypeError, match="number of seconds"):
            call([t], timeout="1")
        with pytest.raises(ValueError, match="NaN"):
            call([t], timeout=float("nan"))
    with pytest.raises(AssertionError, match="own end"):
        coro.wait([t, coro.current()])
    t.join()
    assert coro.wait([t, coro.current()], return_when=coro.FIRST_COMPLETED).done == {t}


@in_jumping_run
def test_an_interrupted_wait_leaves_nothing_behind():
    slow = after(100)

    def watch():
        coro.wait([slow])

    for _ in range(3):
        w = coro.spawn(watch)
        coro.yield_slice()
        w.shutdown()
        w.join()
        assert isinstance(w.exception, coro.Shutdown)
    both = [coro.spawn(coro.wait, [slow]), coro.spawn(coro.wait, [slow])]
    coro.yield_slice()
    both[0].shutdown()
    slow.join()
    assert coro.wait(both, timeout=1) == (set(both), set())
    assert both[1].get() == ({slow}, set())


# ------------------------------------------------------------------------------------------------- as_completed


@in_jumping_run
def test_in_the_order_of_their_ends(quiet):
    gone = [after(0, "gone"), after(0, "too")]
    coro.wait(gone)
    threads = [after(3, "c"), *gone, after(1, "a"), after(2, ValueError("b"))]
    seen = []
    for t in coro.as_completed([*threads, threads[0]]):
        seen.append(t)
    assert seen == [*gone, threads[3], threads[4], threads[0]]
    assert list(coro.as_completed([])) == []


@in_jumping_run
def test_those_that_end_between_two_steps_keep_their_order():
    threads = [after(n) for n in (4, 1, 3, 2)]
    for place, t in enumerate(coro.as_completed(threads)):
        assert t is threads[(1, 3, 2, 0)[place]]
        coro.sleep(10)


@in_jumping_run
def test_the_limit_counts_from_the_call():
    threads = [after(1), after(5)]
    iterator = coro.as_completed(threads, timeout=3)
    assert next(iterator) is threads[0]
    with pytest.raises(coro.TimeoutError, match="1 of 2 threads"):
        next(iterator)
    assert coro.current() is not threads[1] and not threads[1].dead
    before = coro.get_now()
    with pytest.raises(coro.TimeoutError):
        next(coro.as_completed(threads[1:], timeout=0))
    assert coro.get_now() == before


@in_jumping_run
def test_an_iterator_that_is_given_up_is_forgotten_by_the_threads():
    slow, quick = after(100), after(1)
    iterator = coro.as_completed([slow, quick])
    assert next(iterator) is quick
    known = weakref.ref(quick)
    del quick
    iterator.close()
    gc.collect()
    assert known() is None
    assert next(coro.as_completed([slow])) is slow


@in_jumping_run
def test_interrupted_in_the_midst():
    slow = after(100)

    def step():
        for t in coro.as_completed([slow]):
            return t

    w = coro.spawn(step)
    coro.yield_slice()
    w.shutdown()
    assert coro.spawn(step).get() is slow


@in_jumping_run
def test_one_thread_at_a_time_goes_through_it():
    iterator = coro.as_completed([after(5), after(6)])
    first = coro.spawn(next, iterator)
    coro.yield_slice()
    with pytest.raises(ValueError, match="already executing"):  # says the generator
        next(iterator)
    first.join()
    assert len(list(iterator)) == 1


@in_jumping_run
def test_reports_name_the_threads():
    slow = after(9)
    w = coro.spawn(coro.wait, [slow])
    coro.yield_slice()
    kind, what = w.waiting_for
    assert (kind, what.threads) == ("object", (slow,))
    assert "the end of any of 1 threads" in str(coro.wait_graph())


def test_outside_of_a_loop():
    with pytest.raises(coro.YieldFromMain):
        coro.wait([coro.new(print)])
    assert coro.wait([]) == (set(), set())


@in_jumping_run
def test_one_thread_goes_through_an_iterator_at_a_time():
    threads = coro.as_completed([after(1, 5)])
    first = coro.spawn(next, threads)
    coro.yield_slice()
    with pytest.raises(ValueError, match="executing"):
        next(threads)
    assert first.get().get() == 5
