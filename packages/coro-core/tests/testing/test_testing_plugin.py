"""The pytest plugin, in pytest runs of their own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
PLUGIN = ("-p", "coro.testing.pytest_plugin")

#: What each run of this file imports anyway makes it slower than others: a new interpreter for every test.
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch):
    """Only what a test loads: other plugins take seconds to import."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("CORO_TEST_SEED", raising=False)


@pytest.fixture
def run(pytester, monkeypatch):
    """Run a test file with the plugin: run(source, *options) or run(source, ini=...)."""
    for name in ("CI", "BUILD_NUMBER"):  # pytest repeats whole messages in its summary where these are set
        monkeypatch.delenv(name, raising=False)

    def run(source, *options, ini="", plugin=PLUGIN):
        pytester.makeini("[pytest]\n" + ini)
        pytester.makepyfile(source)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *plugin, *options)

    return run


def test_the_example_of_the_manual(pytester):
    example = Path(__file__).resolve().parents[4] / "docs" / "examples" / "test_fetch.py"
    if not example.exists():
        pytest.skip("the manual is in the repository only")
    pytester.makepyfile(test_fetch=example.read_text())  # away from the settings of the repository
    pytester.runpytest_subprocess("-p", "no:cacheprovider", *PLUGIN).assert_outcomes(passed=4)


def test_marked_tests_run_inside_a_loop_and_others_do_not(run):
    result = run("""
        import pytest, coro

        @pytest.mark.coro
        def test_inside():
            coro.sleep_relative(0.001)
            assert coro.coro_is_running() and coro.current().id > 0

        def test_outside():
            assert not coro.coro_is_running()

        @pytest.mark.coro
        @pytest.mark.parametrize("n", [1, 2])
        def test_each_has_its_own_loop(n):
            assert len(coro.all_threads) == 1

        @pytest.mark.coro
        class TestClass:
            def test_method(self):
                coro.yield_slice()

        @pytest.mark.coro
        def test_skipped():
            pytest.skip("no reason")

        @pytest.mark.coro
        @pytest.mark.xfail(strict=True)
        def test_expected():
            coro.yield_slice()
            assert 0
        """)
    result.assert_outcomes(passed=5, skipped=1, xfailed=1)


def test_all_tests_run_inside_a_loop_in_auto_mode(run):
    result = run(
        """
        import unittest, pytest, coro

        def test_inside():
            coro.yield_slice()

        @pytest.mark.no_coro
        def test_outside():
            assert coro.run(lambda: 5) == 5

        class Case(unittest.TestCase):
            def setUp(self):
                coro.yield_slice()
            def test_method(self):
                coro.yield_slice()
        """,
        ini="coro_mode = auto",
    )
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["coro: *mode auto, usual order of threads"])


def test_without_being_asked_for_it_does_nothing(run):
    result = run(
        """
        import coro
        def test_outside(pytestconfig):
            assert not pytestconfig.pluginmanager.has_plugin("coro.testing.pytest_plugin")
            assert not coro.coro_is_running()
        """,
        plugin=(),
    )
    result.assert_outcomes(passed=1)


def test_failures_show_assertions_and_tracebacks_as_ever(run):
    result = run("""
        import pytest, coro

        def helper(value):
            coro.yield_slice()
            assert value == [1, 2, 4]

        @pytest.mark.coro
        def test_fails():
            helper([1, 2, 3])
        """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_fails():*", "*assert value == [[]1, 2, 4[]]*", "E *assert [[]1, 2, 3[]] == *"])


def test_fixtures_live_in_the_same_loop_and_thread(run):
    result = run("""
        import pytest, coro

        log = []

        @pytest.fixture
        def echo():
            listener = coro.tcp_sock()
            listener.bind(("127.0.0.1", 0))
            listener.listen()

            def serve():
                conn, _ = listener.accept()
                with conn:
                    while data := conn.recv(100):
                        conn.send(data)

            server = coro.spawn(serve)
            client = coro.tcp_sock()
            client.connect(listener.getsockname())
            log.append(coro.current())
            yield client
            log.append(coro.current())
            client.close()
            server.join()
            listener.close()

        @pytest.mark.coro
        def test_echo(echo):
            log.append(coro.current())
            echo.send(b"hello")
            assert echo.recv_exact(5) == b"hello"

        def test_all_the_same():
            assert len(log) == 3 and len(set(log)) == 1
            log.clear()
        """)
    result.assert_outcomes(passed=2)


def test_wider_fixtures_are_no_leaks(run):
    result = run("""
        import os, pytest, coro

        @pytest.fixture(scope="module")
        def descriptor():
            coro.yield_slice()
            fd = os.open("/dev/null", os.O_RDONLY)
            yield fd
            coro.yield_slice()
            os.close(fd)

        @pytest.mark.coro
        def test_one(descriptor):
            assert os.fstat(descriptor)

        @pytest.mark.coro
        def test_two(descriptor):
            assert os.fstat(descriptor)
        """)
    result.assert_outcomes(passed=2)


def test_leaks_fail_the_teardown(run):
    source = """
        import os, pytest, coro

        @pytest.mark.coro
        def test_thread():
            coro.spawn(coro.sleep_relative, 1000, thread_name="left over")

        @pytest.mark.coro
        def test_descriptor():
            os.open("/dev/zero", os.O_RDONLY)

        @pytest.mark.coro
        def test_daemon():
            coro.spawn(coro._yield, daemon=True)

        @pytest.mark.coro(leaks=False)
        def test_allowed():
            coro.spawn(coro.sleep_relative, 1000)

        @pytest.mark.coro
        def test_failures_come_first():
            coro.spawn(coro.sleep_relative, 1000)
            assert 0
        """
    result = run(source)
    result.assert_outcomes(passed=4, failed=1, errors=2)
    result.stdout.fnmatch_lines(["*LeakError: left behind:*", "*left over*", "*descriptor *: /dev/zero*"])
    run(source, ini="coro_leaks = false").assert_outcomes(passed=4, failed=1)


def test_a_thread_that_crashes_fails_the_test(run):
    result = run("""
        import pytest, coro

        def boom():
            raise LookupError("in a thread")

        @pytest.mark.coro
        def test_crash():
            coro.spawn(boom, thread_name="victim")
            coro.yield_slice()

        @pytest.mark.coro
        def test_crash_and_failure():
            coro.spawn(boom, thread_name="second")
            coro.yield_slice()
            assert 0

        @pytest.fixture
        def crashing():
            yield
            coro.spawn(boom)

        @pytest.mark.coro
        def test_crash_in_teardown(crashing):
            pass

        @pytest.fixture
        def early():
            coro.spawn(boom)
            coro.yield_slice()

        @pytest.mark.coro
        def test_crash_in_setup(early):
            pass
        """)
    result.assert_outcomes(passed=1, failed=2, errors=2)
    result.stdout.fnmatch_lines(
        ["*ThreadCrashed: thread * (victim) was ended by an exception:*", "*LookupError: in a thread*"]
    )
    result.stdout.fnmatch_lines(["*Threads that failed meanwhile*", "*(second) was ended by*"])


def test_one_traceback_without_our_own_frames(run):
    source = """
        import pytest, coro

        def boom():
            raise LookupError("in a thread")

        @pytest.mark.coro
        def test_crash():
            coro.spawn(boom, thread_name="victim")
            coro.yield_slice()

        @pytest.fixture
        def crashing():
            yield
            coro.spawn(boom)
            coro.yield_slice()

        @pytest.mark.coro
        def test_crash_after_a_failure(crashing):
            assert 0

        @pytest.mark.coro
        def test_interrupted():
            t = coro.current()
            coro.spawn(lambda: t.raise_exception(KeyError("sent")))
            coro.sleep_relative(100)

        @pytest.mark.coro
        def test_leak():
            coro.spawn(coro.sleep_relative, 1000)
        """
    result = run(source)
    text = result.stdout.str()
    result.assert_outcomes(failed=3, errors=1, passed=1)
    assert text.count('raise LookupError("in a thread")') == 2
    assert text.count("was ended by an exception:") == 2
    result.stdout.fnmatch_lines(["ThreadCrashed: thread * (victim) was ended by an exception:"])
    result.stdout.fnmatch_lines(["*LeakError: left behind:*"])
    assert "KeyError: 'sent'" in text
    for own in ("pytest_plugin", "_runner.py", ".pyx", ".pxi", "direct cause"):
        assert own not in text, text
    assert "_runner.py" in run(source, "--full-trace").stdout.str()


def test_a_deadlock_shows_where_everybody_is(run):
    result = run("""
        import pytest, coro

        @pytest.fixture
        def lock():
            yield coro.mutex()
            coro.sleep_relative(0.001)

        @pytest.mark.coro
        def test_deadlock(lock):
            def other():
                with lock:
                    coro._yield()
            t = coro.spawn(other, thread_name="holder")
            coro.yield_slice()
            try:
                with lock:
                    pass
            finally:
                t.shutdown()

        @pytest.mark.coro
        def test_after():
            pass
        """)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*with lock:*",
            "*DeadlockError: all 2 threads that the loop waits for are blocked*",
            "*holder*until somebody schedules it*",
        ]
    )


def test_time_limits(run):
    source = """
        import pytest, coro

        @pytest.mark.coro
        def test_slow():
            a, b = coro.socketpair()
            with a, b:
                a.recv(1)

        @pytest.mark.coro(timeout=0.1)
        def test_short():
            a, b = coro.socketpair()
            with a, b:
                a.recv(1)

        @pytest.mark.coro(timeout=None)
        def test_none():
            coro.sleep_relative(0.3)
        """
    result = run(source, ini="coro_timeout = 0.2")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*TimeLimitExceeded: *limit of 0.2 seconds*", "*to read descriptor*"])
    result.stdout.fnmatch_lines(["*limit of 0.1 seconds*"])


def test_clocks_and_random_order(run):
    source = """
        import pytest, coro
        from coro import testing

        @pytest.mark.coro
        def test_clock(coro_clock):
            t = coro.spawn(coro.sleep_relative, 1000)
            testing.wait_all_blocked()
            coro_clock.advance(1000)
            t.join()

        @pytest.mark.coro
        def test_autojump(coro_autojump_clock):
            coro.sleep_relative(1e6)
            assert coro_autojump_clock.jumps == 1

        @pytest.mark.coro
        def test_order(coro_random_order):
            print("seed is", coro_random_order.seed)
            assert 0

        def test_no_loop(coro_clock, coro_random_order):
            coro_clock.advance(1)
        """
    result = run(source, "--coro-seed=77")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*seed is 77*", "*Order of threads*", "*random_order(77)*--coro-seed=77"])


def test_random_order_for_all(run):
    result = run(
        """
        import pytest, coro
        from coro import testing

        @pytest.mark.coro
        def test_order():
            log = []
            for i in range(50):
                coro.spawn(log.append, i)
            testing.wait_all_blocked()
            assert log == list(range(50))
        """,
        "--coro-random-order",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["coro: *random order of threads", "*so does --coro-seed=*"])


def test_a_loop_that_is_told_to_end(run):
    result = run("""
        import pytest, coro

        @pytest.mark.coro
        def test_exit():
            coro.set_exit(3)

        @pytest.mark.coro
        def test_exit_while_blocked():
            coro.set_exit(3)
            coro.sleep_relative(100)

        @pytest.mark.coro
        def test_after():
            coro.yield_slice()
        """)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*the loop was told to end (coro.set_exit)*"])


def test_wrong_settings_are_explained(run):
    test = "import pytest\n@pytest.mark.coro({})\ndef test_it(): pass\n"
    for source, ini, text in (
        (test.format(""), "coro_mode = always", "*coro_mode is 'strict' or 'auto', not 'always'*"),
        (test.format(""), "coro_timeout = long", "*coro_timeout is a number of seconds of at least 0, not 'long'*"),
        (test.format("5"), "", "*the marker coro takes timeout=... and leaks=... only*"),
        (test.format("limit=5"), "", "*the marker coro takes timeout=... and leaks=... only*"),
        (test.format("timeout=-1"), "", "*the timeout is a number of seconds above 0, or None, not -1*"),
    ):
        result = run(source, ini=ini)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([text])


def test_the_markers_are_known(run):
    result = run("def test_it(): pass", "--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.coro(timeout=..., leaks=...):*", "@pytest.mark.no_coro:*"])


def test_pytest_exit_and_maxfail(run):
    result = run(
        """
        import pytest, coro

        @pytest.fixture
        def resource():
            yield
            coro.sleep_relative(0.001)
            print("torn down inside")

        @pytest.mark.coro
        def test_exit(resource):
            pytest.exit("enough")

        @pytest.mark.coro
        def test_after():
            pass
        """,
        "-s",
    )
    result.stdout.fnmatch_lines(["*torn down inside*", "*Exit: enough*"])
    result.assert_outcomes()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_run(pytester, signum):
    pytester.makepyfile("""
        import pytest, coro

        @pytest.fixture
        def resource():
            yield
            coro.sleep_relative(0.001)
            print("torn down inside", flush=True)

        @pytest.mark.coro
        def test_waits(resource):
            print("waiting", flush=True)
            coro.sleep_relative(60)

        def test_after():
            pass
        """)
    # A shell that starts the tests in the background has them ignore SIGINT, and programs inherit that.
    code = (
        "import signal, sys, pytest; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "sys.exit(pytest.main(sys.argv[1:]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, *PLUGIN, "-p", "no:cacheprovider", "-s"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=pytester.path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            for line in process.stdout:
                if "waiting" in line:
                    break
            time.sleep(0.05)  # until it is really blocked; it makes no difference to what comes out
            process.send_signal(signum)
            rest = process.stdout.read()
        finally:
            process.kill()
    if signum == signal.SIGINT:
        assert process.returncode == pytest.ExitCode.INTERRUPTED
        assert "torn down inside" in rest and "KeyboardInterrupt" in rest and "no tests ran" in rest
    else:
        assert process.returncode == -signal.SIGTERM
