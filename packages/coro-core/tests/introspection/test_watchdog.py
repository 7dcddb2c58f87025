"""The watchdog speaks while the process stands still, and says where; the latency warning speaks afterwards."""

import os
import platform
import re
import signal
import sys

import pytest
from support import ok, program

import coro

START = """
import coro, ctypes, os, signal, sys, threading, time
coro.set_latency_warning(0)

def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
"""

# Each waits for limits of real time to pass; and what is looked at from outside is the interpreter.
pytestmark = [pytest.mark.slow, pytest.mark.each_python]


def reports(source):
    """The reports that a program gets, each as a list of lines."""
    outcome = program(START + source)
    assert outcome.code == 0, outcome.err
    found = []
    for line in outcome.err.splitlines():
        if line.startswith("coro watchdog: "):
            found.append([line.removeprefix("coro watchdog: ")])
        else:
            found[-1].append(line)
    return found, outcome.lines


def has_backtrace():
    """In which C libraries coro looks for it."""
    return sys.platform == "darwin" or platform.libc_ver()[0] == "glibc"


def test_a_thread_that_computes():
    found, lines = reports(
        """
def guilty():
    spin(0.5)

def main():
    print(coro.set_watchdog(0.1))
    coro.spawn(guilty, thread_name="the guilty one").join()
    print(coro.set_watchdog(0))
    spin(0.3)

coro.run(main)
"""
    )
    assert lines == ["0.0", "0.1"]
    head, *frames = found[0]
    assert re.fullmatch(r"thread #2 'the guilty one' has run for \d+\.\d s \(most recent call first\):", head)
    assert frames[0].endswith("in spin") and frames[1].endswith("in guilty")
    assert len(found) >= 2  # at the limit and at twice that


def test_names_are_escaped(tmp_path):
    path = tmp_path / "report"
    outcome = program(
        START
        + f"""
file = open({str(path)!r}, "wb")

def until_reported(number):
    # A report may be written in several pieces: the end of the one before says nothing.
    with open({str(path)!r}, "rb") as reports:
        while (b"\\n" + os.pread(reports.fileno(), 1 << 20, 0)).count(b"\\ncoro watchdog: thread") < number:
            pass

until_reported.__code__ = until_reported.__code__.replace(co_qualname="good\\nbad", co_filename='a "file"\\x07.py')

def main():
    coro.set_watchdog(0.05, file=file)
    for number, name in enumerate((
        "x' has run\\ncoro watchdog: thread #99 'root",
        "red \\x1b[31m \\x9b \\\\ ",
        "Gr\\xfc\\xdfe \\u4e16\\u754c \\U0001f40d \\u2028\\udc80\\U000e0041",
        "\\xe9" * 600,
    ), 1):
        coro.spawn(until_reported, number, thread_name=name).join()

coro.run(main)
"""
    )
    assert outcome.code == 0, outcome.err
    heads = re.findall(r"^coro watchdog: .*$", path.read_text(encoding="utf-8"), re.MULTILINE)
    names = [re.fullmatch(r"coro watchdog: thread #\d+ '(.*)' has run for .*:", head)[1] for head in heads]
    assert names == [
        r"x\' has run\ncoro watchdog: thread #99 \'root",
        r"red \x1b[31m \x9b \\ ",
        "Grüße 世界 🐍 " + r"\u2028\udc80\U000e0041",
        "é" * 500 + "...",
    ]
    frames = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("coro ")]
    assert frames[0].startswith(r'  File "a \"file\"\x07.py", line ') and frames[0].endswith(r" in good\nbad")


def test_a_thread_that_is_stuck_in_a_lock():
    found, _ = reports(
        """
def main():
    coro.set_watchdog(0.1)
    lock = threading.Lock()
    lock.acquire()
    threading.Timer(0.4, lock.release).start()
    lock.acquire()

coro.run(main)
"""
    )
    assert "thread #1 'main' has run for" in found[0][0]
    assert "now in a system call or waiting for a lock or the GIL" in found[0][0]
    assert found[0][-1].endswith("in main")


@pytest.mark.skipif(
    not hasattr(signal, "SIGRTMIN") or os.uname().sysname != "Linux", reason="asks by tgkill(2) of Linux"
)
def test_another_os_thread_that_keeps_the_gil():
    found, _ = reports(
        """
def hog():
    begun.set()
    ctypes.PyDLL(None).usleep(800_000)

begun = threading.Event()

def main():
    coro.set_watchdog(0.1)
    thread = threading.Thread(target=hog)
    thread.start()
    coro.sleep_relative(0.2)
    coro.in_thread(thread.join)

coro.run(main)
"""
    )
    holders = [report for report in found if "the GIL is held by another OS thread" in report[0]]
    assert holders and holders[0][1].endswith("in hog")


@pytest.mark.skipif(not has_backtrace(), reason="asks for the C stack by backtrace(3), which this C library lacks")
def test_c_code_is_named_by_the_file_it_is_in():
    found, _ = reports(
        """
import sqlite3

def wait_for_child(c):
    pid = os.posix_spawn("/bin/sleep", ["sleep", "0.3"], {})
    assert c.waitpid(pid, None, 0) == pid

def main():
    # Made before: on a busy machine the dynamic linker takes long enough for a report.
    without_the_gil, with_it, base = ctypes.CDLL(None), ctypes.PyDLL(None), sqlite3.connect(":memory:")
    base.create_function("spin", 1, spin)
    coro.set_watchdog(0.1)
    wait_for_child(without_the_gil)
    coro.yield_slice()
    wait_for_child(with_it)
    coro.yield_slice()
    spin(0.3)
    coro.yield_slice()
    base.execute("select spin(0.3)").fetchall()
    base.close()

coro.run(main)
"""
    )
    last = [report[-1] for report in found]
    within = [any(line.endswith("in wait_for_child") for line in report) for report in found]
    assert within.count(True) >= 2 and within.count(False) >= 2
    for line, in_c in zip(last, within, strict=True):
        if in_c:
            assert re.fullmatch(r"  called into C code of \S*/_ctypes\.\S+(, now in \S+)?", line)
        else:  # C code that has called a Python function is not what takes the time
            assert line.endswith("in main")


def test_an_idle_loop_is_no_reason_and_neither_is_a_busy_one():
    assert (
        ok(
            START
            + """
def main():
    coro.set_watchdog(1)
    coro.sleep_relative(2.1)
    for _ in range(60):
        spin(0.02)
        coro.yield_slice()

coro.run(main)
time.sleep(1.1)  # without a loop
coro.run(int)
"""
        )
        == []
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks proc(5) what a thread waits for")
def test_c_code_that_sleeps_is_not_cut_short():
    # musl's GIL cannot be told from other locks there.
    names = ("usleep", "poll", "with the GIL", "recv", *(["futex"] if platform.libc_ver()[0] == "glibc" else []))
    found, lines = reports(
        f"NAMES = {names}\n"
        """
import ctypes, errno, select, socket, struct

def sleeps(name):
    libc = ctypes.CDLL(None, use_errno=True)
    keeps_gil = ctypes.PyDLL(None, use_errno=True)
    one, other = socket.socketpair()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 300000))
    room = ctypes.create_string_buffer(8)
    semaphore = ctypes.create_string_buffer(64)
    libc.sem_init(semaphore, 0, 0)
    until = struct.pack("ll", int(time.time() + 0.3), int((time.time() + 0.3) % 1 * 1e9))
    calls = {
        "usleep": lambda: libc.usleep(300000),
        "poll": lambda: libc.poll(None, 0, 300),
        "with the GIL": lambda: keeps_gil.usleep(300000),
        "recv": lambda: (libc.recv(one.fileno(), room, 8, 0), ctypes.get_errno() == 11),
        "futex": lambda: (libc.sem_timedwait(semaphore, until), ctypes.get_errno() == errno.ETIMEDOUT),
    }
    print(name, calls[name]())
    one.close()
    other.close()

def main():
    coro.set_watchdog(0.05)
    for name in NAMES:
        coro.spawn(sleeps, name, thread_name=name).join()

coro.run(main)
"""
    )
    expected = ["usleep 0", "poll 0", "with the GIL 0", "recv (-1, True)", "futex (-1, True)"]
    assert lines == expected[: len(names)]
    for name in names:
        head, *frames = next(report for report in found if f"'{name}'" in report[0])
        assert ", now asleep or polling in a system call that a signal would end (most recent call first):" in head
        assert frames[0].endswith("in sleeps.<locals>.<lambda>") and re.search(r", line \d+ in ", frames[0])
        assert frames[1].endswith(" in sleeps")


def test_a_signal_of_ones_own_and_a_file_of_ones_own(tmp_path):
    path = tmp_path / "report"
    found, lines = reports(
        f"""
f = open({str(path)!r}, "w")

def main():
    coro.set_watchdog(0.1, file=f, signum=signal.SIGUSR2)
    spin(0.3)
    os.kill(os.getpid(), signal.SIGUSR2)  # somebody else's: ignored
    coro.yield_slice()
    print("alive")

coro.run(main)
"""
    )
    assert found == [] and lines == ["alive"]
    assert "has run for" in path.read_text()


def test_a_forked_child_has_none():
    found, lines = reports(
        """
def main():
    coro.set_watchdog(1)
    pid = os.fork()
    if pid == 0:
        spin(1.2)
        os._exit(0 if coro.set_watchdog(0) == 0 else 1)
    print(coro.waitpid(pid)[1])

import warnings
warnings.simplefilter("ignore")
coro.run(main)
"""
    )
    assert lines == ["0"] and found == []


def test_switched_on_and_off_without_end():
    found, lines = reports(
        """
def main():
    for n in range(200):
        coro.set_watchdog(0.05 + n / 1000)
    coro.set_watchdog(0.1)
    spin(0.15)

coro.run(main)
"""
    )
    assert found


def test_misuse():
    for wrong, error in [
        (("1",), TypeError),
        ((True,), TypeError),
        ((-1,), ValueError),
        ((0.001,), ValueError),
        ((1e9,), ValueError),
        ((float("nan"),), ValueError),
    ]:
        with pytest.raises(error):
            coro.set_watchdog(*wrong)
    with pytest.raises(TypeError, match="open file"):
        coro.set_watchdog(1, file="name")
    with pytest.raises(TypeError):
        coro.set_watchdog(1, signum="SIGURG")
    for signum in (signal.SIGKILL, 9999):
        with pytest.raises(ValueError):
            coro.set_watchdog(1, signum=signum)
    before = signal.signal(signal.SIGUSR1, lambda *args: None)
    try:
        with pytest.raises(ValueError, match="has a handler"):
            coro.set_watchdog(1, signum=signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert coro.set_watchdog(0) == 0.0


def test_the_latency_warning_comes_afterwards():
    outcome = program(
        START
        + """
def guilty():
    coro.yield_slice()
    spin(0.25)
    coro.yield_slice()

coro.set_latency_warning(1)
coro.run(guilty)
"""
    )
    assert re.search(r"High Latency: \(\d+\.\d{3}s\) for <coro thread 1 'guilty' .* \[\S+ guilty\|\d+\]\n", outcome.err)


def test_the_latency_warning_names_one_place_however_deep_it_is():
    """And the program's own one where it waits in this library."""
    outcome = program(
        START
        + """
def deep(n):
    if n:
        return deep(n - 1)
    spin(0.25)
    with coro.group() as g:
        g.spawn(coro.yield_slice)

coro.set_latency_warning(1)
coro.run(deep, 100)
"""
    )
    (line,) = [line for line in outcome.err.splitlines() if "'deep'" in line]
    assert line.count("[") <= 2 and " deep|" in line.rpartition("[")[2]
