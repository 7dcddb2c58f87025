"""Order of execution, the thread object, and what the scheduler tells about threads.

Nothing here waits for time: threads meet through schedule() and _yield(), and where a timer is needed the clock is a
virtual one.
"""

import contextvars
import gc
import re
import socket
import sys
import traceback
import weakref

import pytest
from support import advance, ok, program, virtual_clock

import coro
from coro import _scheduler


@pytest.fixture
def notified():
    """The exceptions that reached the notifier, instead of lines on stderr."""
    seen = []
    before = coro.set_exception_notifier(lambda: seen.append((coro.current(), sys.exc_info()[1])))
    yield seen
    coro.set_exception_notifier(before)


# ------------------------------------------------------------------------------------------------- order


def test_threads_run_in_the_order_they_were_scheduled():
    log = []

    def main():
        sleepers = [coro.spawn(lambda n=n: (coro._yield(), log.append(n))) for n in range(5)]
        coro.yield_slice()
        for n in (3, 0, 4, 1, 2):
            sleepers[n].schedule()
        for t in sleepers:
            t.join()

    coro.run(main)
    assert log == [3, 0, 4, 1, 2]


def test_spawn_start_and_schedule_do_not_switch():
    log = []

    def main():
        coro.spawn(log.append, "spawned")
        coro.new(log.append, "started").start()
        waiter = coro.spawn(lambda: (log.append("waits"), coro._yield(), log.append("woken")))
        assert log == []
        coro.yield_slice()
        assert log == ["spawned", "started", "waits"]
        waiter.schedule()
        assert log == ["spawned", "started", "waits"]
        waiter.join()

    coro.run(main)
    assert log[-1] == "woken"


def test_work_scheduled_during_a_batch_runs_in_the_next_one():
    log = []

    def a():
        log.append("a")
        coro.spawn(log.append, "b")
        coro.spawn(log.append, "c")

    def main():
        coro.spawn(a)
        coro.spawn(log.append, "d")

    coro.run(main)
    assert log == ["a", "d", "b", "c"]


def test_work_scheduled_during_a_batch_runs_before_timers_and_yielders():
    log = []

    def main():
        timed = coro.spawn(lambda: (coro.sleep_relative(0.1), log.append("timer")))
        coro.yield_slice()
        coro.spawn(lambda: (coro.yield_slice(), log.append("slice")))

        def chain(n):
            log.append(n)
            if n < 5:
                coro.spawn(chain, n + 1)
            else:
                advance(0.15)

        chain(0)
        timed.join()

    with virtual_clock():
        coro.run(main)
    assert log == [0, 1, 2, 3, 4, 5, "timer", "slice"]


def test_a_thread_is_in_the_run_queue_at_most_once():
    log = []

    def waiter():
        log.append(coro._yield())

    def main():
        t = coro.spawn(waiter)
        coro.yield_slice()
        t.schedule(1)
        with pytest.raises(coro.ScheduleError) as info:
            t.schedule(2)
        assert info.value.args[0] is t
        t.join()

    coro.run(main)
    assert log == [1]


def test_yield_slice_comes_back_after_everything_runnable_and_after_a_poll():
    log = []
    a, b = socket.socketpair()

    def reader():
        coro.wait_for(a, coro.EVFILT.READ)
        log.append("reader")

    def main():
        coro.spawn(reader)
        coro.yield_slice()
        coro.spawn(lambda: (log.append(1), coro.spawn(log.append, 2)))
        b.send(b"x")
        coro.yield_slice()
        log.append("main")

    coro.run(main)
    a.close()
    b.close()
    assert log == [1, 2, "reader", "main"]


def test_timers_for_the_same_tick_fire_in_the_order_they_were_set():
    log = []

    def sleeper(n, when):
        coro.sleep_absolute(when)
        log.append(n)

    def main():
        when = coro.get_now() + coro.ticks_per_sec
        threads = [coro.spawn(sleeper, n, when) for n in range(200)]
        coro.yield_slice()
        advance(2)
        for t in threads:
            t.join()

    with virtual_clock():
        coro.run(main)
    assert log == list(range(200))


def test_everything_runnable_still_runs_when_an_exit_was_asked_for():
    log = []

    def chain(n):
        log.append(n)
        if n < 50:
            coro.spawn(chain, n + 1)

    def main():
        coro.spawn(chain, 0)
        coro.set_exit(3)
        log.append("after set_exit")
        coro._yield()

    with pytest.raises(SystemExit) as info:
        coro.run(main)
    assert info.value.code == 3
    assert log == ["after set_exit", *range(51)]


def test_even_more_than_a_bounded_drain_can_run_at_once():
    """Threads that were spawned before the exit run up to their first suspension, however many there are."""
    log = []

    def child():
        log.append("ran")
        coro._yield()
        log.append("went on")

    def main():
        for _ in range(30_000):
            coro.spawn(child)
        coro.set_exit(0)

    with pytest.raises(SystemExit):
        coro.run(main)
    assert len(log) == 30_000
    assert set(log) == {"ran"}


def test_a_thread_taken_out_of_the_batch_does_not_run_in_it():
    log = []

    def first(second):
        second.raise_exception(ValueError)  # moves it to the end of the next batch
        log.append("first")

    def victim():
        try:
            coro._yield()
        except ValueError:
            log.append("victim")

    def main():
        t = coro.spawn(victim)
        coro.yield_slice()
        coro.spawn(first, t)
        t.schedule()
        coro.spawn(lambda: (log.append("third"), coro.spawn(log.append, "fourth")))
        t.join()

    coro.run(main)
    assert log == ["first", "third", "victim", "fourth"]


def test_a_cancelled_thread_does_not_run_in_the_same_batch():
    log = []

    def main():
        threads = []
        coro.spawn(lambda: threads[0].shutdown())
        threads.append(coro.spawn(log.append, "never"))
        coro.spawn(log.append, "other")

    coro.run(main)
    assert log == ["other"]


def test_scheduled_flag_while_a_thread_runs_and_after():
    log = []

    def waiter():
        me = coro.current()
        log.append(me.scheduled)
        with pytest.raises(coro.ScheduleError):
            me.schedule()
        log.append(coro._yield())
        log.append(coro._yield())

    def main():
        t = coro.spawn(waiter)
        assert t.scheduled and not t.started
        coro.spawn(lambda: t.schedule("a"))  # suspended in this very batch, may be scheduled again
        coro.yield_slice()
        assert t.started and not t.scheduled
        t.schedule("b")
        assert t.scheduled and t.value == "b"
        t.join()
        assert t.dead and not t.scheduled

    coro.run(main)
    assert log == [False, "a", "b"]


# ------------------------------------------------------------------------------------------------- fairness


def ping_pong(stop):
    """Two threads that keep waking each other until stop() says so."""

    def play(other):
        while not stop():
            if not other[0].scheduled and other[0].started and not other[0].dead:
                other[0].schedule()
            coro._yield()

    left, right = [], []
    right.append(coro.spawn(play, left))
    left.append(coro.spawn(play, right))
    return left[0], right[0]


@pytest.mark.parametrize("what", ["timer", "descriptor", "yield_slice", "timeout"])
def test_threads_that_wake_each_other_starve_nobody(what):
    a, b = socket.socketpair()
    done = []

    def wait():
        if what == "timer":
            coro.sleep_relative(0.001)
        elif what == "descriptor":
            coro.wait_for(a, coro.EVFILT.READ)
        elif what == "yield_slice":
            coro.yield_slice()
        else:
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.001, coro._yield)
        done.append(what)

    def main():
        t = coro.spawn(wait)
        coro.yield_slice()
        pair = ping_pong(lambda: done)
        b.send(b"x")
        t.join()
        for p in pair:
            p.shutdown()

    before = coro.statistics().bounded_drains
    coro.run(main)
    a.close()
    b.close()
    assert done == [what]
    if what != "yield_slice":  # which need not have waited for the drain's end
        assert coro.statistics().bounded_drains > before


def test_threads_that_wake_each_other_do_not_hold_up_the_end():
    def main():
        ping_pong(lambda: False)
        coro.yield_slice()
        coro.set_exit(7)

    with pytest.raises(SystemExit) as info:
        coro.run(main)
    assert info.value.code == 7


def test_the_rest_of_a_batch_keeps_its_order_ahead_of_who_yielded():
    log = []

    def main():
        coro.spawn(lambda: (coro.yield_slice(), log.append("yielder")))
        for n in range(1000):
            # the clock jumps beyond the drain's budget in the middle of the batch
            coro.spawn(lambda n=n: (advance(0.1) if n == 300 else None, log.append(n)))
        while len(log) < 1001:
            coro.yield_slice()

    with virtual_clock():
        coro.run(main)
    assert [n for n in log if n != "yielder"] == list(range(1000))
    assert log[-1] == "yielder"


# ------------------------------------------------------------------------------------------------- making threads


def test_arguments_reach_the_function():
    def f(*args, **kwargs):
        return args, kwargs

    def main():
        t = coro.spawn(f, 1, 2, function=3, key=4, thread_name="t")
        t.join()
        assert t.name == "t"
        return t.result

    assert coro.run(main) == ((1, 2), {"function": 3, "key": 4})


def test_run_passes_every_keyword_on():
    def main(**kwargs):
        assert not coro.current().daemon
        return kwargs

    assert coro.run(main, daemon=True, thread_name=3, main=1) == {"daemon": True, "thread_name": 3, "main": 1}


def test_names():
    class C:
        def method(self):
            pass

        def __call__(self):
            pass

    def main():
        def inner():
            pass

        name = "test_names.<locals>."
        assert coro.new(inner).name == name + "main.<locals>.inner"
        assert coro.new(C().method).name == name + "C.method"
        assert coro.new(C()).name == name + "C"
        assert coro.new(len).name == "len"
        t = coro.new(inner, thread_name="given")
        assert t.name == t.get_name() == t.getName() == "given"
        assert t.set_name("other") is t
        assert t.setName("third") is t
        assert t.name == "third"
        assert coro.current().name == name + "main"

    coro.run(main)


def test_names_are_formatted_only_when_asked_for():
    class Nosy:
        asked = 0

        def __getattr__(self, name):
            type(self).asked += name == "__qualname__"
            raise AttributeError(name)

        def __call__(self):
            pass

    def main():
        t = coro.spawn(Nosy())
        t.join()
        return t

    coro.run(main)
    assert Nosy.asked <= 1  # at its death, before the function goes


def test_ids_are_positive_increasing_and_not_reused():
    def main():
        ids = []
        for _ in range(100):
            t = coro.spawn(int)
            ids.append(t.id)
            assert t.thread_id() == t.id
            t.join()
        return ids

    ids = coro.run(main)
    assert ids == sorted(set(ids))
    assert ids[0] > 0


def test_attributes_are_read_only():
    t = coro.new(int)
    for name in ("id", "name", "dead", "started", "scheduled", "daemon", "value", "result", "exception"):
        with pytest.raises(AttributeError):
            setattr(t, name, 1)


def test_flags_are_bools_and_repr_shows_them():
    t = coro.new(int, thread_name="x")
    assert (t.dead, t.started, t.scheduled) == (False, False, False)
    assert re.fullmatch(r"<coro #\d+ name='x' dead=0 started=0 scheduled=0 at 0x[0-9a-f]+>", repr(t))


def test_new_does_not_schedule_and_start_does():
    log = []

    def main():
        t = coro.new(log.append, 1)
        coro.yield_slice()
        assert log == [] and not t.scheduled
        assert t.id not in coro.all_threads
        t.start()
        assert t.id in coro.all_threads
        with pytest.raises(coro.ScheduleError):
            t.start()
        t.join()
        with pytest.raises(coro.DeadCoroutine):
            t.start()
        with pytest.raises(coro.DeadCoroutine) as info:
            t.schedule()
        assert info.value.args[0] is t

    coro.run(main)
    assert log == [1]


def test_start_of_a_spawned_thread_is_an_error():
    def main():
        t = coro.spawn(int)
        with pytest.raises(coro.ScheduleError):
            t.start()

    coro.run(main)


def test_schedule_starts_a_thread_that_has_not_run_and_drops_the_value():
    log = []

    def main():
        t = coro.new(lambda: log.append(coro._yield()))
        coro.schedule(t, "ignored")
        coro.yield_slice()
        coro.schedule(t, "seen")
        t.join()

    coro.run(main)
    assert log == ["seen"]


def test_a_thread_never_started_leaves_nothing_behind():
    before = coro.get_live_coros()
    t = coro.new(int)
    assert coro.get_live_coros() == before + 1
    gone = weakref.ref(t)
    del t
    assert gone() is None
    assert coro.get_live_coros() == before


def test_thread_class_is_not_for_calling():
    with pytest.raises(TypeError, match=r"coro\.spawn"):
        coro.coro(int, ())
    hollow = coro.coro.__new__(coro.coro)
    with pytest.raises(TypeError, match="nothing to run"):
        hollow.start()
    with pytest.raises(TypeError):
        type("Sub", (coro.coro,), {})


def test_threads_spawned_before_the_loop_run_in_it():
    log = []
    coro.spawn(log.append, 1)
    coro.spawn(log.append, 2)
    coro.run(log.append, 3)
    assert log == [1, 2, 3]


def test_a_thread_inherits_a_copy_of_the_spawners_context():
    var = contextvars.ContextVar("var", default="none")

    def child():
        seen = var.get()
        var.set("child's")
        return seen

    def main():
        var.set("main's")
        t = coro.spawn(child)
        var.set("changed later")
        t.join()
        return t.result, var.get()

    assert coro.run(main) == ("main's", "changed later")
    assert var.get() == "none"


# ------------------------------------------------------------------------------------------------- the thread object


def test_current():
    def main():
        assert coro.current() is coro.get_thread_by_id(coro.current().id)
        return coro.current()

    t = coro.run(main)
    assert isinstance(t, coro.coro)
    for _ in range(2):  # before and after a loop
        assert coro.current().id == -1
        assert coro.current().name == "main/scheduler"


def test_result_and_exception(notified):
    def fail():
        raise ValueError("x")

    def main():
        good, bad, shut = coro.spawn(lambda: 5), coro.spawn(fail), coro.spawn(coro._yield)
        assert good.result is None and good.exception is None
        coro.yield_slice()
        shut.shutdown()
        shut.join()
        assert (good.result, good.exception) == (5, None)
        assert bad.result is None and isinstance(bad.exception, ValueError)
        assert shut.result is None and isinstance(shut.exception, coro.Shutdown)

    coro.run(main)
    assert [str(e) for _, e in notified] == ["x"]


def test_a_result_that_is_the_thread_itself_is_collected():
    def main():
        t = coro.spawn(coro.current)
        t.join()
        assert t.result is t
        return weakref.ref(t)

    gone = coro.run(main)
    gc.collect()
    assert gone() is None


def test_function_arguments_and_keywords_are_released_at_death():
    class Thing:
        pass

    def f(*args, **kwargs):
        pass

    def main():
        thing, keyword = Thing(), Thing()
        refs = weakref.ref(thing), weakref.ref(keyword)
        t = coro.spawn(f, thing, k=keyword)
        del thing, keyword
        t.join()
        assert [r() for r in refs] == [None, None]
        return t

    coro.run(main)


def test_a_delivered_value_is_not_kept_alive():
    class Thing:
        pass

    def main():
        t = coro.spawn(lambda: (coro._yield(), coro._yield()))
        coro.yield_slice()
        thing = Thing()
        ref = weakref.ref(thing)
        t.schedule(thing)
        del thing
        coro.yield_slice()
        assert t.value is None
        t.shutdown()
        t.join()
        assert ref() is None

    coro.run(main)


def test_join_wakes_everybody_in_order_and_returns_none():
    log = []

    def main():
        t = coro.spawn(coro._yield)
        joiners = [coro.spawn(lambda n=n: log.append((n, t.join()))) for n in range(5)]
        coro.yield_slice()
        assert log == []
        t.schedule()
        for j in joiners:
            j.join()
        assert t.join() is None
        log.append(t.dead)

    coro.run(main)
    assert log == [*((n, None) for n in range(5)), True]


def test_join_of_a_cancelled_thread_returns():
    def main():
        t = coro.new(int)
        j = coro.spawn(t.join)
        coro.yield_slice()
        t.shutdown()
        j.join()
        assert t.dead and not t.started

    coro.run(main)


def test_join_of_oneself_is_an_error():
    with pytest.raises(AssertionError, match="own end"):
        coro.run(lambda: coro.current().join())


def test_join_can_be_interrupted_and_leaves_no_trace():
    def main():
        t = coro.spawn(coro._yield)
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0, t.join)
        me = coro.current()
        t.schedule()
        coro.yield_slice()
        assert t.dead
        coro.yield_slice()
        assert not me.scheduled

    coro.run(main)


def test_join_does_not_return_before_the_end():
    def main():
        t = coro.spawn(coro._yield)
        j = coro.spawn(t.join)
        coro.yield_slice()
        j.schedule()  # a spurious wake-up
        coro.yield_slice()
        assert not j.dead
        t.schedule()
        j.join()

    coro.run(main)


def test_sleep_returns_early_and_without_a_value_when_scheduled():
    def main():
        t = coro.spawn(lambda: (coro.sleep_relative(1000), coro.yield_slice()))
        coro.yield_slice()
        t.schedule("dropped")
        t.join()
        return t.result

    assert coro.run(main) == (None, None)


def test_values_travel_through_the_method_and_the_function():
    def main():
        def waiter():
            return coro._yield(), coro.current()._yield()

        t = coro.spawn(waiter)
        coro.yield_slice()
        with pytest.raises(coro.ScheduleError):
            t._yield()  # only for the running thread
        coro.schedule(t, 1)
        coro.yield_slice()
        t.schedule(2)
        t.join()
        return t.result

    assert coro.run(main) == (1, 2)


# ------------------------------------------------------------------------------------------------- looking


def parked_deep(depth):
    if depth:
        parked_deep(depth - 1)
    else:
        coro._yield()


def functions(frame):
    names = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


def test_get_frame():
    def main():
        t = coro.new(parked_deep, 2)
        assert t.get_frame() is None
        assert coro.where(t) == "[]"
        t.start()
        assert t.get_frame() is None
        coro.yield_slice()
        assert functions(t.get_frame()) == ["parked_deep"] * 3
        assert coro.current().get_frame() is sys._getframe()
        assert re.fullmatch(r"(\[tests/test_scheduler\.py parked_deep\|\d+\] ?){3}", coro.where(t))
        t.schedule()
        t.join()
        assert t.get_frame() is None
        assert coro.where(t) == "[]"

    coro.run(main)


def test_where_of_the_running_thread_begins_with_the_caller():
    def main():
        here = coro.where(coro.current())
        everybody = coro.where_all()[coro.current().id][2]
        return here, everybody

    for text in coro.run(main):
        assert re.match(r"\[tests/test_scheduler\.py main\|\d+\]$", text), text


def test_where_all():
    def main():
        t = coro.spawn(parked_deep, 0, thread_name="parked")
        fresh = coro.new(int)
        coro.yield_slice()
        queued = coro.spawn(int)
        found = coro.where_all()
        assert fresh.id not in found
        assert found[queued.id][2] == "[]"
        name, thread, where = found[t.id]
        assert name == "parked" and thread is t and "parked_deep|" in where
        assert list(found) == sorted(found)
        t.shutdown()

    coro.run(main)


def test_all_threads_is_a_live_mapping():
    def main():
        me = coro.current()
        assert list(coro.all_threads) == [me.id]
        t = coro.spawn(coro._yield)
        assert dict(coro.all_threads) == {me.id: me, t.id: t}
        assert t.id in coro.all_threads and len(coro.all_threads) == 2
        assert coro.get_thread_by_id(t.id) is t
        coro.yield_slice()
        t.schedule()
        t.join()
        assert t.id not in coro.all_threads
        with pytest.raises(KeyError):
            coro.all_threads[t.id]
        with pytest.raises(KeyError):
            coro.get_thread_by_id(t.id)
        with pytest.raises(TypeError):
            del coro.all_threads[me.id]

    coro.run(main)
    assert len(coro.all_threads) == 0


def test_waiting_for():
    a, b = socket.socketpair()

    def main():
        sleeper = coro.spawn(coro.sleep_relative, 100)
        joiner = coro.spawn(sleeper.join)
        yielder = coro.spawn(coro._yield)
        reader = coro.spawn(coro.wait_for, a, coro.EVFILT.READ)
        assert reader.waiting_for is None
        coro.yield_slice()
        assert sleeper.waiting_for == ("sleep", None)
        assert joiner.waiting_for == ("join", sleeper)
        assert yielder.waiting_for == ("yield", None)
        assert reader.waiting_for[0] in ("read", "event")
        assert coro.current().waiting_for is None
        for t in (sleeper, joiner, yielder, reader):
            t.shutdown()

    coro.run(main)
    a.close()
    b.close()


def test_statistics():
    def main():
        before = coro.statistics()
        threads = [coro.spawn(coro.yield_slice) for _ in range(10)]
        during = coro.statistics()
        assert during.threads == before.threads + 10
        assert during.counted_threads == before.counted_threads + 10
        assert during.spawned == before.spawned + 10
        for t in threads:
            t.join()
        after = coro.statistics()
        assert after.threads == before.threads
        assert after.switches >= before.switches + 20
        assert after.polls > before.polls
        coro.sleep_relative(0.001)
        assert coro.statistics().timers_fired == after.timers_fired + 1
        with pytest.raises(AttributeError):
            after.switches = 0

    coro.run(main)


def test_coro_is_running():
    assert not coro.coro_is_running() and not coro.event_loop_is_running()

    def main():
        return coro.coro_is_running(), coro.event_loop_is_running()

    assert coro.run(main) == (True, True)
    assert not coro.coro_is_running() and not coro.event_loop_is_running()


# ------------------------------------------------------------------------------------------------- failures


def test_uncaught_exceptions_reach_the_notifier_in_the_thread_that_failed(notified):
    def fail(exc):
        raise exc

    def main():
        kinds = (ValueError, KeyError, SystemExit, KeyboardInterrupt, coro.Interrupted, coro.TimeoutError)
        threads = [coro.spawn(fail, kind("x")) for kind in (*kinds, coro.Shutdown)]
        for t in threads:
            t.join()
        assert [t for t, _ in notified] == threads[:-1]
        assert [type(e) for _, e in notified] == list(kinds)
        return "went on"

    assert coro.run(main) == "went on"


def test_set_exception_notifier_returns_the_one_before():
    def one():
        pass

    assert coro.set_exception_notifier(one) is None
    assert coro.set_exception_notifier(None) is one
    assert coro.set_exception_notifier(None) is None
    with pytest.raises(TypeError):
        coro.set_exception_notifier(3)


FAILING = """
    import coro
    def fail():
        raise ValueError("what failed")
    def notifier():
        {notifier}
    coro.set_exception_notifier({which})
    def main():
        coro.spawn(fail, thread_name="failing").join()
        print("went on")
    coro.run(main)
"""


@pytest.mark.parametrize(
    ("which", "notifier"),
    [
        ("None", "pass"),
        ("notifier", "raise RuntimeError"),
        ("notifier", "raise SystemExit(3)"),
        ("notifier", "raise KeyboardInterrupt"),
    ],
)
def test_the_default_notifier_writes_a_line_also_for_a_notifier_that_fails(which, notifier):
    outcome = program(FAILING.format(which=which, notifier=notifier))
    assert outcome.code == 0
    assert outcome.lines == ["went on"]
    assert re.fullmatch(r"2:\t.* thread 2 \(failing\): error .*what failed.*\n", outcome.err), outcome.err


def test_a_notifier_may_block(notified):
    log = []

    def notifier():
        coro.yield_slice()
        log.append(repr(sys.exc_info()[1]))

    def main():
        coro.set_exception_notifier(notifier)
        t = coro.spawn(lambda: 1 / 0)
        t.join()

    coro.run(main)
    assert log == ["ZeroDivisionError('division by zero')"]


def test_exceptions_of_main_leave_run(notified):
    def fail(exc):
        raise exc

    for exc in (ValueError("x"), SystemExit(4), KeyboardInterrupt(), coro.Shutdown(), coro.TimeoutError()):
        with pytest.raises(type(exc)) as info:
            coro.run(fail, exc)
        assert info.value is exc
    assert notified == []


# ------------------------------------------------------------------------------------------------- tuning


def test_latency_warning_names_the_thread_also_when_it_dies():
    source = """
        import coro, time
        from coro import _ticks
        _ticks.install_virtual(0)
        def slow(then):
            _ticks.advance_virtual({ms} * 1000000)
            then()
        coro.set_latency_warning({factor})
        def main():
            coro.spawn(slow, coro.yield_slice, thread_name="goes on").join()
            coro.spawn(slow, int, thread_name="dies").join()
        coro.run(main)
    """
    outcome = program(source.format(ms=450, factor=2))
    lines = outcome.err.splitlines()
    assert outcome.code == 0
    assert len(lines) == 2
    assert re.search(r"High Latency: \(0\.450s\) for <coro #\d+ name='goes on'.* slow\|", lines[0])
    assert re.search(r"High Latency: \(0\.450s\) for <coro #\d+ name='dies' dead=1", lines[1])
    assert ok(source.format(ms=350, factor=2)) == []
    assert ok(source.format(ms=10**6, factor=0)) == []


def test_set_latency_warning():
    assert coro.set_latency_warning(0) == 1
    assert coro.set_latency_warning(300) == 0
    assert coro.set_latency_warning(1) == 300
    for wrong in (-1, 301):
        with pytest.raises(ValueError, match="0 and 300"):
            coro.set_latency_warning(wrong)
    for wrong in (1.0, "1", None, True):
        with pytest.raises(TypeError):
            coro.set_latency_warning(wrong)
    assert coro.set_latency_warning(1) == 1


@pytest.mark.parametrize("acts", [1, 3, 10])
def test_selfishness_bounds_operations_that_do_not_wait(acts):
    a, b = coro.socketpair()
    log = []

    def reader():
        for _ in range(30):
            a.recv(1)
            log.append("r")

    def other(t):
        while not t.dead:
            log.append("o")
            coro.yield_slice()

    def main():
        b.send(b"x" * 30)
        t = coro.new(reader)
        assert t.set_max_selfish_acts(acts) == 4
        t.start()
        coro.spawn(other, t)
        t.join()
        a.close()
        b.close()

    coro.run(main)
    runs = [len(run) for run in "".join(log).split("o") if run]
    assert max(runs) <= acts + 1
    assert sum(runs) == 30


def test_set_selfishness():
    for wrong in (0, 32769, -1):
        with pytest.raises(ValueError, match="32768"):
            coro.set_selfishness(wrong)
        with pytest.raises(ValueError, match="32768"):
            coro.new(int).set_max_selfish_acts(wrong)
    for wrong in (1.0, "1", None, True):
        with pytest.raises(TypeError):
            coro.set_selfishness(wrong)
        with pytest.raises(TypeError):
            coro.new(int).set_max_selfish_acts(wrong)
    coro.set_selfishness(7)
    try:
        assert coro.new(int).set_max_selfish_acts(1) == 7
    finally:
        coro.set_selfishness(4)


def test_a_loop_does_not_wait_for_daemon_threads():
    log = []

    def background():
        try:
            coro.sleep_relative(1000)
        except coro.Shutdown:
            log.append("shut down")
            raise

    t = coro.spawn(background, daemon=True)
    assert t.daemon
    coro.spawn(lambda: (coro.yield_slice(), log.append("counted")))
    coro.set_print_exit_string(False)
    try:
        coro.event_loop()
    finally:
        coro.set_print_exit_string(True)
    assert log == ["counted", "shut down"]
    assert t.dead


def test_stack_slots_cannot_change_after_the_first_thread():
    coro.run(int)
    with pytest.raises(coro.StackSlotError, match="before the first thread"):
        coro.set_stack_slots(3)
    number, size = coro.get_stack_slots()
    assert number >= 1 and size >= 65536
    assert len(_scheduler._slot_owners()) == number


def test_tracebacks_begin_with_the_threads_function(notified):
    def fail():
        raise ValueError

    def main():
        t = coro.spawn(fail)
        t.join()
        return t.exception

    exc = coro.run(main)
    assert [f.name for f in traceback.extract_tb(exc.__traceback__)] == ["fail"]
    assert "end_body" not in coro.compact_traceback(exc)
