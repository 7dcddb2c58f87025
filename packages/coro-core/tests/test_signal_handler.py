"""Signals handled in threads. What leaves traces in the process or ends it runs in a process of its own."""

import contextvars
import functools
import os
import signal
import sys
import threading

import pytest
from support import ok, program

import coro
from coro import signal_handler
from coro.signal_handler import print_running_thread, register, register_signal_handler, unregister

pytestmark = pytest.mark.poller

ONE, TWO = signal.SIGUSR1, signal.SIGUSR2


def in_loop(function):
    """Run a test as a thread of its own loop; one that hangs fails after ten seconds. No signal stays handled."""

    @functools.wraps(function)
    def run(*args, **kwargs):
        before = signal.getsignal(ONE), signal.getsignal(TWO)
        try:
            return coro.run(coro.with_timeout, 10, function, *args, **kwargs)
        finally:
            assert (signal.getsignal(ONE), signal.getsignal(TWO)) == before

    return run


def send(signum=ONE):
    os.kill(os.getpid(), signum)


def wait_for(condition):
    while not condition():
        coro.sleep_relative(0.001)


@pytest.fixture
def failures():
    """What the exception notifier was told."""
    told = []
    before = coro.set_exception_notifier(lambda: told.append(sys.exc_info()[1]))
    yield told
    coro.set_exception_notifier(before)


@in_loop
def test_a_signal_runs_the_handler_in_a_thread():
    seen = []

    def handler(signum):
        coro.sleep_relative(0)  # may wait
        seen.append((signum, coro.current()))

    register(ONE, handler)
    for n in (1, 2, 3):
        send()
        wait_for(lambda n=n: len(seen) == n)
    assert {number for number, _ in seen} == {ONE}
    assert len({thread for _, thread in seen} - {coro.current()}) == 3
    assert "handler" in seen[0][1].name


@in_loop
def test_promptly_while_idle():
    """The loop waits in the kernel, with nothing due for an hour, when the signal comes."""
    times = []
    register(ONE, lambda signum: (times.append(coro.get_usec()), sleeper.shutdown()))
    sleeper = coro.spawn(coro.sleep_relative, 3600)

    def later():
        times.append(coro.get_usec())
        send()

    timer = threading.Timer(0.02, later)
    timer.start()
    sleeper.join()
    timer.join()
    assert times[1] - times[0] < 100_000


@in_loop
def test_an_exception_goes_to_the_notifier_and_disables_nothing(failures):
    calls = []

    def handler(signum):
        calls.append(signum)
        raise errors[len(calls) - 1]

    errors = [ValueError("one"), KeyError("two"), SystemExit(3)]
    register(ONE, handler)
    for n in (1, 2, 3):
        send()
        wait_for(lambda n=n: len(failures) == n)
    assert failures == errors


@in_loop
def test_registering_twice():
    seen = []
    register(ONE, seen.append)
    with pytest.raises(coro.SimultaneousError) as e:
        register(ONE, print)
    assert e.value.other == seen.append
    assert e.value.co is coro.current()
    assert (e.value.event.ident, e.value.event.filter) == (ONE, coro.EVFILT.SIGNAL)
    register(TWO, print)  # another signal is another matter
    send()
    wait_for(lambda: seen)
    assert seen == [ONE]  # the first goes on, alone


@in_loop
def test_once_only():
    seen = []
    before = signal.getsignal(ONE)
    register(ONE, seen.append, once_only=True)
    assert signal.getsignal(ONE) is not before
    send()
    wait_for(lambda: seen)
    assert signal.getsignal(ONE) is before
    with pytest.raises(KeyError):
        unregister(ONE)
    register(ONE, seen.append, True)
    send()
    wait_for(lambda: len(seen) == 2)


@in_loop
def test_unregister():
    seen = []
    before = signal.getsignal(ONE)
    with pytest.raises(KeyError):
        unregister(ONE)
    register(ONE, seen.append)
    unregister(ONE)
    assert signal.getsignal(ONE) is before
    with pytest.raises(KeyError):
        unregister(ONE)
    register_signal_handler(ONE, seen.append)
    send()
    wait_for(lambda: seen)
    coro.set_handler((TWO, coro.EVFILT.SIGNAL), print)
    with pytest.raises(KeyError):  # not one of register()
        unregister(TWO)


@in_loop
def test_signals_during_the_handler_lead_to_one_more_call():
    calls = []
    gate = []

    def handler(signum):
        calls.append(signum)
        wait_for(lambda: gate)

    register(ONE, handler)
    send()
    wait_for(lambda: calls)
    for _ in range(3):
        send()
        coro.yield_slice()
    coro.sleep_relative(0.01)
    assert len(calls) == 1
    gate.append(True)
    wait_for(lambda: len(calls) == 2)
    coro.sleep_relative(0.01)
    assert len(calls) == 2


@in_loop
def test_the_context_of_the_caller():
    variable = contextvars.ContextVar("variable", default="no")
    variable.set("registrar")
    seen = []
    register(ONE, lambda signum: seen.append(variable.get()))
    variable.set("later")
    send()
    wait_for(lambda: seen)
    assert seen == ["registrar"]


def test_before_the_loop_starts():
    """The registration, and a signal, are kept until then; the end of the loop ends it."""
    seen = []
    before = signal.getsignal(ONE)
    register(ONE, seen.append)
    with pytest.raises(coro.SimultaneousError) as e:
        register(ONE, print)
    assert e.value.other == seen.append
    send()

    def main():
        wait_for(lambda: seen)
        send()
        wait_for(lambda: len(seen) == 2)

    coro.run(coro.with_timeout, 10, main)
    assert seen == [ONE, ONE]
    assert signal.getsignal(ONE) is before
    with pytest.raises(KeyError):
        unregister(ONE)
    register(ONE, seen.append)
    unregister(ONE)
    assert signal.getsignal(ONE) is before


@in_loop
def test_bad_arguments():
    for wrong in (0, -1, 10_000, signal.SIGKILL, signal.SIGSTOP):
        with pytest.raises(ValueError, match="can be caught"):
            register(wrong, print)
        with pytest.raises(ValueError, match="can be caught"):
            unregister(wrong)
    for wrong in ("SIGUSR1", 10.0, None, True):
        with pytest.raises(TypeError, match="expected the number"):
            register(wrong, print)
    with pytest.raises(TypeError, match="expected a function"):
        register(ONE, "handler")
    errors = []

    def elsewhere():
        try:
            register(ONE, print)
        except Exception as e:
            errors.append(type(e))

    coro.in_thread(elsewhere)
    assert errors == [coro.WrongThreadError]


def test_children_inherit_no_mask():
    """Neither a program that is started nor a forked child has the signal blocked or ignored."""
    lines = ok("""
        import coro, os, signal, subprocess, sys
        from coro.signal_handler import register
        def main():
            register(signal.SIGUSR1, print)
            print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
            code = "from signal import *; print(pthread_sigmask(SIG_BLOCK, []), getsignal(SIGUSR1))"
            print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip())
        coro.run(main)
    """)
    assert lines == ["set()", "set() 0"] or lines == ["set()", "set() Handlers.SIG_DFL"]


def test_a_forked_child_has_no_handlers():
    """It has the default action again, and may register anew."""
    assert ok("""
        import coro, os, signal
        from coro.signal_handler import register, unregister
        def main():
            register(signal.SIGUSR1, print)
            pid = os.fork()
            if pid == 0:
                free = signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
                register(signal.SIGUSR1, print)
                unregister(signal.SIGUSR1)
                os._exit(0 if free else 1)
            print(os.waitpid(pid, 0)[1])
            unregister(signal.SIGUSR1)
        coro.run(main)
    """) == ["0"]


def test_sigterm_may_be_taken_over():
    lines = ok("""
        import coro, os, signal
        from coro.signal_handler import register
        def stop(signum):
            print("stopping", signum)
            coro.set_exit(4)
        def main():
            register(signal.SIGTERM, stop)
            os.kill(os.getpid(), signal.SIGTERM)
            try:
                coro.sleep_relative(1000)
            finally:
                print("finally")
        try:
            coro.run(main)
        except SystemExit as e:
            print(e.code)
    """)
    assert lines == ["stopping 15", "finally", "4"]


def test_a_handler_keeps_no_loop_from_ending():
    assert ok("""
        import coro, signal
        from coro.signal_handler import register
        coro.set_print_exit_string(False)
        register(signal.SIGUSR1, print)
        coro.spawn(print, "thread")
        coro.event_loop()
        print("ended")
    """) == ["thread", "ended"]


# -- which thread runs


def test_which_thread_runs():
    """Answered while a thread keeps the loop busy, and while it idles."""
    outcome = program("""
        import coro, os, signal
        from coro.signal_handler import print_running_thread
        restore = print_running_thread(signal.SIGUSR1)
        def burn():
            os.kill(os.getpid(), signal.SIGUSR1)
        coro.run(lambda: coro.spawn(burn, thread_name="burner").join())
        os.kill(os.getpid(), signal.SIGUSR1)
        restore()
        restore()
        print(signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL)
    """)
    assert (outcome.code, outcome.lines) == (0, ["True"])
    first, second = outcome.err.splitlines()
    assert first.startswith("SIGUSR1: thread ") and "(burner) at [" in first and "burn|" in first
    assert second.startswith("SIGUSR1: ")


def test_a_loop_answers_to_siginfo_where_there_is_one():
    outcome = program("""
        import signal
        signal.SIGINFO = signal.SIGUSR2
        import coro
        coro.run(signal.raise_signal, signal.SIGUSR2)
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
        signal.signal(signal.SIGUSR2, lambda number, frame: print("the program's own"))
        coro.run(signal.raise_signal, signal.SIGUSR2)
    """)
    assert (outcome.code, outcome.lines) == (0, ["the program's own"])
    assert outcome.err.startswith("SIGUSR2: thread ") and "raise_signal" in outcome.err


def test_which_thread_runs_needs_a_signal():
    if not hasattr(signal, "SIGINFO"):
        with pytest.raises(ValueError, match="choose a signal"):
            print_running_thread()
    with pytest.raises(ValueError, match="can be caught"):
        print_running_thread(signal.SIGKILL)


def test_a_report_that_fails_disturbs_nobody(monkeypatch):
    def broken(text):
        raise OSError

    monkeypatch.setattr(signal_handler, "write_stderr", broken)
    restore = print_running_thread(ONE)
    send()
    restore()
