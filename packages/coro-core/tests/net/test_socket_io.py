"""The class sock moving data: among its own kind and with blocking peers of the standard library.

Long, because every way to move data is tried in the same situations with the few helpers at the top; cut by method,
each part would repeat them.
"""

import array
import contextlib
import errno
import fcntl
import io
import os
import pty
import resource
import socket
import struct
import tty

import pytest
from sockets_support import listener, os_thread, tcp_and_standard, tcp_pair
from support import in_loop, ok, on_kqueue

import coro
from coro import oserrors

pytestmark = pytest.mark.poller


def small_buffers(*socks):
    for s in socks:
        s.setsockopt(coro.SOL.SOCKET, coro.SO.SNDBUF, 1)
        s.setsockopt(coro.SOL.SOCKET, coro.SO.RCVBUF, 1)


def pattern(n):
    return bytes(range(251)) * (n // 251) + bytes(range(n % 251))


# -- echo, all families


@pytest.mark.parametrize("family", ["ipv4", "ipv6", "unix", "abstract"])
@in_loop
def test_echo_with_a_blocking_peer(family, tmp_path):
    domain, make, address = {
        "ipv4": (socket.AF_INET, coro.tcp_sock, ("127.0.0.1", 0)),
        "ipv6": (socket.AF_INET6, coro.tcp6_sock, ("::1", 0)),
        "unix": (socket.AF_UNIX, coro.unix_sock, str(tmp_path / "s")),
        "abstract": (socket.AF_UNIX, coro.unix_sock, ""),
    }[family]
    data = pattern(100_000)
    server = listener(make, address)

    def client():
        with socket.socket(domain) as s:
            s.settimeout(60)
            s.connect(server.getsockname())
            for size in (1, 64, 4096, 100_000):
                s.sendall(data[:size])
                got = b""
                while len(got) < size:
                    got += s.recv(size)
                assert got == data[:size]

    with os_thread(client):
        conn, _ = server.accept()
        assert conn.domain == domain
        assert fcntl.fcntl(conn.fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        assert fcntl.fcntl(conn.fd, fcntl.F_GETFL) & os.O_NONBLOCK
        while chunk := conn.recv(65536):
            conn.send(chunk)
        conn.close()
    server.close()


@pytest.mark.parametrize("family", ["ipv4", "ipv6", "unix"])
@in_loop
def test_connecting_to_a_blocking_server(family, tmp_path):
    domain, make, address = {
        "ipv4": (socket.AF_INET, coro.tcp_sock, ("127.0.0.1", 0)),
        "ipv6": (socket.AF_INET6, coro.tcp6_sock, ("::1", 0)),
        "unix": (socket.AF_UNIX, coro.unix_sock, str(tmp_path / "s")),
    }[family]
    server = socket.socket(domain)
    server.bind(address)
    server.listen()

    def serve():
        conn, _ = server.accept()
        with conn:
            conn.sendall(conn.recv(100).upper())

    with os_thread(serve), make() as s:
        s.connect(server.getsockname())
        assert s.getpeername() == server.getsockname()
        s.send(b"hello")
        assert s.recv_exact(5) == b"HELLO"
        assert s.recv(1) == b""
    server.close()


@in_loop
def test_wildcard_names():
    with listener(address=("", 0)) as s:
        assert s.getsockname()[0] == "0.0.0.0"
    with listener(coro.tcp6_sock, ("", 0)) as s:
        assert s.getsockname()[0] == "::"


# -- receiving


@in_loop
def test_recv():
    a, b = tcp_pair()
    with a, b:
        assert a.recv(0) == b""
        b.send(b"hello")
        assert a.recv(2) == b"he"
        assert a.recv(10, socket.MSG_PEEK) == b"llo"
        assert a.read(10) == b"llo"
        assert a.recv(0) == b""                  # does not wait although nothing is there
        assert a.recv_exact(0) == b""
        with pytest.raises(oserrors.EAGAIN):
            a.recv(1, socket.MSG_DONTWAIT)
        b.close()
        assert a.recv(10) == b""
        assert a.recv(10) == b""


@pytest.mark.parametrize("size", [65535, 65536, 65537, 1_000_000, 5_000_000, 2**40])
@in_loop
def test_large_reads(size):
    data = pattern(3_000_000)
    a, b = tcp_pair()

    def send():
        b.send(data)
        b.close()

    coro.spawn(send)
    got = []
    while chunk := a.recv(size):
        got.append(chunk)
    assert b"".join(got) == data
    a.close()


@in_loop
def test_recv_exact():
    a, b = tcp_pair()

    def pieces():
        for i in range(0, 300_000, 7919):
            b.send(data[i : i + 7919])
            coro.yield_slice()
        b.close()

    data = pattern(300_000)
    coro.spawn(pieces)
    assert a.recv_exact(1) == data[:1]
    assert a.recv_exact(99_999) == data[1:100_000]
    assert a.recv_exact(199_990) == data[100_000:299_990]
    with pytest.raises(EOFError) as e:
        a.recv_exact(100)
    assert e.value.args == (data[-10:],)
    with pytest.raises(EOFError) as e:
        a.recv_exact(100)
    assert e.value.args == (b"",)
    a.close()


@in_loop
def test_recv_exact_of_an_invented_length_takes_no_memory():
    a, b = tcp_pair()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    b.send(b"x" * 1000)
    b.close()
    with pytest.raises(EOFError) as e:
        a.recv_exact(2**40)
    assert len(e.value.args[0]) == 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
    a.close()


PUSHBACK = {
    "recv": lambda s: (s.recv(100), s.recv(100)),
    "recv small": lambda s: (s.recv(2) + s.recv(1) + s.recv(100), s.recv(100)),
    "read": lambda s: (s.read(100), s.read(100)),
    "recv_exact": lambda s: (s.recv_exact(5), s.recv_exact(4)),
    "recv_exact over": lambda s: (s.recv_exact(3), s.recv_exact(6)[2:]),
    "readv": lambda s: (b"".join(s.readv([2, 3])), s.readv((4,))[0]),
    "recvfrom": lambda s: (s.recvfrom(100)[0], s.recvfrom(100)[0]),
    "recvmsg": lambda s: (s.recvmsg(100)[0], s.recvmsg(100)[0]),
    "peek": lambda s: (s.recv(100, socket.MSG_PEEK), s.recv(100) and s.recv(100)),
    "wait": lambda s: (s.wait_for_read() == 5 and s.recv(100), s.recv(100)),
}


def into(s):
    out = bytearray(100)
    n = s.recv_into(out)
    m = s.recv_into(memoryview(out)[50:])
    return bytes(out[:n]), bytes(out[50 : 50 + m])


def message_into(s):
    def once():
        out = [bytearray(3), bytearray(0), bytearray(100)]
        n, ancillary, flags, _ = s.recvmsg_into(iter(out))
        assert (ancillary, flags) == ([], 0)
        return b"".join(out)[:n]

    return once(), once()


def from_into(s):
    out = bytearray(100)
    n, _ = s.recvfrom_into(out)
    m, _ = s.recvfrom_into(memoryview(out)[50:])
    return bytes(out[:n]), bytes(out[50 : 50 + m])


PUSHBACK["recv_into"] = into
PUSHBACK["recvfrom_into"] = from_into
PUSHBACK["recvmsg_into"] = message_into


@pytest.mark.parametrize("how", PUSHBACK)
@in_loop
def test_an_interrupted_recv_exact_gives_its_bytes_back(how):
    a, b = coro.socketpair()
    b.send(b"first")
    for method in (a.recv_exact, lambda n: a.readv([n])):
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, method, 1_000_000)

    def later():
        coro.yield_slice()
        b.send(b"more")

    coro.spawn(later)
    first, second = PUSHBACK[how](a)
    if "over" in how:
        assert first + second == b"first"[:3] + b"more"
    else:
        assert (first, second) == (b"first", b"more")
    a.close()
    b.close()


@in_loop
def test_recv_exact_interrupted_again_and_again():
    a, b = tcp_pair()
    data = pattern(200_000)

    def send():
        for i in range(0, len(data), 20_000):
            b.send(data[i : i + 20_000])
            coro.sleep_relative(0.001)

    coro.spawn(send)
    interruptions = 0
    while True:
        try:
            assert coro.with_timeout(0.0007, a.recv_exact, len(data)) == data
            break
        except coro.TimeoutError:
            interruptions += 1
    assert interruptions
    a.close()
    b.close()


READV_TABLE = [
    # sizes, bytes sent before the end, sizes received
    ((5, 5, 3, 7), 20, (5, 5, 3, 7)),
    ((5, 5, 3, 7), 14, (5, 5, 3, 1)),
    ((5, 5, 3, 7), 13, (5, 5, 3)),
    ((5, 5, 3, 7), 5, (5,)),
    ((5, 5, 3, 7), 4, (4,)),
    ((5, 5, 3, 7), 0, ()),
    ((1,), 1, (1,)),
    ((10,), 3, (3,)),
    ((), 3, ()),
    ((0, 5), 5, (0, 5)),
    ((0, 0), 5, (0, 0)),
    ((5, 0), 5, (5, 0)),
    ((100_000, 1, 70_000), 170_001, (100_000, 1, 70_000)),
    ((100_000, 1, 70_000), 150_000, (100_000, 1, 49_999)),
]


@pytest.mark.parametrize("pause", [False, True])
@pytest.mark.parametrize("selfish", [1, 1024])
@in_loop
def test_readv(selfish, pause):
    for container in (list, tuple, iter):
        for sizes, sent, expected in READV_TABLE:
            coro.current().set_max_selfish_acts(selfish)
            a, b = tcp_pair()
            data = pattern(sent)

            def send(b=b, data=data):
                step = max(1, len(data) // 3) if pause else len(data) or 1
                for i in range(0, len(data), step):
                    b.send(data[i : i + step])
                    if pause:
                        coro.sleep_relative(0.0005)
                b.close()

            t = coro.spawn(send)
            got = a.readv(container(sizes))
            assert isinstance(got, tuple)
            assert tuple(map(len, got)) == expected
            assert b"".join(got) == data[: sum(expected)]
            t.join()
            a.close()


WRITEV_TABLE = [[], [0], [1], [3, 5, 7], [0, 4, 0, 4, 0], [1] * 500, [100_000], [50_000, 1, 0, 120_000, 3]]
WRITEV_TABLE.append([7919] * 130)


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("selfish", [1, 1024])
@pytest.mark.parametrize("make", [tcp_pair, coro.socketpair])
@in_loop
def test_writev(make, selfish, small):
    for sizes in WRITEV_TABLE:
        total = sum(sizes)
        if small and total > (2000 if make is tcp_pair else 200_000):
            continue                                    # TCP waits for its own timers when windows are tiny
        a, b = make()
        if small:
            small_buffers(a, b)
        coro.current().set_max_selfish_acts(selfish)
        data = pattern(total)
        pieces, at = [], 0
        for i, size in enumerate(sizes):
            piece = data[at : at + size]
            pieces.append([piece, bytearray(piece), memoryview(piece)][i % 3])
            at += size
        got = []

        def read(b=b, got=got):
            while chunk := b.recv(65536):
                got.append(chunk)

        t = coro.spawn(read)
        assert a.writev(iter(pieces)) == total
        a.close()
        t.join()
        assert b"".join(got) == data
        b.close()


@in_loop
def test_writev_of_other_items():
    a, b = coro.socketpair()
    numbers = array.array("i", range(50_000))
    t = coro.spawn(lambda: a.writev([numbers, b"x"]))
    assert b.recv_exact(200_001) == numbers.tobytes() + b"x"
    t.join()
    a.close()
    b.close()


@in_loop
def test_recv_into():
    a, b = tcp_pair()
    with a, b:
        b.send(b"0123456789")
        out = bytearray(8)
        assert a.recv_into(out, 3) == 3
        assert a.recv_into(memoryview(out)[3:], 0) == 5
        assert out == b"01234567"
        numbers = array.array("h", [0])
        assert a.recv_into(numbers) == 2
        assert numbers.tobytes() == b"89"
        assert a.recv_into(bytearray()) == 0
        b.close()
        assert a.recv_into(out) == 0


@in_loop
def test_flags():
    ours, theirs = tcp_and_standard()
    with ours, theirs:
        assert ours.send(b"abc", socket.MSG_MORE) == 3
        assert ours.send(b"def") == 3
        theirs.sendall(b"xyz")
        assert ours.recv(2, socket.MSG_PEEK) == b"xy"
        assert ours.recvfrom(3, socket.MSG_PEEK) == (b"xyz", None)
        assert ours.recvmsg(2, 0, socket.MSG_PEEK)[0] == b"xy"
        target = bytearray(2)
        assert ours.recvmsg_into([target], 0, socket.MSG_PEEK) == (2, [], 0, None)
        assert target == b"xy"
        assert ours.recv(5) == b"xyz"


@in_loop
def test_two_readers():
    a, b = coro.socketpair()
    t = coro.spawn(a.recv, 10)
    coro.yield_slice()
    for method in (a.recv, a.recv_exact, a.recvfrom, a.read, a.recvmsg):
        with pytest.raises(coro.SimultaneousError) as e:
            method(1)
        assert e.value.co is coro.current()
        assert e.value.other is t
        assert e.value.event == coro.kevent_key(coro.EVFILT.READ, a.fd)
    for method in (a.accept, a.accept_many, a.wait_for_read):
        with pytest.raises(coro.SimultaneousError):
            method()
    with pytest.raises(coro.SimultaneousError):
        coro.wait_for(a.fd, coro.EVFILT.READ)
    b.send(b"x")
    coro.yield_slice()
    # woken but not there yet: still the reader's bytes
    t.join()
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.001, a.recv, 1)
    a.close()
    b.close()


@in_loop
def test_reading_and_writing_at_once():
    a, b = coro.socketpair()
    got = []
    t = coro.spawn(lambda: got.append(a.recv_exact(1_000_000)))
    u = coro.spawn(lambda: got.append(b.recv_exact(1_000_000)))
    v = coro.spawn(a.send, b"x" * 1_000_000)
    b.send(b"y" * 1_000_000)
    for thread in (t, u, v):
        thread.join()
    assert sorted(got) == [b"x" * 1_000_000, b"y" * 1_000_000]
    a.close()
    b.close()


# -- sending


@in_loop
def test_send_returns_everything():
    ours, theirs = tcp_and_standard()
    data = pattern(4_000_000)

    def read():
        got = bytearray()
        while chunk := theirs.recv(100_000):
            got += chunk
        assert got == data * 3

    with os_thread(read):
        assert ours.send(data) == len(data)
        assert ours.sendall(bytearray(data)) == len(data)
        assert ours.write(memoryview(data)) == len(data)
        assert ours.send(b"") == 0
        assert ours.writev([]) == 0
        ours.close()
    theirs.close()


@pytest.mark.parametrize("how", ["send", "bytearray", "writev", "sendmsg", "sendfile", "copied"])
@in_loop
def test_an_interrupted_send_tells_what_went_out(how, tmp_path):
    data = pattern(3_000_000)
    (tmp_path / "f").write_bytes(data)
    a, b = coro.socketpair()
    with a, b, open(tmp_path / "f", "rb") as file:
        call = {
            "send": lambda: a.send(data),
            "bytearray": lambda: a.send(bytearray(data)),
            "writev": lambda: a.writev([data[:10], data[10:1_000_000], data[1_000_000:]]),
            "sendmsg": lambda: a.sendmsg([data[:10], data[10:1_000_000], data[1_000_000:]]),
            "sendfile": lambda: a.sendfile(file),
            "copied": lambda: a.sendfile(io.BytesIO(data)),
        }[how]
        with pytest.raises(coro.TimeoutError) as e:
            coro.with_timeout(0.01, call)
        bomb = e.value
        while not hasattr(bomb, "bytes_sent"):
            bomb = bomb.__context__ or bomb.__cause__
        sent = bomb.bytes_sent
        assert 0 < sent < len(data)
        assert b.recv_exact(sent) == data[:sent]
        a.send(b"end")
        assert b.recv(100) == b"end"


@in_loop
def test_bytes_sent_on_shutdown_and_errors():
    a, b = coro.socketpair()
    seen = []

    def send(what):
        try:
            a.send(what)
        except BaseException as e:
            seen.append((type(e), e.bytes_sent))
            raise

    t = coro.spawn(send, b"x" * 3_000_000)
    coro.yield_slice()
    u = coro.spawn(send, b"y")                          # queued behind it
    coro.yield_slice()
    u.shutdown()
    t.shutdown()
    t.join()
    u.join()
    n = len(b.recv(3_000_000))
    while (more := _try(b, 100_000)) is not None:
        n += len(more)
    assert sorted(seen, key=str) == sorted([(coro.Shutdown, n), (coro.Shutdown, 0)], key=str)
    b.close()
    with pytest.raises(oserrors.EPIPE):
        a.send(b"x")
    a.close()


def _try(s, n):
    try:
        return s.recv(n, socket.MSG_DONTWAIT)
    except oserrors.EAGAIN:
        return None


@in_loop
def test_sends_of_several_threads_do_not_mix():
    a, b = coro.socketpair()
    order = []

    def send(letter):
        a.send(letter * 500_000)
        order.append(letter)

    letters = [bytes([c]) for c in b"abcdefgh"]
    threads = [coro.spawn(send, letter) for letter in letters]
    for letter in letters:
        assert b.recv_exact(500_000) == letter * 500_000
    for t in threads:
        t.join()
    assert order == letters
    a.close()
    b.close()


@pytest.mark.parametrize("victims", [(1,), (2,), (1, 2, 3), (3,), (0,), (0, 1), (0, 3)])
@pytest.mark.parametrize("when", ["before", "after"])
@in_loop
def test_interrupted_senders_leave_the_queue_in_order(victims, when):
    """Some of five are shut down, before or in the same moment as they are handed the sending side."""
    a, b = coro.socketpair()
    seen = []

    def send(i):
        a.send(bytes([65 + i]) * 400_000)
        seen.append(i)

    threads = [coro.spawn(send, i) for i in range(5)]
    coro.yield_slice()
    if when == "before":
        for i in victims:
            threads[i].shutdown()
    got = []

    def read():
        while chunk := b.recv(65536):
            got.append(chunk)

    def interrupt():
        if when == "after":
            threads[0].join()
            for i in victims:
                threads[i].shutdown()

    t = coro.spawn(read)
    coro.spawn(interrupt)
    for thread in threads:
        thread.join()
    a.close()
    t.join()
    b.close()
    data = b"".join(got)
    # every message that was completed is whole, and in order
    runs = [(c, data.count(bytes([c]))) for c in dict.fromkeys(data)]
    assert [c for c, _ in runs] == sorted(c for c, _ in runs)
    for i in seen:
        assert (65 + i, 400_000) in runs
    assert set(range(5)) - set(victims) <= set(seen)
    assert sum(n for _, n in runs) == len(data)


@in_loop
def test_an_undisturbed_send_waits_behind_a_queue():
    a, b = coro.socketpair()
    t = coro.spawn(a.send, b"x" * 1_000_000)
    coro.yield_slice()
    u = coro.spawn(a.send, b"y")
    v = coro.spawn(a.wait_for_write)
    w = coro.spawn(a.writev, [b"z" * 10])
    with pytest.raises(oserrors.EAGAIN):
        a.send(b"no", socket.MSG_DONTWAIT)
    assert b.recv_exact(1_000_011) == b"x" * 1_000_000 + b"y" + b"z" * 10
    for thread in (t, u, v, w):
        thread.join()
    a.close()
    b.close()


@in_loop
def test_a_spurious_wake_up_gives_nobody_the_sending_side():
    a, b = coro.socketpair()
    t = coro.spawn(a.send, b"x" * 1_000_000)
    coro.yield_slice()
    u = coro.spawn(a.send, b"y" * 10)
    coro.yield_slice()
    for _ in range(3):
        u.schedule()
        t.schedule()
        coro.yield_slice()
    assert b.recv_exact(1_000_010) == b"x" * 1_000_000 + b"y" * 10
    t.join()
    u.join()
    a.close()
    b.close()


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


# -- other descriptors


@in_loop
def test_pipes():
    r, w = os.pipe()
    reader, writer = coro.fd_sock(r), coro.fd_sock(w)
    data = pattern(500_000)
    t = coro.spawn(lambda: (writer.write(data), writer.writev([data, b"end"]), writer.close()))
    assert reader.recv_exact(500_000) == data
    assert b"".join(reader.readv([500_000, 3])) == data + b"end"
    assert reader.recv(1) == b""
    t.join()
    with pytest.raises(oserrors.ENOTSOCK):
        reader.recv(1, socket.MSG_PEEK)
    reader.close()


@in_loop
def test_the_end_of_a_pipe_wakes_its_reader():
    r, w = os.pipe()
    reader = coro.fd_sock(r)
    coro.spawn(os.close, w)
    assert reader.recv(10) == b""
    reader.close()


@in_loop
def test_writing_to_a_pipe_without_reader():
    r, w = os.pipe()
    with coro.fd_sock(w) as writer:
        t = coro.spawn(lambda: (coro.yield_slice(), os.close(r)))
        with pytest.raises(oserrors.EPIPE):
            writer.write(b"x" * 1_000_000)
        t.join()


@pytest.fixture
def terminals():
    try:
        return pty.openpty()
    except OSError as e:
        pytest.skip(f"no terminals here: {e}")


@in_loop
def test_terminals(terminals):
    main_end, terminal = terminals
    tty.setraw(terminal)
    a, b = coro.fd_sock(main_end), coro.fd_sock(terminal)
    t = coro.spawn(lambda: a.write(b"typed"))
    assert b.recv_exact(5) == b"typed"
    b.write(b"shown")
    assert a.read(100) == b"shown"
    t.join()
    b.close()
    with pytest.raises(oserrors.EIO):
        a.read(1)
    a.close()


@in_loop
def test_regular_files(tmp_path):
    coro.current().set_max_selfish_acts(1)
    with coro.file_sock(open(tmp_path / "f", "w+b", buffering=0)) as s:
        for _ in range(5):
            s.write(b"0123456789")
        s.wait_for_write()
    with coro.fd_sock(os.open(tmp_path / "f", os.O_RDONLY)) as s:
        s.wait_for_read()
        got = b""
        while chunk := s.read(7):
            got += chunk
        assert got == b"0123456789" * 5
        assert s.read(7) == b""


# -- readiness


@in_loop
def test_wait_for_read_and_write():
    a, b = tcp_pair()
    with a, b:
        known = on_kqueue()  # epoll(7) tells no amounts
        assert (a.wait_for_write() > 0) == known
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, a.wait_for_read)
        b.send(b"xy")
        assert a.wait_for_read() == (2 if known else 0)
        assert a.wait_for_read() == (2 if known else 0)  # still readable: asked anew
        assert a.recv(1) == b"x"
        assert a.wait_for_read() == (1 if known else 0)
        assert a.recv(10) == b"y"
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, a.wait_for_read)
        t = coro.spawn(a.wait_for_read)
        coro.yield_slice()
        b.send(b"z")
        t.join()
        assert a.recv(10) == b"z"
        b.close()
        a.wait_for_read()
        assert a.recv(10) == b""


@in_loop
def test_wait_for_write_waits():
    a, b = coro.socketpair()
    with a, b:
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, a.send, b"x" * 3_000_000)
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, a.wait_for_write)
        t = coro.spawn(a.wait_for_write)
        while _try(b, 1_000_000):
            pass
        t.join()


@pytest.mark.parametrize("maximum", [1, 3, 10])
@in_loop
def test_selfishness(maximum):
    """A reader that always finds data lets others run after so many reads."""
    a, b = tcp_pair()
    b.send(b"x" * 200)
    log = []

    def read():
        coro.current().set_max_selfish_acts(maximum)
        for _ in range(100):
            a.recv(1)
            log.append("r")

    t = coro.spawn(read)

    def other():
        while not t.dead:
            log.append("o")
            coro.yield_slice()

    u = coro.spawn(other)
    t.join()
    u.join()
    runs = [len(run) for run in "".join(log).split("o") if run]
    assert max(runs) <= maximum + 1
    assert len(runs) >= 100 // (maximum + 1)
    a.close()
    b.close()


# -- waiting

RECEIVING = {
    "recv": lambda s: s.recv(100),
    "read": lambda s: s.read(100),
    "recv_exact": lambda s: s.recv_exact(5),
    "readv": lambda s: b"".join(s.readv([2, 3])),
    "recv_into": lambda s: _into(s.recv_into),
    "recvfrom": lambda s: s.recvfrom(100)[0],
    "recvmsg": lambda s: s.recvmsg(100)[0],
}


def _into(receive):
    buffer = bytearray(100)
    return bytes(buffer[: receive(buffer)])


@pytest.mark.parametrize("call", RECEIVING)
@in_loop
def test_a_reader_that_is_woken_for_nothing_goes_on_waiting(call):
    a, b = coro.socketpair()
    t = coro.spawn(RECEIVING[call], a)
    coro.yield_slice()
    for _ in range(3):
        t.schedule("nothing")
        coro.yield_slice()
        assert t.waiting_for == ("read", a.fd)
        with pytest.raises(coro.SimultaneousError):
            a.recv(1)
    b.send(b"hello")
    t.join()
    assert t.result == b"hello"
    a.close()
    b.close()


@pytest.mark.parametrize("call", RECEIVING)
@in_loop
def test_a_reader_whose_socket_is_closed_between_its_wake_up_and_its_turn(call):
    a, b = coro.socketpair()
    t = coro.spawn(RECEIVING[call], a)
    coro.yield_slice()
    t.schedule()
    a.close()
    t.join()
    assert isinstance(t.exception, coro.ClosedError)
    b.close()


@in_loop
def test_recv_into_holds_its_buffer_only_while_it_waits():
    a, b = coro.socketpair()
    buffer = bytearray(5)

    def wait(end):
        t = coro.spawn(a.recv_into, buffer)
        coro.yield_slice()
        with pytest.raises(BufferError):
            buffer.append(1)
        end(t)
        t.join()
        buffer.append(1)
        del buffer[5:]
        return t

    assert wait(lambda t: b.send(b"hello")).result == 5
    assert buffer == b"hello"
    assert isinstance(wait(lambda t: t.shutdown()).exception, coro.Shutdown)
    with pytest.raises(ValueError, match="cannot receive 6 bytes"):
        a.recv_into(buffer, 6)
    with pytest.raises(oserrors.EAGAIN):
        a.recv_into(buffer, 0, socket.MSG_DONTWAIT)
    assert isinstance(wait(lambda t: a.close()).exception, coro.ClosedError)
    with pytest.raises(coro.ClosedError):
        a.recv_into(buffer)
    buffer.append(1)
    b.close()


def test_what_a_waiting_thread_leaves_on_the_stack():
    """Little more than one that waits in _yield(), which is the interpreter's share: it is copied at every switch
    between threads of one slot."""
    lines = ok("""
        import coro

        coro.set_stack_slots(1)

        def main():
            one, other = coro.socketpair()
            listener = coro.tcp_sock()
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            calls = {
                "yield": lambda: coro._yield(),
                "recv": lambda: one.recv(65536),
                "send": lambda: one.send(b"x" * 5_000_000),
                "accept": lambda: listener.accept(),
            }
            threads = {name: coro.spawn(call) for name, call in calls.items()}
            coro.yield_slice()
            sizes = {name: thread.stack_size[0] for name, thread in threads.items()}
            for name, size in sizes.items():
                print(name, threads[name].waiting_for[0], 0 < size < 1.4 * sizes["yield"])
            for t in threads.values():
                t.shutdown()

        coro.run(main)
    """)
    assert lines == ["yield yield True", "recv read True", "send write True", "accept read True"]


@in_loop
def test_two_timeouts_of_accept():
    with listener() as s:
        for _ in range(2):
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.001, s.accept)


# -- accepting


@in_loop
def test_accept_skips_the_aborted():
    with listener() as s:
        aborted = socket.create_connection(s.getsockname())
        aborted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        aborted.close()
        fine = socket.create_connection(s.getsockname())
        seen = []
        while fine.getsockname() not in seen:
            conn, address = s.accept()
            seen.append(address)
            conn.close()
        fine.close()


@in_loop
def test_accept_many():
    with listener() as s:
        clients = [socket.create_connection(s.getsockname()) for _ in range(5)]
        first = s.accept_many(2)
        assert len(first) == 2
        rest = s.accept_many()
        assert len(rest) == 3
        assert {a for _, a in first + rest} == {c.getsockname() for c in clients}
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, s.accept_many)
        t = coro.spawn(s.accept_many)
        coro.yield_slice()
        clients.append(socket.create_connection(s.getsockname()))
        t.join()
        for c in clients:
            c.close()
        for conn, _ in first + rest:
            conn.close()


@in_loop
def test_accept_many_serves_three_clients():
    served = []
    with listener() as s:

        def client(i):
            with coro.tcp_sock() as c:
                c.connect(s.getsockname())
                c.send(b"%d" % i)
                served.append(c.recv(10))

        threads = [coro.spawn(client, i) for i in range(3)]
        n = 0
        while n < 3:
            for conn, _ in s.accept_many():
                conn.send(conn.recv(10) * 2)
                conn.close()
                n += 1
        for t in threads:
            t.join()
    assert sorted(served) == [b"00", b"11", b"22"]


@contextlib.contextmanager
def no_descriptors_left():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.open(os.devnull, os.O_RDONLY)
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("method", ["accept", "accept_many"])
@in_loop
def test_accept_without_descriptors_left(method, monkeypatch):
    from coro._runtime import output

    said = []
    monkeypatch.setattr(output, "print_stderr", said.append)
    with listener() as s:
        clients = [socket.create_connection(s.getsockname()) for _ in range(2)]
        conns = []
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, listener().accept)                   # the poller has its descriptors now

        def take():
            while len(conns) < 2:
                got = getattr(s, method)()
                conns.extend(got if method == "accept_many" else [got])

        polls = coro.statistics().polls
        with no_descriptors_left():
            t = coro.spawn(take)
            turns = 0
            for _ in range(20):
                coro.sleep_relative(0.01)                 # the others go on
                turns += 1
            assert conns == []
            with pytest.raises(coro.SimultaneousError):
                s.accept()
        polls = coro.statistics().polls - polls
        t.join()
        assert turns == 20
        assert len(conns) == 2
        assert len(said) == 1
        assert os.strerror(errno.EMFILE) in said[0]
        assert polls < 200      # some for each turn; a loop that spins makes thousands
        for c in clients:
            c.close()
        for conn, _ in conns:
            conn.close()


@in_loop
def test_accept_many_keeps_an_error_for_the_next_call():
    with listener() as s, listener() as other:
        client = socket.create_connection(s.getsockname())
        s.wait_for_read()
        ((conn, _),) = s.accept_many()
        conn.close()
        client.close()
        with pytest.raises(oserrors.EINVAL):
            coro.tcp_sock().accept()
        assert other.fd >= 0


# -- connecting


def unused_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@in_loop
def test_refused():
    with coro.tcp_sock() as s:
        for _ in range(2):
            with pytest.raises(oserrors.ECONNREFUSED) as e:
                s.connect(("127.0.0.1", unused_port()))
            assert isinstance(e.value, ConnectionRefusedError)
        with listener() as server:                       # the same sock may try again
            s.connect(server.getsockname())
            conn, _ = server.accept()
            conn.send(b"ok")
            assert s.recv(10) == b"ok"
            conn.close()


@in_loop
def test_refused_unix(tmp_path):
    with coro.unix_sock() as s:
        with pytest.raises(oserrors.ENOENT):
            s.connect(tmp_path / "nothing")
        with coro.unix_sock() as dead:
            dead.bind(tmp_path / "dead")
        with pytest.raises(oserrors.ECONNREFUSED):
            s.connect(tmp_path / "dead")


@in_loop
def test_full_unix_backlog(tmp_path):
    server = coro.unix_sock()
    server.bind(tmp_path / "s")
    server.listen(0)
    connected = []

    def client():
        s = coro.unix_sock()
        s.connect(tmp_path / "s")
        s.send(b"here")
        connected.append(s)

    threads = [coro.spawn(client) for _ in range(5)]
    for _ in range(20):
        coro.yield_slice()
    assert len(connected) < 5
    for _ in range(5):
        conn, _ = server.accept()
        assert conn.recv(10) == b"here"
        conn.close()
    for t in threads:
        t.join()
    for s in [*connected, server]:
        s.close()


@in_loop
def test_interrupted_connects():
    """A listener whose queue is full does not answer: the call waits, and can be interrupted."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        fillers = []
        for _ in range(4):
            f = socket.socket()
            f.setblocking(False)
            f.connect_ex(server.getsockname())
            fillers.append(f)
        with coro.tcp_sock() as s:
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.01, s.connect, server.getsockname())
        t = coro.spawn(lambda: coro.tcp_sock().connect(server.getsockname()))
        coro.yield_slice()
        t.shutdown()
        t.join()
        for f in fillers:
            f.close()


class Fixed:
    """A resolver with fixed answers."""

    def __init__(self, **names):
        self.names = names
        self.asked = []

    def resolve_all(self, name, family):
        self.asked.append((name, family))
        if name not in self.names:
            raise coro.NameError(name)
        return self.names[name]

    def resolve_ipv4(self, name):
        return self.resolve_all(name, socket.AF_INET)[0]

    resolve_ipv6 = resolve_ipv4


@contextlib.contextmanager
def resolver(r):
    old = coro.set_resolver(r)
    try:
        yield r
    finally:
        assert coro.set_resolver(old) is r


@in_loop
def test_connect_tries_all_addresses():
    fixed = Fixed(many=["127.0.0.1", "127.0.0.2", "127.0.0.3"])
    with listener(address=("127.0.0.3", 0)) as server, resolver(fixed) as r:
        port = server.getsockname()[1]
        with coro.tcp_sock() as s:
            s.connect(("many", port))
            assert s.getpeername() == ("127.0.0.3", port)
            s.send(b"x")
            conn, _ = server.accept()
            assert conn.recv(1) == b"x"
            conn.close()
        assert r.asked == [("many", socket.AF_INET)]
        with coro.tcp_sock() as s, pytest.raises(oserrors.ECONNREFUSED):
            s.connect(("many", unused_port()))
        with coro.tcp_sock() as s, pytest.raises(coro.NameError):
            s.connect(("nothing", 1))


@in_loop
def test_connect_with_a_plain_resolver():
    class Plain:
        def resolve_ipv4(self, name):
            coro.yield_slice()
            return "127.0.0.1"

        def resolve_ipv6(self, name):
            return "::1"

    with resolver(Plain()), listener() as four, listener(coro.tcp6_sock, ("::1", 0)) as six:
        with coro.tcp_sock() as s:
            s.connect(("x", four.getsockname()[1]))
        with coro.tcp6_sock() as s:
            s.connect(("x", six.getsockname()[1], 0, 0))
        with coro.tcp_sock() as s:
            s.connect_addr(("x", four.getsockname()[1]), True)
        with coro.tcp_sock() as s, pytest.raises(ValueError, match="numeric"):
            s.connect_addr(("x", four.getsockname()[1]))


@in_loop
def test_closed_while_resolving():
    class Slow:
        def resolve_ipv4(self, name):
            coro.yield_slice()
            return "127.0.0.1"

        resolve_ipv6 = resolve_ipv4

    with resolver(Slow()):
        s = coro.tcp_sock()
        coro.spawn(s.close)
        with pytest.raises(coro.ClosedError):
            s.connect(("x", 1))


@in_loop
def test_numbers_are_no_names():
    with coro.tcp_sock() as s:
        with pytest.raises(coro.NameError):
            s.connect(("123", 80))
        with pytest.raises(ValueError, match="numeric"):
            s.connect_addr(("123", 80), False)
        with pytest.raises(TypeError):
            s.connect((123, 80))


# -- sendfile


@pytest.fixture
def big_file(tmp_path):
    path = tmp_path / "big"
    path.write_bytes(pattern(3_000_000))
    return path


@pytest.mark.parametrize("make", [tcp_pair, coro.socketpair])
@in_loop
def test_sendfile(make, big_file):
    data = pattern(3_000_000)
    a, b = make()
    with a, b, open(big_file, "rb") as file:
        for call, expected in (
            (lambda: a.sendfile(file), data),
            (lambda: a.sendfile(file.fileno(), 2_999_000), data[2_999_000:]),
            (lambda: a.sendfile(file, 10, 100), data[10:110]),
            (lambda: a.sendfile(file, offset=1_000_000, count=10**9), data[1_000_000:]),
            (lambda: a.sendfile(file, 4_000_000), b""),
            (lambda: a.sendfile(file, 0, 0), b""),
        ):
            sent = []
            t = coro.spawn(lambda call=call, sent=sent: sent.append(call()))
            assert b.recv_exact(len(expected)) == expected
            t.join()
            assert sent == [len(expected)]
        a.sendfile(file, 10, 100)
        assert file.tell() == 110


@in_loop
def test_sendfile_of_other_things(big_file):
    data = pattern(200_000)
    a, b = coro.socketpair()
    c, d = coro.socketpair()
    r, w = os.pipe()
    p, q = os.pipe()
    with a, b, c, d:
        # from memory
        t = coro.spawn(lambda: a.sendfile(io.BytesIO(data), 5, 100_000))
        assert b.recv_exact(100_000) == data[5:100_005]
        t.join()
        # from a pipe: what comes until its end
        t = coro.spawn(lambda: a.sendfile(r))
        with coro.fd_sock(w) as writer:
            writer.write(data)
        assert b.recv_exact(len(data)) == data
        t.join()
        # from a sock
        t = coro.spawn(lambda: a.sendfile(c, count=len(data)))
        u = coro.spawn(d.send, data)
        assert b.recv_exact(len(data)) == data
        t.join()
        u.join()
        # to a pipe
        with coro.fd_sock(p) as reader, coro.fd_sock(q) as writer, open(big_file, "rb") as file:
            t = coro.spawn(lambda: writer.sendfile(file))
            assert reader.recv_exact(3_000_000) == pattern(3_000_000)
            t.join()
        with pytest.raises(oserrors.EBADF):
            a.sendfile(987654)
        with open(big_file, "rb") as file, pytest.raises(oserrors.EPIPE):
            b.close()
            a.sendfile(file)
    os.close(r)


# -- file objects


@in_loop
def test_makefile():
    a, b = tcp_pair()
    with a, b:
        with a.makefile("rw", encoding="utf-8", newline="\n") as file, b.makefile("rwb") as other:
            file.write("gr\xfc\xdfe\n")
            file.flush()
            assert other.readline() == "gr\xfc\xdfe\n".encode()
            other.write(b"one\ntwo\nthree")
            other.flush()
            assert file.readline() == "one\n"
            assert file.readline() == "two\n"
        # closing the files leaves the socks open
        b.send(b"x")
        assert a.recv(1) == b"x"
        with a.makefile("rb", buffering=0) as raw, b.makefile("w", buffering=100) as text:
            assert raw.readable()
            assert not raw.writable()
            assert raw.fileno() not in (a.fd, b.fd)
            text.write("hello")
            text.flush()
            buffer = bytearray(10)
            assert raw.readinto(buffer) == 5
            with pytest.raises(io.UnsupportedOperation):
                raw.write(b"x")
        with b.makefile("wb", 0) as raw:
            assert raw.write(b"direct") == 6
            with pytest.raises(io.UnsupportedOperation):
                raw.readinto(bytearray(1))
        with a.makefile() as file:
            assert file.read(6) == "direct"
            b.close()
            assert file.read() == ""


@in_loop
def test_makefile_blocks_only_its_thread():
    a, b = coro.socketpair()
    lines = []

    def read():
        with a.makefile("rb") as file:
            lines.extend(file)

    t = coro.spawn(read)
    for i in range(5):
        coro.yield_slice()
        b.send(b"line %d\n" % i)
    b.close()
    t.join()
    assert lines == [b"line %d\n" % i for i in range(5)]
    a.close()
