"""The poller for kqueue(2), where it differs from the one for epoll(7): amounts, batches, refusals, races.

On Linux over an imitation of kqueue(2), see fake_kqueue/fake_kqueue.c, which is steered to do what a kernel does only
now and then. What both pollers have to do is in the tests of pollers, events, sockets and so on:
`pytest --poller fake-kqueue` runs those on this poller, and so does `tools.dev test`.

Long, because the situations are many and each is short.
"""

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

import fake_kqueue
import pytest
from support import ok, program

import coro
from coro import oserrors
from coro._poll import choose, events
from coro._poll import descriptors as _poller
from coro._poll import kqueue as _kqueue
from coro._poll.descriptors import kevent_key
from coro._poll.events import EV, EVFILT, NOTE, event_map, set_handler, wait_for
from coro._runtime import scheduler

READ, WRITE, PROC = EVFILT.READ, EVFILT.WRITE, EVFILT.PROC
ADDED, DELETED, PROBED = range(3)

pytestmark = [
    pytest.mark.poller,
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or fake_kqueue.compiler() is None,
        reason="needs Linux and a C compiler (gcc)",
    ),
]


@pytest.fixture(autouse=True)
def fake():
    """Every loop of the test runs on the imitation."""
    library = fake_kqueue.library()
    scheduler.set_poller_factory(_kqueue.KqueuePoller)
    before = len(os.listdir("/proc/self/fd"))
    yield library
    scheduler.set_poller_factory(choose.choose())
    for steer in (library.fake_interrupt, library.fake_room, library.fake_zombies):
        steer(0)
    assert len(event_map) == 0
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.fixture
def environment(fake):
    """What a program of its own needs to run on the imitation."""
    return f"import os\nos.environ.update(CORO_POLLER='kqueue', CORO_KQUEUE_LIBRARY={str(fake_kqueue.build())!r})\n"


def let_others_run():
    coro.yield_slice()
    coro.yield_slice()


def pair():
    a, b = socket.socketpair()
    a.setblocking(False)
    b.setblocking(False)
    return a, b


def udata(generation, what):
    return (generation << 2) | what


def refuse(fake, filter, error):
    """The next registration is refused: not one of the poller's own, so it has to have a queue by then."""
    let_others_run()
    fake.fake_refuse(filter, error)


def generation(fake, fd, filter):
    return fake.fake_udata(fd, filter) >> 2


# -- amounts


def test_events_tell_amounts():
    def main():
        a, b = pair()
        with a, b:
            b.send(b"12345")
            event = wait_for(a, READ)
            assert (event.flags, event.fflags, event.data) == (0, 0, 5)
            assert wait_for(a, WRITE).data > 1000
            seen = []
            set_handler((a, READ), seen.append)
            let_others_run()
            assert [e.data for e in seen] == [5]
            b.close()
            event = wait_for(a, READ)
            assert (event.flags, event.data) == (EV.EOF, 5)

    coro.run(main)


def test_listener_tells_how_many_wait():
    def main():
        with coro.tcp_sock() as s:
            s.bind(("127.0.0.1", 0))
            s.listen(10)
            clients = [socket.create_connection(s.getsockname()) for _ in range(3)]
            assert s.wait_for_read() == 3
            assert len(s.accept_many()) == 3
            for c in clients:
                c.close()

    coro.run(main)


def test_amount_of_a_file_is_unknown(tmp_path):
    def main():
        a, b = pair()
        with a, b, open(tmp_path / "f", "wb+") as f:
            b.send(b"123")
            number = a.fileno()
            assert wait_for(number, READ).data == 3
            os.dup2(f.fileno(), number)
            assert wait_for(number, READ).data == 0
            with coro.fd_sock(os.dup(f.fileno())) as s:
                assert s.wait_for_read() == 0
                assert s.wait_for_write() == 0

    coro.run(main)


# -- system calls


def test_waiting_costs_no_call_but_the_poll(fake):
    """Reads of owned descriptors need no change at all, and other waits one each, in the call that polls."""

    def main():
        a, b = coro.socketpair()
        c, d = pair()

        def answer():
            while data := b.recv(10):
                b.send(data)

        def foreign(rounds):
            for _ in range(rounds):
                wait_for(d, READ)
                d.recv(10)

        with a, b, c, d:
            t = coro.spawn(answer)
            coro.spawn(foreign, 30)
            figures = []
            for _ in range(30):
                a.send(b"x")
                c.send(b"y")
                a.recv(10)
                let_others_run()
                figures.append((fake.fake_calls() - _poller.poller_statistics()["polls"], fake.fake_changes()))
            a.close()
            t.join()
        assert len({calls for calls, _ in figures}) == 1
        assert figures[-1][1] - figures[0][1] <= 29

    coro.run(main)


def test_writing_is_registered_for_each_wait(fake):
    def main():
        a, b = coro.socketpair()
        with a, b:
            b.recv_into(bytearray(0))
            done = coro.spawn(a.sendall, bytes(3_000_000))
            let_others_run()
            assert fake.fake_udata(a.fd, WRITE) >= 0
            assert fake.fake_udata(b.fd, READ) == -1, "never waited for"
            n = 0
            while n < 3_000_000:
                n += len(b.recv(65536))
            done.join()
            changes = fake.fake_changes()
            a.send(b"x")
            assert b.recv(10) == b"x"
            let_others_run()
            assert fake.fake_changes() == changes, "room in the buffer is no event that wakes the loop"

    coro.run(main)


def test_an_interrupted_wait_leaves_no_registration(fake):
    def main():
        a, b = pair()
        with a, b:
            for polls in (0, 1):
                t = coro.spawn(wait_for, a, READ)
                coro.yield_slice()
                if polls:
                    let_others_run()
                    assert fake.fake_udata(a.fileno(), READ) >= 0
                t.shutdown()
                t.join()
                let_others_run()
                assert fake.fake_udata(a.fileno(), READ) == -1
            # Ended and begun again before the next poll: the end comes first.
            t = coro.spawn(wait_for, a, READ)
            let_others_run()
            t.shutdown()
            t.join()
            b.send(b"x")
            wait_for(a, READ)

    coro.run(main)


def test_more_changes_than_one_call_takes(fake):
    """And among them some that are refused, because Linux does not watch /dev/null: each waiter gets its answer."""
    count = 1500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 100:
        if hard != resource.RLIM_INFINITY and hard < count + 100:
            pytest.skip("needs 1600 descriptors")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, hard))
    r, w = os.pipe()
    null = os.open("/dev/null", os.O_RDONLY)
    copies = [os.dup(null if i % 100 == 5 else r) for i in range(count)]
    ready = []

    def waiter(fd):
        wait_for(fd, READ)
        ready.append(fd)

    def main():
        threads = [coro.spawn(waiter, fd) for fd in copies]
        for t in threads[5::100]:
            t.join()  # in a poll that may sleep: the refusals of an earlier part keep it from that
        assert ready == copies[5::100]
        os.write(w, b"x")
        for t in threads:
            t.join()

    try:
        coro.run(main)
        assert sorted(ready) == sorted(copies)
    finally:
        for fd in [r, w, null, *copies]:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("room", [1, 3])
def test_full_list_of_events(fake, room):
    def main():
        pairs = [coro.socketpair() for _ in range(10)]
        threads = [coro.spawn(a.recv, 10) for a, _ in pairs]
        let_others_run()
        fake.fake_room(room)
        for _, b in pairs:
            b.send(b"x")
        for t in threads:
            t.join()
        assert [t.result for t in threads] == [b"x"] * 10
        fake.fake_room(0)
        for a, b in pairs:
            a.close()
            b.close()

    coro.run(main)


def test_interrupted_calls_have_applied_their_changes(fake):
    def main():
        a, b = pair()
        with a, b:
            b.send(b"x")
            fake.fake_interrupt(5)
            wait_for(a, READ)
            fake.fake_interrupt(5)
            wait_for(a, WRITE)

    coro.run(main)


# -- refusals


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("filter", [READ, WRITE])
def test_a_refused_registration_is_raised_in_its_waiter(fake, owned, filter):
    def main():
        a, b = pair()
        with a, b:
            fd = a.fileno()
            if owned:
                events._own(fd)
            wait = events._wait_owned if owned else wait_for
            refuse(fake, filter, errno.ENOMEM)
            with pytest.raises(oserrors.ENOMEM):
                wait(fd, filter)
            b.send(b"x")
            coro.with_timeout(60, wait, fd, filter)  # works again
            if owned:
                events._disown(fd)

    coro.run(main)


def test_a_refused_registration_reaches_a_handler(fake):
    def main():
        a, b = pair()
        with a, b:
            seen = []
            refuse(fake, READ, errno.ENOMEM)
            set_handler((a, READ), seen.append, EV.ADD)
            let_others_run()
            assert [(e.flags, e.data) for e in seen] == [(EV.ERROR, errno.ENOMEM)]
            assert len(event_map) == 0

    coro.run(main)


def test_only_the_refused_direction_is_told(fake):
    def main():
        a, b = pair()
        with a, b:
            refuse(fake, READ, errno.ENOMEM)
            reader = coro.spawn(lambda: pytest.raises(oserrors.ENOMEM, wait_for, a, READ))
            writer = coro.spawn(wait_for, a, WRITE)
            reader.join()
            writer.join()

    coro.run(main)


@pytest.mark.parametrize("owned", [False, True])
def test_a_device_that_cannot_be_watched_is_ready(fake, owned):
    def main():
        a, b = pair()
        with a, b:
            refuse(fake, READ, errno.ENODEV)
            if owned:
                events._own(a.fileno())
                events._wait_owned(a.fileno(), READ)
                events._wait_owned(a.fileno(), READ)  # from now on it only gives way
                events._disown(a.fileno())
            else:
                assert wait_for(a, READ).data == 0

    coro.run(main)


def test_closed_by_other_code_before_the_kernel_heard_of_it(fake):
    def main():
        a, b = pair()
        with a, b:
            refuse(fake, READ, errno.EBADF)  # (whether a real close comes before the next poll is a matter of time)
            with pytest.raises(oserrors.EBADF):
                wait_for(a, READ)

    coro.run(main)


def test_late_refusals_are_for_nobody(fake):
    """Of an earlier registration of the number, or of a deletion."""

    def main():
        a, b = pair()
        with a, b:
            t = coro.spawn(wait_for, a, READ)
            let_others_run()
            now = generation(fake, a.fileno(), READ)
            fake.fake_inject(a.fileno(), READ, EV.ERROR, 0, errno.ENOMEM, udata(now - 1, ADDED))
            fake.fake_inject(a.fileno(), READ, EV.ERROR, 0, errno.ENOENT, udata(now, DELETED))
            fake.fake_inject(a.fileno(), READ, EV.ERROR, 0, 0, udata(now, ADDED))
            fake.fake_inject(65000, READ, EV.ERROR, 0, errno.EBADF, udata(now, ADDED))
            let_others_run()
            assert not t.dead
            b.send(b"x")
            t.join()

    coro.run(main)


def test_late_events_are_for_nobody_and_end_their_registration(fake):
    def main():
        a, b = pair()
        with a, b:
            fd = a.fileno()
            t = coro.spawn(wait_for, fd, READ)
            let_others_run()
            now = generation(fake, fd, READ)
            fake.fake_inject(fd, READ, EV.CLEAR, 0, 1, udata(now - 1, ADDED))
            let_others_run()
            assert not t.dead
            assert _poller.poller_statistics()["stale_events"] == 1
            fake.fake_inject(b.fileno(), WRITE, EV.CLEAR, 0, 1, udata(now + 5, ADDED))
            let_others_run()
            assert _poller.poller_statistics()["stale_events"] == 2
            t.shutdown()
            t.join()

    coro.run(main)


# -- numbers that other code closes and uses again


def test_the_other_direction_finds_out(fake):
    """A reader waits for a file that is gone; nobody knows until a writer begins to wait for the new one."""

    def main():
        a, b = pair()
        c, d = pair()
        with a, b, c, d:
            number = os.dup(a.fileno())
            outcome = []

            def waiter():
                try:
                    wait_for(number, READ)
                except coro.ClosedError:
                    outcome.append("closed")

            reader = coro.spawn(waiter)
            let_others_run()
            os.dup2(c.fileno(), number)
            assert wait_for(number, WRITE).filter == WRITE
            reader.join()
            os.close(number)
            return outcome

    assert coro.run(main) == ["closed"]


def test_a_handler_of_the_lost_file_is_dropped(fake):
    def main():
        a, b = pair()
        c, d = pair()
        with a, b, c, d:
            number = os.dup(a.fileno())
            seen = []
            set_handler((number, READ), seen.append, EV.ADD)
            let_others_run()
            os.dup2(c.fileno(), number)
            wait_for(number, WRITE)
            let_others_run()
            assert kevent_key(READ, number) not in event_map
            os.close(number)
            return seen

    assert coro.run(main) == []


def test_given_away_and_taken_back(fake):
    """detach() leaves the descriptor open: the registration for life has to end, or a later wait would hang on it."""

    def main():
        a, b = coro.socketpair()
        b.send(b"1")
        a.wait_for_read()
        assert a.recv(10) == b"1"
        b.send(b"2")
        let_others_run()  # reported already: with EV_CLEAR it would not be again
        fd = a.detach()
        wait_for(fd, READ)
        with coro.fd_sock(fd) as again, b:
            assert coro.with_timeout(60, again.recv, 10) == b"2"
            t = coro.spawn(again.recv, 10)
            let_others_run()
            b.send(b"3")
            t.join()

    coro.run(main)


def test_closing_costs_no_change(fake):
    def main():
        a, b = coro.socketpair()
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, a.recv, 1)
        fd = a.fd
        before = fake.fake_changes()
        a.close()
        let_others_run()
        assert fake.fake_changes() == before
        c, d = coro.socketpair()
        assert fd in (c.fd, d.fd), "the number is used again"
        with b, c, d:
            t = coro.spawn(c.recv, 1)
            d.send(b"x")
            t.join()
            t = coro.spawn(d.recv, 1)
            c.send(b"x")
            t.join()

    coro.run(main)


# -- ends and errors


def test_end_of_stream_with_an_error(fake):
    def main():
        a, b = pair()
        with a, b:
            t = coro.spawn(wait_for, a, READ)
            let_others_run()
            now = generation(fake, a.fileno(), READ)
            fake.fake_inject(a.fileno(), READ, EV.EOF | EV.DISPATCH, errno.ECONNRESET, 7, udata(now, ADDED))
            t.join()
            return t.result

    event = coro.run(main)
    assert (event.flags, event.fflags, event.data) == (EV.EOF, errno.ECONNRESET, 7)


def test_half_closed_with_data_left():
    """Data and end in one event, more than is read at once: neither is lost."""

    def main():
        listener = socket.create_server(("127.0.0.1", 0))
        for _ in range(10):
            s = coro.tcp_sock()
            s.connect(listener.getsockname())
            peer = listener.accept()[0]
            with s, peer:
                with pytest.raises(coro.TimeoutError):
                    coro.with_timeout(0, s.recv, 10)
                peer.send(b"x" * 1000)
                peer.shutdown(socket.SHUT_WR)
                got = []
                while data := coro.with_timeout(60, s.recv, 300):
                    got.append(len(data))
                assert sum(got) == 1000
                s.sendall(b"the other direction is open")
                assert peer.recv(100) == b"the other direction is open"
        listener.close()

    coro.run(main)


# -- processes


def child():
    return subprocess.Popen([sys.executable, "-S", "-E", "-c", "input()"], stdin=subprocess.PIPE)


@pytest.mark.parametrize("fires", [0, 1])
def test_a_child_that_dies_between_look_and_registration(fake, fires):
    """macOS says ESRCH then, FreeBSD reports the end at once."""
    p = child()

    def main():
        fake.fake_zombies(fires)
        fake.fake_die_first()
        event = wait_for(p.pid, PROC)
        assert (event.fflags, event.data) == (NOTE.EXIT, signal.SIGKILL)
        return coro.waitpid(p.pid)

    with p:
        assert coro.run(main) == (p.pid, signal.SIGKILL)
        p.returncode = -signal.SIGKILL


@pytest.mark.parametrize("dies", [True, False])
def test_an_end_that_is_announced_before_the_child_can_be_collected(fake, dies):
    """The poller waits for it, but not for ever: the number may be that of another child by now."""
    p = child()

    def waiter():
        try:
            return wait_for(p.pid, PROC).data
        except oserrors.ESRCH:
            return "still runs"

    def main():
        t = coro.spawn(waiter)
        let_others_run()
        fake.fake_inject(p.pid, PROC, EV.ONESHOT, NOTE.EXIT, 0, 0)
        if dies:
            p.kill()
        t.join()
        return t.result

    with p:
        assert coro.run(main) == (signal.SIGKILL if dies else "still runs")
        p.kill()


def test_a_process_that_cannot_be_watched(fake):
    p = child()

    def main():
        refuse(fake, PROC, errno.EACCES)
        with pytest.raises(oserrors.EACCES):
            wait_for(p.pid, PROC)
        refuse(fake, PROC, errno.ESRCH)
        with pytest.raises(oserrors.ESRCH):
            wait_for(p.pid, PROC)
        p.stdin.close()
        assert coro.waitpid(p.pid) == (p.pid, 256)  # no input: EOFError
        p.returncode = 1

    with p:
        p.stderr = None
        coro.run(main)


# -- the queue itself


def test_woken_by_another_os_thread(fake):
    def main():
        wait_for(1, EVFILT.TIMER, NOTE.NSECONDS)  # the counters are those of a poller that was used
        done = coro.event()
        before = _poller.poller_statistics()

        def elsewhere():
            while _poller.poller_statistics()["blocking_polls"] == before["blocking_polls"]:
                time.sleep(0.001)
            coro.post(done.set)

        t = threading.Thread(target=elsewhere)
        t.start()
        done.wait()
        t.join()
        return _poller.poller_statistics()["interrupts"] - before["interrupts"]

    assert coro.run(main) >= 1


def test_not_closed_in_a_child_that_has_another_file_under_the_number(environment):
    lines = ok(
        environment
        + """
other = []
def take_the_number():      # runs before coro's own hook: the queue is gone, its number is free
    if queue:
        null = os.open("/dev/null", os.O_RDONLY)
        if null != queue[0]:
            os.dup2(null, queue[0])
            os.close(null)
        other.append(queue[0])
queue = []
os.register_at_fork(after_in_child=take_the_number)
import coro
def main():
    coro.sleep_relative(0.001)
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    for fd in range(3, free):
        if "eventpoll" in os.readlink(f"/proc/self/fd/{fd}"):
            queue.append(fd)
            break
    pid = os.fork()
    if pid == 0:
        assert other == queue, (other, queue)
        a, b = coro.socketpair()
        t = coro.spawn(a.recv, 10)
        b.send(b"x")
        t.join()
        os.fstat(other[0])
        assert os.readlink(f"/proc/self/fd/{other[0]}") == "/dev/null"
        os._exit(9)
    print(os.waitstatus_to_exitcode(coro.waitpid(pid)[1]))
coro.run(main)
"""
    )
    assert lines == ["9"]


def test_closed_by_other_code(environment):
    lines = ok(
        environment
        + """
import coro
def main():
    coro.sleep_relative(0.001)
    for fd in range(3, 20):
        try:
            if "eventpoll" in os.readlink(f"/proc/self/fd/{fd}"):
                os.close(fd)
        except OSError:
            pass
    coro.sleep_relative(0.001)
try:
    coro.run(main)
except coro.LoopError as e:
    print("kqueue" in str(e) and "closed by other code" in str(e))
"""
    )
    assert lines == ["True"]


# -- the choice


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"CORO_POLLER": "select"}, "to be epoll or kqueue, not 'select'"),
        ({"CORO_POLLER": "kqueue"}, "this system has no kqueue(2)"),
        ({"CORO_POLLER": "kqueue", "CORO_KQUEUE_LIBRARY": "/nowhere.so"}, "cannot be used as a kqueue library"),
        ({"CORO_POLLER": "kqueue", "CORO_KQUEUE_LIBRARY": "libc.so.6"}, "no functions kqueue and kevent"),
    ],
)
def test_settings_that_cannot_be_followed(settings, message):
    done = program(
        f"""
        import os
        os.environ.pop("CORO_KQUEUE_LIBRARY", None)
        os.environ.update({settings!r})
        import coro
        """
    )
    assert done.code == 1
    assert message in done.err.splitlines()[-1]


def test_no_kqueue_at_all():
    lines = ok(
        """
        import os
        os.environ["CORO_POLLER"] = "epoll"
        import coro
        from coro._poll import kqueue as _kqueue
        from coro._runtime import scheduler
        assert not _kqueue.available()
        scheduler.set_poller_factory(_kqueue.KqueuePoller)
        try:
            coro.run(coro.sleep_relative, 1)
        except coro.LoopError as e:
            print(e)
        """
    )
    assert "no kqueue(2)" in lines[0]
