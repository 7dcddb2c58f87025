"""coro.testing: stream pairs in memory, compared with real socket pairs where both can do it."""

import pytest
from support import in_jumping_loop as in_loop

import coro
from coro import oserrors, read_stream, testing

MSG_PEEK, MSG_DONTWAIT = 2, 0x40


@pytest.fixture(autouse=True)
def clean(leaves_nothing):
    yield


@pytest.fixture(params=["memory", "tiny", "kernel"])
def pair(request):
    """A function that makes two connected streams, of each kind."""
    if request.param == "kernel":
        return coro.socketpair
    return lambda: testing.stream_pair(3 if request.param == "tiny" else 65536)


@pytest.fixture(params=["memory", "tiny"])
def memory_pair(request):
    return lambda: testing.stream_pair(3 if request.param == "tiny" else 65536)


def refused(error, function, *args):
    """For a thread that is to fail: crashes of threads fail the test."""
    with pytest.raises(error):
        function(*args)
    return "refused"


def sender(stream, data, close=True):
    def send():
        stream.send(data)
        if close:
            stream.close()

    return coro.spawn(send)


@in_loop
def test_bytes_come_out_as_they_went_in(pair):
    a, b = pair()
    data = bytes(range(256)) * 100
    with a, b:
        t = sender(a, data)
        received = bytearray()
        while part := b.recv(1000):
            assert len(part) <= 1000
            received += part
        assert received == data
        assert b.recv(10) == b""
        t.join()


@in_loop
def test_the_receiving_calls(pair):
    a, b = pair()
    with a, b:
        t = sender(a, b"0123456789" * 6)
        assert b.recv_exact(10) == b"0123456789"
        assert b.readv([3, 0, 7]) == (b"012", b"", b"3456789")
        buffer = bytearray(5)
        got = b.recv_into(buffer)
        assert 1 <= got <= 5 and bytes(buffer[:got]) == b"01234"[:got]
        b.recv_exact(10 - got)
        assert b.recv_into(buffer, 1) == 1 and buffer[0] == ord("0")
        assert b.recv_exact(9) == b"123456789"
        assert b.recv_exact(10) == b"0123456789"
        assert b.readv([4, 4, 4, 4]) == (b"0123", b"4567", b"89")
        t.join()
        assert b.readv([4]) == ()
        assert b.readv([]) == () == b.readv([0])[1:]
        with pytest.raises(EOFError) as e:
            b.recv_exact(3)
        assert e.value.args == (b"",)
        assert b.recv(0) == b""
        for wrong in (lambda: b.recv(-1), lambda: b.recv_exact(-1), lambda: b.readv([-1])):
            with pytest.raises(ValueError, match="negative"):
                wrong()
        with pytest.raises(ValueError):
            b.recv_into(buffer, 6)


@in_loop
def test_a_buffer_that_cannot_be_written_loses_nothing(pair):
    a, b = pair()
    with a, b:
        t = sender(a, b"0123")
        for buffer in (b"01234567", memoryview(b"01234567")):
            with pytest.raises(BufferError):
                b.recv_into(buffer)
        assert b.recv_exact(4) == b"0123"
        t.join()


@in_loop
def test_a_partial_end(pair):
    a, b = pair()
    with a, b:
        t = sender(a, b"abc")
        with pytest.raises(EOFError) as e:
            b.recv_exact(5)
        assert e.value.args == (b"abc",)
        t.join()


@in_loop
def test_the_sending_calls(pair):
    a, b = pair()
    with a, b:

        def send():
            assert a.send(b"one") == 3
            assert a.sendall(bytearray(b"two")) == 3
            assert a.write(memoryview(b"three")) == 5
            assert a.writev([b"fo", b"", bytearray(b"ur")]) == 4
            assert a.writev([]) == 0
            assert a.send(b"") == 0
            with pytest.raises(TypeError):
                a.send("text")
            with pytest.raises(TypeError):
                a.writev(b"not in a list")
            with pytest.raises(TypeError):
                a.writev(["text"])
            a.shutdown(coro.SHUT.WR)

        t = coro.spawn(send)
        received = bytearray()
        while data := b.recv(100):
            received += data
        assert received == b"onetwothreefour"
        t.join()
        assert t.exception is None
        with pytest.raises(oserrors.EPIPE):
            a.send(b"x")
        b.send(b"ok")
        assert a.recv_exact(2) == b"ok"


@in_loop
def test_peeking_and_not_waiting(pair):
    a, b = pair()
    with a, b:
        with pytest.raises(oserrors.EAGAIN):
            b.recv(10, MSG_DONTWAIT)
        a.send(b"xyz")
        assert b.recv(2, MSG_PEEK) == b"xy"
        assert b.recv(10, MSG_PEEK)[:2] == b"xy"
        assert b.recv_exact(3) == b"xyz"
        with pytest.raises(oserrors.EAGAIN) as e:
            a.send(b"x" * 10_000_000, MSG_DONTWAIT)
        assert e.value.bytes_sent >= 3


@in_loop
def test_an_interrupted_recv_exact_loses_nothing(pair):
    a, b = pair()
    with a, b:
        a.send(b"ab")
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.01, b.recv_exact, 5)
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.01, b.readv, [1, 4])
        assert b.wait_for_read() == 2
        t = sender(a, b"cdefg")
        assert b.recv(1) == b"a"
        assert b.recv_exact(6) == b"bcdefg"
        t.join()


@in_loop
def test_an_interrupted_send_tells_how_far_it_came(pair):
    a, b = pair()
    with a, b:
        with pytest.raises(coro.TimeoutError) as e:
            coro.with_timeout(0.01, a.send, b"z" * 10_000_000)
        sent = e.value.bytes_sent
        a.close()
        received = 0
        while data := b.recv(100_000):
            received += len(data)
        assert received == sent > 0


@in_loop
def test_sends_of_several_threads_stay_in_one_piece(pair):
    a, b = pair()
    with a, b:
        threads = [sender(a, bytes([65 + i]) * 20_000, close=False) for i in range(4)]
        received = b.recv_exact(80_000)
        assert received == b"".join(bytes([65 + i]) * 20_000 for i in range(4))
        for t in threads:
            t.join()


@in_loop
def test_a_second_reader_is_refused(pair):
    a, b = pair()
    with a, b:
        t = coro.spawn(b.recv, 1)
        testing.wait_all_blocked()
        with pytest.raises(coro.SimultaneousError) as e:
            b.recv(1)
        assert e.value.other is t
        a.send(b"x")
        t.join()
        assert t.result == b"x"


@in_loop
def test_closing_ends_who_waits(pair):
    a, b = pair()
    outcomes = []

    def call(function, *args):
        try:
            function(*args)
        except coro.ClosedError as e:
            outcomes.append(e.args)

    for function, args in ((b.recv, (1,)), (b.send, (b"x" * 10_000_000,)), (b.send, (b"y",)), (b.wait_for_write, ())):
        coro.spawn(call, function, *args)
    testing.wait_all_blocked()
    me = coro.current()
    assert not b.closed
    b.close()
    b.close()
    assert b.closed
    testing.wait_all_blocked()
    assert len(outcomes) == 4
    assert set(outcomes) <= {(me,), ()} and (me,) in outcomes
    for wrong in (lambda: b.recv(1), lambda: b.recv(0), lambda: b.send(b"x"), b.wait_for_read, b.wait_for_write,
                  lambda: b.shutdown(coro.SHUT.RD)):  # fmt: skip
        with pytest.raises(coro.ClosedError):
            wrong()
    for wrong in (b.getpeername, b.getsockname):
        with pytest.raises(oserrors.EBADF):
            wrong()
    a.close()


@in_loop
def test_the_other_side_closes(pair):
    a, b = pair()
    a.send(b"1")
    a.close()
    assert b.wait_for_write() == 0
    with pytest.raises(oserrors.EPIPE):
        b.send(b"x")
    assert b.recv(5) == b"1"
    assert b.recv(5) == b""
    assert b.wait_for_read() == 0
    b.close()


@in_loop
def test_waiting_without_reading(pair):
    a, b = pair()
    with a, b:
        assert a.wait_for_write() == 0
        t = coro.spawn(b.wait_for_read)
        testing.wait_all_blocked()
        assert not t.dead
        a.send(b"xy")
        t.join()
        assert t.result in (0, 2)
        assert b.recv_exact(2) == b"xy"
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, a.send, b"f" * 10_000_000)
        t = coro.spawn(a.wait_for_write)
        testing.wait_all_blocked()
        assert not t.dead
        while not t.dead:
            b.recv(100_000)
            coro.yield_slice()


@in_loop
def test_read_streams(pair):
    a, b = pair()
    with a, b:
        stream = read_stream.sock_stream(b)
        t = sender(a, b"GET / HTTP/1.1\r\nHost: x\r\n\r\nbody")
        assert stream.read_line() == b"GET / HTTP/1.1\r\n"
        assert stream.read_until(b"\r\n\r\n") == b"Host: x\r\n\r\n"
        assert stream.read_exact(4) == b"body"
        assert stream.read_line() == b""
        t.join()


# -- what the kernel does otherwise, or not at all


@in_loop
def test_a_full_stream_holds_as_much_as_it_was_told():
    a, b = testing.stream_pair(5, names=("client", "server"))
    assert (a.getsockname(), a.getpeername()) == (b.getpeername(), b.getsockname()) == ("client", "server")
    t = sender(a, b"1234567", close=False)
    testing.wait_all_blocked()
    assert b.recv(100) == b"12345"
    t.join()
    assert b.recv(100) == b"67"
    assert repr(a) == "<memory_stream 'client': 0 bytes to read, 0 sent, unread>"
    a.setsockopt(6, 1, 1)
    assert a.getsockopt(6, 1) == 1 and a.getsockopt(6, 2) == 0
    a.close()
    assert repr(a) == "<memory_stream 'client': closed>"
    b.close()


@in_loop
def test_a_reset_is_reported_once_to_the_other_side(memory_pair):
    for waiting in (True, False):
        a, b = memory_pair()
        a.send(b"xyz")
        assert b.recv(1) == b"x"
        outcomes = []

        def read(b=b, outcomes=outcomes):
            try:
                b.recv_exact(5)
            except oserrors.ECONNRESET as e:
                outcomes.append(e)

        if waiting:
            t = coro.spawn(read)
            testing.wait_all_blocked()
        a.reset()
        a.reset()
        if not waiting:
            t = coro.spawn(read)
        t.join()
        assert len(outcomes) == 1
        with pytest.raises(oserrors.EPIPE):
            b.send(b"1")
        assert a.closed and not b.closed
        b.close()
        b.reset()


@in_loop
def test_a_sender_meets_a_reset(memory_pair):
    a, b = memory_pair()
    t = coro.spawn(a.send, b"1" * 1_000_000)
    testing.wait_all_blocked()
    notifier = coro.set_exception_notifier(lambda: None)
    b.reset()
    t.join()
    coro.set_exception_notifier(notifier)
    assert isinstance(t.exception, oserrors.ECONNRESET)
    assert t.exception.bytes_sent in (3, 65536)
    a.close()


@in_loop
def test_what_is_not_supported_is_refused():
    a, b = testing.stream_pair()
    with a, b:
        with pytest.raises(oserrors.EOPNOTSUPP):
            a.recv(1, 1)
        with pytest.raises(oserrors.EOPNOTSUPP):
            a.send(b"", 1)
        with pytest.raises(ValueError, match="SHUT"):
            a.shutdown(7)
    with pytest.raises(ValueError, match="capacity"):
        testing.stream_pair(0)


@in_loop
def test_readiness_for_select(memory_pair):
    a, b = memory_pair()
    assert not b.readable.is_set() and b.writable.is_set()
    t = coro.spawn(b.readable.wait)
    testing.wait_all_blocked()
    a.send(b"xy")
    t.join()
    assert b.recv(1) == b"x" and b.readable.is_set()
    assert b.recv(5, MSG_PEEK) == b"y" and b.readable.is_set()
    assert b.recv(5) == b"y" and not b.readable.is_set()
    t = coro.spawn(refused, oserrors.EPIPE, a.send, b"x" * 1_000_000)
    testing.wait_all_blocked()
    assert not a.writable.is_set()
    b.close()
    t.join()
    assert t.result == "refused"
    assert a.writable.is_set() and a.readable.is_set() and b.readable.is_set()
    a.close()
