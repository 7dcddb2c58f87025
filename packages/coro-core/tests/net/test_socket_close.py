"""What becomes of threads that wait for a descriptor which somebody closes, shuts down or uses again."""

import contextlib
import gc
import os
import socket
import struct
import threading

import pytest
from sockets_support import listener, tcp_pair
from support import LIMIT, in_loop

import coro
from coro import oserrors

pytestmark = pytest.mark.poller


def outcome_of(function, *args):
    """A started thread and the list its result or exception goes to."""
    box = []

    def body():
        try:
            box.append(function(*args))
        except BaseException as e:
            box.append(e)

    return coro.spawn(body), box


WAITING_CALLS = {
    "recv": lambda s: s.recv(10),
    "recv_exact": lambda s: s.recv_exact(10),
    "readv": lambda s: s.readv([10]),
    "recv_into": lambda s: s.recv_into(bytearray(10)),
    "recvfrom": lambda s: s.recvfrom(10),
    "recvfrom_into": lambda s: s.recvfrom_into(bytearray(10)),
    "recvmsg": lambda s: s.recvmsg(10),
    "recvmsg_into": lambda s: s.recvmsg_into([bytearray(10)]),
    "recvmmsg": lambda s: s.recvmmsg(10),
    "recv_fds": lambda s: s.recv_fds(10, 1),
    "wait_for_read": lambda s: s.wait_for_read(),
    "send": lambda s: s.send(b"x" * 5_000_000),
    "send bytearray": lambda s: s.send(bytearray(5_000_000)),
    "writev": lambda s: s.writev([b"x" * 5_000_000]),
    "sendmsg": lambda s: s.sendmsg([b"x" * 5_000_000]),
    "send_fds": lambda s: s.send_fds(b"x" * 5_000_000, [0]),
    "makefile": lambda s: s.makefile("rb").read(1),
}


@pytest.mark.parametrize("how", [h for h in WAITING_CALLS if h != "makefile"])
@in_loop
def test_closing_wakes_the_waiter(how):
    a, b = coro.socketpair()
    t, box = outcome_of(WAITING_CALLS[how], a)
    coro.yield_slice()
    assert box == []
    a.close()
    t.join()
    assert type(box[0]) is coro.ClosedError
    assert box[0].args == (coro.current(),)
    with pytest.raises(coro.ClosedError) as e:
        a.recv(1)
    assert e.value.args == ()
    b.close()


@in_loop
def test_closing_wakes_accept():
    for method in ("accept", "accept_many"):
        s = listener()
        t, box = outcome_of(getattr(s, method))
        coro.yield_slice()
        s.close()
        t.join()
        assert box[0].args == (coro.current(),)


@in_loop
def test_closing_wakes_connect():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        fillers = []
        for _ in range(4):
            f = socket.socket()
            f.setblocking(False)
            f.connect_ex(server.getsockname())
            fillers.append(f)
        s = coro.tcp_sock()
        t, box = outcome_of(s.connect, server.getsockname())
        coro.yield_slice()
        s.close()
        t.join()
        assert box[0].args == (coro.current(),)
        for f in fillers:
            f.close()


@in_loop
def test_closing_wakes_everybody():
    a, b = coro.socketpair()
    waiting = [outcome_of(a.recv, 10), *(outcome_of(a.send, b"x" * 1_000_000) for _ in range(4))]
    coro.yield_slice()
    a.close()
    for t, box in waiting:
        t.join()
        assert box[0].args == (coro.current(),)
    assert b.recv(10)
    b.close()


@in_loop
def test_closing_wakes_wait_for():
    r, w = os.pipe()
    s = coro.fd_sock(r)
    t, box = outcome_of(coro.wait_for, r, coro.EVFILT.READ)
    coro.yield_slice()
    s.close()
    t.join()
    assert type(box[0]) is coro.ClosedError
    assert box[0].args == (coro.current(),)
    os.close(w)


@in_loop
def test_detaching_wakes_the_waiter():
    a, b = coro.socketpair()
    t, box = outcome_of(a.recv, 10)
    coro.yield_slice()
    number = a.detach()
    t.join()
    assert box[0].args == (coro.current(),)
    os.close(number)
    b.close()


@in_loop
def test_a_thread_closes_what_it_waits_for_itself():
    """The waiter's own timeout handler closes: nobody is left to notify."""
    a, b = coro.socketpair()

    def wait():
        try:
            coro.with_timeout(0.001, a.recv, 1)
        except coro.TimeoutError:
            a.close()

    t, box = outcome_of(wait)
    t.join()
    assert box == [None]
    b.close()


# -- close and shutdown against a blocked reader, the wait known to the kernel or not yet


@pytest.mark.parametrize("make", [tcp_pair, coro.socketpair])
@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("order", ["shutdown, close", "close, shutdown", "shutdown", "close"])
@in_loop
def test_shutdown_and_close(order, registered, make):
    a, b = make()
    t, box = outcome_of(a.recv, 10)
    coro.yield_slice()
    if registered:
        coro.sleep_relative(0.001)
    for step in order.split(", "):
        try:
            a.shutdown(coro.SHUT.RDWR) if step == "shutdown" else a.close()
        except coro.ClosedError:
            assert order == "close, shutdown"
    t.join()
    if order == "shutdown":
        assert box == [b""]
    else:
        assert type(box[0]) is coro.ClosedError
    a.close()
    b.close()


@in_loop
def test_the_peer_shuts_down():
    a, b = tcp_pair()
    t, box = outcome_of(a.recv, 10)
    coro.yield_slice()
    b.shutdown(coro.SHUT.WR)
    t.join()
    assert box == [b""]
    assert a.send(b"still") == 5
    assert b.recv(10) == b"still"
    a.close()
    b.close()


@in_loop
def test_an_event_and_a_close_in_the_same_batch():
    """Both readers are woken by one poll; the first to run closes the other's sock."""
    a, b = coro.socketpair()
    c, d = coro.socketpair()
    socks = [a, c]
    results = []

    def read(mine, other):
        try:
            results.append(mine.recv(10))
            other.close()
        except coro.ClosedError as e:
            results.append(e)

    threads = [coro.spawn(read, a, c), coro.spawn(read, c, a)]
    coro.yield_slice()
    b.send(b"x")
    d.send(b"x")
    for t in threads:
        t.join()
    assert results[0] == b"x"
    assert type(results[1]) is coro.ClosedError
    for s in (*socks, b, d):
        s.close()


@in_loop
def test_readers_of_one_poll_shut_each_other_down():
    """Exactly one of two reads; both end."""
    a, b = coro.socketpair()
    c, d = coro.socketpair()
    read = []
    threads = []

    def body(mine, other):
        read.append(mine.recv(10))
        threads[other].shutdown()

    threads += [coro.spawn(body, a, 1), coro.spawn(body, c, 0)]
    coro.yield_slice()
    b.send(b"x")
    d.send(b"x")
    for t in threads:
        t.join()
    assert read == [b"x"]
    for s in (a, b, c, d):
        s.close()


# -- numbers that are used again


@in_loop
def test_a_number_used_again_by_a_new_sock():
    """Whoever waited for the old file of this number is told; the new owner starts from nothing."""
    r, w = os.pipe()
    t, box = outcome_of(coro.wait_for, r, coro.EVFILT.READ)
    coro.yield_slice()
    os.close(r)                                           # behind everybody's back
    a, b = coro.socketpair()
    numbers = {a.fd: a, b.fd: b}
    assert r in numbers
    t.join()
    assert type(box[0]) is coro.ClosedError
    u, box = outcome_of(a.recv, 10)
    coro.yield_slice()
    b.send(b"new")
    u.join()
    assert box == [b"new"]
    os.close(w)
    a.close()
    b.close()


@in_loop
def test_a_duplicate_does_not_steal_the_events_of_a_later_owner():
    """A duplicate keeps the old file open: the kernel must not report it under the reused number."""
    a, b = coro.socketpair()
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.001, a.recv, 1)               # registered
    number = a.fd
    copy = os.dup(number)
    a.close()
    c, d = coro.socketpair()
    new, peer = (c, d) if c.fd == number else (d, c)
    assert new.fd == number
    t, box = outcome_of(new.recv, 100)
    coro.yield_slice()
    b.send(b"for the old one")
    coro.sleep_relative(0.001)
    assert box == []
    peer.send(b"for the new one")
    t.join()
    assert box == [b"for the new one"]
    os.close(copy)
    for s in (b, c, d):
        s.close()


@in_loop
def test_many_sockets_on_the_same_numbers():
    for i in range(300):
        a, b = tcp_pair() if i % 2 else coro.socketpair()
        t, box = outcome_of(a.recv_exact, 4)
        if i % 3:
            coro.yield_slice()
        b.send(b"ab")
        if i % 5:
            coro.yield_slice()
        b.send(b"cd")
        t.join()
        assert box == [b"abcd"]
        a.close()
        b.close()


@in_loop
def test_collected_socks_leave_no_trace():
    gc.collect()
    gc.freeze()  # what other tests left alive would make each collection long
    try:
        for _ in range(50):
            a, b = coro.socketpair()
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.0001, a.recv, 1)
            loop = [a]
            loop.append(loop)
            del a, b, loop
            assert gc.collect() > 0
    finally:
        gc.unfreeze()


@in_loop
def test_the_object_lives_while_a_thread_waits():
    a, b = coro.socketpair()
    t, box = outcome_of(a.recv, 10)
    coro.yield_slice()
    del a
    gc.collect()
    b.send(b"x")
    t.join()
    assert box == [b"x"]
    b.close()


@in_loop
def test_interrupted_calls_leak_no_descriptor():
    def count():
        return len(os.listdir("/proc/self/fd"))

    with listener() as s:
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, s.accept)
        gc.collect()  # what other tests have left
        before = count()
        for i in range(20):
            t, box = outcome_of(s.accept)
            coro.yield_slice()
            client = coro.tcp_sock()
            u, _ = outcome_of(client.connect, s.getsockname())
            for _ in range(i % 4):
                coro.yield_slice()
            t.shutdown()
            u.shutdown()
            t.join()
            u.join()
            client.close()
            box.clear()
        with pytest.raises(coro.TimeoutError):
            while True:
                coro.with_timeout(0.001, s.accept)
        assert count() <= before


# -- loops that end


def test_socks_outlive_their_loop():
    a, b = coro.socketpair()

    def first():
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, a.recv, 1)
        a.send(b"x" * 10)

    coro.run(first)
    assert coro.run(b.recv, 100) == b"x" * 10

    def second():
        t, box = outcome_of(a.recv, 10)
        coro.yield_slice()
        b.send(b"again")
        t.join()
        return box

    assert coro.run(second) == [b"again"]
    a.close()
    b.close()


def test_waiters_at_the_end_of_a_loop():
    a, b = coro.socketpair()
    seen = []

    def wait(function, *args):
        try:
            function(*args)
        except coro.Shutdown:
            seen.append(function.__name__)
            raise

    def main():
        coro.spawn(wait, a.recv, 1)
        coro.spawn(wait, a.send, b"x" * 3_000_000)
        coro.spawn(wait, a.send, b"y")
        coro.yield_slice()

    coro.run(main)
    assert sorted(seen) == ["recv", "send", "send"]

    def next_main():
        t = coro.spawn(a.send, b"z")
        while not b.recv(1_000_000).endswith(b"z"):
            pass
        t.join()

    coro.run(coro.with_timeout, 10, next_main)
    a.close()
    b.close()


def test_closing_in_main():
    a, b = coro.socketpair()
    a.close()
    assert coro.run(b.recv, 1) == b""
    b.close()


def test_posting_a_close_from_another_os_thread():
    def main():
        a, b = coro.socketpair()
        t, box = outcome_of(a.recv, 1)
        coro.yield_slice()
        other = threading.Thread(target=coro.post, args=(a.close,))
        other.start()
        t.join()
        other.join()
        assert type(box[0]) is coro.ClosedError
        b.close()

    coro.run(coro.with_timeout, 10, main)


@in_loop
def test_close_errors_are_forgotten():
    """Whatever close(2) says, the number is not ours any more."""
    a, b = coro.socketpair()
    os.close(a.fd)
    with pytest.raises(oserrors.EBADF):
        a.close()
    assert a.fd == -1
    a.close()
    b.close()


def lingering_pair(seconds):
    """A connected sock with SO_LINGER and more in its buffer than its peer takes, and the peer."""
    listener = coro.tcp_sock()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    ours = coro.tcp_sock()
    ours.connect(listener.getsockname())
    peer, _ = listener.accept()
    listener.close()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))
    with coro.move_on_after(0.05):
        while True:
            ours.send(b"x" * 1_000_000)
    return ours, peer


def lingers(seconds=1000):
    """A thread that closes such a sock, its peer, and how far it is."""
    ours, peer = lingering_pair(seconds)
    fd = ours.fileno()
    thread = coro.spawn(ours.close)
    coro.sleep_relative(0.01)
    assert ours.closed and not thread.dead
    assert fd not in [key.ident for key in coro.event_map]
    return thread, peer


def read_all(peer):
    size = 0
    with contextlib.suppress(OSError):
        while data := peer.recv(1 << 20):
            size += len(data)
    return size


@in_loop
def test_close_that_lingers_waits_in_a_worker():
    thread, peer = lingers()
    assert read_all(peer) > 0
    thread.get(timeout=LIMIT)
    peer.close()


@in_loop
def test_close_that_lingers_is_interrupted():
    thread, peer = lingers()
    thread.shutdown()
    thread.join(timeout=LIMIT)
    assert read_all(peer) > 0  # the worker has gone on
    peer.close()


@in_loop
def test_close_that_lingers_where_nobody_can_wait():
    ours, peer = lingering_pair(1000)
    with coro.no_switch():
        ours.close()
    assert read_all(peer) > 0
    peer.close()
    ours, peer = lingering_pair(1000)
    del ours
    assert read_all(peer) > 0
    peer.close()


@in_loop
def test_a_reset_by_way_of_the_option_stays_one():
    ours, peer = lingering_pair(0)
    # Asked without a poller, which may have taken the error from the socket already.
    with socket.socket(fileno=os.dup(peer.fileno())) as asked:
        asked.settimeout(LIMIT)
        ours.close()
        with pytest.raises(ConnectionResetError):
            while asked.recv(1 << 20):
                pass
    peer.close()


@in_loop
def test_connections_of_a_listening_socket_that_lingers():
    listener = coro.tcp_sock()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 1000))
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    peer = coro.tcp_sock()
    peer.connect(listener.getsockname())
    ours, _ = listener.accept()
    with coro.move_on_after(0.05):
        while True:
            ours.send(b"x" * 1_000_000)
    thread = coro.spawn(ours.close)
    coro.sleep_relative(0.01)
    assert not thread.dead
    assert read_all(peer) > 0
    thread.get(timeout=LIMIT)
    peer.close()
    listener.close()
