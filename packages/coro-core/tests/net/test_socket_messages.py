"""The class sock with datagrams, ancillary data and urgent data, and where an end comes together with data."""

import array
import fcntl
import os
import socket
import struct

import pytest
from sockets_support import os_thread, pattern, tcp_and_standard
from support import in_loop

import coro
from coro import oserrors

pytestmark = pytest.mark.poller


# -- datagrams


@pytest.mark.parametrize(("make", "host"), [(coro.udp_sock, "127.0.0.1"), (coro.udp6_sock, "::1")])
@in_loop
def test_datagrams(make, host):
    with make() as a, make() as b:
        a.bind((host, 0))
        b.bind((host, 0))
        assert a.sendto(b"hello", b.getsockname()) == 5
        assert b.recvfrom(100) == (b"hello", a.getsockname())
        a.sendto(b"", b.getsockname())
        assert b.recvfrom(100) == (b"", a.getsockname())
        a.sendto(bytearray(b"12345"), b.getsockname()[:2])
        assert b.recv(2) == b"12"                        # the rest of a datagram is lost
        a.sendto(memoryview(b"abc"), b.getsockname())
        out = bytearray(10)
        assert b.recvfrom_into(out) == (3, a.getsockname())
        assert out[:3] == b"abc"
        a.sendto(b"z" * 60_000, b.getsockname())
        assert b.recvfrom(2**17)[0] == b"z" * 60_000
        a.sendmsg([b"x", b"y"], address=b.getsockname())
        assert b.recvmsg(10) == (b"xy", [], 0, a.getsockname())
        with pytest.raises(ValueError, match="numeric"):
            a.sendto(b"x", ("localhost", 5))
        with pytest.raises(oserrors.EMSGSIZE):
            a.sendto(b"x" * 70_000, b.getsockname())
        b.connect(a.getsockname())
        assert b.send(b"connected") == 9
        assert a.recv(100) == b"connected"


@in_loop
def test_a_refused_datagram():
    with coro.udp_sock() as a:
        with coro.udp_sock() as b:
            b.bind(("127.0.0.1", 0))
            address = b.getsockname()
        a.connect(address)
        a.send(b"x")
        with pytest.raises(oserrors.ECONNREFUSED):
            a.recv(1)


@in_loop
def test_full_unix_datagram_queues(tmp_path):
    """No event says that an unconnected peer has room again."""
    with coro.sock(coro.AF.UNIX, coro.SOCK.DGRAM) as a, coro.sock(coro.AF.UNIX, coro.SOCK.DGRAM) as b:
        b.bind(tmp_path / "b")
        sent = []

        def send():
            for i in range(1000):
                a.sendto(b"%d" % i, tmp_path / "b")
                sent.append(i)

        t = coro.spawn(send)
        coro.yield_slice()
        for _ in range(200):
            coro.yield_slice()
        assert len(sent) < 1000
        for i in range(1000):
            assert b.recvfrom(100) == (b"%d" % i, None)
        t.join()
        a.connect(tmp_path / "b")
        t = coro.spawn(lambda: [a.send(b"%d" % i) for i in range(1000)])
        for i in range(1000):
            assert b.recv(100) == b"%d" % i
        t.join()


# -- ancillary data


@in_loop
def test_passed_descriptors():
    a, b = coro.socketpair()
    r, w = os.pipe()
    assert a.send_fds(b"here", [r, w]) == 4
    os.close(r)
    os.close(w)
    data, (r, w), flags, _ = b.recv_fds(100, 2)
    assert data == b"here"
    for fd in (r, w):
        assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    with coro.fd_sock(r) as reader, coro.fd_sock(w) as writer:
        writer.write(b"through the pipe")
        assert reader.read(100) == b"through the pipe"
    a.close()
    b.close()


@in_loop
def test_passed_descriptors_and_short_reads():
    """A message with descriptors ends a read early; what lies behind it must not be forgotten."""
    a, b = coro.socketpair()
    with open(os.devnull, "rb") as file:
        a.send(b"one")
        a.send_fds(b"two", [file])
        a.send(b"three")
        a.send_fds(b"four", [file.fileno()])
    got = b""
    while got != b"onetwothreefour":
        data, fds, _, _ = b.recv_fds(100, 5)
        got += data
        for fd in fds:
            os.close(fd)
    a.send_fds(b"x", [0])
    a.send(b"yz")
    assert b.recv(100) + b.recv(100) == b"xyz"          # the descriptor is dropped by the kernel
    a.close()
    b.close()


@in_loop
def test_descriptors_from_a_blocking_peer():
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    ours = coro.fd_sock(ours.detach())

    def send():
        with open(os.devnull, "rb") as file:
            socket.send_fds(theirs, [b"abc"], [file.fileno(), file.fileno()])
        data, fds, _, _ = socket.recv_fds(theirs, 100, 1)
        assert data == b"back"
        os.close(*fds)

    with os_thread(send), ours:
        data, ancillary, flags, address = ours.recvmsg(100, socket.CMSG_SPACE(8))
        assert (data, flags) == (b"abc", 0)
        ((level, kind, numbers),) = ancillary
        assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        for fd in struct.unpack("ii", numbers):
            os.close(fd)
        ours.sendmsg([b"ba", b"ck"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
    theirs.close()


@in_loop
def test_more_descriptors_than_asked_for_are_closed():
    a, b = coro.socketpair()
    before = len(os.listdir("/proc/self/fd"))
    a.send_fds(b"x", [0, 0, 0, 0, 0])
    data, fds, flags, _ = b.recv_fds(10, 1)
    assert (data, len(fds)) == (b"x", 1)
    assert flags & socket.MSG_CTRUNC
    os.close(fds[0])
    assert len(os.listdir("/proc/self/fd")) == before
    a.close()
    b.close()


@in_loop
def test_sendmsg_sends_everything():
    a, b = coro.socketpair()
    data = pattern(2_000_000)
    pieces = [data[i : i + 9000] for i in range(0, len(data), 9000)]
    t = coro.spawn(lambda: a.sendmsg(pieces, [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))]))
    first, fds, _, _ = b.recv_fds(10, 1)
    assert len(fds) == 1
    os.close(fds[0])
    assert first + b.recv_exact(len(data) - len(first)) == data
    t.join()
    assert a.sendmsg([]) == 0
    a.close()
    b.close()


@in_loop
def test_an_interrupted_recvmsg():
    a, b = coro.socketpair()
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.001, b.recv_fds, 10, 1)
    a.send_fds(b"x", [0])
    data, fds, _, _ = b.recv_fds(10, 1)
    assert data == b"x"
    os.close(fds[0])
    a.close()
    b.close()


# -- the traps of short reads


@in_loop
def test_recvmsg_into_fills_one_buffer_after_the_other():
    a, b = coro.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    r, w = os.pipe()
    parts = [bytearray(3), memoryview(bytearray(b"-" * 4)).cast("B", (2, 2)), bytearray(), array.array("H", [0, 0])]
    a.send_fds(b"abcdefghi", [w])
    n, ((level, kind, data),), flags, _ = b.recvmsg_into(parts, socket.CMSG_SPACE(4))
    assert (n, level, kind, flags) == (9, socket.SOL_SOCKET, socket.SCM_RIGHTS, 0)
    assert b"".join(map(bytes, parts)) == b"abcdefghi\0\0"
    (passed,) = struct.unpack("i", data)
    with coro.fd_sock(passed):
        assert fcntl.fcntl(passed, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    os.close(r)
    os.close(w)
    a.send(b"longer than this")
    assert b.recvmsg_into(parts[:1])[::2] == (3, socket.MSG_TRUNC)
    assert parts[0] == b"lon"
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.001, b.recvmsg_into, parts)
    parts[0].extend(b"g")                       # no call keeps a hold on the buffer
    a.close()
    b.close()


@in_loop
def test_urgent_data():
    """A read stops at the urgent mark although more is there."""
    ours, theirs = tcp_and_standard()
    with ours, theirs:
        for _ in range(3):
            theirs.sendall(b"before")
            theirs.send(b"!", socket.MSG_OOB)
            theirs.sendall(b"after")
            got = b""
            while len(got) < 11:
                got += ours.recv(65536)
            assert got == b"beforeafter"
        theirs.send(b"?", socket.MSG_OOB)
        coro.wait_for(ours.fd, coro.EVFILT.EXCEPT)
        assert ours.recv(1, socket.MSG_OOB) == b"?"
        theirs.sendall(b"x")
        assert ours.recv(10) == b"x"
        ours.send(b"#", socket.MSG_OOB)
        ours.send(b"normal")
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)


@in_loop
def test_urgent_data_inline():
    ours, theirs = tcp_and_standard()
    with ours, theirs:
        ours.setsockopt(coro.SOL.SOCKET, coro.SO.OOBINLINE, 1)
        t = coro.spawn(theirs.sendall, b"before")
        t.join()
        theirs.send(b"!", socket.MSG_OOB)
        theirs.sendall(b"after")
        got = b""
        while len(got) < 12:
            got += ours.recv(65536)
        assert got == b"before!after"


@in_loop
def test_data_and_end_in_one_event():
    for _ in range(20):
        ours, theirs = tcp_and_standard()
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0, ours.recv, 10)           # registered with the kernel
        theirs.sendall(b"last words")
        theirs.close()
        assert ours.recv(65536) == b"last words"
        assert ours.recv(65536) == b""
        ours.close()


@in_loop
def test_data_and_end_in_two_events():
    for _ in range(20):
        ours, theirs = tcp_and_standard()
        t = coro.spawn(lambda s=ours: [s.recv(65536), s.recv(65536)])
        coro.yield_slice()
        theirs.sendall(b"last words")
        coro.yield_slice()
        theirs.shutdown(socket.SHUT_WR)
        t.join()
        assert t.result == [b"last words", b""]
        ours.close()
        theirs.close()


@in_loop
def test_data_and_reset():
    ours, theirs = tcp_and_standard()
    ours.send(b"unread")
    theirs.sendall(b"x")
    assert ours.recv(100) == b"x"
    theirs.close()                                       # with unread data: a reset
    with pytest.raises(oserrors.ECONNRESET) as e:
        ours.recv(100)
    assert isinstance(e.value, ConnectionResetError)
    ours.close()


@in_loop
def test_receiving_after_our_own_shutdown():
    ours, theirs = tcp_and_standard()
    with ours, theirs:
        theirs.sendall(b"x")
        assert ours.recv(100) == b"x"
        ours.shutdown(coro.SHUT.RD)
        assert ours.recv(100) == b""
        ours.shutdown(coro.SHUT.WR)
        with pytest.raises(oserrors.EPIPE):
            ours.send(b"x")


@in_loop
def test_a_descriptor_reused_by_other_code():
    """An adopted number is asked about anew at each wait: what is behind it may have changed."""
    r, w = os.pipe()
    s = coro.fd_sock(r)
    for i in range(3):
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, s.recv, 10)
        r2, w2 = os.pipe()
        os.set_blocking(r2, False)
        os.dup2(r2, r)                                    # closes what was there
        os.close(r2)
        t = coro.spawn(s.recv, 10)
        coro.yield_slice()
        os.write(w2, b"%d" % i)
        t.join()
        os.close(w)
        w = w2
    os.close(w)
    s.close()
