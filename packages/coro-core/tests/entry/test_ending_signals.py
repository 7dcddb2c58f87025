"""Signals that end a loop: SIGINT, a second SIGINT, SIGTERM, and handlers of the program's own.

Each runs in a process of its own.
"""

import signal

import pytest
from support import ok, program

import coro

pytestmark = pytest.mark.poller


@pytest.fixture(autouse=True)
def quiet():
    coro.set_print_exit_string(False)
    yield
    coro.set_print_exit_string(True)


def exit_of(function, *args):
    with pytest.raises(SystemExit) as info:
        function(*args)
    return info.value.code


# -------------------------------------------------------------------------------- signals

SIGNALS = """
    import coro, os, signal, sys
    def worker():
        try:
            coro.sleep_relative(1000)
        finally:
            print("finally")
    def main():
        coro.spawn(worker)
        coro.yield_slice()
        os.kill(os.getpid(), signal.{signal})
        {then}
    try:
        {start}
    except BaseException as exc:
        print(type(exc).__name__, getattr(exc, "code", ""))
    now = signal.getsignal
    print(now(signal.SIGINT) is signal.default_int_handler, now(signal.SIGTERM) == signal.SIG_DFL)
"""
EVENT_LOOP = "coro.set_print_exit_string(False); coro.spawn(main); coro.event_loop()"


@pytest.mark.parametrize("then", ["coro._yield()", "coro.sleep_relative(1000)", "coro.socketpair()[0].recv(1)"])
@pytest.mark.parametrize(
    ("number", "start", "raised"),
    [
        ("SIGINT", "coro.run(main)", "KeyboardInterrupt "),
        ("SIGTERM", "coro.run(main)", "SystemExit 0"),
        ("SIGINT", EVENT_LOOP, "SystemExit 0"),
        ("SIGTERM", EVENT_LOOP, "SystemExit 0"),
    ],
)
def test_a_signal_ends_the_loop_in_order(number, start, raised, then):
    assert ok(SIGNALS.format(signal=number, start=start, then=then)) == ["finally", raised, "True True"]


def test_a_signal_raises_nothing_inside_a_thread():
    lines = ok(
        """
        import coro, os, signal
        def main():
            try:
                os.kill(os.getpid(), signal.SIGINT)
                for n in range(100000):
                    pass
                print("went on")
                coro.yield_slice()
            except coro.Shutdown:
                print("shutdown")
                raise
            except BaseException as exc:
                print("wrong", exc)
        try:
            coro.run(main)
        except KeyboardInterrupt:
            print("KeyboardInterrupt")
        """
    )
    # The slice ends before the loop looks at the signal's mark, or after: the thread may end first.
    assert lines in (["went on", "shutdown", "KeyboardInterrupt"], ["went on", "KeyboardInterrupt"])


def test_a_signal_wakes_a_loop_that_waits():
    lines = ok(
        """
        import coro, os, signal, threading, time
        def main():
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            coro.sleep_relative(1000)
        began = time.monotonic()
        try:
            coro.run(main)
        except KeyboardInterrupt:
            print(time.monotonic() - began < 10)
        """
    )
    assert lines == ["True"]


@pytest.mark.parametrize(("start", "raised"), [("coro.run(main)", "KeyboardInterrupt"), (EVENT_LOOP, "SystemExit")])
def test_a_second_interrupt_skips_the_grace_period(start, raised):
    lines = ok(
        f"""
        import coro, os, signal, time
        a, b = coro.socketpair()
        def main():
            n = 0
            try:
                os.kill(os.getpid(), signal.SIGINT)
                coro._yield()
            except coro.Shutdown:
                print("first")
                coro.spawn  # clean-up that waits for a peer who says nothing
                os.kill(os.getpid(), signal.SIGINT)
                try:
                    a.recv(1)
                except coro.Shutdown as exc:
                    print("second", exc)
        began = time.monotonic()
        try:
            {start}
        except BaseException as exc:
            print(type(exc).__name__, time.monotonic() - began < 3)
        """
    )
    assert lines == ["first", "second the event loop has ended; this thread must end too", f"{raised} True"]


def test_handlers_of_the_program_are_left_alone():
    lines = ok(
        """
        import coro, os, signal
        seen = []
        def mine(number, frame):
            seen.append(number)
        signal.signal(signal.SIGINT, mine)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        def main():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            coro.yield_slice()
            coro.yield_slice()
            return seen
        print(coro.run(main), signal.getsignal(signal.SIGINT) is mine)
        """
    )
    assert lines == [f"[{int(signal.SIGINT)}] True"]


def test_signal_handlers_can_be_switched_off_for_event_loop():
    lines = ok(
        """
        import coro, signal
        coro.install_signal_handlers = False
        coro.set_print_exit_string(False)
        coro.spawn(lambda: print(signal.getsignal(signal.SIGINT) is signal.default_int_handler))
        coro.event_loop()
        """
    )
    assert lines == ["True"]


def test_a_handler_that_raises_ends_the_loop_and_its_threads():
    lines = ok(
        """
        import coro, os, signal, threading
        def mine(number, frame):
            raise RuntimeError("handler")
        signal.signal(signal.SIGUSR1, mine)
        def main():
            try:
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
                coro.sleep_relative(1000)
            finally:
                print("finally")
        try:
            coro.run(main)
        except RuntimeError as exc:
            print(exc)
        print(coro.run(lambda: "next"))
        """
    )
    assert lines == ["finally", "handler", "next"]


def test_a_handler_that_raises_again_and_again_leaves_no_thread_to_the_next_loop():
    outcome = program(
        """
        import coro, signal
        coro.set_latency_warning(0)
        def handler(number, frame):
            if coro.coro_is_running():
                raise ValueError("once more")
        signal.signal(signal.SIGALRM, handler)
        def refuses():
            while True:
                try:
                    coro._yield()
                except BaseException:
                    pass
        def main():
            for _ in range(3):
                coro.spawn(refuses)
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0002)
            coro.sleep_relative(1000)
        left = set()
        for n in range(50):
            try:
                coro.run(main)
            except ValueError:
                pass
            signal.setitimer(signal.ITIMER_REAL, 0)
            left.add(len(coro.all_threads))
        print(left, coro.run(lambda: "ran"))
        """
    )
    assert outcome.code == 0, outcome.err
    assert outcome.lines == ["{0} ran"]
