"""Interrupting threads: what raise_exception() and shutdown() do to a thread in each of its states, and in which order
several interruptions arrive.
"""

import contextlib
import gc
import traceback

import pytest

import coro


class First(Exception):
    pass


class Second(Exception):
    pass


def record(log, suspend=coro._yield, times=1):
    """Suspend so often, and log what came of it each time."""
    for _ in range(times):
        try:
            log.append(suspend())
        except BaseException as exc:
            log.append(type(exc))
            if isinstance(exc, coro.Shutdown):
                raise


def in_loop(function):
    """Decorator: run the test inside a loop."""

    def test():
        coro.run(function)

    test.__name__ = function.__name__
    return test


# -------------------------------------------------------------------------------- by state


@in_loop
def test_a_dead_thread():
    t = coro.spawn(int)
    t.join()
    for kwargs in ({}, {"cancel_start": True}, {"force": False}):
        with pytest.raises(coro.DeadCoroutine) as info:
            t.raise_exception(First, **kwargs)
        assert info.value.args[0] is t
    t.shutdown()


@pytest.mark.parametrize("spawned", [True, False])
def test_a_thread_that_has_not_run(spawned):
    log = []

    def main():
        t = coro.spawn(log.append, 1) if spawned else coro.new(log.append, 1)
        with pytest.raises(coro.NotStartedError) as info:
            t.raise_exception(First)
        assert info.value.args[0] is t
        assert (t.scheduled, t.dead, t.started) == (spawned, False, False)
        t.raise_exception(First, cancel_start=True)
        assert (t.scheduled, t.dead, t.started) == (False, True, False)
        assert t.id not in coro.all_threads
        with pytest.raises(coro.DeadCoroutine):
            t.raise_exception(First, cancel_start=True)
        t.shutdown()
        t.join()
        coro.yield_slice()

    coro.run(main)
    assert log == []


@in_loop
def test_a_suspended_thread():
    log = []
    t = coro.spawn(record, log)
    coro.yield_slice()
    t.raise_exception(First)
    assert t.scheduled
    t.join()
    assert log == [First]


@in_loop
def test_a_scheduled_thread_with_force():
    log = []
    t = coro.spawn(record, log, times=2)
    coro.yield_slice()
    t.schedule("displaced")
    t.raise_exception(First)
    coro.yield_slice()
    assert log == [First]
    t.schedule("kept")
    t.join()
    assert log == [First, "kept"]


@in_loop
def test_a_scheduled_thread_without_force():
    log = []
    t = coro.spawn(record, log)
    coro.yield_slice()
    t.schedule("value")
    with pytest.raises(coro.ScheduleError) as info:
        t.raise_exception(First, force=False)
    assert info.value.args[0] is t
    t.join()
    assert log == ["value"]


@in_loop
def test_the_running_thread():
    me = coro.current()
    with pytest.raises(coro.ScheduleError):
        me.raise_exception(First)
    with pytest.raises(coro.Shutdown):
        me.shutdown()
    coro.yield_slice()


@in_loop
def test_something_that_is_no_exception():
    t = coro.spawn(coro._yield)
    coro.yield_slice()
    for wrong in (None, 3, "text", int, object()):
        with pytest.raises(TypeError, match="exception class or instance"):
            t.raise_exception(wrong)
    assert not t.scheduled
    t.shutdown()


@pytest.mark.parametrize("where", ["batch", "next batch", "asleep", "yield_slice", "joining"])
@pytest.mark.parametrize("how", ["raise_exception", "shutdown"])
def test_an_interruption_arrives_exactly_once(where, how):
    log = []

    def victim(other):
        try:
            if where == "asleep":
                coro.sleep_relative(1000)
            elif where == "yield_slice":
                coro.yield_slice()
            elif where == "joining":
                other.join()
            else:
                coro._yield()
            log.append("not interrupted")
        except (First, coro.Shutdown) as exc:
            log.append(type(exc))
        for _ in range(3):
            coro.yield_slice()

    def main():
        other = coro.spawn(coro._yield)
        t = coro.spawn(victim, other)
        if where == "yield_slice":

            def hit():
                if t.started:
                    send()
                else:
                    coro.spawn(hit)

            coro.spawn(hit)
        else:
            coro.yield_slice()
            if where == "batch":
                coro.spawn(send)
                t.schedule()
            else:
                if where == "next batch":
                    t.schedule()
                send()
        coro.yield_slice()
        coro.yield_slice()
        assert len(log) == 1
        t.join()
        other.shutdown()

        return t

    def send():
        t = next(t for t in coro.all_threads.values() if "victim" in t.name)
        if how == "shutdown":
            t.shutdown()
        else:
            t.raise_exception(First)

    coro.run(main)
    assert log == [First if how == "raise_exception" else coro.Shutdown]


# -------------------------------------------------------------------------------- several


@in_loop
def test_exceptions_of_users_arrive_in_order_one_per_suspension():
    log = []
    t = coro.spawn(record, log, times=4)
    coro.yield_slice()
    t.raise_exception(First)
    t.raise_exception(Second)
    t.raise_exception(First("instance"))
    coro.yield_slice()
    coro.yield_slice()
    coro.yield_slice()
    assert log == [First, Second, First]
    t.schedule("value")
    t.join()
    assert log[3:] == ["value"]


@pytest.mark.parametrize("order", ["before", "after"])
def test_shutdown_comes_first_and_drops_the_others(order):
    log = []

    def victim():
        try:
            coro._yield()
        except coro.Shutdown:
            log.append("shutdown")
        record(log, coro.yield_slice)

    def main():
        t = coro.spawn(victim)
        coro.yield_slice()
        if order == "after":
            t.shutdown()
        t.raise_exception(First)
        t.raise_exception(Second)
        if order == "before":
            t.shutdown()
        t.join()

    coro.run(main)
    assert log == ["shutdown", None]


@in_loop
def test_two_shutdowns_are_one():
    log = []

    def victim():
        try:
            coro._yield()
        except coro.Shutdown as exc:
            log.append(str(exc))
        record(log, coro.yield_slice)

    t = coro.spawn(victim)
    coro.yield_slice()
    t.shutdown()
    t.raise_exception(coro.Shutdown("the later one"))
    t.join()
    assert log == ["the later one", None]


@in_loop
def test_subclasses_of_shutdown_are_shutdowns():
    class Stop(coro.Shutdown):
        pass

    log = []
    t = coro.spawn(record, log)
    coro.yield_slice()
    t.raise_exception(First)
    t.raise_exception(Stop)
    t.join()
    assert log == [Stop]
    assert isinstance(t.exception, Stop)


@in_loop
def test_an_exception_sent_while_one_is_handled_waits_for_the_next_suspension():
    log = []

    def victim():
        try:
            coro._yield()
        except First:
            log.append("first")
            try:
                coro._yield()  # the handler itself is interrupted
            except Second as exc:
                log.append("second")
                assert isinstance(exc.__context__, First)

    t = coro.spawn(victim)
    coro.yield_slice()
    t.raise_exception(First)
    t.raise_exception(Second)
    t.join()
    assert log == ["first", "second"]


@in_loop
def test_an_interruption_displaces_no_later_wake_up():
    log = []
    t = coro.spawn(record, log, times=2)
    coro.yield_slice()
    t.raise_exception(First)
    with pytest.raises(coro.ScheduleError):
        t.schedule("refused: it is scheduled")
    coro.yield_slice()
    t.schedule("value")
    t.join()
    assert log == [First, "value"]


@in_loop
def test_an_interrupted_thread_goes_to_the_end_of_the_queue():
    log = []
    threads = [coro.spawn(lambda n=n: (record([]), log.append(n))) for n in range(3)]
    coro.yield_slice()
    for t in threads:
        t.schedule()
    threads[0].raise_exception(First)
    for t in threads:
        t.join()
    assert log == [1, 2, 0]


# -------------------------------------------------------------------------------- instances


@in_loop
def test_an_instance_for_several_threads_keeps_no_foreign_traceback():
    shared = First("shared")
    caught = []

    def victim(depth):
        if depth:
            return victim(depth - 1)
        try:
            coro._yield()
        except First as exc:
            caught.append(exc)

    threads = [coro.spawn(victim, n) for n in (1, 5, 3)]
    coro.yield_slice()
    for t in threads:
        t.raise_exception(shared)
    for t in threads:
        t.join()
    assert [str(e) for e in caught] == ["shared"] * 3
    assert len({id(e) for e in caught}) == 3
    for exc in caught:
        assert [f.name for f in traceback.extract_tb(exc.__traceback__) if f.filename == __file__] == ["victim"]
        assert exc.__context__ is None


@in_loop
def test_an_instance_that_cannot_be_copied_arrives_all_the_same():
    class Odd(Exception):
        def __init__(self, one, two):
            super().__init__(one)

    shared = Odd(1, 2)
    log = []
    threads = [coro.spawn(record, log) for _ in range(2)]
    coro.yield_slice()
    for t in threads:
        t.raise_exception(shared)
    for t in threads:
        t.join()
    assert log == [Odd, Odd]


@in_loop
def test_a_class_that_cannot_be_made_raises_what_its_constructor_raises():
    class Odd(Exception):
        def __init__(self, needed):
            pass

    log = []
    t = coro.spawn(record, log)
    coro.yield_slice()
    t.raise_exception(Odd)
    t.join()
    assert log == [TypeError]


@in_loop
def test_what_was_sent_is_not_kept():
    class Thing:
        pass

    class Heavy(Exception):
        pass

    exc = Heavy()
    exc.thing = Thing()
    t = coro.spawn(record, [], times=2)
    coro.yield_slice()
    t.raise_exception(exc)
    coro.yield_slice()
    del exc
    gc.collect()
    assert not any(isinstance(o, Thing) for o in gc.get_objects() if type(o) is Thing)
    t.shutdown()


# -------------------------------------------------------------------------------- old names


@in_loop
def test_deprecated_methods():
    log = []

    def caught(call):
        def victim():
            try:
                coro._yield()
            except BaseException as exc:
                log.append(exc)

        t = coro.spawn(victim)
        coro.yield_slice()
        with pytest.warns(DeprecationWarning, match="raise_exception"):
            call(t)
        with pytest.warns(DeprecationWarning), pytest.raises(coro.ScheduleError):
            call(t)  # never forces
        t.join()
        return log.pop()

    assert type(caught(lambda t: t.interrupt())) is coro.Interrupted
    assert caught(lambda t: t.interrupt("why")).args == ("why",)
    assert type(caught(lambda t: t.resume_with_exc(First))) is First
    instance = First("i")
    assert caught(lambda t: t.resume_with_exc(First, instance)) is instance
    assert caught(lambda t: t.resume_with_exc(First, "value")).args == ("value",)


def test_the_finaliser_of_an_exception_that_shutdown_drops_may_block():
    seen = []

    class Blocking(Exception):
        def __del__(self):
            coro.yield_slice()
            seen.append("finaliser")

    def victim():
        try:
            with coro.shield(60):
                with contextlib.suppress(ValueError):
                    coro.sleep_relative(1000)
            coro.sleep_relative(1000)
        except BaseException as e:
            seen.append(type(e))
        coro.yield_slice()
        seen.append("goes on")

    def main():
        t = coro.spawn(victim)
        coro.yield_slice()
        t.shutdown()
        t.raise_exception(ValueError)
        t.raise_exception(Blocking())
        t.join()

    coro.run(main)
    assert seen == ["finaliser", coro.Shutdown, "goes on"]
