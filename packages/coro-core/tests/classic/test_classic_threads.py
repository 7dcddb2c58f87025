"""Threads, interruptions and time limits where the original Shrapnel did something else, or where its tests looked:
what is not part of a larger subject with a test file of its own."""

import functools

import pytest
from support import advance, in_loop, ok, virtual_clock

import coro


def test_interruptions_are_no_ordinary_exceptions():
    """Code that catches Exception, or the built-in TimeoutError, has not to do with time limits and shutdowns."""
    for kind in (coro.Interrupted, coro.TimeoutError, coro.Shutdown):
        assert issubclass(kind, coro.Interrupted) and not issubclass(kind, Exception)
    assert not issubclass(coro.TimeoutError, TimeoutError)
    assert not issubclass(coro.NameError, NameError)
    assert issubclass(coro.DeadCoroutine, coro.ScheduleError) and issubclass(coro.NotStartedError, coro.ScheduleError)
    for kind in (coro.ScheduleError, coro.YieldFromMain, coro.SimultaneousError, coro.ClosedError, coro.WakeUp,
                 coro.LockError, coro.InParallelError):  # fmt: skip
        assert issubclass(kind, Exception)


@in_loop
def test_a_library_that_catches_everything_ordinary_does_not_eat_a_time_limit():
    def library():
        while True:
            try:
                coro.sleep_relative(100)
            except Exception:
                raise AssertionError("caught") from None

    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.001, library)


@in_loop
def test_keywords_of_the_called_function_do_not_clash():
    """Also those that the parameters of with_timeout, spawn and new might have been called."""

    def take(**keywords):
        return keywords

    keywords = {"delta": 1, "function": 2, "fun": 3, "self": 4, "args": 5, "kwargs": 6, "seconds": 7}
    assert coro.with_timeout(1, take, **keywords) == keywords
    for t in (coro.spawn(take, **keywords, thread_name="a"), coro.new(take, **keywords, thread_name="a")):
        if not t.scheduled:
            t.start()
        t.join()
        assert t.result == keywords and t.name == "a"


@in_loop
def test_joining_a_thread_that_is_started_later():
    log = []
    t = coro.new(log.append, "ran")
    joiner = coro.spawn(lambda: (t.join(), log.append("joined")))
    coro.yield_slice()
    assert log == []
    t.start()
    joiner.join()
    assert log == ["ran", "joined"]


def test_joining_a_thread_that_nobody_starts_is_reported():
    """The joiner of the original slept for ever."""
    lines = ok(
        """
        import coro
        t = coro.new(int, thread_name="never started")
        def main():
            t.join()
        try:
            coro.run(main)
        except coro.DeadlockError as e:
            print("never started" in str(e))
        """
    )
    assert lines == ["True"]


def test_in_main_there_is_always_a_current_thread():
    """The original said None once a thread had run, so that what asks for its number crashed."""
    lines = ok(
        """
        import atexit, coro, gc, os, signal
        def tell(where):
            print(where, coro.current().id, coro.current().name)
        tell("before")
        def main():
            class Cycle:
                def __del__(self):
                    tell("collected in a thread")
            c = Cycle()
            c.me = c
            del c
            gc.collect()
        coro.run(main, )
        tell("after")
        atexit.register(tell, "at exit")
        signal.signal(signal.SIGUSR1, lambda *_: tell("signal"))
        os.kill(os.getpid(), signal.SIGUSR1)
        """
    )
    main = "-1 main/scheduler"
    assert lines == [
        f"before {main}",
        "collected in a thread 1 main",
        f"after {main}",
        f"signal {main}",
        f"at exit {main}",
    ]


@pytest.mark.parametrize("code", [0, 7, True, "a text", None, (1, 2)])
def test_any_object_may_be_the_exit_code(code):
    def main():
        coro.set_exit(code)
        coro.yield_slice()

    with pytest.raises(SystemExit) as e:
        coro.run(main)
    assert e.value.code is code


@in_loop
def test_a_switch_below_functions_written_in_c():
    """sorted, map, functools.reduce and a comparison call back into Python that waits."""
    log = []

    def key(x):
        coro.yield_slice()
        log.append(x)
        return -x

    class Compared:
        def __init__(self, x):
            self.x = x

        def __lt__(self, other):
            coro.yield_slice()
            return self.x < other.x

    threads = [
        coro.spawn(sorted, [3, 1, 2], key=key),
        coro.spawn(lambda: list(map(key, [4, 5]))),
        coro.spawn(functools.reduce, lambda a, b: (coro.yield_slice(), a + b)[1], range(5)),
        coro.spawn(lambda: [c.x for c in sorted(map(Compared, [3, 1, 2]))]),
    ]
    for t in threads:
        t.join()
    assert [t.result for t in threads] == [[3, 2, 1], [-4, -5], 10, [1, 2, 3]]
    assert sorted(log) == [1, 2, 3, 4, 5]
    assert log != sorted(log)  # they took turns


def test_three_sleeps_in_parallel_in_virtual_time():
    """Five seconds each: too long for two seconds, well in time for seven; the calls left behind do no harm."""
    began = []

    def call(n):
        began.append(n)
        coro.sleep_relative(5)
        return n

    def main():
        calls = [(call, (n,)) for n in range(3)]
        for limit in (2, 7):
            t = coro.spawn(coro.with_timeout, limit, coro.in_parallel, calls)
            coro.yield_slice()
            coro.yield_slice()
            for _ in range(6):
                advance(1)
                coro.sleep_relative(0)
                coro.yield_slice()
            t.join()
            yield t.exception or t.result

    def collect():
        coro.set_exception_notifier(lambda: None)
        try:
            return list(main())
        finally:
            coro.set_exception_notifier(None)

    with virtual_clock():
        late, results = coro.run(collect)
    assert type(late) is coro.TimeoutError and results == [0, 1, 2]
    assert began == [0, 1, 2] * 2


def test_a_batch_of_timers_meets_threads_that_are_scheduled_or_dead():
    """A sleeper that is awake already when its time comes, one that was shut down, one that has ended: the original
    retried some of them for ever, and the loop never slept again."""

    def main():
        with_limits = [coro.spawn(coro.with_timeout, 1, coro._yield) for _ in range(3)]
        sleepers = [coro.spawn(coro.sleep_relative, 1) for _ in range(3)]
        coro.yield_slice()
        advance(2)  # all six are due, and the loop has not looked yet
        for t in (with_limits[0], sleepers[0]):
            t.schedule()
        for t in (with_limits[1], sleepers[1]):
            t.shutdown()
        for t in with_limits + sleepers:
            t.join()
        ends = [type(t.exception) for t in with_limits + sleepers]
        last = coro.spawn(coro.sleep_relative, 1)
        coro.yield_slice()
        timers, passes = coro.statistics().timers, coro.statistics().polls
        coro.testing.wait_all_blocked()  # the loop has nothing to do: nothing of the batch is retried
        polls = coro.statistics().polls - passes
        last.shutdown()
        return ends, timers, polls

    with virtual_clock():
        ends, timers, polls = coro.run(main)
    none, limit, shutdown = type(None), coro.TimeoutError, coro.Shutdown
    assert ends == [none, shutdown, limit, none, shutdown, none]
    assert timers == 1 and polls < 10
