"""The imitation of kqueue(2) does what the manual pages of FreeBSD and macOS say: it is what the poller is judged by.

Called through ctypes, without coro's poller.
"""

import ctypes
import errno
import os
import socket
import subprocess
import sys

import fake_kqueue
import pytest

from coro._poll.filters import EV, EVFILT, NOTE

READ, WRITE, USER, PROC = EVFILT.READ, EVFILT.WRITE, EVFILT.USER, EVFILT.PROC
TRIGGER = 0x01000000

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or fake_kqueue.compiler() is None, reason="needs Linux and a C compiler (gcc)"
)


class Kevent(ctypes.Structure):
    _fields_ = [
        ("ident", ctypes.c_size_t),
        ("filter", ctypes.c_short),
        ("flags", ctypes.c_ushort),
        ("fflags", ctypes.c_uint),
        ("data", ctypes.c_ssize_t),
        ("udata", ctypes.c_size_t),
    ]


class Timespec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]


class Queue:
    def __init__(self):
        self.library = ctypes.CDLL(str(fake_kqueue.build()), use_errno=True)
        self.fd = self.library.kqueue()

    def __call__(self, *changes, room=16, seconds=0):
        """Apply (ident, filter, flags, fflags, udata) changes; the events as (ident, filter, flags, fflags, data)."""
        given = (Kevent * max(len(changes), 1))()
        for item, change in zip(given, changes, strict=False):
            item.ident, item.filter, item.flags, item.fflags, item.udata = (*change, 0, 0)[:5]
        found = (Kevent * max(room, 1))()
        limit = Timespec(seconds, 0)
        n = self.library.kevent(self.fd, given, len(changes), found, room, ctypes.byref(limit))
        if n < 0:
            raise OSError(ctypes.get_errno(), "kevent")
        return [(e.ident, e.filter, e.flags, e.fflags, e.data) for e in found[:n]]


@pytest.fixture
def kq():
    queue = Queue()
    yield queue
    queue.library.kqueue_close(queue.fd)


@pytest.fixture
def pair():
    a, b = socket.socketpair()
    with a, b:
        a.setblocking(False)
        b.setblocking(False)
        yield a, b


def test_level_triggered_with_the_amount(kq, pair):
    a, b = pair
    fd = a.fileno()
    assert kq((fd, READ, EV.ADD)) == []
    b.send(b"xyz")
    assert kq() == [(fd, READ, 0, 0, 3)]
    a.recv(1)
    assert kq() == [(fd, READ, 0, 0, 2)]
    a.recv(2)
    assert kq() == []


def test_clear_reports_each_arrival_once(kq, pair):
    a, b = pair
    fd = a.fileno()
    b.send(b"x")
    assert kq((fd, READ, EV.ADD | EV.CLEAR)) == [(fd, READ, EV.CLEAR, 0, 1)]
    assert kq() == []
    b.send(b"y")
    assert kq() == [(fd, READ, EV.CLEAR, 0, 2)]
    assert kq() == []


def test_adding_again_changes_neither_kind_nor_memory(kq, pair):
    a, b = pair
    fd = a.fileno()
    b.send(b"x")
    assert kq((fd, READ, EV.ADD | EV.CLEAR))
    assert kq((fd, READ, EV.ADD, 0, 77)) == []
    assert kq.library.fake_udata(fd, READ) == 77
    assert kq((fd, READ, EV.DELETE), (fd, READ, EV.ADD)) == [(fd, READ, 0, 0, 1)]


@pytest.mark.parametrize("flag", [EV.ONESHOT, EV.DISPATCH])
def test_once(kq, pair, flag):
    fd = pair[0].fileno()
    assert len(kq((fd, WRITE, EV.ADD | flag))) == 1
    assert kq() == []
    if flag == EV.DISPATCH:
        assert len(kq((fd, WRITE, EV.ENABLE))) == 1
        assert kq((fd, WRITE, EV.DELETE)) == []
    else:
        assert kq((fd, WRITE, EV.ENABLE | EV.RECEIPT)) == [(fd, WRITE, EV.ERROR, 0, errno.ENOENT)]


def test_disabled_is_silent(kq, pair):
    fd = pair[0].fileno()
    assert kq((fd, WRITE, EV.ADD | EV.DISABLE)) == []
    assert len(kq((fd, WRITE, EV.ENABLE))) == 1
    assert kq((fd, WRITE, EV.DISABLE)) == []


def test_errors_and_receipts(kq, pair):
    fd = pair[0].fileno()
    number = os.dup(fd)
    os.close(number)
    # Other changes are applied all the same, but no event is looked for.
    assert kq((number, READ, EV.ADD), (fd, WRITE, EV.ADD)) == [(number, READ, EV.ERROR, 0, errno.EBADF)]
    assert [e[1] for e in kq()] == [WRITE]
    assert kq((fd, WRITE, EV.ADD | EV.RECEIPT)) == [(fd, WRITE, EV.ERROR, 0, 0)]
    with pytest.raises(OSError) as caught:
        kq((number, READ, EV.ADD), room=0)
    assert caught.value.errno == errno.EBADF
    assert kq((1, EVFILT.AIO, EV.ADD))[0][4] == errno.EINVAL


def test_closing_ends_the_registration(kq, pair):
    a, b = pair
    fd = os.dup(a.fileno())
    kq((fd, READ, EV.ADD))
    other, peer = socket.socketpair()
    with other, peer:
        os.dup2(other.fileno(), fd)
        b.send(b"x")  # the duplicate keeps the old file open, but not registered
        assert kq() == []
        assert kq((fd, READ, EV.DELETE))[0][4] == errno.ENOENT
        peer.send(b"yy")
        assert kq((fd, READ, EV.ADD)) == [(fd, READ, 0, 0, 2)]
    os.close(fd)


def test_end_with_data_left(kq, pair):
    a, b = pair
    fd = a.fileno()
    kq((fd, READ, EV.ADD | EV.CLEAR), (fd, WRITE, EV.ADD | EV.CLEAR))
    b.send(b"last")
    b.close()
    assert (fd, READ, EV.CLEAR | EV.EOF, 0, 4) in kq()


def test_listener_and_room(kq):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kq((listener.fileno(), READ, EV.ADD))
        clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
        assert kq(seconds=60)[0][4] >= 1
        assert kq()[0][4] == 3
        (event,) = kq((clients[0].fileno(), WRITE, EV.ADD | EV.ONESHOT), (listener.fileno(), READ, EV.DELETE))
        assert event[4] > 1000
        for c in clients:
            c.close()


def test_full_list_of_events_loses_none(kq):
    pairs = [socket.socketpair() for _ in range(10)]
    kq(*[(a.fileno(), READ, EV.ADD | EV.CLEAR) for a, _ in pairs])
    for _, b in pairs:
        b.send(b"x")
    seen = []
    while events := kq(room=3):
        assert len(events) <= 3
        seen += [e[0] for e in events]
    assert sorted(seen) == sorted(a.fileno() for a, _ in pairs)
    for a, b in pairs:
        a.close()
        b.close()


def test_user_event(kq):
    kq((5, USER, EV.ADD | EV.CLEAR))
    assert kq() == []
    assert kq((5, USER, 0, TRIGGER)) == [(5, USER, EV.CLEAR, 0, 0)]
    assert kq() == []


@pytest.mark.parametrize("fires", [0, 1])
def test_process(kq, fires):
    child = subprocess.Popen([sys.executable, "-S", "-E", "-c", "input()"], stdin=subprocess.PIPE)
    assert kq((child.pid, PROC, EV.ADD | EV.ONESHOT, NOTE.EXIT)) == []
    child.communicate(b"\n")
    # reaped: the event was there before
    assert kq(seconds=60) == [(child.pid, PROC, EV.ONESHOT, NOTE.EXIT, 0)]
    assert kq((child.pid, PROC, EV.ADD, NOTE.EXIT))[0][4] == errno.ESRCH
    zombie = subprocess.Popen([sys.executable, "-S", "-E", "-c", ""])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    kq.library.fake_zombies(fires)
    try:
        (event,) = kq((zombie.pid, PROC, EV.ADD | EV.ONESHOT, NOTE.EXIT))
        assert event[2:] == ((EV.ONESHOT, NOTE.EXIT, 0) if fires else (EV.ERROR, NOTE.EXIT, errno.ESRCH))
    finally:
        kq.library.fake_zombies(0)
        zombie.wait()


def test_interrupted_after_the_changes(kq, pair):
    fd = pair[0].fileno()
    kq.library.fake_interrupt(1)
    with pytest.raises(OSError) as caught:
        kq((fd, WRITE, EV.ADD))
    assert caught.value.errno == errno.EINTR
    assert len(kq()) == 1


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_not_inherited_by_fork(kq):
    pid = os.fork()
    if pid == 0:
        try:
            os.fstat(kq.fd)
        except OSError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert kq() == []
