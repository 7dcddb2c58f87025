"""Other OS threads: coro.post, and WrongThreadError for everything else.

The OS threads here are joined by main while it holds the whole loop, which is fine because they never need the loop.
"""

import contextlib
import contextvars
import socket
import sys
import threading

import pytest
from support import in_loop, ok, program

import coro
from coro._poll.descriptors import poller_statistics

pytestmark = pytest.mark.poller


@pytest.fixture(autouse=True)
def quiet():
    coro.set_print_exit_string(False)
    yield
    coro.set_print_exit_string(True)


def elsewhere(function, *args):
    """Call the function in a new OS thread; its result, or its exception as an object."""
    box = []

    def body():
        try:
            box.append(function(*args))
        except BaseException as exc:
            box.append(exc)

    t = threading.Thread(target=body)
    t.start()
    t.join()
    return box[0]


# -------------------------------------------------------------------------------- post


def test_posted_functions_run_as_threads_in_order():
    log = []

    def note(n):
        log.append(n)
        assert coro.current() is not coro.run  # a thread of its own
        assert not coro.current().daemon

    def main():
        elsewhere(lambda: [coro.post(note, n) for n in range(100)])
        while len(log) < 100:
            coro.yield_slice()

    coro.run(main)
    assert log == list(range(100))


def test_a_post_wakes_a_loop_that_waits():
    lines = ok(
        """
        import coro, threading, time
        def main():
            me = coro.current()
            t = threading.Timer(0.05, coro.post, (me.schedule, "posted"))
            t.start()
            began = time.monotonic()
            print(coro.with_timeout(1000, coro._yield), time.monotonic() - began < 10)
            t.join()
        coro.run(main)
        """
    )
    assert lines == ["posted True"]


def test_many_posts_from_many_os_threads():
    count = [0]

    def add():
        count[0] += 1

    def main():
        threads = [threading.Thread(target=lambda: [coro.post(add) for _ in range(500)]) for _ in range(4)]
        for t in threads:
            t.start()
        while count[0] < 2000:
            coro.yield_slice()
        for t in threads:
            t.join()

    coro.run(main)
    assert count == [2000]


def test_a_posted_function_that_fails_goes_to_the_notifier():
    seen = []

    def fail():
        raise ValueError("posted")

    def main():
        coro.set_exception_notifier(lambda: seen.append(sys.exc_info()[1]))
        try:
            elsewhere(coro.post, fail)
            while not seen:
                coro.yield_slice()
        finally:
            coro.set_exception_notifier(None)

    coro.run(main)
    assert str(seen[0]) == "posted"


def test_a_posted_function_may_block_and_sees_the_callers_context():
    var = contextvars.ContextVar("var", default="none")
    log = []

    def posted():
        coro.yield_slice()
        log.append(var.get())

    def caller():
        var.set("caller's")
        coro.post(posted)

    def main():
        var.set("main's")
        elsewhere(caller)
        while not log:
            coro.yield_slice()

    coro.run(main)
    assert log == ["caller's"]


def test_posting_from_a_thread_of_the_loop():
    log = []

    def main():
        coro.post(log.append, 1)
        coro.spawn(log.append, 2)
        while len(log) < 2:
            coro.yield_slice()

    coro.run(main)
    assert sorted(log) == [1, 2]


def test_posting_from_a_signal_handler():
    lines = ok(
        """
        import coro, os, signal
        def handler(number, frame):
            coro.post(print, "posted by the handler")
        signal.signal(signal.SIGUSR1, handler)
        def main():
            os.kill(os.getpid(), signal.SIGUSR1)
            coro.sleep_relative(0.01)
        coro.run(main)
        """
    )
    assert lines == ["posted by the handler"]


def test_the_backlog_is_bounded():
    def main():
        with pytest.raises(coro.LoopError, match="65536 posted calls wait"):
            for _ in range(65537):
                coro.post(int)
        assert coro.statistics().posts_waiting == 65536
        coro.set_exit(0)

    with pytest.raises(SystemExit):
        coro.run(main)
    assert coro.statistics().posts_waiting == 0


def test_life_of_the_backlog():
    lines = ok(
        """
        import coro
        coro.set_print_exit_string(False)
        coro.post(print, "kept for the loop")
        coro.event_loop()
        try:
            coro.post(print, "too late")
        except coro.LoopError:
            print("LoopError")
        def main():
            coro.post(print, "in the second loop")
            coro.yield_slice()
            coro.yield_slice()
        coro.run(main)
        """
    )
    assert lines == ["kept for the loop", "LoopError", "in the second loop"]


def test_post_checks_its_function():
    def main():
        for wrong in (None, 3, "text"):
            assert isinstance(elsewhere(coro.post, wrong), TypeError)
            with pytest.raises(TypeError, match="expected a function to call"):
                coro.post(wrong)

    coro.run(main)


# -------------------------------------------------------------------------------- everything else


def test_what_touches_the_scheduler_raises_in_another_os_thread():
    sock, peer = coro.socketpair()
    other = coro.tcp_sock()

    def main():
        me = coro.current()
        t = coro.spawn(coro._yield)
        fresh = coro.new(int)
        coro.yield_slice()
        calls = {
            "new": lambda: coro.new(int),
            "spawn": lambda: coro.spawn(int),
            "schedule": lambda: coro.schedule(t),
            "_yield": coro._yield,
            "yield_slice": coro.yield_slice,
            "sleep_relative": lambda: coro.sleep_relative(1),
            "sleep_absolute": lambda: coro.sleep_absolute(1),
            "with_timeout": lambda: coro.with_timeout(1, int),
            "timeout": lambda: coro.timeout(1).__enter__(),
            "shield": lambda: coro.shield(1).__enter__(),
            "run": lambda: coro.run(int),
            "event_loop": coro.event_loop,
            "set_exit": lambda: coro.set_exit(1),
            "set_exception_notifier": lambda: coro.set_exception_notifier(None),
            "get_thread_by_id": lambda: coro.get_thread_by_id(me.id),
            "all_threads": lambda: list(coro.all_threads),
            "where": lambda: coro.where(t),
            "where_all": coro.where_all,
            "compress": lambda: coro.compress(t),
            "in_thread": lambda: coro.in_thread(int),
            "wait_for": lambda: coro.wait_for(sock.fileno(), coro.EVFILT.READ),
            "set_handler": lambda: coro.set_handler((sock.fileno(), coro.EVFILT.READ), print),
            "thread.start": fresh.start,
            "thread.schedule": t.schedule,
            "thread.raise_exception": lambda: t.raise_exception(ValueError),
            "thread.shutdown": t.shutdown,
            "thread.join": t.join,
            "thread.get_frame": t.get_frame,
            "thread._yield": t._yield,
            "sock.recv": lambda: sock.recv(1),
            "sock.recv_into": lambda: sock.recv_into(bytearray(1)),
            "sock.accept": other.accept,
            "sock.connect": lambda: other.connect(("127.0.0.1", 1)),
            "sock.wait_for_read": sock.wait_for_read,
        }
        for name, call in calls.items():
            found = elsewhere(call)
            assert type(found) is coro.WrongThreadError, (name, found)
            assert "coro.post" in str(found)
        assert not t.scheduled and not t.dead and not fresh.dead
        t.shutdown()
        t.join()
        coro.yield_slice()

    coro.run(main)
    for s in (sock, peer, other):
        s.close()


def test_what_only_looks_works_in_another_os_thread():
    def main():
        assert elsewhere(coro.current).id == -1
        assert elsewhere(coro.coro_is_running) is True
        assert elsewhere(coro.statistics).threads == 1
        assert elsewhere(coro.get_live_coros) >= 1

    coro.run(main)


def test_an_os_thread_may_have_the_loop_to_itself():
    log = []

    def loop():
        coro.spawn(log.append, 1)
        return coro.run(lambda: (coro.sleep_relative(0.001), coro.in_thread(int, "7"))[1])

    assert elsewhere(loop) == 7
    assert log == [1]
    assert coro.run(lambda: 8) == 8


def test_the_poll_releases_the_gil():
    def main():
        done = threading.Event()
        counted = []

        def other():
            counted.append(1)
            done.set()

        threading.Thread(target=other).start()
        while not done.is_set():
            coro.sleep_relative(0.001)
        return counted

    assert coro.run(main) == [1]


@pytest.fixture
def bystander():
    """Another OS thread of Python: without one there is nobody who could want the GIL."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    yield
    end.set()
    thread.join()


@contextlib.contextmanager
def talk():
    """Yields a function that has two threads talk for so many rounds, with an event at each poll.

    It returns at how many of the polls the GIL was released."""
    one, other = coro.socketpair()

    def answer():
        while data := other.recv(10):
            other.send(data)

    def rounds(count):
        before = poller_statistics()["blocking_polls"]
        for _ in range(count):
            one.send(b"x")
            one.recv(10)
        return poller_statistics()["blocking_polls"] - before

    thread = coro.spawn(answer)
    with one, other:
        yield rounds
        one.shutdown(socket.SHUT_WR)
        thread.join()


# Within so many rounds the poller looks before it sleeps again, after a look that found nothing.
LOOKS_AGAIN = 20


@in_loop
def test_a_poll_that_finds_events_keeps_the_gil(bystander):
    """An OS thread that computes has to wait for a switch interval, and then gets the GIL for sure."""
    with talk() as rounds:
        rounds(LOOKS_AGAIN)
        assert rounds(300) == 0


@in_loop
def test_a_poll_releases_the_gil_for_a_job_that_has_just_begun():
    end = threading.Event()

    def begin():
        end.clear()
        job = coro.spawn(coro.in_thread, end.wait)
        coro.yield_slice()
        return job

    with talk() as rounds:
        job = begin()
        try:
            while not (rounds(LOOKS_AGAIN), rounds(1))[1]:  # a slow machine may need longer than a short job
                end.set()
                job.join()
                job = begin()
            while rounds(LOOKS_AGAIN):  # until it has proved to be a long one
                pass
            assert not job.dead
        finally:
            end.set()
            job.join()


def test_an_os_thread_that_python_did_not_start_gets_the_gil_of_a_loop_that_slept_alone():
    lines = ok(
        """
        import coro, ctypes

        libc = ctypes.CDLL(None)

        def main():
            me = coro.current()
            coro.sleep_relative(0.001)  # there is no other OS thread yet

            @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
            def entry(_):
                coro.post(me.schedule, "posted")

            thread = ctypes.c_void_p()
            assert libc.pthread_create(ctypes.byref(thread), None, entry, None) == 0
            print(coro.with_timeout(60, coro._yield))
            assert libc.pthread_join(thread, None) == 0

        coro.run(main)
        """
    )
    assert lines == ["posted"]


@pytest.mark.slow
def test_a_lock_of_the_os_held_over_a_switch_stops_everything_and_the_dump_names_the_line():
    """By design: a threading.Lock blocks the OS thread, and with it the thread that would release it. The remedy is to
    release it before blocking, or to guard the section with no_switch(); a dump of the process shows the place."""
    outcome = program(
        """
        import coro, faulthandler, threading
        lock = threading.Lock()
        def holder():
            with lock:
                coro.yield_slice()
        def victim():
            lock.acquire()  # here
        def main():
            faulthandler.dump_traceback_later(0.3, exit=True)
            coro.spawn(holder)
            coro.spawn(victim).join()
        coro.run(main)
        """
    )
    assert outcome.code == 1
    assert 'File "<string>", line 9 in victim' in outcome.err
    assert "Timeout (" in outcome.err


def test_no_switch_finds_a_lock_held_over_a_switch():
    lock = threading.Lock()

    def main():
        with lock, coro.no_switch():
            with pytest.raises(coro.NoSwitchError, match="no_switch"):
                coro.yield_slice()
        coro.yield_slice()

    coro.run(main)
