"""ThreadLocal: every thread sees its own values, for as long as it lives."""

import gc
import threading
import weakref

import pytest
from sync_names import ThreadLocal, in_loop, settle

import coro


class Thing:
    pass


@in_loop
def test_values_are_each_threads_own_and_survive_switches():
    local, seen = ThreadLocal(), []
    local.x = "mine"

    def other(n):
        assert not hasattr(local, "x") and local.__dict__ == {}
        with pytest.raises(AttributeError, match="x"):
            _ = local.x
        with pytest.raises(AttributeError, match="x"):
            del local.x
        local.x = n
        for _ in range(3):
            coro.yield_slice()
            assert local.x == n and vars(local) == {"x": n}
        del local.x
        assert not hasattr(local, "x")
        seen.append(n)

    threads = [coro.spawn(other, n) for n in range(10)]
    for t in threads:
        t.join()
    assert sorted(seen) == list(range(10)) and [t.exception for t in threads] == [None] * 10
    assert local.x == "mine"


def test_main_and_other_os_threads_have_their_own():
    local, seen = ThreadLocal(), []
    local.x = "main"
    coro.run(lambda: seen.append(hasattr(local, "x")))

    def foreign():
        seen.append(hasattr(local, "x"))
        local.x = 1

    def main():
        local.x = "thread"
        t = threading.Thread(target=foreign)
        t.start()
        t.join()
        assert local.x == "thread"

    coro.run(main)
    assert seen == [False, False] and local.x == "main"


@in_loop
def test_subclasses_run_init_in_every_thread():
    class Mine(ThreadLocal):
        shared = []

        def __init__(self, a, b=2):
            self.sum = a + b
            coro.yield_slice()

        @property
        def double(self):
            coro.yield_slice()
            return 2 * self.sum

        def __getattr__(self, name):
            return f"no {name}"

    local, log = Mine(1, b=5), []
    local.sum = 100

    def other():
        log.append((local.sum, local.double, local.missing))
        local.shared.append(1)

    for _ in range(3):
        coro.spawn(other)
    settle()
    settle()
    assert log == [(6, 12, "no missing")] * 3 and local.double == 200
    assert local.shared == [1] * 3
    with pytest.raises(TypeError, match="takes no arguments"):
        ThreadLocal(1)


@in_loop
def test_an_init_that_fails_is_tried_again():
    class Mine(ThreadLocal):
        def __init__(self, fail):
            if fail and fail.pop():
                raise ValueError("not yet")
            self.ready = True

    fail, log = [], []
    local = Mine(fail)
    fail[:] = [True]

    def other():
        for _ in range(2):
            try:
                log.append(local.ready)
            except ValueError:
                log.append("failed")

    coro.spawn(other).join()
    assert log == ["failed", True]


@in_loop
def test_values_vanish_with_their_thread():
    local = ThreadLocal()
    refs = []

    def other(to_itself):
        local.thing = Thing()
        local.me = coro.current() if to_itself else None
        refs.append(weakref.ref(local.thing))

    t = coro.spawn(other, False)
    t.join()
    assert refs[0]() is None and t.dead
    for _ in range(100):
        coro.spawn(other, True)
    settle()
    settle()
    assert not any(ref() for ref in refs)


@in_loop
def test_values_are_cleared_at_the_end_of_the_thread_and_not_later():
    """By the thread itself: a finaliser may wait, sees its own thread, and may set values again."""
    local, other_local, log = ThreadLocal(), ThreadLocal(), []

    class Final:
        def __init__(self, again=0):
            self.again = again
            self.owner = coro.current()

        def __del__(self):
            if coro.current() is not self.owner:
                return  # left over by one that went on for ever
            coro.yield_slice()
            log.append((coro.current(), coro.current().dead, hasattr(local, "final")))
            if self.again:
                local.final = Final(self.again - 1)

    def body(again):
        local.final = Final(again)
        other_local.x = 1

    for again in (0, 1, 1000):
        log.clear()
        t = coro.spawn(body, again)
        t.join()
        assert log == [(t, False, False)] * min(again + 1, 4)
        assert t.exception is None
    log.clear()


@in_loop
def test_a_thread_that_outlives_many_objects_keeps_none():
    me = coro.current()
    refs = []
    for n in range(1000):
        local = ThreadLocal()
        local.x = n
        refs.append(weakref.ref(local))
    del local
    gc.collect()
    assert not any(ref() for ref in refs) and not me.dead
    # What is noted of them on the thread is dropped now and then as well.
    noted = [o for o in gc.get_objects() if type(o) is list and o and type(o[0]) is weakref.ref and o is not refs]
    assert all(len(o) <= 32 for o in noted if o[0] in refs)


@in_loop
def test_values_vanish_with_the_local():
    local = ThreadLocal()
    local.thing = Thing()
    local.itself = local
    ref = weakref.ref(local.thing)
    del local
    gc.collect()
    assert ref() is None


def test_the_dictionary_is_no_way_around():
    local = ThreadLocal()
    with pytest.raises(AttributeError, match="read-only"):
        local.__dict__ = {}
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del local.__dict__
    local.__dict__["y"] = 1
    assert local.y == 1 and "ThreadLocal" in repr(local)
    setattr(local, "z", 2)  # noqa: B010
    assert sorted(vars(local)) == ["y", "z"]


@in_loop
def test_a_new_local_never_sees_old_values():
    for n in range(50):
        local = ThreadLocal()
        assert not hasattr(local, "x")
        local.x = n


@in_loop
def test_statistics():
    local = ThreadLocal()
    local.x = local.y = 1

    def other():
        local.z = 1
        coro._yield()

    t = coro.spawn(other)
    settle()
    assert local.statistics() == (2, 3) and local.statistics().values == 3
    t.schedule()
    t.join()
    assert local.statistics() == (1, 2)
