"""coro.testing.coro_test and run_in_loop, and coro.test.coro_unittest."""

import os
import signal
import threading
import time
import unittest

import pytest
from support import ok, program

import coro
from coro import testing


@pytest.fixture(autouse=True)
def clean(leaves_nothing):
    yield


def test_results_and_arguments_pass_through():
    def add(a, *, b):
        coro.yield_slice()
        return a + b

    assert testing.run_in_loop(add, 1, b=2) == 3
    assert testing.coro_test(add)(1, b=2) == 3
    assert testing.coro_test(timeout=5, leaks=False)(add)(1, b=2) == 3
    assert testing.coro_test(add).__name__ == "add"
    assert not coro.coro_is_running()


@testing.coro_test
def test_a_decorated_test_blocks_and_gets_fixtures(tmp_path):
    coro.sleep_relative(0.001)
    assert tmp_path.is_dir()


def test_its_own_failure_comes_first():
    with pytest.raises(ZeroDivisionError):
        testing.run_in_loop(lambda: 1 / 0)


def boom():
    raise LookupError("in a thread")


def test_a_crash_elsewhere_fails_the_test():
    def spawning():
        coro.spawn(boom, thread_name="victim")
        coro.yield_slice()

    with pytest.raises(testing.ThreadCrashed, match="(victim)") as e:
        testing.run_in_loop(spawning)
    assert "LookupError: in a thread" in str(e.value) and "in boom" in str(e.value)
    assert isinstance(e.value.__cause__, LookupError)


def test_a_crash_of_a_thread_that_is_left_for_last():
    with pytest.raises(testing.ThreadCrashed):
        testing.run_in_loop(coro.spawn, boom)


def test_a_crash_is_told_with_another_failure():
    def failing():
        coro.spawn(boom)
        coro.yield_slice()
        raise KeyError

    with pytest.raises(KeyError) as e:
        testing.run_in_loop(failing)
    assert any("in a thread" in note for note in e.value.__notes__)


def test_what_is_left_fails_the_test():
    with pytest.raises(testing.LeakError, match="sleep_relative"):
        testing.run_in_loop(coro.spawn, coro.sleep_relative, 1000)
    testing.coro_test(leaks=False)(coro.spawn)(coro.sleep_relative, 1000)


@pytest.mark.slow
def test_a_deadlock_is_raised_inside_and_cleaning_up_goes_on():
    log = []

    def blocked():
        other = coro.spawn(coro._yield, thread_name="stuck")
        try:
            other.join()
        finally:
            coro.sleep_relative(0.001)  # the loop still runs
            log.append(other.dead)
            other.shutdown()

    with pytest.raises(coro.DeadlockError, match="stuck"):
        testing.run_in_loop(blocked)
    assert log == [False]


@pytest.mark.slow
def test_a_deadlock_in_the_presence_of_other_os_threads():
    """One that was there before is given half a second; for one that came later the test waits."""
    gone = threading.Event()
    thread = threading.Thread(target=gone.wait)
    thread.start()
    try:
        with pytest.raises(coro.DeadlockError):
            testing.run_in_loop(coro._yield)
    finally:
        gone.set()
        thread.join()

    def waiting():
        me = coro.current()
        timer = threading.Timer(0.7, coro.post, (me.schedule,))
        timer.start()
        coro._yield()
        timer.join()

    testing.run_in_loop(waiting)


def test_the_time_limit():
    def slow():
        coro.spawn(coro._yield, thread_name="bystander").join()

    def guarded():
        handler = coro.socketpair()  # something that might wake it
        t = coro.spawn(handler[0].recv, 1)
        try:
            slow()
        finally:
            handler[0].close()
            t.shutdown()

    with pytest.raises(testing.TimeLimitExceeded, match="limit of 0.05 seconds") as e:
        testing.coro_test(timeout=0.05)(guarded)()
    assert "bystander" in str(e.value) and "to read descriptor" in str(e.value)


def test_the_time_limit_is_real_time_whatever_the_clock():
    def slow():
        with testing.virtual_clock():
            a, b = coro.socketpair()
            with a, b:
                a.recv(1)

    with pytest.raises(testing.TimeLimitExceeded):
        testing.coro_test(timeout=0.05)(slow)()


def test_the_time_limit_strikes_again():
    def stubborn():
        a, b = coro.socketpair()
        with a, b:
            try:
                a.recv(1)
            except coro.Interrupted:
                a.recv(1)

    with pytest.raises(testing.TimeLimitExceeded):
        testing.coro_test(timeout=0.05)(stubborn)()


@pytest.mark.slow
def test_the_time_limit_stops_a_thread_that_computes():
    def computing():
        while True:
            pass

    begin = time.monotonic()
    with pytest.raises(testing.TimeLimitExceeded, match="would not wait"):
        testing.coro_test(timeout=0.05)(computing)()
    assert time.monotonic() - begin < 30


def test_threads_that_wake_each_other_for_ever_do_not_outlast_the_limit():
    def main():
        def partner():
            while True:
                me.schedule()
                coro._yield()

        me = coro.current()
        other = coro.spawn(partner)
        try:
            with testing.virtual_clock():
                while True:
                    coro._yield()
                    other.schedule()
        finally:
            other.shutdown()

    with pytest.raises(testing.TimeLimitExceeded):
        testing.coro_test(timeout=0.05)(main)()


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="time limit"):
        testing.coro_test(timeout=0)
    with pytest.raises(TypeError, match=r"unittest\.TestCase"):
        testing.coro_test(3)
    with pytest.raises(TypeError, match=r"unittest\.TestCase"):
        testing.coro_test(dict)


def test_sigint_is_a_keyboard_interrupt_in_the_test():
    log = []

    def waiting():
        try:
            coro.spawn(os.kill, os.getpid(), signal.SIGINT)
            coro.sleep_relative(30)
        except KeyboardInterrupt:
            log.append("inside")
            coro.sleep_relative(0.001)  # the loop still runs
            raise

    def computing():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            log.append("the first waits")
            os.kill(os.getpid(), signal.SIGINT)
            log.append("unreachable")
        finally:
            coro.sleep_relative(0.001)

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for function in (waiting, computing):
            with pytest.raises(KeyboardInterrupt):
                testing.run_in_loop(function)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert log == ["inside", "the first waits"]


# -- unittest


def outcome_of(cls):
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(cls).run(result)
    return result


@pytest.mark.slow
def test_a_test_case_class():
    log = []

    @testing.coro_test(timeout=60)
    class Case(unittest.TestCase):
        def setUp(self):
            coro.yield_slice()
            self.a, self.b = coro.socketpair()
            self.loop = coro.current().id

        def tearDown(self):
            coro.yield_slice()
            self.a.close()
            self.b.close()
            log.append(self.loop == coro.current().id)

        def test_fine(self):
            self.a.send(b"x")
            self.assertEqual(self.b.recv(1), b"x")

        def test_crash(self):
            coro.spawn(boom)
            coro.yield_slice()

        def test_fails(self):
            self.fail("as told")

        def test_leaks(self):
            coro.spawn(coro.sleep_relative, 1000)

        def test_deadlock(self):
            coro._yield()

        @unittest.skip("no reason")
        def test_skipped(self):
            raise AssertionError

        def test_subtests(self):
            for i in range(3):
                with self.subTest(i=i):
                    coro.yield_slice()
                    self.assertNotEqual(i, 1)

    result = outcome_of(Case)
    errors = {case.id().rpartition(".")[2]: text for case, text in result.errors}
    failures = {case.id().rpartition(".")[2]: text for case, text in result.failures}
    assert result.testsRun in (6, 7)  # Python 3.12.1 did not count skipped ones
    assert len(result.skipped) == 1
    everything = {**errors, **failures}
    names = {name.split()[0].rstrip(")") for name in everything}
    assert names == {"test_crash", "test_fails", "test_leaks", "test_deadlock", "test_subtests"}
    assert "LookupError: in a thread" in everything["test_crash"]
    assert "the only thread that the loop waits for is blocked" in everything["test_deadlock"]
    assert "left behind" in everything["test_leaks"]
    assert len(everything) == 5
    assert log == [True] * 6


UNITTEST = """
    import sys, unittest, coro
    from coro.test import coro_unittest
    def boom():
        raise LookupError("in a thread")
    class Case(unittest.TestCase):
        def test_blocks(self):
            a, b = coro.socketpair()
            coro.spawn(a.send, b"x")
            self.assertEqual(b.recv(1), b"x")
        {}
    coro_unittest.run_tests()
"""


@pytest.mark.parametrize(
    "more, code, text",
    [
        ("pass", 0, "OK"),
        ("def test_other(self): self.fail('as told')", 1, "as told"),
        ("def test_crash(self): coro.spawn(boom); coro.yield_slice()", 1, "LookupError: in a thread"),
        ("def test_zcrash(self): coro.spawn(boom)", 1, "LookupError: in a thread"),
        ("def test_zdeadlock(self): coro._yield()", 1, "the only thread that the loop waits for is blocked"),
        ("def tearDown(self): coro.spawn(boom); coro.yield_slice()", 1, "LookupError: in a thread"),
    ],
)
def test_coro_unittest(more, code, text):
    outcome = program(UNITTEST.format(more))
    assert outcome.code == code, outcome.err
    assert text in outcome.err


def test_coro_unittest_without_tests():
    assert program("from coro.test import coro_unittest; coro_unittest.run_tests()").code == 5


@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGTERM"])
def test_coro_unittest_ends_by_signals(signal_name):
    more = (
        f"def test_wait(self): import os, signal; os.kill(os.getpid(), signal.{signal_name}); coro.sleep_relative(60)"
    )
    outcome = program(UNITTEST.format(more))
    assert outcome.code not in (0, 1)
    assert "KeyboardInterrupt" in outcome.err


def test_the_test_kit_needs_no_pytest():
    assert ok("""
        import sys
        sys.modules["pytest"] = None
        import coro.testing, coro.test.coro_unittest
        print("fine")
        """) == ["fine"]


def test_importing_coro_does_not_load_the_test_kit():
    assert ok("import sys, coro; print('coro.testing' in sys.modules)") == ["False"]
