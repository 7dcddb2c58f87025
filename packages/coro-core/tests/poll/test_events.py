"""Events that are not descriptors (timers, processes, signals, files), and handlers for all kinds.

Signals are sent by the process to itself, children end when they are told to through a pipe, and files are
changed by the test:
nothing depends on how long something takes.
"""

import contextvars
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import coro
from coro import oserrors
from coro._poll import events
from coro._poll.descriptors import kevent_key, kevent_target, py_event, py_kevent
from coro._poll.events import EFILT, EV, EVFILT, NOTE, event_map, remove_handler, set_handler, wait_for

pytestmark = pytest.mark.poller

READ, WRITE, EXCEPT = EVFILT.READ, EVFILT.WRITE, EVFILT.EXCEPT
PROC, SIGNAL, TIMER, VNODE = EVFILT.PROC, EVFILT.SIGNAL, EVFILT.TIMER, EVFILT.VNODE


@pytest.fixture(autouse=True)
def nothing_left():
    before = set(os.listdir("/proc/self/fd"))
    handlers = [signal.getsignal(s) for s in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)]
    yield
    assert len(event_map) == 0
    assert set(os.listdir("/proc/self/fd")) <= before
    assert [signal.getsignal(s) for s in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)] == handlers
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    assert wakeup == -1


@pytest.fixture
def pipe():
    r, w = os.pipe()
    os.set_blocking(r, False)
    os.set_blocking(w, False)
    yield r, w
    for fd in (r, w):
        try:
            os.close(fd)
        except OSError:
            pass


def let_others_run():
    coro.yield_slice()
    coro.yield_slice()


class Box:
    """Collects what handlers are called with; wait(n) blocks the thread until there are n."""

    def __init__(self):
        self.events = []
        self.waiter = None

    def __call__(self, event):
        self.events.append(event)
        if self.waiter is not None:
            waiter, self.waiter = self.waiter, None
            waiter.schedule()

    def wait(self, n):
        while len(self.events) < n:
            self.waiter = coro.current()
            coro._yield()
        return self.events


@pytest.fixture
def notified():
    """Collects the exceptions that end threads."""
    seen = []
    before = coro.set_exception_notifier(lambda: seen.append(sys.exc_info()[0]))
    yield seen
    coro.set_exception_notifier(before)


# -- names and values ----


def test_constants_are_those_of_kqueue():
    assert (READ, WRITE, VNODE, PROC, SIGNAL, TIMER) == (-1, -2, -4, -5, -6, -7)
    assert EFILT is EVFILT
    assert (EV.ADD, EV.DELETE, EV.ONESHOT, EV.CLEAR, EV.EOF, EV.ERROR) == (1, 2, 16, 32, 0x8000, 0x4000)
    assert (NOTE.EXIT, NOTE.WRITE, NOTE.NSECONDS) == (0x80000000, 2, 8)


def test_key():
    key = kevent_key(READ, 3)
    assert key == kevent_key(-1, 3)
    assert key != kevent_key(WRITE, 3)
    assert key != (READ, 3)
    assert len({key, kevent_key(READ, 3)}) == 1
    assert (key.filter, key.ident) == (READ, 3)
    assert repr(key) == "<kevent_key filter=READ ident=3>"
    with pytest.raises(TypeError):
        _ = key < key
    with pytest.raises(AttributeError):
        key.ident = 4


def test_objects_are_read_only_and_not_made_by_hand():
    assert py_event is py_kevent
    for cls in (py_kevent, kevent_target):
        with pytest.raises(TypeError, match="wait_for"):
            cls()

    def main():
        return wait_for(1, TIMER, NOTE.NSECONDS)

    event = coro.run(main)
    for name in ("ident", "filter", "flags", "fflags", "data", "udata_addr"):
        with pytest.raises(AttributeError):
            setattr(event, name, 0)
    assert repr(event) == "<py_kevent ident=1 filter=TIMER flags=0x0 fflags=0x0 data=1>"


# -- timers ----


@pytest.mark.parametrize(
    "unit, data, seconds",
    [
        (0, 2, 0.002),
        (NOTE.MSECONDS, 2, 0.002),
        (NOTE.USECONDS, 500, 0.0005),
        (NOTE.NSECONDS, 300_000, 0.0003),
        (NOTE.SECONDS, 0, 0),
    ],
)
def test_timer(unit, data, seconds):
    def main():
        start = time.monotonic()
        event = wait_for(77, TIMER, unit, data)
        assert time.monotonic() - start >= seconds
        return event

    event = coro.run(main)
    assert (event.ident, event.filter, event.data) == (77, TIMER, 1)


def test_periodic_timer_and_its_removal():
    def main():
        box = Box()
        set_handler((5, TIMER), box, EV.ADD, 0, 1)
        assert set(event_map) == {kevent_key(TIMER, 5)}
        assert event_map[kevent_key(TIMER, 5)].target is box
        box.wait(3)
        remove_handler((5, TIMER))
        assert event_map == {}
        with pytest.raises(KeyError):
            remove_handler((5, TIMER))
        n = len(box.events)
        coro.sleep_relative(0.003)
        assert len(box.events) == n
        return box.events

    assert all(e.data >= 1 for e in coro.run(main))


def test_expirations_are_counted_while_the_handler_runs():
    def main():
        counts = []
        running = []

        def slow(event):
            assert not running, "a handler never runs twice at the same time"
            running.append(1)
            counts.append(event.data)
            coro.sleep_relative(0.005)
            running.pop()

        set_handler((5, TIMER), slow, EV.ADD, 0, 1)
        coro.sleep_relative(0.03)
        remove_handler((5, TIMER))
        coro.sleep_relative(0.006)
        return counts

    counts = coro.run(main)
    assert max(counts) > 1
    assert sum(counts) >= 15


def test_oneshot_timer_handler():
    def main():
        box = Box()
        set_handler((5, TIMER), box, data=1)
        box.wait(1)
        assert event_map == {}
        coro.sleep_relative(0.003)
        return len(box.events)

    assert coro.run(main) == 1


def test_timer_arguments():
    def main():
        for fflags, data in ((3, 1), (0, -1), (NOTE.SECONDS, 2**62)):
            with pytest.raises(ValueError):
                wait_for(1, TIMER, fflags, data)
        with pytest.raises(ValueError):
            set_handler((1, TIMER), print, EV.ADD, 0, 0)
        with pytest.raises(OverflowError):
            wait_for(1, TIMER, 0, 2**70)
        assert event_map == {}

    coro.run(main)


# -- processes ----


def child(code):
    """A child that ends with this exit code when its standard input is closed."""
    return subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", f"import sys, os; sys.stdin.read(); os._exit({code})"],
        stdin=subprocess.PIPE,
    )


def reap(process):
    process.stdin.close()
    pid, status = os.waitpid(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return status


@pytest.mark.parametrize("code", [0, 3])
def test_process_exit(code):
    p = child(code)

    def main():
        t = coro.spawn(p.stdin.close)
        event = wait_for(p.pid, PROC, NOTE.EXIT)
        t.join()
        return event

    event = coro.run(main)
    assert (event.ident, event.filter, event.fflags) == (p.pid, PROC, NOTE.EXIT)
    assert os.waitstatus_to_exitcode(event.data) == code
    # It was not reaped.
    assert reap(p) == event.data


def test_process_killed_and_waited_for_after_its_death():
    p = child(0)

    def main():
        t = coro.spawn(wait_for, p.pid, PROC)
        let_others_run()
        with pytest.raises(coro.SimultaneousError) as caught:
            wait_for(p.pid, PROC)
        assert caught.value.other is t
        p.send_signal(signal.SIGKILL)
        t.join()
        event = coro.with_timeout(60, wait_for, p.pid, PROC)  # dead already: at once
        handled = Box()
        set_handler((p.pid, PROC), handled)
        assert event_map == {}
        assert handled.wait(1)[0].data == event.data
        return event

    event = coro.run(main)
    assert os.WIFSIGNALED(event.data)
    assert os.WTERMSIG(event.data) == signal.SIGKILL
    assert reap(p) == event.data


def test_process_handler():
    p = child(7)

    def main():
        box = Box()
        set_handler((p.pid, PROC), box, EV.ADD, NOTE.EXIT)
        assert set(event_map) == {kevent_key(PROC, p.pid)}
        p.stdin.close()
        return box.wait(1)[0]

    assert os.waitstatus_to_exitcode(coro.run(main).data) == 7
    reap(p)


def test_process_interrupted_then_waited_for():
    p = child(0)

    def main():
        for _ in range(2):
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.001, wait_for, p.pid, PROC)
            assert event_map == {}
        p.stdin.close()
        return wait_for(p.pid, PROC).data

    assert coro.run(main) == 0
    reap(p)


def test_process_errors():
    p = child(0)
    reap(p)

    def main():
        with pytest.raises(oserrors.ESRCH):
            wait_for(p.pid, PROC)
        with pytest.raises(oserrors.ECHILD):
            wait_for(os.getppid(), PROC)
        with pytest.raises(oserrors.EINVAL):
            wait_for(-5, PROC)
        with pytest.raises(ValueError, match=r"NOTE\.EXIT"):
            wait_for(p.pid, PROC, NOTE.FORK)
        assert event_map == {}

    coro.run(main)


# -- signals ----


def test_signal():
    def main():
        t = coro.spawn(os.kill, os.getpid(), signal.SIGUSR1)
        event = wait_for(signal.SIGUSR1, SIGNAL)
        t.join()
        return event

    event = coro.run(main)
    assert (event.ident, event.filter, event.data) == (signal.SIGUSR1, SIGNAL, 1)


def test_signal_handler_counts_and_restores():
    seen = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: seen.append(number))
    try:

        def main():
            box = Box()
            set_handler((signal.SIGUSR2, SIGNAL), box, EV.ADD)
            for _ in range(3):
                signal.raise_signal(signal.SIGUSR2)
            while sum(e.data for e in box.events) < 3:
                box.wait(len(box.events) + 1)
            signal.raise_signal(signal.SIGUSR2)
            box.wait(len(box.events) + 1)
            assert seen == []
            remove_handler((signal.SIGUSR2, SIGNAL))
            signal.raise_signal(signal.SIGUSR2)
            coro.yield_slice()
            assert seen == [signal.SIGUSR2]
            return sum(e.data for e in box.events)

        assert coro.run(main) == 4
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_handlers_left_at_the_end_are_dropped():
    def main():
        set_handler((signal.SIGUSR1, SIGNAL), print, EV.ADD)
        set_handler((1, TIMER), print, EV.ADD, NOTE.SECONDS, 100)
        return len(event_map)

    assert coro.run(main) == 2


def test_signal_while_the_loop_sleeps_runs_python_handlers(pipe):
    """A signal that another OS thread takes must end the sleep of the poll as well."""
    r, w = pipe
    before = signal.signal(signal.SIGUSR1, lambda number, frame: os.write(w, b"!"))
    try:

        def main():
            poster = threading.Thread(target=lambda: signal.raise_signal(signal.SIGUSR1))
            coro.spawn(poster.start)
            wait_for(r, READ)
            poster.join()
            return os.read(r, 10)

        assert coro.run(main) == b"!"
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_signal_interrupted_after_it_came_is_kept(pipe):
    r, w = pipe

    class Stop(Exception):
        pass

    def main():
        outcome = []

        def waiter():
            try:
                wait_for(signal.SIGUSR1, SIGNAL)
            except Stop:
                outcome.append("stopped")

        def killer():
            wait_for(r, READ)
            t.raise_exception(Stop)

        # A poll looks at signals after all descriptors, but the killer is woken in the same poll and runs
        # before.
        t = coro.spawn(waiter)
        let_others_run()
        k = coro.spawn(killer)
        let_others_run()
        os.write(w, b"x")
        signal.raise_signal(signal.SIGUSR1)
        t.join()
        k.join()
        assert outcome == ["stopped"]
        return coro.with_timeout(60, wait_for, signal.SIGUSR1, SIGNAL).data

    assert coro.run(main) == 1


def test_bad_signals():
    def main():
        with pytest.raises(ValueError):
            wait_for(10_000, SIGNAL)
        with pytest.raises(OSError):
            wait_for(signal.SIGKILL, SIGNAL)
        assert event_map == {}

    coro.run(main)


def test_no_signals_outside_the_main_os_thread():
    seen = []

    def main():
        try:
            wait_for(signal.SIGUSR1, SIGNAL)
        except ValueError as e:
            seen.append(str(e))

    t = threading.Thread(target=coro.run, args=(main,))
    t.start()
    t.join()
    assert "main OS thread" in seen[0]


def test_earlier_wakeup_descriptor_is_restored():
    a, b = socket.socketpair()
    with a, b:
        a.setblocking(False)
        signal.set_wakeup_fd(a.fileno())
        try:
            coro.run(lambda: coro.sleep_relative(0.001))
        finally:
            assert signal.set_wakeup_fd(-1) == a.fileno()


def test_an_earlier_wakeup_descriptor_gets_what_comes_during_the_loop():
    a, b = socket.socketpair()
    with a, b:
        a.setblocking(False)
        b.setblocking(False)
        signal.set_wakeup_fd(a.fileno())
        before = signal.signal(signal.SIGUSR1, lambda *args: None)

        def main():
            coro.sleep_relative(0.001)
            os.kill(os.getpid(), signal.SIGUSR1)
            coro.sleep_relative(0.001)
            assert b.recv(10) == bytes([signal.SIGUSR1])

        try:
            coro.run(main)
        finally:
            signal.signal(signal.SIGUSR1, before)
            assert signal.set_wakeup_fd(-1) == a.fileno()


@pytest.mark.parametrize("again", [False, True])
def test_an_earlier_wakeup_descriptor_that_was_closed_is_no_error(again):
    a, b = socket.socketpair()
    with a, b:
        a.setblocking(False)
        signal.set_wakeup_fd(a.fileno())

        def main():
            coro.sleep_relative(0.001)
            if again:  # the program replaces the loop's own
                signal.set_wakeup_fd(a.fileno())
            a.close()

        coro.run(main)
        assert signal.set_wakeup_fd(-1) == -1


# -- files ----


@pytest.fixture
def file(tmp_path):
    with open(tmp_path / "file", "wb+", buffering=0) as f:
        f.write(b"0123456789")
        yield f


ALL = NOTE.DELETE | NOTE.WRITE | NOTE.EXTEND | NOTE.ATTRIB | NOTE.LINK | NOTE.RENAME | NOTE.REVOKE


@pytest.mark.parametrize(
    "change, expected",
    [
        (lambda f: os.pwrite(f.fileno(), b"x", 0), NOTE.WRITE),
        (lambda f: os.pwrite(f.fileno(), b"x", 100), NOTE.WRITE | NOTE.EXTEND),
        (lambda f: os.truncate(f.name, 5), NOTE.WRITE),
        (lambda f: os.chmod(f.name, 0o600), NOTE.ATTRIB),
        (lambda f: os.link(f.name, f"{f.name}.2"), NOTE.LINK),
        (lambda f: os.rename(f.name, f"{f.name}.3"), NOTE.RENAME),
        (lambda f: os.unlink(f.name), NOTE.DELETE),
    ],
    ids=["write", "extend", "truncate", "attrib", "link", "rename", "delete"],
)
def test_file_changes(file, change, expected):
    def main():
        t = coro.spawn(change, file)
        event = coro.with_timeout(60, wait_for, file, VNODE, ALL)
        t.join()
        return event

    event = coro.run(main)
    assert (event.ident, event.filter) == (file.fileno(), VNODE)
    assert event.fflags == expected


def test_only_what_was_asked_for(file):
    def main():
        t = coro.spawn(wait_for, file, VNODE, NOTE.RENAME)
        let_others_run()
        os.pwrite(file.fileno(), b"x", 0)
        let_others_run()
        assert not t.dead
        os.rename(file.name, f"{file.name}.2")
        t.join()

    coro.run(main)


def test_directory_and_two_watchers_of_one_file(tmp_path, file):
    folder = os.open(tmp_path, os.O_RDONLY)
    again = os.open(file.name, os.O_RDONLY)
    try:

        def main():
            boxes = [Box() for _ in range(3)]
            set_handler((folder, VNODE), boxes[0], EV.ADD, ALL)
            set_handler((file, VNODE), boxes[1], EV.ADD, NOTE.WRITE)
            set_handler((again, VNODE), boxes[2], EV.ADD, NOTE.ATTRIB)
            open(tmp_path / "new", "w").close()
            assert boxes[0].wait(1)[0].fflags == NOTE.WRITE
            os.pwrite(file.fileno(), b"y", 0)
            boxes[1].wait(1)
            remove_handler((file, VNODE))
            os.fchmod(again, 0o600)
            boxes[2].wait(1)
            os.mkdir(tmp_path / "sub")
            while not boxes[0].events[-1].fflags & NOTE.LINK:
                boxes[0].wait(len(boxes[0].events) + 1)
            assert [len(b.events) for b in boxes[1:]] == [1, 1]

        coro.run(main)
    finally:
        os.close(folder)
        os.close(again)


def test_file_errors(file):
    def main():
        with pytest.raises(ValueError, match="VNODE"):
            wait_for(file, VNODE)
        let_others_run()
        number = os.dup(file.fileno())
        os.close(number)
        with pytest.raises(oserrors.EBADF):
            wait_for(number, VNODE, ALL)

    coro.run(main)


# -- handlers ----


def test_oneshot_handler(pipe):
    r, w = pipe

    def main():
        box = Box()
        set_handler((r, READ), box)
        assert event_map[kevent_key(READ, r)].target is box
        os.write(w, b"x")
        event = box.wait(1)[0]
        assert event_map == {}
        let_others_run()
        assert len(box.events) == 1
        return event

    event = coro.run(main)
    assert (event.ident, event.filter, event.flags) == (r, READ, 0)


def test_handler_runs_in_a_thread_of_its_own_with_the_registrars_context(pipe):
    r, w = pipe
    variable = contextvars.ContextVar("variable", default="none")

    def main():
        seen = []

        def handler(event):
            seen.append((coro.current(), coro.current().name, variable.get()))
            variable.set("changed by the handler")
            coro.sleep_relative(0)
            os.read(r, 10)
            main_thread.schedule()

        variable.set("registrar's")
        main_thread = coro.current()
        set_handler((r, READ), handler, EV.ADD)
        variable.set("later")
        for _ in range(2):
            os.write(w, b"x")
            coro._yield()
        assert variable.get() == "later"
        assert seen[0][0] is not main_thread
        assert "handler" in seen[0][1]
        assert [s[2] for s in seen] == ["registrar's", "registrar's"]

    coro.run(main)


def test_persistent_handler_runs_one_at_a_time(pipe):
    r, w = pipe

    def main():
        got = []
        running = []

        def handler(event):
            assert not running
            running.append(1)
            coro.sleep_relative(
                0.001
            )  # the byte is still there: a level-triggered descriptor would fire again
            got.append(os.read(r, 1))
            running.pop()
            if len(got) == 3:
                main_thread.schedule()

        main_thread = coro.current()
        set_handler((r, READ), handler, EV.ADD)
        os.write(w, b"abc")
        coro._yield()
        remove_handler((r, READ))
        os.write(w, b"d")
        let_others_run()
        return got

    assert coro.run(main) == [b"a", b"b", b"c"]


def test_handler_and_waiters_of_the_other_direction():
    a, b = socket.socketpair()
    with a, b:
        a.setblocking(False)

        def main():
            box = Box()
            set_handler((a, READ), box)
            assert wait_for(a, WRITE).filter == WRITE
            with pytest.raises(coro.SimultaneousError) as caught:
                wait_for(a, READ)
            assert caught.value.other is box
            with pytest.raises(coro.SimultaneousError):
                set_handler((a, READ), print)
            b.send(b"x")
            box.wait(1)
            t = coro.spawn(wait_for, a, WRITE)
            t.join()

        coro.run(main)


def test_handler_that_fails_is_reported_and_stays(pipe, notified):
    r, w = pipe

    def main():
        calls = []

        def handler(event):
            calls.append(os.read(r, 10))
            main_thread.schedule()
            raise ZeroDivisionError

        main_thread = coro.current()
        set_handler((r, READ), handler, EV.ADD)
        for _ in range(2):
            os.write(w, b"x")
            coro._yield()
        let_others_run()
        remove_handler((r, READ))
        return calls

    assert coro.run(main) == [b"x", b"x"]
    assert notified == [ZeroDivisionError, ZeroDivisionError]


def test_handler_removes_itself(pipe):
    r, w = pipe

    def main():
        def handler(event):
            remove_handler((r, READ))
            main_thread.schedule()

        main_thread = coro.current()
        set_handler((r, READ), handler, EV.ADD)
        os.write(w, b"x")
        coro._yield()
        let_others_run()
        assert event_map == {}

    coro.run(main)


def test_handler_of_a_descriptor_that_is_closed(pipe):
    r, w = pipe

    def main():
        events._own(r)
        box = Box()
        set_handler((r, READ), box, EV.ADD)
        let_others_run()
        target = event_map[kevent_key(READ, r)]
        events._disown(r)
        assert target.status == "ABORTED"
        assert event_map == {}
        os.write(w, b"x")
        let_others_run()
        return box.events

    assert coro.run(main) == []


def test_handler_on_an_owned_descriptor(pipe):
    r, w = pipe

    def main():
        events._own(r)
        os.write(w, b"x")
        coro.with_timeout(60, events._wait_owned, r, READ)
        # Readable already, and the edge is over: the handler must fire all the same.
        box = Box()
        set_handler((r, READ), box, EV.ADD)
        box.wait(2)
        os.read(r, 10)
        let_others_run()
        n = len(box.events)
        let_others_run()
        assert len(box.events) == n
        remove_handler((r, READ))
        events._disown(r)

    coro.run(main)


def test_hangup_reaches_a_handler(pipe):
    r, w = pipe

    def main():
        box = Box()
        set_handler((r, READ), box)
        os.close(w)
        return box.wait(1)[0].flags

    assert coro.run(main) == EV.EOF


def test_a_handler_is_no_deadlock(pipe):
    r, w = pipe

    def main():
        def handler(event):
            main_thread.schedule("by the handler")

        main_thread = coro.current()
        set_handler((r, READ), handler)
        threading.Timer(0.01, os.write, (w, b"x")).start()
        return coro._yield()

    assert coro.run(main) == "by the handler"


def test_bad_handlers(pipe, tmp_path):
    r, w = pipe

    def main():
        with pytest.raises(TypeError, match="callable"):
            set_handler((r, READ), 3)
        with pytest.raises(TypeError, match="pair"):
            set_handler(r, print)
        with pytest.raises(ValueError, match="flags"):
            set_handler((r, READ), print, 0x8000)
        with pytest.raises(ValueError):
            set_handler((r, 99), print)
        with pytest.raises(TypeError):
            set_handler(("x", READ), print)
        with pytest.raises(TypeError):
            set_handler(("x", TIMER), print, data=1)
        with pytest.raises(KeyError):
            remove_handler((r, READ))
        with pytest.raises(KeyError):
            set_handler((r, READ), None, EV.DELETE)
        with open(tmp_path / "file", "w") as f, pytest.raises(oserrors.EPERM):
            set_handler((f, WRITE), print)
        assert event_map == {}

    coro.run(main)


def test_handlers_from_main_and_from_other_os_threads(pipe):
    r, w = pipe
    box = Box()
    set_handler((r, READ), box)
    assert set(event_map) == {kevent_key(READ, r)}
    seen = []

    def elsewhere():
        for f, args in ((set_handler, ((r, WRITE), print)), (remove_handler, ((r, READ),))):
            try:
                f(*args)
            except coro.WrongThreadError as e:
                seen.append(type(e))

    def main():
        t = threading.Thread(target=elsewhere)
        t.start()
        t.join()
        os.write(w, b"x")
        box.wait(1)

    coro.run(main)
    assert len(seen) == 2
