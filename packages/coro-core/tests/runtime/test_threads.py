"""Making threads, the thread object, and what can be seen of a thread.
"""

import contextvars
import gc
import re
import socket
import sys
import weakref

import pytest

import coro


@pytest.fixture
def notified():
    """The exceptions that reached the notifier, instead of lines on stderr."""
    seen = []
    before = coro.set_exception_notifier(lambda: seen.append((coro.current(), sys.exc_info()[1])))
    yield seen
    coro.set_exception_notifier(before)


# -------------------------------------------------------------------------------- making threads


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


def test_flags_are_bools():
    t = coro.new(int, thread_name="x")
    assert (t.dead, t.started, t.scheduled) == (False, False, False)


def test_repr_says_what_a_thread_does():
    def state(t):
        text = repr(t)
        return re.fullmatch(rf"<coro thread {t.id} '[^']*' (.*)>", text)[1]

    def main():
        t = coro.new(int, thread_name="x")
        states = [state(t), state(coro.current())]
        t.start()
        states.append(state(t))
        t.join()
        states.append(state(t))

        lock = coro.mutex()
        lock.lock()
        a, b = coro.socketpair()
        reader = coro.spawn(a.recv, 1)
        calls = [(coro.sleep_relative, 1000), (coro._yield,), (lock.lock,), (reader.join,)]
        waiting = [coro.spawn(*call) for call in calls] + [reader]
        coro.yield_slice()
        states += map(state, waiting)
        reader_says = [f"waiting for the end of thread {reader.id} 'sock.recv'", f"waiting for read of fd {a.fileno()}"]
        waiting[0].schedule()
        states.append(state(waiting[0]))
        for t in waiting:
            t.shutdown()
            t.join()
        states.append(state(reader))
        a.close(), b.close()
        failed = coro.spawn(lambda: 1 / 0)
        done = coro.spawn(lambda: [1])
        coro.set_exception_notifier(lambda: None)
        failed.join(), done.join()
        coro.set_exception_notifier(None)
        return reader_says, [*states, state(failed), state(done), state(coro.spawn(lambda: None))]

    reader_says, states = coro.run(main)
    assert states == [
        *["new", "running", "scheduled", "ended with a result"],
        *["sleeping", "waiting for schedule()", "waiting for mutex", *reader_says],
        *["scheduled", "ended with Shutdown", "ended with ZeroDivisionError", "ended with a result", "scheduled"],
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore::coro.LockCycleWarning")
def test_threads_that_wait_for_each_other_have_a_short_repr():
    def main():
        locks = [coro.mutex(), coro.mutex()]

        def take(mine, other):
            with mine:
                coro.yield_slice()
                with other:
                    pass

        threads = [coro.spawn(take, *locks), coro.spawn(take, *reversed(locks))]
        coro.yield_slice()
        coro.yield_slice()
        texts = [repr(t) for t in threads] + [repr(lock) for lock in locks]
        for t in threads:
            t.shutdown()
        return texts

    for text in coro.run(main):
        assert "waiting for mutex>" in text and len(text) < 200


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nb\x1b[31m", "'a\\nb\\x1b[31m'"),
        ("it's", '"it\'s"'),
        ("x" * 40, repr("x" * 40)),
        ("x" * 41, repr("x" * 37 + "...")),
        ("\ud800", "'\\ud800'"),
    ],
)
def test_the_name_in_a_repr_is_one_line_and_not_long(name, shown):
    t = coro.new(int, thread_name=name)
    assert repr(t) == f"<coro thread {t.id} {shown} new>"


def test_a_name_of_a_subclass_runs_no_code_in_a_repr():
    class Name(str):
        def __repr__(self):
            raise AssertionError("called")

        __str__ = __format__ = __len__ = __getitem__ = __repr__

    t = coro.new(int, thread_name=Name("n" * 50))
    assert repr(t) == f"<coro thread {t.id} '{'n' * 37}...' new>"


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


def test_the_result_of_a_call_in_place_of_a_function():
    def main():
        pass

    with pytest.raises(TypeError, match=r"not NoneType: None; .*, not coro\.spawn\(function\(1, 2\)\)"):
        coro.run(main())


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


# -------------------------------------------------------------------------------- the thread object


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


# -------------------------------------------------------------------------------- looking


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
        assert re.fullmatch(r"(\[runtime/test_threads\.py parked_deep\|\d+\] ?){3}", coro.where(t))
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
        assert re.match(r"\[runtime/test_threads\.py main\|\d+\]$", text), text


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
