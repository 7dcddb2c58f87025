"""Order of execution, fairness, uncaught exceptions, and tuning.

Nothing here waits for time: threads meet through schedule() and _yield(), and where a timer is needed the clock is
a virtual one.
"""

import re
import socket
import sys
import traceback

import pytest
from support import advance, ok, program, virtual_clock

import coro
from coro._runtime import scheduler


@pytest.fixture
def notified():
    """The exceptions that reached the notifier, instead of lines on stderr."""
    seen = []
    before = coro.set_exception_notifier(lambda: seen.append((coro.current(), sys.exc_info()[1])))
    yield seen
    coro.set_exception_notifier(before)


# -------------------------------------------------------------------------------- order


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


# -------------------------------------------------------------------------------- fairness


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
        pair = ping_pong(lambda: done)
        t = coro.spawn(wait)  # so that its time begins in the drain that the two keep going
        b.send(b"x")
        t.join()
        for p in pair:
            p.shutdown()

    before = coro.statistics().bounded_drains
    coro.run(main)
    a.close()
    b.close()
    assert done == [what]
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


# -------------------------------------------------------------------------------- failures


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
def test_the_default_notifier_writes_a_traceback_also_for_a_notifier_that_fails(which, notifier):
    outcome = program(FAILING.format(which=which, notifier=notifier))
    assert outcome.code == 0
    assert outcome.lines == ["went on"]
    text = r"Exception in thread 2 'failing', .*:\nTraceback .*, in fail\n.*ValueError: what failed\n"
    if which != "None":
        error = notifier.removeprefix("raise ").partition("(")[0]
        head = r"Exception in the exception notifier notifier, called in thread 2 'failing', [^\n]*:\n"
        text = head + rf"Traceback [^\n]*\n[^\n]*, in notifier\n([^\n]*\n)?{error}[^\n]*\n" + text
    assert re.fullmatch(text, outcome.err, re.DOTALL), outcome.err


def test_a_notifier_that_fails_stays_in_use_and_does_not_fill_the_disk():
    outcome = program(
        """
        import coro
        calls = []
        class Notifier:
            def __call__(self):
                calls.append(1)
                raise RuntimeError("of the notifier")
            def __repr__(self):
                raise KeyError
        coro.set_exception_notifier(Notifier())
        def fail():
            raise ValueError("what failed")
        def main():
            for n in range(20):
                coro.spawn(fail).join()
            print(len(calls))
        coro.run(main)
        """
    )
    assert outcome.code == 0 and outcome.lines == ["20"]
    assert outcome.err.count("Exception in the exception notifier Notifier, called in thread ") == 5
    assert outcome.err.count("\nException in thread ") + outcome.err.startswith("Exception in thread ") == 5
    assert "15 more exceptions of this kind not printed: RuntimeError in __call__" in outcome.err


def test_a_notifier_that_fails_in_the_loop_itself_is_told_of():
    outcome = program(
        """
        import coro, sys
        def broken():
            1 / 0
        coro.set_exception_notifier(broken)
        from coro._runtime import scheduler
        def main():
            try:
                raise ValueError("what failed")
            except ValueError:
                scheduler._notify()
        coro.run(main)
        """
    )
    assert outcome.code == 0
    assert outcome.err.startswith("Exception in the exception notifier broken, called in thread 1 'main', ")
    assert "ZeroDivisionError" in outcome.err and outcome.err.endswith("ValueError: what failed\n")


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


# -------------------------------------------------------------------------------- tuning


def test_latency_warning_names_the_thread_also_when_it_dies():
    source = """
        import coro, time
        from coro._clock import ticks
        ticks.install_virtual(0)
        def slow(then):
            ticks.advance_virtual({ms} * 1000000)
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
    assert re.search(r"High Latency: \(0\.450s\) for <coro thread \d+ 'goes on' .* slow\|", lines[0])
    assert re.search(r"High Latency: \(0\.450s\) for <coro thread \d+ 'dies' ended", lines[1])
    assert ok(source.format(ms=350, factor=2)) == []
    assert ok(source.format(ms=10**6, factor=0)) == []


@pytest.mark.parametrize("wish, factor", [("0", 0), ("3", 3), ("", 1)])
def test_latency_warning_from_the_environment(monkeypatch, wish, factor):
    monkeypatch.setenv("CORO_LATENCY_WARNING", wish)
    assert ok("import coro; print(coro.set_latency_warning(1))") == [str(factor)]


@pytest.mark.parametrize("wish", ["-1", "301", "often", "0.5"])
def test_a_wrong_latency_warning_in_the_environment(monkeypatch, wish):
    monkeypatch.setenv("CORO_LATENCY_WARNING", wish)
    outcome = program("import coro")
    assert outcome.code == 1
    assert "expected CORO_LATENCY_WARNING in the environment to be a number from 0" in outcome.err
    assert f"not '{wish}'" in outcome.err


def test_set_latency_warning():
    before = coro.set_latency_warning(0)
    assert coro.set_latency_warning(300) == 0
    assert coro.set_latency_warning(1) == 300
    for wrong in (-1, 301):
        with pytest.raises(ValueError, match="from 0 .* to 300"):
            coro.set_latency_warning(wrong)
    for wrong in (1.0, "1", None, True):
        with pytest.raises(TypeError):
            coro.set_latency_warning(wrong)
    assert coro.set_latency_warning(before) == 1


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
    assert len(scheduler._slot_owners()) == number


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
