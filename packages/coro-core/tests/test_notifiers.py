"""Notifiers: sources of events beside the kernel, and a Tk window that lives in the same OS thread as the loop."""

import collections
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support import ok, program

import coro
from coro.microthreads.notifiers import Notifier, add_notifier, notifiers, remove_notifier

pytestmark = pytest.mark.usefixtures("leaves_nothing")


class Mailbox(Notifier):
    """Messages that other OS threads leave: a source that can only be looked at."""

    def __init__(self, priority=0):
        self.priority = priority
        self.letters = collections.deque()
        self.readers = collections.deque()
        self.looks = 0
        self.log = []

    def read(self):
        self.readers.append(coro.current())
        return self.wait()

    def poll(self):
        self.looks += 1
        self.log.append("poll")
        if not self.readers:
            return None
        found = False
        while self.letters and self.readers:
            self.wake(self.readers.popleft(), self.letters.popleft())
            found = True
        return found


class TimedMailbox(Mailbox):
    """The same, able to wait for a limited time."""

    def __init__(self, priority=0):
        super().__init__(priority)
        self.arrived = threading.Event()

    def timed_wait(self, seconds):
        self.log.append("timed_wait")
        self.arrived.wait(seconds)
        return self.poll()


class WatchingMailbox(Mailbox):
    """The same, able to watch a descriptor at the same time."""

    def __init__(self, priority=0):
        super().__init__(priority)
        self.read_end, self.write_end = os.pipe()

    def close(self):
        os.close(self.read_end)
        os.close(self.write_end)

    def leave(self, letter):
        self.letters.append(letter)
        os.write(self.write_end, b"x")

    def wait_with(self, fd, seconds):
        self.log.append("wait_with")
        ready, _, _ = select.select([self.read_end, fd], [], [], seconds)
        if self.read_end in ready:
            os.read(self.read_end, 1)
        return self.poll()


@pytest.fixture
def use():
    """Add notifiers, and take them away again after the test."""

    def add(notifier):
        add_notifier(notifier)
        return notifier

    yield add
    for notifier in notifiers():
        remove_notifier(notifier)


@pytest.mark.parametrize("kind", [Mailbox, TimedMailbox])
def test_a_source_of_ones_own_wakes_threads(use, kind):
    mailbox = use(kind())
    got = []

    def other_os_thread():
        for number in range(3):
            mailbox.letters.append(number)

    def main():
        reader = coro.spawn(lambda: [got.append(mailbox.read()) for _ in range(3)])
        coro.yield_slice()
        other = threading.Thread(target=other_os_thread)
        other.start()
        reader.join()
        other.join()

    coro.run(main)
    assert got == [0, 1, 2]


def test_one_that_can_watch_a_descriptor_waits_for_both(use):
    mailbox = use(WatchingMailbox())
    try:
        got = []
        one, two = coro.socketpair()

        def main():
            reader = coro.spawn(lambda: got.append(mailbox.read()))
            echo = coro.spawn(lambda: got.append(two.recv(10)))
            coro.yield_slice()
            sender = threading.Timer(0.01, coro.post, (one.send, b"data"))
            sender.start()
            echo.join()
            sender.join()
            before = mailbox.looks
            letter = threading.Timer(0.01, mailbox.leave, ("letter",))
            letter.start()
            reader.join()
            letter.join()
            # it slept inside the notifier: a handful of looks, not thousands
            assert mailbox.looks - before < 50
            one.close()
            two.close()

        coro.run(main)
        assert got == [b"data", "letter"]
        assert "wait_with" in mailbox.log
    finally:
        mailbox.close()


def test_timers_fire_while_notifiers_wait(use):
    mailbox = use(TimedMailbox())

    def main():
        reader = coro.spawn(mailbox.read)
        begun = time.monotonic()
        coro.sleep_relative(0.02)
        assert 0.02 <= time.monotonic() - begun < 60
        reader.shutdown()
        reader.join()

    coro.run(main)


def test_a_busy_loop_still_looks(use):
    mailbox = use(Mailbox())

    def main():
        reader = coro.spawn(mailbox.read)
        coro.yield_slice()
        mailbox.letters.append("letter")
        turns = 0
        while not reader.dead:
            coro.yield_slice()
            turns += 1
        assert turns < 10

    coro.run(main)


def test_the_order_of_looking_follows_the_priority(use):
    order = []

    class Noted(Notifier):
        def __init__(self, priority):
            self.priority = priority

        def poll(self):
            order.append(self.priority)
            return None

    for priority in (0, 5, -5):
        use(Noted(priority))
    assert [n.priority for n in notifiers()] == [5, 0, -5]

    def main():
        coro.yield_slice()
        order.clear()
        coro.yield_slice()

    coro.run(main)
    assert order[:3] == [5, 0, -5]


def test_a_notifier_that_fails_is_reported_and_dropped(use):
    told = []

    class Broken(Notifier):
        def poll(self):
            raise ZeroDivisionError

    before = coro.set_exception_notifier(lambda: told.append(sys.exc_info()[0]))
    try:
        use(Broken())
        coro.run(lambda: [coro.yield_slice() for _ in range(3)])
        assert notifiers() == []
        assert told == [ZeroDivisionError]
    finally:
        coro.set_exception_notifier(before)


@pytest.mark.parametrize("error", ["ZeroDivisionError", "NotImplementedError"])
def test_the_message_about_a_notifier_that_fails_names_it(error):
    outcome = program(
        f"""
        import coro
        from coro.microthreads.notifiers import Notifier, add_notifier, notifiers

        class Broken(Notifier):
            def __repr__(self):
                return "<the\\nbroken one>"

            def poll(self):
                raise {error}

        coro.run(lambda: (add_notifier(Broken()), coro.yield_slice()))
        print(notifiers())
        """
    )
    assert (outcome.code, outcome.lines) == (0, ["[]"])
    assert outcome.err.startswith("Exception in the event loop itself, ") and outcome.err.count("Exception in ") == 1
    assert "in poll\n" in outcome.err
    assert f"\n{error}\nThe notifier <the\\nbroken one> has failed in poll() and was removed" in outcome.err


def test_a_notifier_without_a_usable_repr_is_named_by_its_class(use):
    notes = []

    class Broken(Notifier):
        def __repr__(self):
            raise KeyError

        def poll(self):
            raise ZeroDivisionError

    before = coro.set_exception_notifier(lambda: notes.extend(sys.exception().__notes__))
    try:
        coro.run(lambda: (use(Broken()), coro.yield_slice()))
    finally:
        coro.set_exception_notifier(before)
    assert len(notes) == 1 and notes[0].startswith("The notifier Broken has failed in poll()")


def test_a_notifier_that_blocks_gets_the_usual_error(use):
    told = []

    class Blocking(Notifier):
        def poll(self):
            coro.yield_slice()

    before = coro.set_exception_notifier(lambda: told.append(sys.exc_info()[0]))
    try:
        use(Blocking())
        coro.run(coro.yield_slice)
        assert told == [coro.YieldFromMain]
    finally:
        coro.set_exception_notifier(before)


def test_waiting_for_a_notifier_is_no_deadlock_and_can_be_interrupted(use):
    mailbox = use(Mailbox())

    def main():
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.02, mailbox.read)
        return "done"

    assert coro.run(main) == "done"


def test_misuse(use):
    mailbox = use(Mailbox())
    with pytest.raises(ValueError, match="in use already"):
        add_notifier(mailbox)
    with pytest.raises(TypeError, match="expected a Notifier"):
        add_notifier(5)
    remove_notifier(mailbox)
    with pytest.raises(ValueError, match="not in use"):
        remove_notifier(mailbox)
    with pytest.raises(TypeError):
        Notifier()
    with pytest.raises(coro.YieldFromMain):
        mailbox.wait()


# -- Tk

TK = """
import sys, threading, time, tkinter
import coro
from coro.microthreads.tk import TkNotifier
coro.set_latency_warning(0)  # opening a window takes its time

def main():
    root = tkinter.Tk()
    window = TkNotifier(root)
    label = tkinter.Label(root, text="0")
    label.pack()
    shown, failed, ticks, received = [], [], [], []
    root.report_callback_exception = lambda kind, *rest: failed.append(kind)
    tkinter.Button(root, text="go", command=lambda: coro.spawn(work)).pack()
    blocked = tkinter.Button(root, command=lambda: coro.sleep_relative(1))

    def work():
        # an ordinary thread: it blocks, and the window lives on
        for n in range(1, 6):
            coro.sleep_relative(0.01)
            label["text"] = str(n)
        done.append(True)

    def tick():
        ticks.append(label["text"])
        root.after(5, tick)

    def listen():
        while True:
            received.append(two.recv(10))

    done = []
    one, two = coro.socketpair()
    listener = coro.spawn(listen)
    tick()
    root.after(1, root.children["!button"].invoke)
    root.after(2, blocked.invoke)
    while not (done and len(ticks) > 10):
        coro.sleep_relative(0.005)
    assert label["text"] == "5"
    assert failed == [coro.YieldFromMain], failed
    one.send(b"data")
    while not received:
        coro.sleep_relative(0.005)
    # idle: a second of an idle window costs next to nothing
    root.after_cancel(root.tk.eval("lindex [after info] 0"))
    cpu = time.process_time()
    coro.sleep_relative(0.5)
    idle = time.process_time() - cpu
    # two threads wait for the end of the window, and both are told
    waiting = [coro.spawn(window.wait) for _ in range(2)]
    root.after(10, root.destroy)
    window.wait()
    for thread in waiting:
        thread.join()
    window.close()
    listener.shutdown()
    listener.join()
    one.close()
    two.close()
    print(received, idle < 0.25)

coro.run(main)
"""


@pytest.fixture
def xvfb(monkeypatch):
    """A display of its own, gone after the test."""
    pytest.importorskip("_tkinter", reason="this Python was built without Tk (Debian package python3-tk)")
    if not shutil.which("Xvfb"):
        text = "needs Xvfb (Debian package xvfb)"
        if os.environ.get("CORO_REQUIRE_SERVERS") == "1":
            pytest.fail(text)
        pytest.skip(text)
    read_end, write_end = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write_end), "-screen", "0", "320x240x24", "-nolisten", "tcp"],
        pass_fds=[write_end],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(write_end)
    with open(read_end) as numbers:
        number = numbers.readline().strip()
    assert number, "Xvfb ended at once"
    # A Python that does not lie where it was built for finds its Tk, but not Tk's scripts.
    for name in ("tcl", "tk"):
        for folder in Path(sys.base_prefix, "share", "tcltk").glob(f"{name}[89].[0-9]"):
            monkeypatch.setenv(f"{name.upper()}_LIBRARY", str(folder))
    monkeypatch.setenv("DISPLAY", f":{number}")
    yield
    server.terminate()
    server.wait()


@pytest.mark.slow
def test_a_tk_window_stays_alive_while_threads_run(xvfb):
    assert ok(TK) == ["[b'data'] True"]


def test_another_os_thread_is_refused():
    """The list belongs to the loop."""
    box = Mailbox()
    errors = []

    def foreign(function):
        with pytest.raises(coro.WrongThreadError) as info:
            function(box)
        errors.append(info.value)

    def main():
        coro.in_thread(foreign, add_notifier)
        assert notifiers() == []
        add_notifier(box)
        coro.in_thread(foreign, remove_notifier)
        assert notifiers() == [box]
        remove_notifier(box)

    coro.run(main)
    assert len(errors) == 2
