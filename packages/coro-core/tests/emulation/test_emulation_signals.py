"""The program's own signal.set_wakeup_fd() in an emulated program, and asyncio, which lives by it."""

from __future__ import annotations

import pytest
from emulation_support import emulated
from support import ok, program

pytestmark = pytest.mark.poller


def test_asyncio_gets_its_signals():
    assert emulated("""
        import asyncio, os, signal

        async def service():
            stop = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
            asyncio.get_running_loop().call_later(0.001, os.kill, os.getpid(), signal.SIGTERM)  # once it has waited
            await asyncio.wait_for(stop.wait(), 20)
            asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
            print("stopped in order")

        def main():
            asyncio.run(service())
            asyncio.run(service())
    """) == ["stopped in order"] * 2


def test_the_programs_descriptor():
    assert emulated("""
        import os, signal, threading

        def main():
            r, w = os.pipe()
            os.set_blocking(w, False)
            seen = threading.Event()
            assert signal.set_wakeup_fd(w) == -1           # before the loop has waited for the first time
            signal.signal(signal.SIGUSR1, lambda *args: seen.set())
            os.kill(os.getpid(), signal.SIGUSR1)
            assert seen.wait(20)
            assert os.read(r, 10) == bytes([signal.SIGUSR1])
            assert signal.set_wakeup_fd(w, warn_on_full_buffer=False) == w
            pid = os.fork()
            if pid == 0:
                ok = signal.set_wakeup_fd(-1) == w         # right after a fork
                x, y = os.pipe()
                os.set_blocking(y, False)
                ok = ok and signal.set_wakeup_fd(y) == -1
                seen.clear()
                os.kill(os.getpid(), signal.SIGUSR1)
                os._exit(0 if ok and seen.wait(20) and os.read(x, 10) == bytes([signal.SIGUSR1]) else 1)
            assert os.waitpid(pid, 0)[1] == 0
            assert signal.set_wakeup_fd(-1) == w
            assert signal.set_wakeup_fd(-1) == -1
            for bad, error in ((r, ValueError), (1000, OSError), ("1", TypeError)):
                try:
                    signal.set_wakeup_fd(bad)
                except error as e:
                    print(e)
    """) == [
        "the fd 3 must be in non-blocking mode",
        "[Errno 9] Bad file descriptor",
        "'str' object cannot be interpreted as an integer",
    ]


def test_one_from_before_the_loop_holds_during_it_and_afterwards():
    assert ok("""
        import coro, os, signal
        r, w = os.pipe()
        os.set_blocking(w, False)
        signal.set_wakeup_fd(w)
        coro.install_thread_emulation()
        def main():
            coro.sleep_relative(0.001)
            assert signal.set_wakeup_fd(-1) == w
            assert signal.set_wakeup_fd(w) == -1
            os.kill(os.getpid(), signal.SIGWINCH)
            signal.signal(signal.SIGWINCH, lambda *args: None)
            os.kill(os.getpid(), signal.SIGWINCH)
            assert os.read(r, 10) == bytes([signal.SIGWINCH])
        coro.run(main)
        assert signal.set_wakeup_fd(-1) == w
        print("done")
    """) == ["done"]


def test_one_that_was_closed_is_no_error():
    for close in ("before", "never set back"):
        assert emulated(f"""
            import os, signal

            def main():
                r, w = os.pipe()
                os.set_blocking(w, False)
                signal.set_wakeup_fd(w)
                coro.sleep_relative(0.001)
                if {close == "before"}:
                    signal.set_wakeup_fd(-1)
                os.close(w)
                os.close(r)
                signal.signal(signal.SIGUSR1, lambda *args: print("handler"))
                os.kill(os.getpid(), signal.SIGUSR1)
                coro.sleep_relative(0.001)
        """) == ["handler"]


def test_one_that_is_full_is_reported():
    source = """
        import coro, os, signal
        coro.install_thread_emulation()
        def main():
            r, w = os.pipe()
            os.set_blocking(w, False)
            try:
                while True:
                    os.write(w, b"x" * 4096)
            except BlockingIOError:
                pass
            signal.set_wakeup_fd(w, warn_on_full_buffer={})
            signal.signal(signal.SIGUSR1, lambda *args: None)
            os.kill(os.getpid(), signal.SIGUSR1)
            coro.sleep_relative(0.001)
            os.close(w)
            os.close(r)
        coro.run(main)
    """
    assert "wake-up descriptor" in program(source.format(True)).err
    assert ok(source.format(False)) == []


def test_outside_the_loops_os_thread():
    assert emulated("""
        import signal
        real = coro.emulation.original("threading")

        def outside():
            try:
                signal.set_wakeup_fd(-1)
            except ValueError as e:
                print(e)

        def main():
            thread = real.Thread(target=outside)
            thread.start()
            while thread.is_alive():
                coro.sleep_relative(0.001)
    """) == ["set_wakeup_fd only works in main thread of the main interpreter"]


def test_only_the_main_thread_sets_handlers_and_blocks_signals():
    assert emulated("""
        import os, signal, threading, time

        def refused(function, *args):
            try:
                function(*args)
            except ValueError as e:
                return str(e)

        def work():
            told.append(refused(signal.signal, signal.SIGUSR1, print))
            told.append(refused(signal.set_wakeup_fd, -1))
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            told.append((before == set(), signal.SIGUSR1 in signal.pthread_sigmask(signal.SIG_UNBLOCK, [])))
            signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGINT])
            told.append(signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT]) == {signal.SIGINT})
            told.append(signal.pthread_sigmask(signal.SIG_BLOCK, []) == set())
            told.append(refused(signal.pthread_sigmask, signal.SIG_BLOCK, [10000]) is not None)

        told = []

        def main():
            signal.signal(signal.SIGUSR1, lambda signum, frame: told.append("handled"))
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            os.kill(os.getpid(), signal.SIGUSR1)
            while told[-1] != "handled":
                time.sleep(0)
            assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
            for line in told:
                print(line)
    """) == [
        "signal only works in main thread of the main interpreter",
        "set_wakeup_fd only works in main thread of the main interpreter",
        "(True, True)",
        *["True"] * 3,
        "handled",
    ]


def test_sigterm_without_a_handler_ends_the_process():
    assert emulated("""
        import multiprocessing, os, signal, time, warnings

        warnings.simplefilter("ignore", DeprecationWarning)

        def stuck():
            coro.emulation.original("time").sleep(60)

        def main():
            context = multiprocessing.get_context("fork")
            for target, args in ((time.sleep, (60,)), (stuck, ())):
                process = context.Process(target=target, args=args)
                process.start()
                process.terminate()
                process.join()
                print(process.exitcode == -signal.SIGTERM)
            coro.uninstall_thread_emulation()
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL       # of the loop
            os.kill(os.getpid(), signal.SIGTERM)
            coro.sleep(60)
    """) == ["True", "True"]
