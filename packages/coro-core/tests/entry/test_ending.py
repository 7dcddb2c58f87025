"""How loops end: exit codes, the grace period, threads that refuse, and beginning anew afterwards.

Whatever ends a process runs in a process of its own.
"""

import os
import re
import sys
import threading
import time

import pytest
from support import ok, program

import coro


@pytest.fixture(autouse=True)
def quiet():
    coro.set_print_exit_string(False)
    yield
    coro.set_print_exit_string(True)


def exit_of(function, *args):
    with pytest.raises(SystemExit) as info:
        function(*args)
    return info.value.code


# -------------------------------------------------------------------------------- codes


@pytest.mark.parametrize("code", [0, 3, None, True, "text", ("any", "object"), -1])
def test_set_exit_under_run_and_event_loop(code):
    def main():
        coro.set_exit(code)
        coro._yield()

    assert exit_of(coro.run, main) == code
    coro.spawn(main)
    assert exit_of(coro.event_loop) == code


def test_set_exit_without_a_code_is_0():
    assert exit_of(coro.run, lambda: coro.set_exit()) == 0


@pytest.mark.parametrize("code", [0, 4, "text", None])
def test_sys_exit_in_runs_main(code):
    assert exit_of(coro.run, lambda: sys.exit(code)) == code


@pytest.mark.parametrize("exc", [SystemExit(3), KeyboardInterrupt()])
def test_sys_exit_elsewhere_is_an_exception_like_any_other(exc):
    seen = []

    def other():
        raise exc

    def main():
        coro.set_exception_notifier(lambda: seen.append(sys.exc_info()[1]))
        try:
            coro.spawn(other).join()
        finally:
            coro.set_exception_notifier(None)
        return "went on"

    assert coro.run(main) == "went on"
    assert seen == [exc]
    coro.spawn(main)
    coro.event_loop()
    assert seen == [exc, exc]


@pytest.mark.parametrize(
    ("ending", "code", "err"),
    [
        ("coro.set_exit(3)", 3, ""),
        ("coro.set_exit(True)", 1, ""),
        ("coro.set_exit(None)", 0, ""),
        ("coro.set_exit('text')", 1, "text\n"),
        ("sys.exit(5)", 5, ""),
        ("return 7", 0, ""),
        ("raise ValueError('why')", 1, "ValueError: why"),
    ],
)
def test_the_process_ends_with_the_code(ending, code, err):
    outcome = program(
        f"""
        import coro, sys
        def main():
            {ending}
        coro.run(main)
        """
    )
    assert outcome.code == code
    assert outcome.err == err if "Error" not in err else err in outcome.err
    assert outcome.out == ""


def test_the_last_word_on_the_code_before_the_loop_looks():
    def main():
        coro.set_exit(1)
        coro.set_exit(2)

    assert exit_of(coro.run, main) == 2


def test_exiting_is_printed_by_event_loop_only():
    source = """
        import coro
        coro.set_print_exit_string({})
        coro.spawn(int)
        coro.{}
    """
    assert re.fullmatch(r"-1:\t.*Exiting\.\.\.\n", program(source.format(True, "event_loop()")).err)
    assert program(source.format(False, "event_loop()")).err == ""
    assert program(source.format(True, "run(int)")).err == ""


# -------------------------------------------------------------------------------- in order


def blocked(log, name, suspend):
    try:
        suspend()
        log.append((name, "returned"))
    except coro.Shutdown:
        log.append((name, "shutdown"))
        raise
    finally:
        log.append((name, "finally"))


@pytest.mark.parametrize("how", ["return", "raise", "exit"])
def test_the_others_are_shut_down_when_main_ends(how):
    log = []
    a, b = coro.socketpair()

    def main():
        coro.spawn(blocked, log, "yield", coro._yield)
        coro.spawn(blocked, log, "sleep", lambda: coro.sleep_relative(1000))
        coro.spawn(blocked, log, "read", lambda: a.recv(1))
        coro.spawn(blocked, log, "join", coro.current().join)
        coro.spawn(blocked, log, "daemon", coro._yield)
        coro.yield_slice()
        if how == "raise":
            raise KeyError
        if how == "exit":
            coro.set_exit(1)
        return 5

    if how == "return":
        assert coro.run(main) == 5
        log.remove(("join", "returned"))
    elif how == "raise":
        with pytest.raises(KeyError):
            coro.run(main)
        log.remove(("join", "returned"))
    else:
        assert exit_of(coro.run, main) == 1
        log.remove(("join", "returned"))
    log.remove(("join", "finally"))
    assert log == [(n, w) for n in ("yield", "sleep", "read", "daemon") for w in ("shutdown", "finally")]
    a.close()
    b.close()
    assert len(coro.all_threads) == 0
    assert coro.statistics().timers == 0


def test_who_asked_for_the_exit_gets_its_shutdown_at_its_next_suspension():
    log = []

    def main():
        coro.set_exit(0)
        log.append("goes on")
        try:
            coro.sleep_relative(1000)
        except coro.Shutdown:
            log.append("shutdown")
            raise

    assert exit_of(coro.run, main) == 0
    assert log == ["goes on", "shutdown"]


@pytest.mark.parametrize("when", ["same drain", "later"])
def test_an_exit_asked_for_after_main_has_failed_hides_no_error(when):
    """Whether the other thread asks at once or in its clean-up, while the loop ends because of main."""
    seen = []

    def other():
        try:
            coro._yield()
        except coro.Shutdown:
            if when == "later":
                coro.set_exit(3)

    def main():
        t = coro.spawn(other)
        coro.yield_slice()
        if when == "same drain":
            coro.spawn(coro.set_exit, 3)
        assert not t.dead
        raise ValueError("in main")

    def notifier():
        seen.append(sys.exc_info()[1])
        assert str(seen[0]) == "in main" and seen[0].__context__ is None

    coro.set_exception_notifier(notifier)
    try:
        assert exit_of(coro.run, main) == 3
    finally:
        coro.set_exception_notifier(None)
    assert len(seen) == 1 and type(seen[0]) is ValueError


def test_without_another_reason_the_error_of_main_is_raised_and_not_told():
    seen = []

    def main():
        coro.spawn(coro._yield)
        coro.yield_slice()
        raise ValueError("in main")

    coro.set_exception_notifier(lambda: seen.append(sys.exc_info()[1]))
    try:
        with pytest.raises(ValueError, match="in main"):
            coro.run(main)
    finally:
        coro.set_exception_notifier(None)
    assert seen == []


@pytest.mark.parametrize("exc", [SystemExit(2), KeyboardInterrupt()])
def test_an_exit_asked_for_after_mains_own_wins_silently(exc):
    seen = []

    def main():
        coro.spawn(coro.set_exit, 3)
        raise exc

    coro.set_exception_notifier(lambda: seen.append(sys.exc_info()[1]))
    try:
        assert exit_of(coro.run, main) == 3
    finally:
        coro.set_exception_notifier(None)
    assert seen == []


def test_an_error_of_main_that_run_does_not_raise_is_told():
    seen = []

    def main():
        coro.set_exit(3)
        try:
            coro._yield()
        finally:
            raise ValueError("in main's clean-up")

    coro.set_exception_notifier(lambda: seen.append(str(sys.exc_info()[1])))
    try:
        assert exit_of(coro.run, main) == 3
    finally:
        coro.set_exception_notifier(None)
    assert seen == ["in main's clean-up"]


def test_spawning_and_posting_during_the_end():
    log = []

    def stubborn():
        unstarted = coro.new(int)
        try:
            coro._yield()
        finally:
            for attempt in (lambda: coro.spawn(int), unstarted.start, unstarted.schedule, lambda: coro.post(int)):
                with pytest.raises(coro.LoopError, match="ending"):
                    attempt()
                log.append(1)

    def main():
        coro.spawn(stubborn)
        coro.yield_slice()

    coro.run(main)
    assert log == [1] * 4


def test_posting_after_the_end():
    coro.run(int)
    with pytest.raises(coro.LoopError, match="ended"):
        coro.post(int)


def test_clean_up_may_wait_for_descriptors_within_the_grace_period():
    log = []
    a, b = coro.socketpair()

    def cleaning():
        try:
            coro._yield()
        finally:
            log.append(a.recv(10))

    def answering():
        try:
            coro._yield()
        finally:
            coro.yield_slice()
            b.send(b"bye")

    def main():
        coro.spawn(cleaning)
        coro.spawn(answering)
        coro.yield_slice()

    coro.run(main)
    a.close()
    b.close()
    assert log == [b"bye"]


def test_a_shielded_clean_up_may_also_wait_for_time():
    log = []

    def cleaning():
        try:
            coro._yield()
        finally:
            with coro.shield(5):
                coro.sleep_relative(0.005)
                log.append("slept")
            with pytest.raises(coro.TimeoutError), coro.shield(0.005):
                coro._yield()
            log.append("limited")

    def main():
        coro.spawn(cleaning)
        coro.yield_slice()

    coro.run(main)
    assert log == ["slept", "limited"]


@pytest.mark.parametrize("wait", [coro._yield, lambda: coro.sleep_relative(1000)])
def test_the_end_comes_at_once_when_nothing_is_awaited(wait):
    """A thread whose clean-up waits for nobody does not use up the grace period."""
    log = []

    def stubborn():
        for _ in range(3):
            try:
                wait()
            except coro.Shutdown as exc:
                log.append(str(exc))

    def main():
        coro.spawn(stubborn)
        coro.yield_slice()
        coro.set_exit(1, grace=1000)
        coro._yield()

    began = time.monotonic()
    assert exit_of(coro.run, main) == 1
    assert time.monotonic() - began < 100
    assert log[0] == ""
    assert all("has ended" in text for text in log[1:])
    assert len(log) == 3


@pytest.mark.parametrize("grace", [0, 0.01])
def test_after_the_grace_period_every_blocking_call_raises(grace):
    a, b = coro.socketpair()
    log = []

    def stubborn():
        waits = (lambda: a.recv(1), lambda: a.recv(1), coro.yield_slice, lambda: coro.sleep_relative(0), coro._yield)
        for call in waits:
            try:
                call()
            except coro.Shutdown:
                log.append("shutdown")

    def main():
        coro.spawn(stubborn)
        coro.yield_slice()
        coro.set_exit(1, grace=grace)
        coro._yield()

    assert exit_of(coro.run, main) == 1
    assert log == ["shutdown"] * 5
    a.close()
    b.close()


def test_a_grace_period_is_for_one_loop_only():
    """What set_exit asked for once does not shorten the end of a later loop."""
    assert exit_of(coro.run, lambda: coro.set_exit(0, grace=0)) == 0
    test_clean_up_may_wait_for_descriptors_within_the_grace_period()


def test_set_exit_checks_the_grace_period():
    for wrong in ("1", None, True, [1]):
        with pytest.raises(TypeError, match="seconds"):
            coro.set_exit(0, grace=wrong)
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="0 or more"):
            coro.set_exit(0, grace=wrong)
    coro.run(int)  # nothing was asked for


REFUSING = """
    import coro
    def swallow():
        while True:
            try:
                coro.{wait}
            except coro.Interrupted:
                pass
    def main():
        coro.spawn(swallow, thread_name="stubborn")
        coro.spawn(swallow, thread_name="stubborn as well")
        coro.yield_slice()
        {end}
    try:
        coro.run(main)
    finally:
        print("ended", len(coro.all_threads), coro.coro_is_running())
        print(coro.run(lambda: (coro.sleep_relative(0.001), "the next loop works")[1]))
"""


@pytest.mark.parametrize("wait", ["_yield()", "sleep_relative(1000)", "yield_slice()", "current()._yield()"])
def test_a_thread_that_refuses_to_end_is_abandoned_and_named(wait):
    outcome = program(REFUSING.format(wait=wait, end="coro.set_exit(3, grace=0.01)"))
    assert outcome.code == 3, outcome.err
    assert outcome.lines == ["ended 0 False", "the next loop works"]
    lines = outcome.err.splitlines()
    assert len(lines) == 2, outcome.err
    for line, number, name in zip(lines, (2, 3), ("stubborn", "stubborn as well"), strict=True):
        said = rf"thread {number} \({name}\) did not end in time and was abandoned at \[<string> swallow\|\d+\]$"
        assert re.search(said, line)


def test_an_abandoned_thread_is_dead():
    source = """
        import coro
        def swallow():
            while True:
                try:
                    coro._yield()
                except coro.Interrupted:
                    pass
        threads = []
        def main():
            threads.append(coro.spawn(swallow))
            coro.yield_slice()
        coro.run(main)
        t, = threads
        print(t.dead, t.scheduled, t.get_frame(), coro.where(t), t.result, t.exception)
        def after():
            for call in (t.schedule, t.start, lambda: t.raise_exception(ValueError)):
                try:
                    call()
                except coro.DeadCoroutine:
                    print("dead")
            t.shutdown()
            t.join()
        coro.run(after)
    """
    outcome = program(source)
    assert outcome.code == 0, outcome.err
    assert outcome.lines == ["True False None [] None None", "dead", "dead", "dead"]


# -------------------------------------------------------------------------------- again


def test_four_loops_one_after_the_other():
    for n in range(4):
        coro.spawn(coro.set_exit, n)
        coro.spawn(coro._yield)
        assert exit_of(coro.event_loop) == n
        assert coro.run(lambda n=n: n) == n


def test_a_loop_returns_when_nobody_is_left():
    log = []
    coro.spawn(lambda: (coro.yield_slice(), log.append(1)))
    coro.event_loop()
    coro.event_loop(0.5)
    assert log == [1]


def test_nested_loops_are_errors():
    def main():
        with pytest.raises(coro.LoopError, match="already"):
            coro.run(int)
        with pytest.raises(coro.LoopError, match="already"):
            coro.event_loop()
        coro.yield_slice()
        assert len(coro.all_threads) == 1
        return "still running"

    assert coro.run(main) == "still running"


def test_wrong_timeouts_and_functions():
    for wrong in ("1", None, True, [1]):
        with pytest.raises(TypeError, match="seconds"):
            coro.event_loop(wrong)
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="more than 0"):
            coro.event_loop(wrong)
    with pytest.raises(ValueError, match="NaN"):
        coro.event_loop(float("nan"))
    with pytest.raises(TypeError, match="expected a function to call"):
        coro.run(3)
    assert len(coro.all_threads) == 0


def test_an_exit_asked_for_between_loops_ends_the_next_one_after_what_is_runnable():
    log = []
    coro.set_exit(9)
    coro.spawn(log.append, 1)
    assert exit_of(coro.event_loop) == 9
    assert log == [1]
    coro.spawn(log.append, 2)
    coro.event_loop()


@pytest.mark.parametrize(
    "where", ["atexit.register(attempt)", "attempt()", "gc.callbacks.append(attempt); gc.collect()"]
)
def test_blocking_outside_any_loop_is_an_error_also_after_one(where):
    source = f"""
        import atexit, coro, gc
        def attempt(*args):
            gc.callbacks.clear()
            for call in (coro.yield_slice, coro._yield, lambda: coro.sleep_absolute(10**20), coro.new(int).join):
                try:
                    call()
                except coro.YieldFromMain as exc:
                    print(str(exc)[:20])
        coro.run(int)
        {where}
    """
    assert ok(source) == ["a blocking operation"] * 4


# -------------------------------------------------------------------------------- what came in the last slice


@pytest.mark.parametrize("under", ["run", "event_loop"])
def test_what_is_posted_in_the_last_slice_runs(under):
    ran = []

    def main():
        other = threading.Thread(target=coro.post, args=(ran.append, "posted"))
        other.start()
        other.join()

    if under == "run":
        coro.run(main)
    else:
        coro.spawn(main)
        coro.event_loop()
    assert ran == ["posted"]


def test_what_is_posted_just_before_an_exit_runs_as_far_as_its_first_wait():
    ran = []

    def posted():
        ran.append("began")
        try:
            coro.sleep_relative(60)
        except coro.Shutdown:
            ran.append("shut down")
            raise

    def main():
        other = threading.Thread(target=coro.post, args=(posted,))
        other.start()
        other.join()
        coro.set_exit(3)

    assert exit_of(coro.run, main) == 3
    assert ran == ["began", "shut down"]


def test_a_post_to_a_loop_that_ends_is_refused():
    refused = []

    def main():
        coro.spawn(late)
        coro.yield_slice()

    def late():
        try:
            coro._yield()
        except coro.Shutdown:
            with pytest.raises(coro.LoopError) as info:
                coro.post(print)
            refused.append(info.value)
            raise

    coro.run(main)
    assert len(refused) == 1


def test_a_socket_that_another_os_thread_frees_in_the_last_slice_is_closed():
    def main():
        a, b = coro.socketpair()
        box = [a]
        number = a.fileno()
        del a
        other = threading.Thread(target=box.clear)
        other.start()
        other.join()
        b.close()
        return number

    number = coro.run(main)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_last_posts_that_raise_leave_nothing_to_the_next_loop():
    """As where a signal handler raises while the last posts are made: the others are made, and the next loop's are
    taken when they come."""
    lines = ok(
        """
        import coro
        from coro._runtime import scheduler
        made = []

        def bad():
            raise KeyboardInterrupt

        def main():
            scheduler._post_internal(bad)
            scheduler._post_internal(bad)
            scheduler._post_internal(made.append, "last")

        def following():
            for what in ("third", "fourth"):
                coro.post(made.append, what)
                for _ in range(3):
                    coro.yield_slice()
                print(made[-1])
            print(coro.in_thread(len, "12345"))

        try:
            coro.run(main)
        except KeyboardInterrupt:
            print(made, coro.statistics().posts_waiting)
        coro.run(following)
        """
    )
    assert lines == ["['last'] 0", "third", "fourth", "5"]


def test_a_finaliser_that_runs_a_loop_changes_no_exit_code():
    """What main must not release goes when the loop has ended; that may be a program of its own."""
    lines = ok(
        """
        import coro, weakref
        kept = []

        class Late:
            def __del__(self):
                print(coro.run(lambda: 1))

        def late():
            try:
                coro.sleep_relative(1000)
            except coro.Shutdown:
                pass
            return Late()

        def main():
            kept.append(weakref.ref(coro.spawn(late)))
            coro.yield_slice()
            coro.set_exit(7)
            coro.sleep_relative(1000)

        try:
            coro.run(main)
        except SystemExit as e:
            print(e.code)
        """
    )
    assert lines == ["1", "7"]


# -------------------------------------------------------------------------------- no loop at all


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("coro.spawn(print, 1)", "coro: thread 'print' was spawned and never ran, because no event loop did: "),
        ("[coro.spawn(print, i) for i in range(3)]", "coro: 3 threads ('print', ...) were spawned and never ran, "),
        ("coro.spawn(print, thread_name='a\\x1b[2J')", "coro: thread 'a\\x1b[2J' was spawned"),
        ("coro.spawn(print, 1, daemon=True)", ""),
        ("t = coro.new(print, 1)", ""),
        ("coro.run(int)\ncoro.spawn(print)", ""),
        ("coro.spawn(print, 1); 1 / 0", "Traceback"),
    ],
)
def test_threads_that_no_loop_ran_are_told_of_at_the_end(source, said):
    done = program(f"import coro\n{source}\n")
    assert done.err.startswith(said) if said else done.err == ""
    assert done.err.count("never ran") == said.startswith("coro: ")
