"""Named locks: what each operation does, and that circles of waiting threads are found and broken."""

import pytest
from support import advance, virtual_clock
from sync_names import Stop, in_loop, mutex, rw_lock, settle, start

import coro
from coro.locksmith import LockSmith, MutexLockSmith, find_cycle, holders_of


@in_loop
def test_names_exist_while_they_are_used():
    smith, log = MutexLockSmith(), []
    assert len(smith) == 0 and not smith.locked("a")
    assert smith.lock("a") is False and smith.lock("a") is False and smith.lock(("b", 2)) is False
    assert len(smith) == 2 and smith.locked("a")
    start(
        log,
        "t",
        lambda: smith.try_lock("a"),
        lambda: smith.trylock("free"),
        lambda: smith.unlock("free"),
        lambda: smith.lock("a"),
        lambda: smith.unlock("a"),
    )
    settle()
    assert log == [("t", True), ("t", False), ("t", None)] and len(smith.waiting_threads()) == 1
    with pytest.raises(KeyError):
        smith.unlock("free")
    smith.unlock("a")
    smith.unlock("a")
    settle()
    assert log[3:] == [("t", True), ("t", None)]
    smith.unlock(("b", 2))
    assert len(smith) == 0 and "0 names" in repr(smith)
    with smith.holding("c"):
        start(log, "stranger", lambda: smith.unlock("c")).join()
    assert log[-1] == ("stranger", coro.LockError) and len(smith) == 0


@in_loop
def test_an_interrupted_waiter_leaves_nothing():
    smith, log = MutexLockSmith(), []
    smith.lock("a")
    for _ in range(2):
        t = start(log, "t", lambda: smith.lock("a"))
        settle()
        t.raise_exception(Stop)
        settle()
    assert log == [("t", Stop)] * 2 and smith.waiting_threads() == []
    smith.unlock("a")
    assert len(smith) == 0


@in_loop
def test_the_thread_that_would_close_a_circle_is_told():
    smith, other, plain, log = MutexLockSmith(), MutexLockSmith(), mutex(), []
    smith.lock("a")

    def second():
        other.lock("b")
        plain.lock()
        smith.lock("a")
        log.append("second")
        smith.unlock("a")
        other.unlock("b")
        plain.unlock()

    def third():
        log.append("third")
        plain.lock()

    t2 = coro.spawn(second)
    settle()
    t3 = coro.spawn(third)
    settle()
    with pytest.raises(coro.DeadlockError, match="one another") as info:
        other.lock("b")
    assert [t for t, _ in info.value.threads] == [coro.current(), t2]
    assert find_cycle(coro.current(), plain) == [coro.current(), t2]
    assert find_cycle(coro.current(), t3) == [coro.current(), t3, t2]
    smith.unlock("a")
    t2.join()
    assert log == ["third", "second"] and len(smith) == len(other) == 0


@in_loop
def test_the_global_lock_excludes_everybody():
    smith, log = MutexLockSmith(), []
    smith.lock("mine")
    other = start(
        log, "other", lambda: smith.lock("b"), coro._yield, lambda: smith.lock("c"), lambda: smith.unlock("c")
    )
    settle()
    assert smith.try_lock_global() is True
    boss = start(log, "boss", smith.lock_global, smith.unlock_global)
    settle()
    late = start(log, "late", lambda: smith.lock("new"), lambda: smith.unlock("new"))
    settle()
    assert log == [("other", False)]
    assert len(smith.waiting_threads()) == 2
    assert smith.try_lock("more") is False  # who holds a name may come to its end
    smith.unlock("more")
    other.schedule()
    settle()
    assert log[1:] == [("other", None), ("other", False), ("other", None)]
    smith.unlock("mine")
    settle()
    assert not boss.dead and other.dead  # it ended with "b" locked: the boss waits for a dead thread
    boss.shutdown()
    settle()
    assert late.dead and log[-2:] == [("late", True), ("late", None)]


@in_loop
def test_the_global_lock_alone():
    smith, log = MutexLockSmith(), []
    smith.lock("mine")
    assert smith.try_lock_global() is False and smith.lock_global() is False
    start(log, "t", lambda: smith.try_lock("a"), smith.try_lock_global).join()
    assert log == [("t", True), ("t", True)]
    smith.unlock_global()
    smith.unlock_global()
    with pytest.raises(coro.LockError):
        smith.unlock_global()
    smith.unlock("mine")


@in_loop
def test_circles_through_the_global_lock():
    smith, log = MutexLockSmith(), []

    def boss():
        smith.lock("b")
        smith.lock_global()
        log.append("boss")
        smith.unlock_global()
        smith.unlock("b")

    smith.lock("a")
    t = coro.spawn(boss)
    settle()
    for call in (lambda: smith.lock("b"), smith.lock_global):
        with pytest.raises(coro.DeadlockError):
            call()
    smith.unlock("a")
    t.join()
    assert log == ["boss"] and len(smith) == 0


@pytest.mark.filterwarnings("ignore::coro.LockCycleWarning")
def test_the_manager_breaks_what_others_closed():
    def main():
        smith, plain, log = MutexLockSmith(), mutex(), []
        smith.deadlock_check_period = 10
        smith.start_manager_thread()
        smith.start_manager_thread()
        smith.lock("a")

        def second():
            with plain:
                try:
                    smith.lock("a")
                except coro.DeadlockError as exc:
                    log.append(len(exc.threads))

        coro.spawn(second)
        settle()
        t = coro.spawn(advance, 15)  # while this thread waits for a lock that knows nothing of circles
        plain.lock()
        assert log == [2] and t.dead
        plain.unlock()
        smith.unlock("a")
        assert smith.check_for_deadlocks() == 0
        smith.stop_manager_thread()
        smith.stop_manager_thread()

    with virtual_clock():
        coro.run(main)


@in_loop
def test_holders():
    lock = rw_lock()
    assert holders_of(lock) == () and holders_of("anything") == ()
    with lock.read():
        assert holders_of(lock) == (coro.current(),)
    t = coro.spawn(int)
    assert holders_of(t) == (t,)
    t.join()
    assert holders_of(t) == ()
    assert list(LockSmith().waiting_threads()) == []


@in_loop
def test_statistics():
    smith = MutexLockSmith()
    assert smith.statistics() == (0, 0, 0, None, 0, 0)
    assert LockSmith().statistics() == (0, 0, 0, None, 0, 0)
    smith.lock("a")
    t = coro.spawn(smith.lock, "a")
    settle()
    stats = smith.statistics()
    assert (stats.names, stats.holders, stats.waiting, stats.contended) == (1, 1, 1, 1)
    smith.unlock("a")
    t.join()
    smith = MutexLockSmith()
    smith.lock_global()
    assert smith.statistics().global_owner is coro.current()
    smith.unlock_global()

    def crosswise(first, second):
        smith.lock(first)
        coro.yield_slice()
        try:
            smith.lock(second)
        except coro.DeadlockError:
            smith.unlock(first)
        else:
            smith.unlock(second)
            smith.unlock(first)

    for t in [coro.spawn(crosswise, "a", "b"), coro.spawn(crosswise, "b", "a")]:
        t.join()
    assert smith.statistics().deadlocks == 1 and smith.statistics().names == 0
