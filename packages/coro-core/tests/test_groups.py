"""Groups: nothing is left behind, failures come out together, and interruptions of the owner leave bare.

Threads wait for gates that the test opens, so every order is the one written here.
"""

from __future__ import annotations

import gc
import random
import weakref

import pytest
from support import in_loop, ok, program

import coro
from coro._runtime.scheduler import _suspend, _wake
from coro._sync.group_calls import GroupCall
from coro.groups import GroupError, group

pytestmark = pytest.mark.usefixtures("leaves_nothing")


class Gate:
    """Closed until open() is called; threads wait() at it."""

    def __init__(self):
        self.is_open = False
        self.waiting = []

    def wait(self):
        me = coro.current()
        while not self.is_open:
            self.waiting.append(me)
            try:
                _suspend(self)
            finally:
                self.waiting.remove(me)

    def open(self):
        self.is_open = True
        for t in list(self.waiting):
            _wake(t)


def settle(turns=6):
    for _ in range(turns):
        coro.yield_slice()


def fail(error):
    raise error


def forever(log=None, name=None):
    try:
        Gate().wait()
    except coro.Shutdown:
        if log is not None:
            log.append(name)
        raise


# -- the normal course


@in_loop
def test_block_ends_when_all_have_ended():
    gate, done = Gate(), []

    def child(n, *, twice=False):
        gate.wait()
        done.append(n)
        return n * 2 if twice else n

    with group() as g:
        a = g.spawn(child, 1)
        b = g.spawn(child, 2, twice=True, thread_name="second")
        assert done == []  # spawn does not switch
        settle()
        assert g.threads == [a, b]
        assert a.name.endswith("child") and b.name == "second"
        coro.spawn(gate.open)
    assert done == [1, 2]
    assert a.dead and b.dead
    assert (a.result, b.result) == (1, 4)
    assert g.closed and g.threads == []
    assert g.statistics() == (0, 0, 2, 0, None, True)


@in_loop
def test_empty_group():
    with group() as g:
        pass
    assert g.closed


@in_loop
def test_children_spawn_siblings_while_the_owner_waits():
    done = []

    def child(depth):
        coro.yield_slice()
        if depth:
            g.spawn(child, depth - 1)
            g.spawn(child, depth - 1)
        done.append(depth)

    with group() as g:
        g.spawn(child, 4)
    assert len(done) == 31


@in_loop
def test_many_children_and_none_kept():
    """A group that lives long does not collect those that have ended."""

    class Value:
        pass

    kept = weakref.WeakSet()

    def child():
        v = Value()
        kept.add(v)
        return v

    with group() as g:
        for _ in range(500):
            g.spawn(child)
            coro.yield_slice()
        assert len(kept) <= 3


@in_loop
def test_daemon_like_its_owner():
    with group() as g:
        t = g.spawn(int)
        d = g.spawn(int, daemon=True)
        assert not t.daemon and d.daemon


# -- failures


@in_loop
def test_one_failure_is_a_group_too():
    error = ValueError("x")
    with pytest.raises(ExceptionGroup) as e, group() as g:
        g.spawn(fail, error)
    assert e.value.exceptions == (error,)
    assert "1 failure" in str(e.value)
    names = []
    tb = error.__traceback__
    while tb:
        names.append(tb.tb_frame.f_code.co_name)
        tb = tb.tb_next
    assert names == ["fail"]


@in_loop
def test_first_failure_shuts_the_others_down():
    log = []
    with pytest.raises(ExceptionGroup) as e, group() as g:
        a = g.spawn(forever, log, "a")
        coro.yield_slice()
        g.spawn(fail, KeyError(1))
        b = g.spawn(forever, log, "b")  # runs after the failure: never
    assert log == ["a"]
    assert a.dead and b.dead and not b.started
    assert len(e.value.exceptions) == 1


@in_loop
def test_failures_during_shutdown_join_the_first():
    def clean_up_badly():
        try:
            forever()
        finally:
            raise OSError("late")

    with pytest.raises(ExceptionGroup) as e, group() as g:
        g.spawn(clean_up_badly)
        coro.yield_slice()
        g.spawn(fail, KeyError(1))
    assert [type(x) for x in e.value.exceptions] == [KeyError, OSError]


@in_loop
def test_clean_up_is_not_interrupted_by_a_second_failure():
    gate, log = Gate(), []

    def careful():
        try:
            forever()
        finally:
            gate.wait()
            log.append("cleaned up")

    def fails_late():
        try:
            forever()
        finally:
            coro.yield_slice()
            raise OSError("late")

    with pytest.raises(ExceptionGroup), group() as g:
        g.spawn(careful)
        g.spawn(fails_late)
        settle()
        g.spawn(fail, KeyError(1))
        coro.spawn(lambda: (settle(), gate.open()))
    assert log == ["cleaned up"]


@in_loop
def test_failure_gets_the_owner_out_of_the_block():
    reached = []
    with pytest.raises(ExceptionGroup) as e, group() as g:
        g.spawn(fail, KeyError(1))
        try:
            forever()
        except coro.Interrupted:
            reached.append("clean-up")
            raise
        reached.append("never")
    assert reached == ["clean-up"]
    assert [type(x) for x in e.value.exceptions] == [KeyError]


@in_loop
def test_failure_meets_an_owner_that_leaves_anyway():
    """The interruption sent to the owner must not arrive after the block."""
    with pytest.raises(ExceptionGroup), group() as g:
        me = coro.current()
        t = g.spawn(fail, KeyError(1))
        coro.spawn(me.schedule)  # runs after the failure and finds the owner scheduled with the interruption
        try:
            coro._yield()
        except (coro.ScheduleError, coro.Interrupted):
            pass
    assert t.dead
    settle()  # nothing strikes here


@in_loop
def test_owner_that_swallows_the_interruption():
    with pytest.raises(ExceptionGroup), group() as g:
        g.spawn(fail, KeyError(1))
        try:
            forever()
        except BaseException:
            pass
        with pytest.raises(GroupError):
            g.spawn(int)


@in_loop
def test_block_that_raises():
    log = []
    with pytest.raises(ExceptionGroup) as e, group() as g:
        g.spawn(forever, log, "a")
        coro.yield_slice()
        raise KeyError("block")
    assert log == ["a"]
    assert [type(x) for x in e.value.exceptions] == [KeyError]


@in_loop
def test_own_shutdown_of_a_child_is_no_failure():
    with group() as g:
        t = g.spawn(forever)
        g.spawn(fail, coro.Shutdown())
        u = g.spawn(int, "7")
        coro.yield_slice()
        t.shutdown()
    assert u.result == 7


@in_loop
def test_other_base_exceptions():
    for error in (SystemExit(3), coro.TimeoutError(), KeyboardInterrupt()):
        with pytest.raises(BaseExceptionGroup) as e, group() as g:
            g.spawn(fail, error)
        assert e.value.exceptions == (error,)


@in_loop
def test_groups_in_groups():
    log = []

    def inner():
        with group() as h:
            h.spawn(forever, log, "grandchild")
            h.spawn(forever, log, "grandchild")

    with pytest.raises(ExceptionGroup) as e, group() as g:
        g.spawn(inner)
        settle()
        g.spawn(fail, KeyError(1))
        with group() as own:  # the owner's own inner block: the outer failure passes through it bare
            own.spawn(forever, log, "own")
    assert sorted(log) == ["grandchild", "grandchild", "own"]
    assert [type(x) for x in e.value.exceptions] == [KeyError]


@in_loop
def test_inner_failure_of_base_kind_is_a_failure_outside():
    with pytest.raises(BaseExceptionGroup) as e, group(), group() as h:
        h.spawn(fail, coro.TimeoutError())
    assert isinstance(e.value.exceptions[0], BaseExceptionGroup)


@in_loop
def test_failures_make_no_cycles():
    class Error(Exception):
        pass

    def child():
        raise Error

    def once():
        with group() as g:
            g.spawn(child)
            g.spawn(forever)

    gc.collect()
    gc.disable()
    try:
        refs = []
        try:
            once()
        except ExceptionGroup as e:
            refs.append(weakref.ref(e.exceptions[0]))
        assert refs[0]() is None
    finally:
        gc.enable()


# -- interruptions of the owner


@in_loop
def test_timeout_in_the_block_and_in_the_wait():
    for in_block in (True, False):
        log = []
        with pytest.raises(coro.TimeoutError), coro.timeout(0.01), group() as g:
            t = g.spawn(forever, log, "a")
            if in_block:
                forever()
        assert t.dead and log == ["a"]


@in_loop
def test_shutdown_of_the_owner_leaves_bare():
    log = []

    def owner():
        with group() as g:
            g.spawn(forever, log, "a")
            g.spawn(forever, log, "b")

    t = coro.spawn(owner)
    settle()
    t.shutdown()
    t.join()
    assert log == ["a", "b"]
    assert isinstance(t.exception, coro.Shutdown)


@in_loop
def test_second_interruption_does_not_end_the_wait():
    """Neither a shutdown nor the timeout of an outer scope: they strike after the block."""
    gate, log = Gate(), []

    def slow_to_end():
        try:
            forever()
        finally:
            gate.wait()
            log.append("child")

    def owner():
        try:
            with pytest.raises(ZeroDivisionError), group() as g:
                g.spawn(slow_to_end)
                coro._yield()
        finally:
            log.append("owner")
            coro.yield_slice()
            log.append("never")

    t = coro.spawn(owner)
    settle()
    t.raise_exception(coro.Interrupted("first"))
    settle()
    t.shutdown()
    settle()
    assert log == []
    gate.open()
    t.join()
    assert log == ["child", "owner"]
    assert isinstance(t.exception, coro.Shutdown)


@in_loop
def test_outer_timeout_is_not_lost_during_the_wait():
    gate, log = Gate(), []

    def slow_to_end():
        try:
            forever()
        finally:
            gate.wait()

    def opener():
        coro.sleep_relative(0.05)
        gate.open()

    coro.spawn(opener)
    with pytest.raises(coro.TimeoutError), coro.timeout(0.02):
        try:
            with coro.timeout(0.005), group() as g:
                g.spawn(slow_to_end)
        except coro.TimeoutError:
            log.append("inner")
        forever()
    assert log == ["inner"]


@in_loop
def test_exception_sent_to_the_waiting_owner_is_a_failure():
    log = []

    def owner():
        with group() as g:
            g.spawn(forever, log, "a")

    t = coro.spawn(owner)
    coro.set_exception_notifier(lambda: None)
    settle()
    t.raise_exception(coro.WakeUp)
    t.join()
    coro.set_exception_notifier(None)
    assert log == ["a"]
    assert isinstance(t.exception, ExceptionGroup)


@in_loop
def test_failures_behind_a_bare_interruption_reach_the_notifier():
    import sys

    told = []
    coro.set_exception_notifier(lambda: told.append(sys.exc_info()[1]))

    def clean_up_badly():
        try:
            forever()
        finally:
            raise OSError("late")

    try:
        with pytest.raises(coro.TimeoutError), coro.timeout(0.01), group() as g:
            g.spawn(clean_up_badly)
    finally:
        coro.set_exception_notifier(None)
    assert [type(x) for e in told for x in e.exceptions] == [OSError]
    told.clear()


def test_interruption_at_any_moment_leaves_no_child_behind():
    """The owner is shut down after every number of turns of a small program: block, children, failure, wait."""

    @in_loop
    def once(turns, kind):
        before = set(coro.all_threads)
        done = []

        def child(n):
            try:
                for _ in range(n):
                    coro.yield_slice()
                if kind == "failing" and n == 3:
                    raise KeyError(n)
            finally:
                coro.yield_slice()
                done.append(n)

        def owner():
            coro.yield_slice()
            with group(2) as g:
                for n in range(5):
                    g.spawn(child, n)
                    coro.yield_slice()
                g.wait_for_room()
            coro.yield_slice()

        t = coro.spawn(owner)
        for _ in range(turns):
            coro.yield_slice()
        at_end = t.dead
        t.shutdown()
        t.join()
        assert set(coro.all_threads) <= before
        return at_end

    for kind in ("quiet", "failing"):
        old = coro.set_exception_notifier(lambda: None)
        turns = 0
        while not once(turns, kind):
            turns += 1
        coro.set_exception_notifier(old)
        assert turns > 8


@pytest.mark.parametrize("seed", range(8))
def test_random_interruptions(seed):
    """Nested groups with random failures, cancelled children and interruptions: no thread is left, whoever was hit."""
    rng = random.Random(seed)
    old = coro.set_exception_notifier(lambda: None)

    @in_loop
    def main():
        before = set(coro.all_threads)

        def work(depth):
            for _ in range(rng.randrange(4)):
                coro.yield_slice()
            if rng.random() < 0.1:
                raise KeyError(depth)
            if depth:
                with group(rng.choice((None, 1, 2))) as g:
                    for _ in range(rng.randrange(4)):
                        g.spawn(work, depth - 1)
                        if rng.random() < 0.3:
                            coro.yield_slice()

        for _ in range(30):
            t = coro.spawn(work, 3)
            for _ in range(rng.randrange(12)):
                coro.yield_slice()
                threads = [x for i, x in coro.all_threads.items() if i not in before]
                if threads and rng.random() < 0.4:
                    rng.choice(threads).shutdown()
                elif threads and rng.random() < 0.2:
                    victim = rng.choice(threads)
                    if victim.started:
                        victim.raise_exception(coro.Interrupted)
            t.join()
            # Those the test shut down in a group are waited for by it; so with the root everything is gone.
            assert set(coro.all_threads) <= before

    try:
        main()
    finally:
        coro.set_exception_notifier(old)


# -- the cap


@in_loop
def test_cap_on_running_threads():
    running = most = 0
    order = []

    def child(n):
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(n % 3 + 1):
            coro.yield_slice()
        order.append(n)
        running -= 1

    with group(limit=3) as g:
        threads = [g.spawn(child, n) for n in range(20)]
        assert g.statistics()[:2] == (3, 17)
        assert g.limit == 3
        assert [t.id in coro.all_threads for t in threads] == [True] * 3 + [False] * 17
    assert most == 3
    assert sorted(order) == list(range(20))


@in_loop
def test_cancelled_children_make_room():
    """Neither a queued child nor one that was started but never ran keeps a place."""
    ran = []
    with group(1) as g:
        a = g.spawn(ran.append, "a")
        b = g.spawn(ran.append, "b")
        g.spawn(ran.append, "c")
        b.shutdown()
        a.shutdown()
        settle()
        assert ran == ["c"]
    assert ran == ["c"]


@in_loop
def test_cancelled_children_do_not_hang_the_owner():
    with group() as g:
        t = g.spawn(int)
        coro.spawn(lambda: None)
        t.shutdown()
        u = g.spawn(coro.yield_slice)
        coro.spawn(u.shutdown)


@in_loop
def test_queued_children_of_a_failed_group_never_run():
    ran = []
    with pytest.raises(ExceptionGroup), group(1) as g:
        g.spawn(fail, KeyError(1))
        queued = [g.spawn(ran.append, n) for n in range(3)]
    assert ran == [] and all(t.dead for t in queued)


@in_loop
def test_queued_child_started_by_hand():
    ran = []
    with group(1) as g:
        g.spawn(coro.yield_slice)
        g.spawn(ran.append, 1).start()
        g.spawn(ran.append, 2)
    assert ran == [1, 2]


@in_loop
def test_wait_for_room():
    gate, log = Gate(), []
    with group(2) as g:
        g.wait_for_room()
        g.spawn(gate.wait)
        g.spawn(gate.wait)
        coro.spawn(lambda: (log.append("opened"), gate.open()))
        g.wait_for_room()
        assert log == ["opened"]
    with pytest.raises(GroupError):
        g.wait_for_room()


@in_loop
def test_limits_that_make_no_sense():
    for limit in (0, -1):
        with pytest.raises(ValueError, match="at least one"):
            group(limit)
    for limit in ("3", 2.0, True):
        with pytest.raises(TypeError, match="int or None"):
            group(limit)


# -- misuse, and the end


@in_loop
def test_spawning_at_the_wrong_time():
    g = group()
    with pytest.raises(GroupError, match="inside its block"):
        g.spawn(int)
    with g:
        pass
    with pytest.raises(GroupError, match="no more threads"):
        g.spawn(int)
    with pytest.raises(GroupError, match="make a new"), g:
        pass
    with group() as g, pytest.raises(TypeError, match="expected a function to call"):
        g.spawn(3)


@in_loop
def test_spawning_into_a_closing_group():
    refused = []

    def stubborn():
        try:
            forever()
        finally:
            with pytest.raises(GroupError) as e:
                g.spawn(int)
            refused.append(e.value)

    with group() as g:
        g.spawn(stubborn)
        coro.yield_slice()
        g.shutdown()
        assert g.closed
    assert len(refused) == 1


@in_loop
def test_shutdown_by_a_child():
    log = []

    def ends_it():
        try:
            g.shutdown()
        finally:
            log.append("caller")

    with group() as g:
        g.spawn(forever, log, "other")
        coro.yield_slice()
        t = g.spawn(ends_it)
    assert log == ["caller", "other"] and t.dead


def test_outside_a_thread():
    with pytest.raises(coro.YieldFromMain), group():
        pass


def test_left_in_another_thread():
    @in_loop
    def main():
        def generate():
            with group() as g:
                g.spawn(forever)
                yield

        it = generate()
        next(it)
        t = coro.spawn(it.close)
        t.join()
        return t.exception

    old = coro.set_exception_notifier(lambda: None)
    assert isinstance(main(), GroupError)
    coro.set_exception_notifier(old)


def test_end_of_the_loop():
    """An orderly end reaches children and owners; one that refuses to end does not hold up the rest."""
    lines = ok(
        """
        import coro
        from coro.groups import group

        def child(n):
            try:
                coro._yield()
            finally:
                print("child", n)

        def main():
            try:
                with group(2) as g:
                    for n in range(4):
                        g.spawn(child, n)
                    coro.yield_slice()
                    coro.set_exit(5)
            finally:
                print("owner")

        try:
            coro.run(main)
        except SystemExit as e:
            print("exit", e.code)
        """
    )
    assert sorted(lines) == ["child 0", "child 1", "exit 5", "owner"]


def test_forced_end_of_the_loop():
    outcome = program(
        """
        import coro
        from coro.groups import group

        def stubborn():
            while True:
                try:
                    coro.sleep_relative(1000)
                except coro.Interrupted:
                    pass

        def main():
            with group() as g:
                g.spawn(stubborn)
                coro.yield_slice()
                coro.set_exit(5, grace=0.05)

        coro.run(main)
        """
    )
    assert outcome.code == 5, outcome.err
    assert "main" not in outcome.err  # the owner ended


def test_fork_inside_the_block():
    lines = ok(
        """
        import os
        import coro
        from coro.groups import group

        def main():
            with group() as g:
                t = g.spawn(coro._yield)
                coro.yield_slice()
                if os.fork() == 0:
                    coro.set_exception_notifier(lambda: None)
                    pid = 0
                else:
                    pid = os.wait()[0]
                    t.shutdown()
            print("child" if pid == 0 else "parent", t.dead, flush=True)

        coro.run(main)
        """,
        "-W",
        "ignore",
    )
    assert sorted(lines) == ["child True", "parent True"]


def test_a_child_that_a_signal_handler_kept_from_being_made_counts_for_nothing():
    """What its end raises would be reported as unraisable, and that is an error here."""
    GroupCall.__new__(GroupCall)
