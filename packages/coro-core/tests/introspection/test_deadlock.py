"""Deadlocks: what counts as one, what the report says, and what does not count."""

import asyncio
import importlib
import os
import re
import sys

import pytest
from support import ok, program

import coro
from coro import asyncio_bridge, offload
from coro._runtime import scheduler


@pytest.fixture(autouse=True)
def alone():
    """The test runner's own OS threads (watchdogs) post nothing; without this they would count as who might."""
    others = len(sys._current_frames()) - 1 - offload.statistics()["workers"]
    scheduler._count_own_os_threads(others)
    yield
    scheduler._count_own_os_threads(-others)


@pytest.fixture(autouse=True)
def raising():
    coro.set_exception_notifier(lambda: None)
    coro.set_print_exit_string(False)
    yield
    coro.set_exception_notifier(None)
    coro.set_print_exit_string(True)
    assert coro.set_deadlock("raise") == "raise"


def test_every_blocked_thread_is_listed_with_what_it_waits_for():
    log = []

    def parked():
        try:
            coro._yield()
        finally:
            log.append("finally")

    def main():
        t = coro.spawn(parked, thread_name="parked")
        coro.spawn(coro._yield, daemon=True, thread_name="daemon")
        t.join()

    with pytest.raises(coro.DeadlockError) as info:
        coro.run(main)
    report = str(info.value)
    assert report.startswith("all 2 threads that the loop waits for are blocked")
    assert " 'parked' waiting for schedule()>" in report
    assert "in coro._yield(), until somebody schedules it" in report
    assert "for the end of <coro thread " in report
    assert "'daemon'" not in report
    assert re.search(r"at \[introspection/test_deadlock\.py parked\|\d+\]", report)
    (first, first_waits), (second, second_waits) = info.value.threads
    assert second.name == "parked" and "_yield" in second_waits
    assert "end of" in first_waits and first.dead
    assert log == ["finally"]
    assert len(coro.all_threads) == 0


def test_under_event_loop():
    coro.spawn(coro._yield)
    with pytest.raises(coro.DeadlockError):
        coro.event_loop()


def test_the_object_waited_for_and_its_owner_are_named():
    class Lock:
        owner = "somebody"

        def __repr__(self):
            return "<a lock>"

    with pytest.raises(coro.DeadlockError, match="for <a lock>, which 'somebody' owns"):
        coro.run(scheduler._suspend, Lock())


def test_daemons_alone_do_not_deadlock():
    coro.spawn(coro._yield, daemon=True)
    coro.event_loop()


def test_a_timer_is_no_deadlock():
    def main():
        coro.spawn(coro.sleep_relative, 0.005, daemon=True)
        t = coro.spawn(coro._yield)
        coro.spawn(lambda: (coro.sleep_relative(0.002), t.schedule()), daemon=True)
        t.join()
        return "woken"

    assert coro.run(main) == "woken"


def test_a_time_limit_is_no_deadlock():
    def main():
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.002, coro._yield)

    coro.run(main)


def test_a_descriptor_awaited_by_a_counted_thread_is_no_deadlock():
    """The other end is a process, so that no OS thread of ours is there to post."""
    lines = ok(
        """
        import coro, subprocess, sys
        a, b = coro.socketpair()
        child = subprocess.Popen([sys.executable, "-c", "print('x', end='')"], stdout=b.fileno())
        print(coro.run(a.recv, 1))
        child.wait()
        """
    )
    assert lines == ["b'x'"]


@pytest.mark.parametrize("how", ["recv", "wait_for", "select"])
def test_a_descriptor_awaited_by_a_daemon_is_no_deadlock(how):
    """It may wake others, as here the main thread. The other end is a process again."""
    lines = ok(
        f"""
        import coro, os, subprocess, sys
        def reader():
            if {how!r} == "wait_for":
                coro.wait_for(a.fileno(), coro.EVFILT.READ)
            elif {how!r} == "select":
                coro.select(coro.case.read(a))
            queue.push(a.recv(1))
        def main():
            coro.spawn(reader, daemon=True)
            return queue.pop()
        a, b = coro.socketpair()
        queue = coro.fifo()
        child = subprocess.Popen([sys.executable, "-c", "print('x', end='')"], stdout=b.fileno())
        print(coro.run(main))
        child.wait()
        """
    )
    assert lines == ["b'x'"]


def test_a_server_that_is_a_daemon_is_no_deadlock():
    lines = ok(
        """
        import coro, subprocess, sys
        client = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1]))).send(b'x')"
        def handle(conn, address):
            queue.push(conn.recv(10))
        def main():
            with coro.Server(handle, ("127.0.0.1", 0), daemon=True) as server:
                child = subprocess.Popen([sys.executable, "-c", client, str(server.addresses[0][1])])
                print(queue.pop())
                child.wait()
        queue = coro.fifo()
        coro.run(main)
        """
    )
    assert lines == ["b'x'"]


def test_a_debugger_at_its_prompt_is_no_deadlock(tmp_path):
    """The thread that reads what somebody types there is a daemon."""
    client = tmp_path / "client.py"
    client.write_text(
        f"""
import socket
s = socket.socket(socket.AF_UNIX)
s.connect({str(tmp_path / "door")!r})
got = b""
while b"(Pdb) " not in got:
    got += s.recv(1000)
s.send(b"continue\\n")
while s.recv(1000):
    pass
"""
    )
    lines = ok(
        f"""
        import coro, coro.debug, subprocess, sys
        def main():
            coro.debug.start({str(tmp_path / "door")!r})
            child = subprocess.Popen([sys.executable, {str(client)!r}])
            with coro.timeout(40):
                while not coro.debug.set_trace():
                    coro.sleep_relative(0.001)
            print("went on")
        coro.run(main)
        """
    )
    assert lines == ["went on"]


@pytest.mark.parametrize("kind", ["backdoor", "debug"])
def test_a_door_that_nobody_comes_through_hides_no_deadlock(kind, tmp_path):
    module = importlib.import_module(f"coro.{kind}")

    def main():
        server = module.start(**{"unix_path" if kind == "backdoor" else "address": str(tmp_path / "door")})
        try:
            coro._yield()
        finally:
            server.close()

    with pytest.raises(coro.DeadlockError, match="the only thread that the loop waits for is blocked"):
        coro.run(main)


def test_an_idle_asyncio_hides_no_deadlock():
    def main():
        assert asyncio_bridge.run(asyncio.sleep(0, "slept")) == "slept"
        coro._yield()

    with pytest.raises(coro.DeadlockError, match="the only thread that the loop waits for is blocked"):
        coro.run(main)


def test_a_forked_child_has_detection_whatever_the_parent_was_waiting_for():
    lines = ok(
        """
        import coro, os
        real = coro.emulation.original("threading")
        def program():
            import threading
            stop = real.Event()
            real.Thread(target=stop.wait, daemon=True).start()
            lock = threading.Lock()
            lock.acquire()
            threading.Thread(target=lock.acquire, daemon=True).start()  # an OS thread might release it
            coro.yield_slice()
            coro.yield_slice()
            pid = os.fork()
            if pid == 0:
                coro._yield()
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            stop.set()
            lock.release()
        coro.install_thread_emulation()
        try:
            coro.run(program)
        except coro.DeadlockError:
            os._exit(7)
        """,
        "-Wignore::DeprecationWarning",  # there is another OS thread in this one
    )
    assert lines == ["7"]


def test_a_loop_after_one_that_gave_up_a_waiting_thread_has_detection():
    # In a process of its own: what was given up stays for ever, its socket and frames with it.
    outcome = program("""
        import coro
        a, b = coro.socketpair()
        def stubborn():
            while True:
                try:
                    a.recv(1)
                except coro.Shutdown:
                    pass
        def main():
            coro.spawn(stubborn)
            coro.yield_slice()
            coro.set_exit(3, grace=0)
        try:
            coro.run(main)
        except SystemExit:
            pass
        try:
            coro.run(coro._yield)
        except coro.DeadlockError:
            print("found")
    """)
    assert outcome.code == 0, outcome.err
    assert outcome.lines == ["found"]


def test_a_handler_is_no_deadlock():
    r, w = os.pipe()

    def main():
        me = coro.current()
        coro.set_handler((r, coro.EVFILT.READ), lambda event: me.schedule("handled"), coro.EV.ONESHOT)
        coro.spawn(lambda: (coro.yield_slice(), os.write(w, b"x")))
        return coro._yield()

    assert coro.run(main) == "handled"
    os.close(r)
    os.close(w)


def test_a_job_in_a_worker_is_no_deadlock_and_an_idle_worker_does_not_prevent_one():
    def main():
        assert coro.in_thread(lambda: 5) == 5
        coro._yield()

    with pytest.raises(coro.DeadlockError):
        coro.run(main)


def test_with_another_os_thread_alive_it_is_reported_once_and_waits():
    lines = program(
        """
        import coro, threading
        go = threading.Event()
        seen = []
        def main():
            me = coro.current()
            def other():
                go.wait()
                coro.post(me.schedule, "posted")
            t = threading.Thread(target=other)
            t.start()
            # The report goes to stderr once the loop finds nothing to do; then the other OS thread may go on.
            import coro._runtime.output as output
            class Stream:
                def write(self, text):
                    seen.append(text)
                    go.set()
                def flush(self):
                    pass
            output.saved_stderr = Stream()
            print(coro._yield())
            t.join()
        coro.run(main)
        print(len(seen), "DEADLOCK unless another OS thread" in seen[0], "main" in seen[0])
        """
    )
    assert lines.code == 0, lines.err
    assert lines.lines == ["posted", "1 True True"]


@pytest.mark.slow
def test_when_the_last_other_os_thread_ends_the_deadlock_is_raised():
    """The loop looks again once a second."""
    outcome = program(
        """
        import coro, threading
        def main():
            go = threading.Event()
            threading.Thread(target=go.wait).start()
            coro.spawn(lambda: (coro.sleep_relative(0.01), go.set()))
            coro._yield()
        coro.run(main)
        """
    )
    assert outcome.code == 1
    assert "DEADLOCK unless" in outcome.err or "DeadlockError: the only thread" in outcome.err
    assert "DeadlockError: the only thread that the loop waits for is blocked" in outcome.err


def test_waiting_for_ever_on_request():
    lines = ok(
        """
        import coro, os, signal, threading
        print(coro.set_deadlock("wait"), coro.set_deadlock("wait"))
        def main():
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            coro._yield()
        try:
            coro.run(main)
        except KeyboardInterrupt:
            print("waited")
        """
    )
    assert lines == ["raise wait", "waited"]


def test_set_deadlock_checks_its_argument():
    for wrong in (None, 1, "Raise", b"wait", ["wait"]):
        with pytest.raises(ValueError, match="'raise' or 'wait'"):
            coro.set_deadlock(wrong)


def test_a_deadlock_while_the_loop_ends_is_just_the_end():
    def main():
        t = coro.spawn(coro._yield)
        coro.spawn(t.join)
        coro.yield_slice()
        return 5

    assert coro.run(main) == 5


def test_a_thread_posted_before_the_loop_counts():
    lines = ok(
        """
        import coro
        coro.set_print_exit_string(False)
        coro.post(print, "posted before the loop")
        coro.event_loop()
        """
    )
    assert lines == ["posted before the loop"]
