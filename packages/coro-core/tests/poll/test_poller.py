"""Waiting for descriptors: every way an event can come, get lost, or belong to somebody else.

Owned descriptors (those of socks) are reached through the underscore functions of ``coro._poll.events``, which are
what sockets call from C; everything else through ``wait_for``.  Threads are put in order by letting them wait
for events, never by time.

Longer than most files here: one poller, whose rules against lost wake-ups only make sense side by side.
"""

import contextlib
import errno
import fcntl
import glob
import os
import random
import resource
import socket
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from support import LIMIT, ok, on_kqueue

import coro
from coro import oserrors
from coro._poll import descriptors as _poller
from coro._poll import events
from coro._poll.descriptors import kevent_key
from coro._poll.events import EV, EVFILT, event_map, wait_for

pytestmark = pytest.mark.poller

READ, WRITE, EXCEPT = EVFILT.READ, EVFILT.WRITE, EVFILT.EXCEPT
READ_READY = 2


class Pipe:
    def __init__(self):
        self.r, self.w = os.pipe()
        os.set_blocking(self.r, False)
        os.set_blocking(self.w, False)

    def close(self):
        for fd in (self.r, self.w):
            try:
                os.close(fd)
            except OSError:
                pass

    def fill(self):
        try:
            while True:
                os.write(self.w, b"x" * 65536)
        except BlockingIOError:
            pass


@pytest.fixture
def pipe():
    p = Pipe()
    yield p
    p.close()


@pytest.fixture
def pipe2():
    p = Pipe()
    yield p
    p.close()


@pytest.fixture
def pair():
    a, b = socket.socketpair()
    a.setblocking(False)
    b.setblocking(False)
    yield a, b
    a.close()
    b.close()


@pytest.fixture(autouse=True)
def nothing_left():
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(event_map) == 0
    # The fixtures of a test close after this one is set up, so only what a test itself leaves shows here.
    assert len(os.listdir("/proc/self/fd")) <= before + 4


def let_others_run():
    """Everything runnable runs, and one poll takes place, before this returns."""
    coro.yield_slice()
    coro.yield_slice()


def waiting(fd, filter):
    return kevent_key(filter, fd) in event_map


class Woken(Exception):
    pass


# -- events ----


def test_readable(pipe):
    def main():
        t = coro.spawn(os.write, pipe.w, b"a")
        event = wait_for(pipe.r, READ)
        t.join()
        return event

    event = coro.run(main)
    assert (event.ident, event.filter, event.flags, event.fflags, event.udata_addr) == (pipe.r, READ, 0, 0, 0)


def test_accepts_an_object_with_fileno(pair):
    def main():
        pair[0].send(b"x")
        return wait_for(pair[1], READ).ident

    assert coro.run(main) == pair[1].fileno()


def test_hangup_only(pipe):
    """The writer's end of an empty pipe closes: the kernel reports HUP and no IN."""

    def main():
        t = coro.spawn(wait_for, pipe.r, READ)
        let_others_run()
        assert waiting(pipe.r, READ)
        os.close(pipe.w)
        t.join()
        return wait_for(pipe.r, READ)

    assert coro.run(main).flags == EV.EOF


def test_error_only(pipe):
    """The reader's end of a full pipe closes: the kernel reports ERR and no OUT."""
    pipe.fill()

    def main():
        t = coro.spawn(wait_for, pipe.w, WRITE)
        let_others_run()
        assert waiting(pipe.w, WRITE)
        os.close(pipe.r)
        t.join()
        return wait_for(pipe.w, WRITE)

    assert coro.run(main).flags == EV.EOF


@pytest.mark.parametrize("direction", [READ, WRITE])
def test_hangup_wakes_both_directions(pair, direction):
    a, b = pair
    try:
        while True:
            a.send(b"x" * 65536)
    except BlockingIOError:
        pass

    def main():
        threads = [coro.spawn(wait_for, a, READ), coro.spawn(wait_for, a, WRITE)]
        let_others_run()
        assert waiting(a.fileno(), READ) and waiting(a.fileno(), WRITE)
        b.close()
        for t in threads:
            t.join()
        return wait_for(a, direction).flags

    assert coro.run(main) == EV.EOF


def test_refused_connect_shows_in_so_error():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with socket.socket() as s:
            s.setblocking(False)

            def main():
                e = s.connect_ex(("127.0.0.1", port))
                if e == errno.EINPROGRESS:
                    assert wait_for(s, WRITE).flags & EV.EOF
                    e = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                return e

            assert coro.run(main) == errno.ECONNREFUSED


def test_urgent_data_is_an_exceptional_condition():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()) as client:
            server = listener.accept()[0]
            with server:

                def main():
                    t = coro.spawn(client.send, b"!", socket.MSG_OOB)
                    event = wait_for(server, EXCEPT)
                    t.join()
                    return event.filter, server.recv(1, socket.MSG_OOB)

                assert coro.run(main) == (EXCEPT, b"!")


def test_regular_file_is_always_ready(tmp_path):
    with open(tmp_path / "f", "wb+") as f:

        def main():
            ran = []
            t = coro.spawn(ran.append, 1)
            event = wait_for(f, READ)
            assert ran == [1], "waiting for a regular file gives way to the others"
            t.join()
            wait_for(f, WRITE)
            with pytest.raises(oserrors.EPERM):
                wait_for(f, EXCEPT)
            fd = f.fileno()
            events._own(fd)
            events._wait_owned(fd, READ)
            events._wait_owned(fd, WRITE)
            events._wait_owned(fd, READ, True)
            events._disown(fd)
            return event.flags

        assert coro.run(main) == 0


def test_more_events_than_the_buffer_holds():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 1300
    if soft < count + 100:
        if hard != resource.RLIM_INFINITY and hard < count + 100:
            pytest.skip("needs 1400 descriptors")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, hard))
    r, w = os.pipe()
    copies = [os.dup(r) for _ in range(count)]
    try:

        def main():
            threads = [coro.spawn(wait_for, fd, READ) for fd in copies]
            let_others_run()
            os.write(w, b"x")
            for t in threads:
                t.join()
            return len(threads)

        assert coro.run(main) == count
    finally:
        for fd in [r, w, *copies]:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- errors ----


def test_bad_descriptors(pipe):
    def main():
        let_others_run()  # the poller has its own descriptors by now
        number = os.dup(pipe.r)
        os.close(number)
        with pytest.raises(oserrors.EBADF):
            wait_for(number, READ)
        with pytest.raises(oserrors.EBADF):
            wait_for(10**9, READ)
        with pytest.raises(ValueError):
            wait_for(-1, READ)
        with pytest.raises(TypeError):
            wait_for("3", READ)
        with pytest.raises(ValueError, match="EVFILT.READ"):
            wait_for(pipe.r, 12)

    coro.run(main)


def test_outside_a_thread(pipe):
    with pytest.raises(coro.YieldFromMain):
        wait_for(pipe.r, READ)


def test_in_another_os_thread(pipe):
    seen = []

    def elsewhere():
        try:
            wait_for(pipe.r, READ)
        except BaseException as e:
            seen.append(type(e))

    def main():
        t = threading.Thread(target=elsewhere)
        t.start()
        t.join()

    coro.run(main)
    assert seen == [coro.WrongThreadError]


def test_second_waiter(pipe):
    def main():
        first = coro.spawn(wait_for, pipe.r, READ)
        let_others_run()
        with pytest.raises(coro.SimultaneousError) as caught:
            wait_for(pipe.r, READ)
        e = caught.value
        assert e.co is coro.current()
        assert e.other is first
        assert e.event == kevent_key(READ, pipe.r)
        os.write(pipe.w, b"x")
        first.join()

    coro.run(main)


def test_event_map_shows_waiting_threads(pipe, pair):
    def main():
        a = coro.spawn(wait_for, pipe.r, READ)
        b = coro.spawn(wait_for, pair[0], READ)
        let_others_run()
        assert len(event_map) == 2
        assert set(event_map) == {kevent_key(READ, pipe.r), kevent_key(READ, pair[0].fileno())}
        target = event_map[kevent_key(READ, pipe.r)]
        assert target.target is a
        assert (target.status, target.index, target.flags) == ("SUBMITTED", -1, EV.ADD | EV.ONESHOT)
        assert event_map.get(kevent_key(WRITE, pipe.r)) is None
        a.shutdown()
        b.shutdown()
        a.join()
        b.join()
        assert event_map == {}

    coro.run(main)


# -- several threads, one descriptor ----


def test_read_and_write_waiters_are_independent(pair):
    a, b = pair
    try:
        while True:
            a.send(b"x" * 65536)
    except BlockingIOError:
        pass

    def main():
        log = []

        def waiter(filter):
            wait_for(a, filter)
            log.append(filter)

        reader, writer = coro.spawn(waiter, READ), coro.spawn(waiter, WRITE)
        let_others_run()
        b.send(b"y")
        reader.join()
        assert log == [READ]
        assert waiting(a.fileno(), WRITE)
        try:
            while True:
                b.recv(65536)
        except BlockingIOError:
            pass
        writer.join()
        assert log == [READ, WRITE]

    coro.run(main)


def test_interrupted_waiter_leaves_the_other_direction_alone(pair):
    a, b = pair
    try:
        while True:
            a.send(b"x" * 65536)
    except BlockingIOError:
        pass

    def main():
        reader, writer = coro.spawn(wait_for, a, READ), coro.spawn(wait_for, a, WRITE)
        let_others_run()
        reader.shutdown()
        reader.join()
        assert set(event_map) == {kevent_key(WRITE, a.fileno())}
        try:
            while True:
                b.recv(65536)
        except BlockingIOError:
            pass
        writer.join()

    coro.run(main)


@pytest.mark.parametrize("owned", [False, True])
def test_cleanup_does_not_take_a_later_registration(pipe, pipe2, owned):
    """A is woken, but before it runs B begins to wait for the same descriptor; A's cleaning up must leave B
    alone."""
    if owned:
        wait = events._wait_owned
    else:
        wait = wait_for

    def main():
        log = []

        def first():
            wait(pipe.r, READ)
            log.append("first")
            os.read(pipe.r, 100)
            if owned:
                events._clear_flags(pipe.r, READ_READY)

        def second():
            wait_for(pipe2.r, READ)  # ready before the other pipe in the same poll: runs earlier
            log.append("second ready")
            for _ in range(2):
                wait(pipe.r, READ)
                try:
                    log.append(os.read(pipe.r, 100))
                    break
                except BlockingIOError:
                    pass

        if owned:
            events._own(pipe.r)
        a, b = coro.spawn(first), coro.spawn(second)
        let_others_run()
        os.write(pipe2.w, b"1")
        os.write(pipe.w, b"2")
        let_others_run()
        os.write(pipe.w, b"3")
        a.join()
        b.join()
        if owned:
            events._disown(pipe.r)
        return log

    log = coro.run(main)
    assert log[0] == "second ready"
    assert "first" in log


def test_interrupted_by_timeouts_then_served(pipe):
    def main():
        for _ in range(2):
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.001, wait_for, pipe.r, READ)
            assert event_map == {}
        os.write(pipe.w, b"x")
        return coro.with_timeout(60, wait_for, pipe.r, READ).ident

    assert coro.run(main) == pipe.r


# -- owned descriptors ----


def test_owned_registration_is_made_once(pipe, pipe2):
    def main():
        for p in (pipe, pipe2):
            events._own(p.r)

        def answer():
            for _ in range(50):
                events._wait_owned(pipe.r, READ)
                os.read(pipe.r, 10)
                os.write(pipe2.w, b"y")

        t = coro.spawn(answer)
        changes = []
        for _ in range(50):
            os.write(pipe.w, b"x")
            events._wait_owned(pipe2.r, READ)
            os.read(pipe2.r, 10)
            changes.append(_poller.poller_statistics()["changes"])
        t.join()
        for p in (pipe, pipe2):
            events._disown(p.r)
        return changes

    changes = coro.run(main)
    assert changes[1] == changes[-1]


def test_readiness_is_remembered(pipe):
    def main():
        events._own(pipe.r)
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, events._wait_owned, pipe.r, READ)
        os.write(pipe.w, b"x")
        let_others_run()
        assert events._fd_flags(pipe.r) & READ_READY
        coro.with_timeout(60, events._wait_owned, pipe.r, READ)
        assert not events._fd_flags(pipe.r) & READ_READY
        # An explicit wait asks the kernel again.
        coro.with_timeout(60, events._wait_owned, pipe.r, READ, True)
        os.read(pipe.r, 10)
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, events._wait_owned, pipe.r, READ, True)
        events._disown(pipe.r)

    coro.run(main)


def test_interrupted_after_the_event_leaves_it_for_the_next(pipe, pipe2):
    def main():
        events._own(pipe.r)
        outcome = []

        def first():
            try:
                events._wait_owned(pipe.r, READ)
                outcome.append("woken")
            except Woken:
                outcome.append("interrupted")

        def killer():
            wait_for(pipe2.r, READ)
            a.raise_exception(Woken)

        a = coro.spawn(first)
        k = coro.spawn(killer)
        let_others_run()
        os.write(pipe2.w, b"1")
        os.write(pipe.w, b"2")
        a.join()
        k.join()
        coro.with_timeout(60, events._wait_owned, pipe.r, READ)
        events._disown(pipe.r)
        return outcome

    assert coro.run(main) == ["interrupted"]


def test_spurious_wakeup_is_not_an_event(pipe):
    def main():
        t = coro.spawn(wait_for, pipe.r, READ)
        let_others_run()
        t.schedule("nonsense")
        let_others_run()
        assert not t.dead
        assert waiting(pipe.r, READ)
        os.write(pipe.w, b"x")
        t.join()

    coro.run(main)


@pytest.mark.parametrize("scheduled", [False, True])
def test_closed_while_waiting(pipe, scheduled):
    def main():
        events._own(pipe.r)
        outcome = []

        def waiter():
            try:
                events._wait_owned(pipe.r, READ)
            except coro.ClosedError as e:
                outcome.append(e)

        t = coro.spawn(waiter)
        let_others_run()
        if scheduled:
            t.schedule()
        events._disown(pipe.r, coro.current())
        t.join()
        assert len(outcome) == 1
        assert scheduled or outcome[0].args == (coro.current(),)

    coro.run(main)


def test_adopting_a_number_flushes_stale_waiters(pipe):
    def main():
        outcome = []

        def waiter():
            try:
                wait_for(pipe.r, READ)
            except coro.ClosedError:
                outcome.append("closed")

        t = coro.spawn(waiter)
        let_others_run()
        events._own(pipe.r)
        t.join()
        # The same open file is known to the kernel from before: owning it must still arm it.
        os.write(pipe.w, b"x")
        coro.with_timeout(60, events._wait_owned, pipe.r, READ)
        events._disown(pipe.r)
        return outcome

    assert coro.run(main) == ["closed"]


# -- numbers that other code closes and uses again ----


def test_closed_and_reused_number_still_fires(pipe, pipe2):
    def main():
        os.write(pipe.w, b"x")
        wait_for(pipe.r, READ)
        os.dup2(pipe2.r, pipe.r)
        t = coro.spawn(wait_for, pipe.r, READ)
        let_others_run()
        assert waiting(pipe.r, READ)
        os.write(pipe2.w, b"y")
        t.join()
        return os.read(pipe.r, 10)

    assert coro.run(main) == b"y"


def test_waiter_of_a_reused_number_is_told(pipe, pipe2):
    def main():
        outcome = []

        def waiter():
            try:
                wait_for(pipe.r, READ)
            except coro.ClosedError:
                outcome.append("closed")

        old = coro.spawn(waiter)
        let_others_run()
        os.dup2(pipe2.r, pipe.r)
        new = coro.spawn(wait_for, pipe.r, READ)
        old.join()
        assert waiting(pipe.r, READ)
        os.write(pipe2.w, b"y")
        new.join()
        return outcome

    assert coro.run(main) == ["closed"]


def test_event_of_a_duplicate_is_not_taken_for_the_new_file(pipe, pipe2):
    """A duplicate keeps the old registration alive under the old number; its events are stale."""

    def main():
        copy = os.dup(pipe.r)
        t = coro.spawn(wait_for, pipe.r, READ)
        let_others_run()
        os.dup2(pipe2.r, pipe.r)
        os.write(pipe.w, b"old")
        t2 = coro.spawn(wait_for, pipe.r, READ)
        let_others_run()
        assert t.dead
        assert not t2.dead
        # (kqueue(2) ends registrations with the descriptor, duplicates or not)
        assert _poller.poller_statistics()["stale_events"] >= 1 or on_kqueue()
        os.write(pipe2.w, b"new")
        t2.join()
        os.close(copy)
        return os.read(pipe.r, 10)

    before = coro.set_exception_notifier(lambda: None)  # t ends with ClosedError
    try:
        assert coro.run(main) == b"new"
    finally:
        coro.set_exception_notifier(before)


def test_owned_number_closed_behind_our_back_and_reused(pipe, pipe2):
    def main():
        fd = pipe.r
        events._own(fd)
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, events._wait_owned, fd, READ)
        copy = os.dup(fd)
        os.dup2(pipe2.r, fd)
        events._own(fd)
        os.write(pipe.w, b"old")
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, events._wait_owned, fd, READ)
        os.write(pipe2.w, b"new")
        coro.with_timeout(60, events._wait_owned, fd, READ)
        events._disown(fd)
        os.close(copy)
        return os.read(fd, 10)

    assert coro.run(main) == b"new"


# -- time ----


@pytest.mark.parametrize(
    "milliseconds",
    [False, pytest.param(True, marks=pytest.mark.epoll_only("only epoll_wait(2) counts in milliseconds"))],
)
def test_short_sleeps_do_not_spin(milliseconds):
    def main():
        coro.yield_slice()
        if milliseconds:
            events._round_to_milliseconds(True)
        before = _poller.poller_statistics()["polls"]
        for _ in range(20):
            start = time.monotonic()
            coro.sleep_relative(0.0003)
            assert time.monotonic() - start >= 0.0003
        if milliseconds:
            events._round_to_milliseconds(False)
        return _poller.poller_statistics()["polls"] - before

    assert coro.run(main) <= 60


@pytest.mark.epoll_only("kevent(2) takes a timeout at no cost worth saving")
def test_one_alarm_serves_many_long_sleeps():
    """Sleeps that events end leave the alarm as it is; what it rings for too early does not end a later sleep.

    In a process without other OS threads: beside those the poller sees these events before it sleeps."""
    lines = ok(
        """
        import coro, socket
        from coro._poll import events

        one, other = socket.socketpair()

        def echo():
            while coro.wait_for(other, coro.EVFILT.READ) and (data := other.recv(10)):
                other.send(data)

        def main():
            coro.spawn(echo)
            coro.yield_slice()
            seen = set()
            for _ in range(50):
                with coro.timeout(30):
                    one.send(b"x")
                    coro.wait_for(one, coro.EVFILT.READ)
                    one.recv(10)
                seen.add(events._alarm_rings_at())
            one.shutdown(socket.SHUT_WR)
            print(len(seen - {0}))

        coro.run(main)
        """
    )
    assert lines == ["1"]


@pytest.mark.epoll_only("kevent(2) takes a timeout at no cost worth saving")
def test_alarm_is_brought_forward_and_rings_too_early_once(pipe):
    def main():
        far = coro.spawn(coro.sleep_relative, 60)
        coro.spawn(wait_for, pipe.r, READ)
        coro.yield_slice()
        start = time.monotonic_ns()
        coro.sleep_relative(0.03)
        rung = events._alarm_rings_at()
        assert start + 30_000_000 <= rung <= time.monotonic_ns()
        # Set for a sleep that something else ends, it rings in the middle of the next one; on a busy machine now.
        with contextlib.suppress(coro.TimeoutError), coro.timeout(0.025):
            os.write(pipe.w, b"x")
            coro.yield_slice()
        before = _poller.poller_statistics()["polls"]
        start = time.monotonic_ns()
        coro.sleep_relative(0.05)
        assert time.monotonic_ns() - start >= 50_000_000
        far.raise_exception(coro.Shutdown)
        return _poller.poller_statistics()["polls"] - before

    assert coro.run(main) <= 6


@pytest.mark.epoll_only("kevent(2) takes a timeout at no cost worth saving")
def test_alarm_that_rang_is_set_again():
    """Also for a sleep as long as the one it was set for, and where it rang while others were running."""

    def main():
        seen = set()
        for _ in range(3):
            coro.sleep_relative(0.025)
            seen.add(events._alarm_rings_at())
        helper = coro.spawn(coro.sleep_relative, 0.025)
        coro.yield_slice()
        while time.monotonic_ns() <= max(seen) + 30_000_000:
            coro.yield_slice()
        helper.join()
        coro.sleep_relative(0.025)
        return len(seen | {events._alarm_rings_at()})

    assert coro.run(main) == 4


@pytest.mark.epoll_only("kevent(2) needs no descriptor for it")
def test_without_a_descriptor_for_the_alarm():
    """Of the loop's descriptors it is the one that can be done without."""
    spare = [os.dup(0) for _ in range(4)]  # as many as the others take: of the poller, and of the signals
    for fd in spare:
        os.close(fd)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def main():
        coro.yield_slice()
        start = time.monotonic_ns()
        coro.sleep_relative(0.03)
        return time.monotonic_ns() - start, events._alarm_rings_at()

    resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare) + 1, hard))
    try:
        slept, rings_at = coro.run(main)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert slept >= 30_000_000
    assert rings_at == 0


def test_busy_loop_with_the_poller_finds_events(pipe):
    def main():
        t = coro.spawn(wait_for, pipe.r, READ)
        coro.yield_slice()
        os.write(pipe.w, b"x")
        for _ in range(10):
            if t.dead:
                return True
            coro.yield_slice()

    assert coro.run(main)


# -- kernel objects ----


def open_descriptors():
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass
    return found


def test_descriptors_are_close_on_exec_and_closed_at_the_end():
    before = open_descriptors()

    def main():
        coro.sleep_relative(0.001)
        new = {fd: what for fd, what in open_descriptors().items() if fd not in before}
        assert any("eventpoll" in what for what in new.values())
        for fd in new:
            assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC, new[fd]
        return len(new)

    assert coro.run(main) <= (7 if on_kqueue() else 5)  # (the imitation of a kqueue needs five)
    assert open_descriptors() == before


def test_loops_one_after_the_other_with_one_owned_descriptor(pipe):
    def main():
        os.write(pipe.w, b"x")
        coro.with_timeout(60, events._wait_owned, pipe.r, READ)
        os.read(pipe.r, 10)

    def own():
        events._own(pipe.r)

    coro.run(own)
    for _ in range(3):
        coro.run(main)
    coro.run(events._disown, pipe.r)


def run_script(text):
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_epoll_descriptor_closed_by_other_code():
    out = run_script("""
        import os, coro
        def main():
            coro.sleep_relative(0.001)
            for fd in range(3, 50):
                try:
                    if "eventpoll" in os.readlink(f"/proc/self/fd/{fd}"):
                        os.close(fd)
                except OSError:
                    pass
            coro.sleep_relative(0.001)
        try:
            coro.run(main)
        except coro.LoopError as e:
            print(e)
        """)
    assert "closed by other code" in out


def test_fork_leaves_the_parents_registrations_alone():
    out = run_script("""
        import os, coro
        from coro._poll.events import EV, EVFILT, event_map, set_handler, wait_for, _own, _wait_owned
        r, w = os.pipe()
        r2, w2 = os.pipe()
        os.set_blocking(r2, False)
        def main():
            _own(r2)
            t = coro.spawn(wait_for, r, EVFILT.READ)
            u = coro.spawn(_wait_owned, r2, EVFILT.READ)
            coro.yield_slice(); coro.yield_slice()
            assert len(event_map) == 2
            pid = os.fork()
            if pid == 0:
                try:
                    assert len(event_map) == 0
                    a, b = os.pipe()
                    os.write(b, b"x")
                    wait_for(a, EVFILT.READ)
                    os.close(r2)
                finally:
                    os._exit(len(event_map))
            event = wait_for(pid, EVFILT.PROC)
            assert event.data == 0, event
            os.waitpid(pid, 0)
            os.write(w, b"x")
            os.write(w2, b"x")
            coro.with_timeout(60, t.join)
            coro.with_timeout(60, u.join)
            print("fine")
        coro.run(main)
        """)
    assert out == "fine\n"


# -- everything at once ----


@pytest.mark.parametrize("seed", range(3))
def test_random_interruptions_lose_no_wakeup(seed):
    """Readers of many pipes, owned and not, are interrupted at random moments; all bytes arrive."""
    rng = random.Random(seed)
    count, rounds = 30, 300

    def reader(p, owned, got):
        while True:
            try:
                try:
                    data = os.read(p.r, 7)
                except BlockingIOError:
                    if owned:
                        events._clear_flags(p.r, READ_READY)
                        events._wait_owned(p.r, READ)
                    else:
                        wait_for(p.r, READ)
                    continue
                if not data:
                    return
                got[p] += len(data)
                if rng.random() < 0.2:
                    coro.yield_slice()
            except Woken:
                interruptions.append(p)

    def writer(p):
        for _ in range(rounds):
            sent[p] += os.write(p.w, b"x" * rng.randint(1, 20))
            what = rng.random()
            if what < 0.4:
                coro.yield_slice()
            elif what < 0.6:
                coro.sleep_relative(0.0001 * rng.random())
        os.close(p.w)

    sent, got, interruptions = {}, {}, []

    def main():
        pipes = [Pipe() for _ in range(count)]
        owned = {p: rng.random() < 0.5 for p in pipes}
        readers = []
        for p in pipes:
            sent[p] = got[p] = 0
            if owned[p]:
                events._own(p.r)
            readers.append(coro.spawn(reader, p, owned[p], got))
        writers = [coro.spawn(writer, p) for p in pipes]
        while not all(w.dead for w in writers):
            victim = rng.choice(readers)
            if not victim.dead and waiting(pipes[readers.index(victim)].r, READ):
                victim.raise_exception(Woken)
            coro.yield_slice()
        for r in readers:
            coro.with_timeout(60, r.join)
        for p in pipes:
            if owned[p]:
                events._disown(p.r)
            os.close(p.r)

    coro.run(main)
    assert got == sent
    assert interruptions


FAKED = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")


@pytest.mark.epoll_only("kevent(2) takes the time from now, so nothing is compared with the kernel's clock")
@pytest.mark.slow
@pytest.mark.skipif(not FAKED, reason="needs libfaketime")
@pytest.mark.parametrize("fake", ["+5", "-3600", "+0 x50"])
def test_sleeps_and_limits_under_libfaketime(fake):
    # It fakes CLOCK_MONOTONIC for programs, and not that of the kernel's timers.
    code = "import coro; coro.run(coro.sleep, 0.15); coro.run(lambda: coro.with_timeout(0.15, coro.sleep, 1000))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "LD_PRELOAD": FAKED[0], "FAKETIME": fake},
        capture_output=True, text=True, timeout=LIMIT,
    )  # fmt: skip
    assert done.returncode == 1 and "coro.exceptions.TimeoutError" in done.stderr, done.stderr
