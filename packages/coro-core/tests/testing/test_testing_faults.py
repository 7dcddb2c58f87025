"""coro.testing.faults: each fault strikes where it was told to, by its seed, and is in the log."""

import pytest
from support import in_jumping_loop as in_loop

import coro
from coro import oserrors, testing
from coro.testing import faults


@pytest.fixture(autouse=True)
def clean(leaves_nothing):
    yield


@pytest.fixture(params=["memory", "kernel"])
def pair(request):
    return testing.stream_pair if request.param == "memory" else coro.socketpair


def read_all(stream, most=1000):
    received = []
    while data := stream.recv(most):
        received.append(data)
    return received


@in_loop
def test_without_faults_nothing_changes(pair):
    a, b = pair()
    with faults.faulty_stream(a) as a, b:
        a.send(b"hello")
        assert b.recv_exact(5) == b"hello"
        b.writev([b"wor", b"ld"])
        assert a.readv([2, 3]) == (b"wo", b"rld")
        assert a.getpeername() == a.stream.getpeername()
        assert a.wait_for_write() == 0
        b.send(b"x")
        assert a.wait_for_read() in (0, 1)
        assert a.recv(1) == b"x"
        a.shutdown(coro.SHUT.WR)
        assert b.recv(1) == b""
        assert a.log == []
        assert "no faults" in a.describe()
        assert not a.closed
    assert a.closed
    with pytest.raises(coro.ClosedError):
        a.recv(1)
    with pytest.raises(coro.ClosedError):
        a.send(b"x")


@in_loop
def test_short_reads_and_writes(pair):
    a, b = pair()
    with faults.faulty_stream(a, faults.short(1)) as a, b:
        b.send(b"abc")
        assert [a.recv(10), a.recv(10)] == [b"a", b"b"]
        assert a.recv_exact(1) == b"c"
        a.faults[:] = [faults.short(4, side="send")]
        parts = []
        t = coro.spawn(lambda: parts.extend(read_all(b)))
        assert a.send(b"0123456789") == 10
        a.shutdown(coro.SHUT.WR)
        t.join()
        assert b"".join(parts) == b"0123456789"
        assert [len(p) for p in parts] == [4, 4, 2]
        b.send(b"not short")
        assert a.recv(100) == b"not short"


@in_loop
def test_varying_sizes_follow_the_seed():
    def sizes(seed):
        a, b = testing.stream_pair()
        with faults.faulty_stream(a, faults.short(50, vary=True), seed=seed) as a, b:
            b.send(bytes(1000))
            b.close()
            return [len(data) for data in read_all(a)]

    assert sizes(1) == sizes(1) != sizes(2)
    assert sum(sizes(1)) == 1000 and max(sizes(1)) <= 50


@in_loop
def test_cut_to_the_end(pair):
    a, b = pair()
    with faults.faulty_stream(a, faults.cut(after=5)) as a, b:
        b.send(b"0123456789")
        assert a.recv(100) == b"01234"
        assert a.recv(100) == b"" == a.recv(100)
        with pytest.raises(oserrors.EPIPE) as e:
            a.send(b"x")
        assert e.value.bytes_sent == 0
        assert a.wait_for_read() == 0 == a.wait_for_write()
        a.shutdown(coro.SHUT.RDWR)
        assert [x.what for x in a.log] == ["cut (eof)"]
        assert a.log[0][:3] == ("recv", 2, 5)


@in_loop
def test_cut_while_sending(pair):
    a, b = pair()
    with faults.faulty_stream(a, faults.cut(after=5, side="send")) as a, b:
        with pytest.raises(oserrors.EPIPE) as e:
            a.send(b"0123456789")
        assert e.value.bytes_sent == 5
        assert b.recv_exact(5) == b"01234"
        assert b.recv(10) == b""
        assert a.recv(1) == b""


@in_loop
def test_a_reset_in_memory():
    a, b = testing.stream_pair()
    with faults.faulty_stream(a, faults.cut(after=2, how="reset")) as a, b:
        b.send(b"abc")
        assert a.recv_exact(2) == b"ab"
        for call in (lambda: a.recv(1), lambda: a.send(b"1")):
            with pytest.raises(oserrors.ECONNRESET):
                call()
        with pytest.raises(oserrors.ECONNRESET):
            b.recv(1)


@in_loop
def test_a_reset_of_tcp():
    listener = coro.tcp_sock()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    client = coro.tcp_sock()
    client.connect(listener.getsockname())
    server, _ = listener.accept()
    with listener, server, faults.faulty_stream(client, faults.cut(after=0, how="reset", side="send")) as client:
        t = coro.spawn(client.recv, 1)
        notifier = coro.set_exception_notifier(lambda: None)
        testing.wait_all_blocked()
        with pytest.raises(oserrors.ECONNRESET):
            client.send(b"1")
        with pytest.raises(oserrors.ECONNRESET):
            server.recv(1)
        t.join()
        coro.set_exception_notifier(notifier)
        assert isinstance(t.exception, oserrors.ECONNRESET)


@in_loop
def test_corruption_at_given_positions(pair):
    a, b = pair()
    with faults.faulty_stream(a, faults.corrupt(at=(1, 4)), faults.corrupt(at=(2,), mask=1, side="send")) as a, b:
        b.send(b"\0" * 6)
        assert a.recv_exact(6) == b"\0\xff\0\0\xff\0"
        data = bytearray(6)
        a.send(data)
        assert b.recv_exact(6) == b"\0\xff\1\0\xff\0"
        assert data == bytes(6)
        assert [(x.side, x.position, x.what) for x in a.log] == [
            ("recv", 1, "flipped bits 0xff"), ("recv", 4, "flipped bits 0xff"),
            ("send", 1, "flipped bits 0xff"), ("send", 4, "flipped bits 0xff"), ("send", 2, "flipped bits 0x01"),
        ]  # fmt: skip


@in_loop
def test_corruption_by_chance_follows_the_seed():
    def corrupted(seed):
        a, b = testing.stream_pair()
        with faults.faulty_stream(a, faults.corrupt(probability=0.1), seed=seed) as a, b:
            b.send(bytes(1000))
            return a.recv_exact(1000)

    data = corrupted(5)
    assert data == corrupted(5) != corrupted(6)
    flipped = [byte for byte in data if byte]
    assert 50 < len(flipped) < 150
    assert all(byte.bit_count() == 1 for byte in flipped)


@in_loop
def test_delays_take_virtual_time():
    a, b = testing.stream_pair()
    with faults.faulty_stream(a, faults.delay(10), faults.delay(0, jitter=1, side="recv"), seed=3) as a, b:
        begin = coro.get_now()
        a.send(b"x")
        assert (coro.get_now() - begin) / coro.ticks_per_sec == pytest.approx(10)
        b.send(b"y")
        a.recv(1)
        assert 20 < (coro.get_now() - begin) / coro.ticks_per_sec < 21
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(5, a.send, b"late")
        assert [x.what.split()[0] for x in a.log] == ["delayed"] * 4


@in_loop
def test_stalls(pair):
    a, b = pair()
    with faults.faulty_stream(a, faults.stall(after=3, seconds=60)) as a, b:
        b.send(b"12345")
        begin = coro.get_now()
        assert a.recv(10) == b"123"
        assert coro.get_now() == begin
        assert a.recv(10) == b"45"
        assert (coro.get_now() - begin) / coro.ticks_per_sec == pytest.approx(60)
        a.send(b"12")
        with pytest.raises(coro.TimeoutError) as e:
            coro.with_timeout(5, a.send, b"345")
        assert e.value.bytes_sent == 1
        a.faults[:] = [faults.stall()]
        t = coro.spawn(a.send, b"never")
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(1000, a.recv, 1)
        notifier = coro.set_exception_notifier(lambda: None)
        a.close()
        t.join()
        coro.set_exception_notifier(notifier)
        assert isinstance(t.exception, coro.ClosedError)


@in_loop
def test_errors_at_chosen_calls():
    a, b = testing.stream_pair()
    made = []

    def make():
        made.append(oserrors.EINTR())
        return made[-1]

    with (
        faults.faulty_stream(
            a,
            faults.fail(oserrors.ENOBUFS, call=2, side="send"),
            faults.fail(make, call=2, every=2, side="recv"),
            faults.fail(OSError("as it is"), call=5, side="recv"),
        ) as a,
        b,
    ):
        a.send(b"1")
        with pytest.raises(oserrors.ENOBUFS):
            a.send(b"2")
        a.send(b"3")
        b.send(b"abcdefgh")
        assert b.recv(10) == b"13"
        outcomes = []
        for _ in range(6):
            try:
                outcomes.append(a.recv(1))
            except OSError as e:
                outcomes.append(e)
        assert outcomes == [b"a", made[0], b"b", made[1], a.faults[2].error, made[2]]
        assert len(a.log) == 5


@in_loop
def test_what_goes_wrong_tells_seed_and_log():
    a, b = testing.stream_pair()
    with pytest.raises(ZeroDivisionError) as e, b, faults.faulty_stream(a, faults.short(1), seed=42) as a:
        a.send(b"x" * 30)
        raise ZeroDivisionError
    (note,) = e.value.__notes__
    assert "seed 42" in note and "short(most=1" in note and "earlier actions" in note
    assert "send call 1, byte 28: 1 of 2 bytes" in note
    assert repr(a).startswith("<faulty_stream around <memory_stream")


@in_loop
def test_several_senders_stay_apart_and_faults_combine(pair):
    a, b = pair()
    with faults.faulty_stream(a, faults.short(3, vary=True), faults.delay(0.001), seed=1) as a, b:
        threads = [coro.spawn(a.send, bytes([65 + i]) * 50) for i in range(4)]
        received = b.recv_exact(200)
        assert sorted(received[i : i + 50] for i in range(0, 200, 50)) == [bytes([65 + i]) * 50 for i in range(4)]
        for t in threads:
            t.join()


@in_loop
def test_faults_nest_and_read_streams_take_them(pair):
    from coro import read_stream

    a, b = pair()
    inner = faults.faulty_stream(a, faults.corrupt(at=(0,), mask=0x20))
    with faults.faulty_stream(inner, faults.short(2)) as a, b:
        b.send(b"Hello\r\nWorld\r\n")
        stream = read_stream.sock_stream(a)
        assert stream.read_line() == b"hello\r\n"
        assert stream.read_line() == b"World\r\n"


def test_a_new_seed_is_taken_and_kept():
    a, b = testing.stream_pair()
    assert testing.faulty_stream(a).seed != testing.faulty_stream(b).seed


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: faults.delay(-1),
        lambda: faults.delay(0, jitter=-1),
        lambda: faults.short(0),
        lambda: faults.short(1, side="left"),
        lambda: faults.cut(-1),
        lambda: faults.cut(1, how="bang"),
        lambda: faults.corrupt(probability=2),
        lambda: faults.corrupt(mask=0),
        lambda: faults.stall(-1),
        lambda: faults.stall(seconds=-1),
        lambda: faults.fail(OSError, call=0),
        lambda: faults.fail(OSError, every=0),
    ],
)
def test_impossible_faults_are_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        wrong()


def test_what_is_no_fault_is_refused():
    with pytest.raises(TypeError, match="expected faults"):
        testing.faulty_stream(object(), "short")
