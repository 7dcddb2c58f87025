"""mutex, rw_lock and semaphore: what each operation does, who comes next, and that an interruption at any moment costs
nobody else anything.
"""

import gc
import threading
import weakref

import pytest
from support import advance, ok, virtual_clock
from sync_names import Stop, in_loop, mutex, rw_lock, semaphore, settle, start

import coro

# ------------------------------------------------------------------------------------------------- mutex


@in_loop
def test_mutex_counts_reentry_and_hands_over():
    m, log = mutex(), []
    assert (m.lock(), m.lock(), m.trylock(), m.try_lock()) == (False, False, False, False)
    assert (m.locked(), m.has_lock(), m.owner, m._owner, m._locked) == (True, True, coro.current(), coro.current(), 4)
    t = start(log, "t", m.lock, m.has_lock, m.unlock)
    settle()
    assert (len(m), m.waiting, list(m._waiting)) == (1, (t,), [t])
    assert not m.has_lock(t)
    assert [m.unlock() for _ in range(3)] == [False] * 3
    assert m.unlock() is True
    assert (m.has_lock(t), m.has_lock(), m.owner is t) == (True, False, True)  # before it ran
    assert m.trylock() is True
    t.join()
    assert log == [("t", True), ("t", True), ("t", False)]
    assert (m.locked(), m.owner, m._locked) == (False, None, 0)
    assert m.statistics() == (None, 0, 0, 1)


@in_loop
def test_mutex_refuses_strangers():
    m, log = mutex(), []
    with pytest.raises(coro.LockError, match="not locked"):
        m.unlock()
    with m as same:
        assert same is m
        start(log, "t", m.trylock, m.unlock).join()
    assert log == [("t", True), ("t", coro.LockError)]
    with pytest.raises(TypeError):
        m.lock()
        m.has_lock(7)


def test_mutex_in_main_without_a_loop():
    m, log = mutex(), []
    with m:
        assert m.has_lock() and m.owner is coro.current()
        assert m.trylock() is False
        m.unlock()

        def other():
            assert m.trylock() is True
            assert not m.has_lock()
            try:
                coro.with_timeout(0, m.lock)
            except coro.TimeoutError:
                log.append("timed out")

        coro.run(other)
    assert log == ["timed out"]

    def hold():
        m.lock()

    with pytest.warns(RuntimeWarning, match="dead thread"):
        coro.run(hold)
        assert m.trylock() is True
        with pytest.raises(coro.YieldFromMain):
            m.lock()
        coro.run(lambda: pytest.raises(coro.TimeoutError, coro.with_timeout, 0, m.lock))
    assert " ended>" in repr(m)


@in_loop
def test_a_spurious_wake_gives_no_mutex():
    m, log = mutex(), []
    m.lock()
    t = start(log, "t", m.lock, m.has_lock)
    settle()
    for _ in range(3):
        t.schedule()
        settle()
    assert log == []
    t.schedule()
    assert m.unlock() is True and m.has_lock(t)
    t.join()
    assert log == [("t", True), ("t", True)]


@in_loop
def test_a_mutex_is_never_taken_from_under_a_waiter():
    """A newcomer between the hand-over and the waiter's turn waits behind it."""
    m, log = mutex(), []
    m.lock()
    start(log, "first", m.lock, m.unlock)
    settle()
    m.unlock()
    assert m.lock() is True
    assert log == [("first", True), ("first", True)]


@in_loop
def test_the_owner_is_in_the_report_of_a_deadlock():
    m = mutex()
    m.lock()
    t = coro.spawn(m.lock)
    settle()
    assert t.waiting_for == ("object", m)
    assert repr(coro.current()) in repr(m) and "1 waiting" in repr(m)
    t.shutdown()


def test_two_mutexes_in_opposite_order_are_reported():
    lines = ok("""
        import coro
        from coro._sync.locks import mutex
        coro.set_lock_cycle_warning(False)

        a, b = mutex(), mutex()

        def one(first, second):
            first.lock()
            coro.yield_slice()
            second.lock()

        def main():
            coro.spawn(one, a, b, thread_name="ab")
            one(b, a)

        try:
            coro.run(main)
        except coro.DeadlockError as exc:
            print(" 'ab' " in str(exc).split("which", 1)[1])
    """)
    assert lines == ["True"]


def test_locks_of_threads_that_a_fork_killed():
    lines = ok("""
        import os, warnings
        import coro
        from coro._sync.locks import mutex, rw_lock, semaphore

        m, r, w, s = mutex(), rw_lock(), rw_lock(), semaphore(1)

        def hold():
            m.lock(); r.read_lock(); w.write_lock(); s.acquire(1)
            coro._yield()

        def stand(n, call, *args):
            call(*args)

        def main():
            coro.spawn(hold)
            coro.yield_slice()
            for _ in range(2):
                for call, args in ((m.lock, ()), (r.write_lock, ()), (w.read_lock, ()), (s.acquire, (2,))):
                    coro.spawn(stand, 1, call, *args)
            coro.yield_slice()
            pid = os.fork()
            if pid == 0:
                with warnings.catch_warnings(record=True) as seen:
                    warnings.simplefilter("always")
                    m.lock(); r.write_lock(); w.read_lock()
                    s.release(1)
                    s.acquire(1)
                text = [str(x.message) for x in seen]
                good = len(text) == 3 and all("died in the fork" in x for x in text)
                os._exit(0 if good and m.has_lock() and r.owner is coro.current() and len(m) == 0 else 1)
            print(os.waitpid(pid, 0)[1])
            coro.set_exit(0, grace=0)
            coro._yield()

        try:
            coro.run(main)
        except SystemExit:
            pass
    """)
    assert lines == ["0"]


# ------------------------------------------------------------------------------------------------- interruptions


def hold_mutex():
    m = mutex()
    m.lock()
    return m, m.lock, m.unlock, lambda: m._locked


def hold_semaphore():
    s = semaphore(0)
    return s, s.acquire, lambda: s.release(1), lambda: 1 - s.avail


def hold_writers():
    lock = rw_lock()
    lock.read_lock()
    return lock, lock.write_lock, lock.read_unlock, lambda: int(lock.owner is not None)


def hold_readers():
    lock = rw_lock()
    lock.write_lock()
    return lock, lock.read_lock, lock.write_unlock, lambda: len(lock.owners)


@pytest.mark.parametrize("setup", [hold_mutex, hold_semaphore, hold_writers, hold_readers])
@pytest.mark.parametrize("order", ["interrupt, wake", "wake, interrupt"])
@pytest.mark.parametrize("how", ["shutdown", "raise_exception"])
def test_five_waiters_interrupted_the_sixth_gets_it(setup, order, how):
    @in_loop
    def test():
        what, wait, give, held = setup()
        log = []
        threads = [start(log, n, wait) for n in range(5)]
        sixth = start(log, "sixth", wait)
        settle()
        assert list(what.waiting) == [*threads, sixth]
        assert log == []

        def interrupt():
            for t in threads:
                if how == "shutdown":
                    t.shutdown()
                else:
                    t.raise_exception(Stop)

        for step in order.split(", "):
            interrupt() if step == "interrupt" else give()
        settle()
        expected = coro.Shutdown if how == "shutdown" else Stop
        won = ("sixth", True)
        assert sorted(log, key=str) == sorted([won, *((n, expected) for n in range(5))], key=str)
        assert held() == 1 and what.waiting == ()

    test()


@pytest.mark.parametrize("setup", [hold_mutex, hold_semaphore, hold_writers, hold_readers])
def test_waiters_whose_time_is_over(setup):
    @in_loop
    def test():
        what, wait, give, held = setup()
        log = []
        early = [start(log, n, lambda: coro.with_timeout(1, wait)) for n in range(2)]
        late = start(log, "late", lambda: coro.with_timeout(3, wait))
        settle()
        advance(2)
        settle()
        assert log == [(0, coro.TimeoutError), (1, coro.TimeoutError)] and what.waiting == (late,)
        give()
        advance(2)  # too late: it has been given what it waited for
        settle()
        assert log[2:] == [("late", True)]
        assert held() == 1 and all(t.dead for t in early)

    with virtual_clock():
        test()


@in_loop
def test_a_shielded_thread_is_passed_over_and_keeps_its_place():
    """The waiter has an interruption noted that cannot strike yet, and a spurious wake-up: its turn is not lost."""
    m, log = mutex(), []

    def shielded():
        with coro.shield(1000):
            log.append(m.lock())
            log.append("got it")
            m.unlock()
        coro.yield_slice()

    m.lock()
    t = coro.spawn(shielded)
    later = start(log, "later", m.lock, m.unlock)
    settle()
    t.shutdown()
    t.schedule()
    m.unlock()
    settle()
    assert t.dead and later.dead
    assert [x for x in log if x is True or x == "got it"] == [True, "got it"]
    assert log.count(("later", True)) == 2 and len(log) == 4  # its unlock() handed over in turn
    assert not m.locked()


# ------------------------------------------------------------------------------------------------- rw_lock


@in_loop
def test_readers_share_writers_do_not():
    lock, log = rw_lock(), []
    assert lock.read_lock() is False
    start(log, "r", lock.try_read_lock, lock.try_write_lock, lock.read_unlock).join()
    assert log == [("r", False), ("r", True), ("r", None)]
    w = start(log, "w", lock.write_lock)
    settle()
    r = start(log, "r2", lock.read_lock)
    settle()
    assert lock.waiting == (w, r)
    assert lock.statistics() == (None, 0, 1, 1, 1, 2)
    assert lock.try_read_lock() is False  # whoever reads already may go on reading
    lock.read_unlock()
    lock.read_unlock()
    assert lock.owner is w and lock.owners == (w,)
    settle()
    assert log[3:] == [("w", True)]
    assert lock.try_read_lock() is True
    with pytest.raises(coro.LockError):
        lock.read_unlock()
    with pytest.raises(coro.LockError):
        lock.write_unlock()
    r.shutdown()


@in_loop
def test_a_writer_may_do_everything_again():
    lock, log = rw_lock(), []
    lock.write_lock()
    other = start(log, "other writer", lock.write_lock, lock.write_unlock)
    reader = start(log, "reader", lock.read_lock, lock.read_unlock)
    settle()
    assert (lock.write_lock(), lock.try_write_lock(), lock.read_lock(), lock.try_read_lock()) == (False,) * 4
    for _ in range(3):
        lock.write_unlock()
    # Still reading: nobody may write.
    settle()
    assert log == [] and lock.owner is None and lock.owners == (coro.current(),)
    lock.read_unlock()
    assert log == []
    lock.read_unlock()
    other.join()
    reader.join()
    assert log == [("other writer", True), ("other writer", None), ("reader", True), ("reader", None)]
    assert lock.owners == ()


@in_loop
def test_writers_first_then_all_readers():
    lock, log = rw_lock(), []
    lock.write_lock()
    for name, call, undo in (
        ("r1", lock.read_lock, lock.read_unlock),
        ("w1", lock.write_lock, lock.write_unlock),
        ("r2", lock.read_lock, lock.read_unlock),
        ("w2", lock.write_lock, lock.write_unlock),
    ):
        start(log, name, call, coro.yield_slice, undo)
    settle()
    lock.write_unlock()
    settle()
    settle()
    assert [name for name, what in log if what is True] == ["w1", "w2", "r1", "r2"]


@in_loop
def test_an_interrupted_writer_lets_the_readers_behind_it_in():
    lock, log = rw_lock(), []
    lock.read_lock()
    w = start(log, "w", lock.write_lock)
    settle()
    r = start(log, "r", lock.read_lock)
    settle()
    assert log == []
    w.shutdown()
    settle()
    assert log == [("w", coro.Shutdown), ("r", True)] and set(lock.owners) == {coro.current(), r}


@in_loop
def test_a_reader_cannot_become_a_writer():
    lock = rw_lock()
    with lock.read() as same:
        assert same is lock and lock.try_write_lock() is True
        with pytest.raises(coro.LockError, match="cannot become its writer"):
            lock.write_lock()
    with lock.write():
        assert lock.owner is coro.current()
        assert "write-locked" in repr(lock)
    guard = lock.read()
    for _ in range(2):
        with guard, guard:
            assert "read-locked by 1 threads" in repr(lock)
    assert "free" in repr(lock)
    with pytest.raises(coro.LockError):
        lock.write_unlock()


# ------------------------------------------------------------------------------------------------- semaphore


@in_loop
def test_semaphore_units_are_reserved_for_who_was_woken():
    s, log = semaphore(2), []
    assert (s.avail, int(s)) == (2, 2)
    s.acquire()
    s.acquire(1)
    big = start(log, "big", lambda: s.acquire(3))
    small = start(log, "small", s.acquire)
    settle()
    assert s._waiting == [(3, big), (1, small)] and s.waiting == (big, small)
    s.release(2)
    assert s.avail == 2  # the small request does not overtake the big one
    assert s.try_acquire() is True and s.try_acquire(0) is False
    s.release(1)
    assert (s.avail, s.waiting) == (0, (small,))
    assert s.try_acquire() is True
    settle()
    assert log == [("big", True)]
    s.release(5)
    settle()
    assert log == [("big", True), ("small", True)] and s.avail == 4
    assert s.try_acquire(4) is False and s.avail == 0
    assert s.statistics() == (0, 0, 2)
    assert "0 available" in repr(s)


@in_loop
def test_a_large_request_that_goes_lets_the_small_ones_behind_it_pass():
    s, log = semaphore(1), []
    big = start(log, "big", lambda: s.acquire(5))
    start(log, "small", s.acquire)
    settle()
    assert log == []
    big.raise_exception(Stop)
    settle()
    assert log == [("big", Stop), ("small", True)] and s.avail == 0


@in_loop
def test_semaphore_line_is_empty_after_a_release_to_interrupted_waiters():
    s, log = semaphore(0), []
    threads = [start(log, n, s.acquire) for n in range(5)]
    settle()
    for t in threads:
        t.shutdown()
    assert len(s._waiting) == 5
    s.release(1)
    assert len(s._waiting) == 0 and s.avail == 1
    settle()
    assert s.avail == 1 and len(log) == 5


@in_loop
def test_release_inside_an_except_block_keeps_the_exception():
    s, log = semaphore(0), []
    t = start(log, "t", s.acquire)
    settle()
    with pytest.raises(Stop):
        try:
            raise Stop
        except Stop:
            s.release(1)
            coro.yield_slice()
            raise
    assert t.dead


@pytest.mark.parametrize("bad", [-1, 1 << 70, -(1 << 70)])
def test_semaphore_numbers(bad):
    s = semaphore(1)
    for call in (s.acquire, s.release, s.try_acquire, semaphore):
        with pytest.raises(ValueError, match="0 or more"):
            call(bad)
        for wrong in (1.0, "1", None, True):
            with pytest.raises(TypeError, match="expected the number of units as an int"):
                call(wrong)
    with pytest.raises(TypeError):
        semaphore()
    assert s.avail == 1
    s.release(1 << 60)
    s.release((1 << 62) - (1 << 60) - 1)
    with pytest.raises(ValueError):
        s.release(1)


def test_semaphore_without_a_loop():
    s = semaphore(1)
    with s:
        assert s.try_acquire() is True
        with pytest.raises(coro.YieldFromMain):
            s.acquire()
    assert s.avail == 1 and s.waiting == ()
    log = []

    def main():
        start(log, "t", lambda: s.acquire(2))
        settle()
        s.release()

    coro.run(main)
    assert log == [("t", True)]
    s.release(2)
    with coro.no_switch():
        s.acquire()


# ------------------------------------------------------------------------------------------------- all


@in_loop
def test_other_os_threads_are_refused():
    m, s, lock = mutex(), semaphore(1), rw_lock()
    m.lock()
    seen = []

    def foreign():
        for call in (m.lock, m.trylock, m.unlock, s.acquire, s.release, lock.read_lock, lock.write_lock):
            try:
                call()
            except coro.WrongThreadError:
                seen.append(call)

    t = threading.Thread(target=foreign)
    t.start()
    t.join()
    assert len(seen) == 7


@in_loop
def test_nothing_blocks_inside_no_switch():
    m, s = mutex(), semaphore(0)
    t = coro.spawn(m.lock)
    settle()
    with coro.no_switch():
        with pytest.raises(coro.NoSwitchError):
            s.acquire()
        s.release()
        s.acquire()
        assert m.trylock() is True
    assert s.waiting == () and t.dead


@in_loop
def test_locks_are_released_with_their_last_reference():
    s, log = semaphore(0), []
    t = start(log, "t", s.acquire)
    settle()
    ref = weakref.ref(s)
    del s
    assert ref() is not None  # the waiting thread holds it
    t.shutdown()
    t.join()
    del t
    settle()
    gc.collect()
    assert ref() is None
