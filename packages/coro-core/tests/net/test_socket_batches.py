"""Many datagrams for one call: recvmmsg and sendmmsg of the class sock."""

import pytest
from support import in_loop

import coro
from coro import oserrors

pytestmark = pytest.mark.poller


@pytest.mark.parametrize(("make", "host"), [(coro.udp_sock, "127.0.0.1"), (coro.udp6_sock, "::1")])
@in_loop
def test_a_batch_there_and_back(make, host):
    with make() as a, make() as b:
        a.bind((host, 0))
        b.bind((host, 0))
        where = b.getsockname()
        texts = [b"", bytearray(b"one"), memoryview(b"two"), b"x" * 1400]
        assert a.sendmmsg([(text, where) for text in texts]) == 4
        got = []
        while len(got) < 4:
            got += b.recvmmsg(1300)
        assert got == [(bytes(text)[:1300], a.getsockname()) for text in texts]
        assert b.sendmmsg((data.upper(), address) for data, address in got) == 4
        assert [a.recvfrom(2000) for _ in texts] == [(data.upper(), where) for data, _ in got]


@in_loop
def test_no_more_than_asked_for():
    with coro.udp_sock() as a, coro.udp_sock() as b:
        b.bind(("127.0.0.1", 0))
        a.connect(b.getsockname())
        assert a.sendmmsg([(b"%d" % i, None) for i in range(5)]) == 5
        assert [data for data, _ in b.recvmmsg(10, 2)] == [b"0", b"1"]
        assert [data for data, _ in b.recvmmsg(10, max=64)] == [b"2", b"3", b"4"]
        with pytest.raises(oserrors.EAGAIN):
            b.recvmmsg(10, flags=coro.MSG.DONTWAIT)


@in_loop
def test_it_waits_for_the_first():
    with coro.udp_sock() as a, coro.udp_sock() as b:
        b.bind(("127.0.0.1", 0))
        got = []
        t = coro.spawn(lambda: got.extend(b.recvmmsg(10)))
        coro.yield_slice()
        assert not got
        a.sendto(b"late", b.getsockname())
        t.join()
        assert [data for data, _ in got] == [b"late"]
        with pytest.raises(coro.TimeoutError), coro.timeout(0.01):
            b.recvmmsg(10)


@in_loop
def test_more_than_the_static_memory():
    with coro.udp_sock() as a, coro.udp_sock() as b:
        b.bind(("127.0.0.1", 0))
        a.sendmmsg([(bytes([i]) * 9000, b.getsockname()) for i in range(10)])
        got = []
        while len(got) < 10:
            got += b.recvmmsg(65535, 64)
        assert [data for data, _ in got] == [bytes([i]) * 9000 for i in range(10)]


@in_loop
def test_more_than_one_system_call_sends():
    """On UDP a full receiver loses datagrams; a UNIX socket waits for room."""
    a, b = coro.socketpair(coro.AF.UNIX, coro.SOCK.DGRAM)
    with a, b:
        sent = []
        t = coro.spawn(lambda: sent.append(a.sendmmsg([(b"%d" % i, None) for i in range(1000)])))
        got = []
        while len(got) < 1000:
            got += [int(data) for data, _ in b.recvmmsg(10, 7)]
        t.join()
        assert sent == [1000]
        assert got == list(range(1000))


@in_loop
def test_a_refused_datagram_ends_the_call():
    with coro.udp_sock() as a, coro.udp_sock() as b:
        b.bind(("127.0.0.1", 0))
        where = b.getsockname()
        batch = [(b"good", where)] * 3 + [(b"x" * 70_000, where), (b"after", where)]
        assert a.sendmmsg(batch) == 3
        with pytest.raises(oserrors.EMSGSIZE):
            a.sendmmsg(batch[3:])
        assert a.sendmmsg(batch[4:]) == 1
        assert a.sendmmsg([]) == 0
        many = [(b"good", where)] * 64 + [(b"x" * 70_000, where)]
        assert a.sendmmsg(many) == 64       # the refused one begins the second system call


@in_loop
def test_mistakes():
    with coro.udp_sock() as a:
        for wrong in (0, 65, -1):
            with pytest.raises(ValueError, match="from 1 to 64"):
                a.recvmmsg(10, wrong)
        for wrong in (-1, 2_000_000):
            with pytest.raises(ValueError, match="bytes to receive"):
                a.recvmmsg(wrong)
        with pytest.raises(ValueError, match="numeric"):
            a.sendmmsg([(b"x", ("127.0.0.1", 9)), (b"x", ("localhost", 9))])
        with pytest.raises(TypeError):
            a.sendmmsg([("text", ("127.0.0.1", 9))])
        with pytest.raises(TypeError):
            a.sendmmsg([5])
    with pytest.raises(coro.ClosedError):
        a.recvmmsg(10)
    with pytest.raises(coro.ClosedError):
        a.sendmmsg([])


@in_loop
def test_interrupted_while_the_queue_is_full():
    a, b = coro.socketpair(coro.AF.UNIX, coro.SOCK.DGRAM)
    with a, b:
        with pytest.raises(coro.TimeoutError), coro.timeout(0.01):
            a.sendmmsg([(b"x", None)] * 10_000)
        assert b.recvmmsg(10)[0][0] == b"x"
        a.send(b"y")                        # the sending side is free again
