"""Forking in an emulated program: who runs while hooks of os.register_at_fork do, and whose a lock is afterwards."""

from __future__ import annotations

from emulation_support import emulated
from support import ok, program

#: Hooks that keep a lock busy for longer than a thread may have the CPU before it gives way. One set is registered
#: before coro is imported, another when it emulates already.
BUSY_HOOKS = """
import os, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)   # 3.12 warns of forks beside other OS threads; there are none
log = []
def busy(word):
    def hook():
        log.append(word)
        end = time.perf_counter() + 0.012
        while time.perf_counter() < end:
            with lock:
                pass
        log.append(word)
    return hook
def register(when):
    os.register_at_fork(before=busy("before " + when), after_in_parent=busy("after " + when),
                        after_in_child=busy("child " + when))
register("early")
import threading
import coro
coro.install_thread_emulation()
lock = threading.Lock()
register("late")
def other():
    while not stop:
        log.append("other")
        time.sleep(0)
def busy_main():
    while "other" not in log:       # a busy thread does give way
        with lock:
            pass
stop = []
"""


def test_nobody_else_runs_between_the_first_hook_and_the_last():
    lines = ok(
        BUSY_HOOKS
        + """
def main():
    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    for _ in range(5):
        busy_main()
        del log[:]
        pid = os.fork()
        if pid == 0:
            words = ["before late", "before early", "child early", "child late"]
            os._exit(0 if log == [word for word in words for _ in range(2)] else 1)
        words = ["before late", "before early", "after early", "after late"]
        assert log == [word for word in words for _ in range(2)], log
        assert os.waitpid(pid, 0)[1] == 0
    stop.append(1)
    thread.join()
    print("alone")
coro.run(main)
"""
    )
    assert lines == ["alone"]


def test_threads_of_the_parent_write_nothing_in_the_child():
    assert emulated("""
        import os, socket, threading, time, warnings

        def writer(s):
            k = 0
            while not stop:
                time.sleep(0.001)
                s.sendall(b"%d\\n" % k)
                k += 1

        stop = []

        def main():
            warnings.simplefilter("ignore", DeprecationWarning)
            lock = threading.Lock()
            pairs = [socket.socketpair() for _ in range(20)]
            threads = [threading.Thread(target=writer, args=(x,)) for x, _ in pairs]
            for thread in threads:
                thread.start()
            for _ in range(30):
                end = time.perf_counter() + 0.007
                while time.perf_counter() < end:
                    with lock:
                        pass
                pid = os.fork()
                if pid == 0:
                    os._exit(0)
                os.waitpid(pid, 0)
            stop.append(1)
            for thread in threads:
                thread.join()
            twice = 0
            for x, y in pairs:
                x.close()
                with y, y.makefile("rb") as f:
                    lines = f.readlines()
                twice += len(lines) - len(set(lines))
            print("lines that were sent twice:", twice)
    """) == ["lines that were sent twice: 0"]


def test_a_lock_that_a_hook_releases_is_not_given_to_a_thread_of_the_parent():
    lines = ok(
        """
import os
locks = []
os.register_at_fork(after_in_child=lambda: [lock.release() for lock in locks])   # runs before coro's own
import coro
coro.install_thread_emulation()
import threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
def main():
    lock = threading.Lock()
    lock.acquire()
    locks.append(lock)
    thread = threading.Thread(target=lock.acquire)
    thread.start()                                   # stands in the line
    pid = os.fork()
    if pid == 0:
        os._exit(0 if lock.acquire(False) else 1)
    print(os.waitpid(pid, 0)[1])
    lock.release()
    thread.join()
coro.run(main)
"""
    )
    assert lines == ["0"]


def test_hooks_may_stop_and_start_threads():
    """As libraries with a thread in the background do. Such a hook waits for another thread, so that may run."""
    assert emulated("""
        import os, threading, warnings

        class Background:
            def start(self):
                self.stop = threading.Event()
                self.beat = threading.Event()
                self.thread = threading.Thread(target=self.run)
                self.thread.start()

            def run(self):
                self.beat.set()
                self.stop.wait()

            def end(self):
                self.stop.set()
                self.thread.join()

        def main():
            warnings.simplefilter("ignore", DeprecationWarning)
            b = Background()
            b.start()
            os.register_at_fork(before=b.end, after_in_parent=b.start, after_in_child=b.start)
            for _ in range(2):
                pid = os.fork()
                assert b.beat.wait(20) and b.thread.is_alive()
                if pid == 0:
                    b.end()
                    os._exit(3)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
            b.end()
            print("done")
    """) == ["done"]


def test_a_hook_that_sleeps_keeps_all_others_waiting():
    assert emulated("""
        import os, threading, time, warnings

        log, stop = [], []

        def other():
            while not stop:
                log.append("other")
                time.sleep(0)

        def before():
            del log[:]
            time.sleep(0.01)

        def main():
            warnings.simplefilter("ignore", DeprecationWarning)
            thread = threading.Thread(target=other)
            thread.start()
            os.register_at_fork(before=before)
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            assert log == [], log
            os.waitpid(pid, 0)
            stop.append(1)
            thread.join()
            print("done")
    """) == ["done"]


def test_a_hook_cannot_block_before_the_child_is_tidy():
    """Whether emulated or not: at that moment the parent's threads would run."""
    outcome = program(
        """
import os, sys, warnings
def hook():
    import coro
    coro.sleep_relative(0.001)
os.register_at_fork(after_in_child=hook)
import coro
warnings.simplefilter("ignore", DeprecationWarning)
def other():
    while True:
        print("other", os.getpid() == parent, flush=True)
        coro.sleep_relative(0.0001)
def main():
    global parent
    parent = os.getpid()
    coro.spawn(other, daemon=True)
    coro.sleep_relative(0.001)
    pid = os.fork()
    if pid == 0:
        coro.sleep_relative(0.01)                    # afterwards all is as ever
        os._exit(4)
    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
coro.run(main)
"""
    )
    assert outcome.code == 0, outcome.err
    assert "NoSwitchError" in outcome.err and "register it after importing coro" in outcome.err
    assert "other False" not in outcome.lines and "child 4" in outcome.lines


def test_forks_in_several_threads_at_once():
    """Hooks that wait let other threads run, which may fork, too."""
    assert emulated("""
        import os, threading, warnings

        def main():
            warnings.simplefilter("ignore", DeprecationWarning)
            lock, codes = threading.Lock(), []
            os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)

            def work():
                pid = os.fork()
                if pid == 0:
                    os._exit(0 if lock.acquire(False) else 1)
                codes.append(os.waitpid(pid, 0)[1])

            with lock:
                threads = [threading.Thread(target=work) for _ in range(5)]
                for thread in threads:
                    thread.start()
                coro.yield_slice()
            for thread in threads:
                thread.join()
            print(codes)
    """) == ["[0, 0, 0, 0, 0]"]
