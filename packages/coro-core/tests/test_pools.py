"""coro.pool: how many run at once, results and failures, threads that are shut down at any moment."""

import contextlib
import gc
import weakref

import pytest
from support import in_jumping_loop, in_jumping_run

import coro


class Gauge:
    """A job that takes a second or more, and knows how many of it ran at once."""

    def __init__(self):
        self.now = self.most = 0

    def __call__(self, n, seconds=1):
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            coro.sleep(seconds)
            if n < 0:
                raise ValueError(n)
            return n * n
        finally:
            self.now -= 1


@in_jumping_loop
def test_spawn_waits_for_room():
    p, job = coro.pool(3), Gauge()
    threads = [p.spawn(job, n) for n in range(8)]
    assert job.most == 3 and len(p) <= 3
    p.join()
    assert [t.get() for t in threads] == [n * n for n in range(8)]
    assert job.most == 3 and len(p) == 0 and p.free == p.size == 3 and p
    assert p.statistics() == (0, 0, 3, 8)
    assert threads[0].name == "Gauge"


@in_jumping_loop
def test_maps():
    p, job = coro.pool(3), Gauge()
    assert p.map(job, range(10)) == [n * n for n in range(10)]
    assert list(p.imap(job, [1, 2, 3], [3, 2, 1])) == [1, 4, 9]
    assert list(p.imap_unordered(job, [1, 2, 3], [3, 2, 1])) == [9, 4, 1]
    assert job.most == 3
    assert p.map(job, []) == []
    assert p.apply(job, 5) == 25


@in_jumping_loop
def test_a_source_is_not_run_away_with():
    def source():
        for n in range(100):
            seen.append(n)
            yield n

    p, job, seen = coro.pool(3), Gauge(), []
    for call in (p.imap, p.imap_unordered):
        seen.clear()
        results = call(job, source())
        next(results)
        coro.sleep(50)
        assert len(seen) <= 4
        next(results)
        results.close()
        p.join()


@in_jumping_loop
def test_a_failure_ends_a_map():
    p, job = coro.pool(3), Gauge()
    with pytest.raises(ValueError, match="-1"):
        p.map(job, [1, 2, -1, 3, 4, 5, 6])
    p.join()
    results = p.imap_unordered(job, [-1, 5, 6], [1, 9, 9])
    with pytest.raises(ValueError, match="-1"):
        next(results)
    p.join(timeout=1)  # the others were shut down

    def broken():
        yield 1
        raise KeyError

    with pytest.raises(KeyError):
        list(p.imap(job, broken()))
    p.join()
    assert p.free == 3


@in_jumping_run
def test_a_failure_of_a_spawned_call_is_its_own():
    told = []
    coro.set_exception_notifier(lambda: told.append(1))
    try:
        p, job = coro.pool(2), Gauge()
        bad, good = p.spawn(job, -1), p.spawn(job, 2)
        p.join()
    finally:
        coro.set_exception_notifier(None)
    with pytest.raises(ValueError):
        bad.get()
    assert good.get() == 4 and told == [1] and p.free == 2


@in_jumping_loop
def test_room_is_given_back_by_those_that_never_run():
    p, job = coro.pool(2), Gauge()
    for _ in range(5):
        t = p.spawn(job, 1)
        t.shutdown()  # before it has run
        del t
        gc.collect()
        coro.yield_slice()
    assert p.free == 2 and len(p) == 0 and p.threads == []


@in_jumping_loop
def test_interruptions():
    p, job = coro.pool(1), Gauge()
    first = p.spawn(job, 1, 10)
    for call in (lambda: p.spawn(job, 2), p.join, p.wait_for_room, lambda: p.map(job, [1, 2])):
        with coro.move_on_after(1) as scope:
            call()
        assert scope.expired
    with pytest.raises(coro.TimeoutError):
        p.wait_for_room(timeout=1)
    with pytest.raises(coro.TimeoutError):
        p.join(timeout=1)
    victim = coro.spawn(p.spawn, job, 2)
    coro.yield_slice()
    victim.shutdown()
    assert first.get() == 1
    p.wait_for_room(timeout=0)
    assert p.free == 1 and p.statistics().waiting == 0
    with coro.move_on_after(1):
        p.apply(job, 1, 5)
    p.join(timeout=0.5)  # the call was shut down


@in_jumping_loop
def test_blocks():
    job = Gauge()
    with coro.pool(2) as p:
        t = p.spawn(job, 3)
    assert t.get() == 9
    with pytest.raises(KeyError), coro.pool(2) as p:
        t = p.spawn(job, 3)
        coro.yield_slice()
        raise KeyError
    assert t.dead and isinstance(t.exception, coro.Shutdown)
    with coro.move_on_after(0.5) as scope, coro.pool(2) as p:
        t = p.spawn(job, 3)
    assert scope.expired and t.dead
    p.shutdown()


def test_what_is_refused():
    for wrong, error in (("1", TypeError), (None, TypeError), (True, TypeError), (0, ValueError)):
        with pytest.raises(error, match="size of a pool"):
            coro.pool(wrong)
    p = coro.pool(1)
    for call in (p.spawn, p.imap, p.imap_unordered, p.map, p.apply):
        with pytest.raises(TypeError, match="something to call"):
            call(3)
    assert p.free == 1


@in_jumping_loop
def test_no_cycle_keeps_a_failure_and_no_iterator_a_result():
    class Value:
        pass

    def fail(value):
        raise ValueError("no")

    p, gone = coro.pool(2), []
    before = coro.set_exception_notifier(lambda: None)
    gc.collect()
    gc.disable()
    try:
        for call in (p.apply, lambda f, v: p.map(f, [v]), lambda f, v: list(p.imap_unordered(f, [v]))):
            value = Value()
            gone.append(weakref.ref(value))
            with contextlib.suppress(ValueError):
                call(fail, value)
            del value
            p.join()
            coro.yield_slice()
        for call in (p.imap, p.imap_unordered):
            results = call(lambda n: Value(), range(2))
            gone.append(weakref.ref(next(results)))
            p.join()
            coro.yield_slice()
            assert gone[-1]() is None  # the iterator is still there
            results.close()
        assert [ref() for ref in gone] == [None] * 5
    finally:
        gc.enable()
        coro.set_exception_notifier(before)


def test_a_call_that_the_end_of_the_loop_refuses_takes_no_room():
    def late():
        try:
            coro.sleep(100)
        finally:
            try:
                p.spawn(int)
            except coro.LoopError:
                seen.append((p.free, len(p)))

    p, seen = coro.pool(1), []

    def main():
        coro.spawn(late)
        coro.yield_slice()

    coro.run(main)
    assert seen == [(1, 0)]


@in_jumping_run
def test_other_os_threads_are_refused():
    p = coro.pool(1)
    for call in (p.shutdown, p.join, p.wait_for_room, lambda: p.spawn(int), lambda: p.map(int, [1])):
        with pytest.raises(coro.WrongThreadError):
            coro.in_thread(call)
    assert p.free == 1 and len(p) == 0
