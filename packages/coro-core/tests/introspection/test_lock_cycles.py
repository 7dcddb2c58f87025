"""The warning of a cycle of locks: when it is given, what it says, and what is none."""

import re
import warnings

import pytest

import coro
from coro._introspection import lock_cycles
from coro._runtime import scheduler


@pytest.fixture(autouse=True)
def nothing_told():
    lock_cycles._told.clear()
    yield
    assert coro.set_lock_cycle_warning(True)


def run_cycle(take, *names):
    """Run a thread of each name that calls take(i) until all wait; then end them. The warnings given meanwhile."""

    def main():
        threads = [coro.spawn(take, i, thread_name=name) for i, name in enumerate(names)]
        for _ in range(5):
            coro.yield_slice()
        for t in threads:
            t.shutdown()
            t.join()

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        coro.run(main)
    return found


def ring(*locks):
    """Each thread locks one and then the next."""

    def take(i):
        with locks[i]:
            coro.yield_slice()
            with locks[(i + 1) % len(locks)]:
                pass

    return take


def test_two_threads_that_lock_in_opposite_order():
    a, b = coro.mutex(), coro.mutex()
    (found,) = run_cycle(ring(a, b), "first", "sec\nond")
    assert found.category is coro.LockCycleWarning
    assert issubclass(found.category, RuntimeWarning)
    assert found.filename == __file__
    head, second, at_second, first, at_first = str(found.message).split("\n")
    assert head.startswith("a cycle of locks has closed")
    assert head.endswith("take the locks in the same order everywhere")
    ids = f"{id(a):#x}", f"{id(b):#x}"
    assert re.fullmatch(rf"  thread \d+ 'first' holds mutex at {ids[0]} and waits for mutex at {ids[1]}", first)
    assert re.fullmatch(rf"  thread \d+ 'sec\\+nond' holds mutex at {ids[1]} and waits for mutex at {ids[0]}", second)
    for where in (at_first, at_second):
        assert re.fullmatch(r"    at \[introspection/test_lock_cycles.py take\|\d+\]", where)


def test_more_threads_and_other_locks():
    for n in (3, 20):
        (found,) = run_cycle(ring(*[coro.mutex() for _ in range(n)]), *map(str, range(n)))
        assert str(found.message).count(" waits for mutex") == n

    lock, table = coro.mutex(), coro.rw_lock()
    (found,) = run_cycle(ring(lock, table.write()), "a", "b")
    assert "waits for rw_lock" in str(found.message)

    def read_or_write(i):
        first, second = ((table.read(), lock), (lock, table.write()))[i]
        with first:
            coro.yield_slice()
            with second:
                pass

    (found,) = run_cycle(read_or_write, "reads", "writes")
    assert "holds rw_lock" in str(found.message)


def test_a_join_may_be_part_of_it():
    lock = coro.mutex()

    def asks():
        coro.yield_slice()
        lock.lock()

    def take(i):
        if i == 0:
            with lock:
                t = coro.spawn(asks, thread_name="asks")
                try:
                    t.join()
                finally:
                    t.shutdown()

    (found,) = run_cycle(take, "joins")
    lines = str(found.message).split("\n")
    assert re.fullmatch(r"  thread \d+ 'asks' waits for mutex at \w+", lines[1])
    assert re.fullmatch(r"  thread \d+ 'joins' holds mutex at \w+ and waits for the end of thread \d+ 'asks'", lines[3])


def test_a_join_that_closes_it_is_seen_by_the_wait_graph_only():
    lock = coro.mutex()
    cycles = []

    def main():
        with lock:
            t = coro.spawn(lock.lock)
            coro.yield_slice()
            coro.spawn(lambda: cycles.extend(coro.wait_graph().cycles) or t.shutdown())
            t.join()

    with warnings.catch_warnings():
        warnings.simplefilter("error", coro.LockCycleWarning)
        coro.run(main)
    assert [len(cycle) for cycle in cycles] == [2]


def test_a_filter_makes_it_break_off_the_wait():
    a, b = coro.mutex(), coro.mutex()
    errors = []

    def take(mine, other):
        with mine:
            coro.yield_slice()
            try:
                with other:
                    pass
            except coro.LockCycleWarning as exc:
                errors.append(exc)

    def main():
        threads = [coro.spawn(take, a, b), coro.spawn(take, b, a)]
        for t in threads:
            t.join()

    with warnings.catch_warnings():
        warnings.simplefilter("error", coro.LockCycleWarning)
        coro.run(main)
    assert len(errors) == 1
    assert not a.locked() and not b.locked() and not len(a) and not len(b)


def test_once_for_each_cycle():
    a, b = coro.mutex(), coro.mutex()
    tries = []

    def take(i):
        with (a, b)[i]:
            coro.yield_slice()
            if i == 0:
                b.lock()
            for _ in range(3):
                try:
                    a.lock()
                except coro.WakeUp:
                    tries.append(1)

    def main():
        threads = [coro.spawn(take, i) for i in (0, 1)]
        for _ in range(3):
            coro.yield_slice()
            coro.yield_slice()
            threads[1].raise_exception(coro.WakeUp)
        for t in threads:
            t.join()

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        coro.run(main)
    assert len(tries) == 3
    assert len(found) == 1


def test_no_cycle_no_warning():
    a, b, c = coro.mutex(), coro.mutex(), coro.mutex()

    def chain(i):
        """Waits for waits, but not in a circle."""
        if i == 0:
            with a:
                coro._yield()
        elif i == 1:
            with b, a:
                pass
        else:
            with c, b:
                pass

    assert run_cycle(chain, "a", "b", "c") == []

    def main():
        with a, a, b:  # again by the same thread
            pass

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        coro.run(main)


def test_switched_off():
    assert coro.set_lock_cycle_warning(False) is True
    assert run_cycle(ring(coro.mutex(), coro.mutex()), "a", "b") == []
    assert coro.set_lock_cycle_warning(True) is False
    for wrong in (None, 1, "off"):
        with pytest.raises(TypeError, match="expected True or False"):
            coro.set_lock_cycle_warning(wrong)


def test_an_owner_that_misbehaves_breaks_no_lock():
    lock = coro.mutex()

    class Odd:
        @property
        def owner(self):
            raise ValueError("asked")

    def holds(odd):
        with lock:
            scheduler._suspend(odd)

    def main():
        t = coro.spawn(holds, Odd())
        coro.yield_slice()
        waiting = coro.spawn(lock.lock)
        coro.yield_slice()
        assert waiting.waiting_for == ("object", lock)
        waiting.shutdown()
        t.shutdown()

    coro.run(main)


def test_no_more_than_so_many_are_remembered(monkeypatch):
    monkeypatch.setattr(lock_cycles, "MOST_TOLD", 3)
    for _ in range(5):
        assert len(run_cycle(ring(coro.mutex(), coro.mutex()), "a", "b")) == 1
    assert len(lock_cycles._told) == 3


def test_other_os_threads_do_not_switch_it():
    with pytest.raises(coro.WrongThreadError):
        coro.run(coro.in_thread, coro.set_lock_cycle_warning, False)
