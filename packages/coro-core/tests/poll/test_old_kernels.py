"""Kernels that lack system calls, and sandboxes that refuse them: a seccomp(2) filter plays both.

A program installs the filter once its interpreter runs, so that what is refused is refused to coro."""

from __future__ import annotations

import platform
import sys

import pytest
from support import ok

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64") or sys.maxsize < 2**32,
        reason="the filter knows the numbers of system calls of these processors",
    ),
    pytest.mark.epoll_only("the imitation of kqueue(2) needs these system calls itself"),
]

#: struct sock_filter and the rest of it by hand, see seccomp(2) and linux/filter.h.
REFUSE = """
import ctypes, errno, platform, struct

def refuse(first, last, error):
    '''Have the system calls with these numbers fail from now on, in this process and its children.'''
    LOAD, AT_LEAST, MORE, RETURN = 0x20, 0x35, 0x25, 0x06
    steps = [(LOAD, 0, 0, 0), (AT_LEAST, 0, 2, first), (MORE, 1, 0, last), (RETURN, 0, 0, 0x50000 | error),
             (RETURN, 0, 0, 0x7FFF0000)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]
    libc = ctypes.CDLL(None, use_errno=True)
    filter = Program(len(steps), ctypes.addressof(program))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(filter), 0, 0):
        raise OSError(ctypes.get_errno(), "no filter can be installed")

PIDFD_OPEN = 434
#: The first that came after Linux 3.10.
NEWER = {"x86_64": 314, "aarch64": 274}[platform.machine()]
#: glibc has used it for the main OS thread already, and insists on it for the others.
RSEQ = {"x86_64": 334, "aarch64": 293}[platform.machine()]
"""

CHILDREN = """
import coro, os, signal
def main():
    assert coro.process.capture(["echo", "x"]) == (0, b"x\\n")
    jobs = []
    for n in range(20):
        jobs.append(coro.process.spawn_job_bg(["sh", "-c", f"read line; exit {n}"], stdin=coro.process.PIPE))
    waiters = [coro.spawn(job.wait) for job in jobs]
    coro.sleep_relative(0.001)
    for job in reversed(jobs):
        job.stdin.send(b"go\\n")
    for n, (job, waiter) in enumerate(zip(jobs, waiters)):
        assert waiter.join() is None and waiter.result == n << 8, (n, waiter)
        job.close()
    seen = []
    pid = os.spawnlp(os.P_NOWAIT, "true", "true")
    coro.set_handler((pid, coro.EVFILT.PROC), lambda event: seen.append(event.data), fflags=coro.NOTE.EXIT)
    while not seen:
        coro.sleep_relative(0.001)
    assert seen == [0] and coro.waitpid(pid) == (pid, 0)
    slow = coro.process.spawn_job_bg(["sleep", "1000"])
    try:
        coro.with_timeout(0.001, slow.wait)
    except coro.TimeoutError:
        slow.abandon()
    assert slow.wait() == signal.SIGKILL
    for pid in (1, 2**22 + 1):
        try:
            coro.waitpid(pid)
        except coro.oserrors.ECHILD:
            pass
        else:
            raise AssertionError(pid)
"""


def refusing(source, *refused):
    return ok(f"{REFUSE}\nimport coro\n" + "".join(f"refuse({call})\n" for call in refused) + source)


@pytest.mark.parametrize("error", ["ENOSYS", "EPERM"])
def test_children_without_pidfd(error):
    lines = refusing(
        CHILDREN
        + """
try:
    os.pidfd_open(os.getpid())
except OSError as e:
    print(e.errno == errno.WHICH)
coro.run(main)
print(signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL)
""".replace("WHICH", error),
        f"PIDFD_OPEN, PIDFD_OPEN, errno.{error}",
    )
    assert lines == ["True", "True"]


def test_children_without_pidfd_beside_the_main_os_thread():
    """No signal can be had there: they are looked at now and then."""
    lines = refusing(
        CHILDREN
        + """
import threading
thread = threading.Thread(target=lambda: (coro.run(main), print("done")))
thread.start()
thread.join()
""",
        "PIDFD_OPEN, PIDFD_OPEN, errno.ENOSYS",
    )
    assert lines == ["done"]


@pytest.mark.parametrize("action", ["handler", "awaited", "replaced", "forked"])
def test_sigchld_of_the_program(action):
    """Its handler is called all the same, and what it changes is seen sooner or later."""
    lines = refusing(
        """
import os, signal
def end_one():
    pid = os.spawnlp(os.P_NOWAIT, "true", "true")
    assert coro.waitpid(pid) == (pid, 0)
def handler():
    seen = []
    mine = lambda *args: seen.append(1)
    signal.signal(signal.SIGCHLD, mine)
    end_one()
    while not seen:
        coro.sleep_relative(0.001)
    assert signal.getsignal(signal.SIGCHLD) is mine
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
def awaited():
    waiter = coro.spawn(coro.wait_for, signal.SIGCHLD, coro.EVFILT.SIGNAL)
    coro.yield_slice()
    end_one()
    waiter.join()
    end_one()
def replaced():
    job = coro.process.spawn_job_bg(["sh", "-c", "read line"], stdin=coro.process.PIPE)
    waiter = coro.spawn(job.wait)
    coro.yield_slice()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    job.close()
    waiter.join()
def forked():
    job = coro.process.spawn_job_bg(["sh", "-c", "read line"], stdin=coro.process.PIPE)
    waiter = coro.spawn(job.wait)
    coro.yield_slice()
    pid = os.fork()
    if pid == 0:
        at_first = signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
        end_one()
        os._exit(0 if at_first else 1)
    job.close()
    assert coro.waitpid(pid) == (pid, 0)
    waiter.join()
def main():
    ACTION()
    assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL, signal.getsignal(signal.SIGCHLD)
    print("done")
coro.run(main)
""".replace("ACTION", action),
        "PIDFD_OPEN, PIDFD_OPEN, errno.ENOSYS",
    )
    assert lines == ["done"]


def test_emulated_children_without_pidfd():
    lines = refusing(
        """
coro.install_thread_emulation()
import subprocess
def main():
    child = subprocess.Popen(["sh", "-c", "read line; exit 5"], stdin=subprocess.PIPE)
    child.stdin.close()
    print(child.wait())
coro.run(main)
""",
        "PIDFD_OPEN, PIDFD_OPEN, errno.EPERM",
    )
    assert lines == ["5"]


def test_everything_newer_than_the_oldest_kernel_is_refused():
    """Linux 3.10, as the manual says: sockets, timers, files, children, threads, forks and a watched folder."""
    lines = refusing(
        CHILDREN
        + """
import tempfile, warnings
warnings.simplefilter("ignore", DeprecationWarning)
def everything():
    main()
    listener = coro.tcp_sock()
    listener.bind(("127.0.0.1", 0))
    listener.listen(5)
    client = coro.tcp_sock()
    client.connect(listener.getsockname())
    conn, address = listener.accept()
    client.sendall(b"x" * 1000)
    assert conn.recv_exact(1000) == b"x" * 1000
    for s in (listener, client, conn):
        s.close()
    assert coro.in_thread(int, "5") == 5
    try:
        coro.with_timeout(0.03, coro.sleep_relative, 60)
    except coro.TimeoutError:
        pass
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "file")
        with open(path, "w+b") as f:
            f.write(b"data")
            f.flush()
            seen = []
            coro.set_handler((f.fileno(), coro.EVFILT.VNODE), lambda e: seen.append(1), fflags=coro.NOTE.WRITE)
            f.write(b"more")
            f.flush()
            while not seen:
                coro.sleep_relative(0.001)
            assert coro.aio_read(f.fileno(), 8, 0) == b"datamore"
    pid = os.fork()
    if pid == 0:
        coro.sleep_relative(0.001)
        os._exit(3)
    assert coro.waitpid(pid) == (pid, 3 << 8)
    print("done")
coro.run(everything)
""",
        "NEWER, RSEQ - 1, errno.ENOSYS",
        "RSEQ + 1, 0xFFFF, errno.ENOSYS",
    )
    assert lines == ["done"]
