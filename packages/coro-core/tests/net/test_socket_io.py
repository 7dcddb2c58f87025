"""The class sock moving bytes of a stream: among its own kind and with blocking peers of the standard library.

Datagrams and ancillary data are in test_socket_messages.py, accept and connect in test_socket_connecting.py, pipes and
files in test_socket_files.py.
"""

import array
import fcntl
import io
import os
import resource
import socket

import pytest
from sockets_support import listener, os_thread, pattern, small_buffers, tcp_and_standard, tcp_pair
from support import in_loop, ok, on_kqueue

import coro
from coro import oserrors

pytestmark = pytest.mark.poller


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
