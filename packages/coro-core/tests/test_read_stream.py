"""Buffered reading: against a naive model, over sockets, with limits, interruptions and failing producers."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import in_loop

import coro
from coro.read_stream import LimitError, buffered_stream, sock_stream, socket_producer

pytestmark = pytest.mark.poller


class Stop(Exception):
    """What the failing producer raises."""


def stream_of(*blocks, **options):
    return buffered_stream(iter([*blocks, b""]).__next__, **options)


def cut(data, size):
    return [data[i : i + size] for i in range(0, len(data), size)]


class UntilByte:
    """Ends at a byte; insists on getting integers."""

    def __init__(self, last):
        self.last = last

    def consume(self, byte):
        assert isinstance(byte, int) and 0 <= byte <= 255
        return byte == self.last


class Model:
    """The whole input at once."""

    def __init__(self, data):
        self.data = data

    def take(self, n):
        taken, self.data = self.data[:n], self.data[n:]
        return taken

    def until(self, delim, limit=None):
        at = self.data.find(delim)
        end = at + len(delim) if at >= 0 else len(self.data)
        if limit is not None and (end > limit or (at < 0 and end >= limit)):
            raise LimitError(limit, delim)
        return self.take(end)


# Few different bytes, so that delimiters overlap themselves and begin without ending.
DATA = st.lists(st.sampled_from([b"a", b"\r", b"\n", b".", b"\r\n", b"\r\n.\r\n"]), max_size=60).map(b"".join)
DELIM = st.sampled_from([b"\n", b"\r\n", b"\r\n.\r\n", b"aa", b"\r\r\n", b"a.a.aa"])
CALL = st.one_of(
    st.tuples(st.just("until"), DELIM),
    st.tuples(st.just("pieces"), DELIM),
    st.tuples(st.just("limited"), DELIM, st.integers(1, 12)),
    st.tuples(st.just("exact"), st.integers(0, 15)),
    st.tuples(st.just("exact pieces"), st.integers(0, 15)),
    st.tuples(st.just("dfa"), st.sampled_from(b"a\n")),
    st.tuples(st.just("first piece"), DELIM),
)


@pytest.mark.slow
@settings(deadline=None, max_examples=400)
@given(data=DATA, sizes=st.lists(st.integers(1, 9), min_size=1), calls=st.lists(CALL, max_size=25), fail=st.booleans())
def test_against_a_model(data, sizes, calls, fail):
    """Every block may be preceded by a failure of the producer, which loses nothing."""
    blocks, rest, i = [], data, 0
    while rest:
        blocks.append(rest[: sizes[i % len(sizes)]])
        rest = rest[sizes[i % len(sizes)] :]
        i += 1
    supply = iter(blocks)
    calls_made = 0

    def producer():
        nonlocal calls_made
        calls_made += 1
        if fail and calls_made % 2:
            raise Stop
        return next(supply, b"")

    def again(call):
        while True:
            try:
                return call()
            except Stop:
                assert fail

    stream, model = buffered_stream(producer), Model(data)
    for what, *args in calls:
        if what == "until":
            assert again(lambda: stream.read_until(*args)) == model.until(*args)  # noqa: B023
        elif what == "limited":
            outcomes = []
            for call in (lambda: again(lambda: stream.read_until(args[0], limit=args[1])), lambda: model.until(*args)):  # noqa: B023
                try:
                    outcomes.append(call())
                except LimitError as e:
                    outcomes.append((e.limit, e.delim))
            assert outcomes[0] == outcomes[1]
        elif what == "exact":
            assert again(lambda: stream.read_exact(*args)) == model.take(*args)  # noqa: B023
        elif fail:
            continue  # a generator that raised is finished: the same calls as above, without failures
        elif what == "pieces":
            pieces = list(stream.read_until(*args, join=False))
            assert b"".join(pieces) == model.until(*args)
            assert all(pieces[:-1])
            assert pieces[-1] == b"" or b"".join(pieces).endswith(args[0])
        elif what == "exact pieces":
            pieces = list(stream.read_exact(*args, join=False))
            assert b"".join(pieces) == model.take(*args)
            assert all(pieces)
        elif what == "dfa":
            assert b"".join(stream.gen_read_until_dfa(UntilByte(args[0]))) == model.until(bytes(args))
        elif what == "first piece":
            piece = next(stream.gen_read_until(*args))
            assert piece == model.take(len(piece))
    if not fail:
        assert b"".join(stream.read_all()) == model.data
        assert stream.flush() == stream.read_line() == stream.read_exact(5) == b""


@pytest.mark.parametrize("delim", [b"\n", b"\r\n\r\n", b"-" * 10 + b"=" * 10])
@pytest.mark.parametrize("size", [*range(1, 21), 1000, 10000])
def test_the_same_lines_as_a_split(delim, size):
    chance = random.Random(size)
    lines = [
        bytes(chance.choices(b"abcde-=\r\n"[: 7 if delim[0] != 45 else 5], k=chance.randrange(60))) for _ in range(40)
    ]
    stream = stream_of(*cut(delim.join([*lines, b"rest"]), size))
    assert [stream.read_until(delim) for _ in lines] == [line + delim for line in lines]
    assert stream.read_until(delim) == b"rest"
    assert stream.read_until(delim) == b""


@pytest.mark.parametrize("size", range(1, 9))
def test_a_delimiter_that_begins_twice(size):
    """After a mismatch the byte that did not fit may be the first of the delimiter."""
    stream = stream_of(*cut(b"one\r\r\ntwo\r\n", size))
    assert [stream.read_line(), stream.read_line(), stream.read_line()] == [b"one\r\r\n", b"two\r\n", b""]
    stream = stream_of(*cut(b"mail\r\n.\r\r\n.\r\nnext", size))
    assert stream.read_until(b"\r\n.\r\n") == b"mail\r\n.\r\r\n.\r\n"
    stream = stream_of(*cut(b"mail\r\n.\r\r\n.\r\nnext", size))
    assert b"".join(stream.gen_read_until(b"\r\n.\r\n")) == b"mail\r\n.\r\r\n.\r\n"
    assert b"".join(stream.read_all()) == b"next"


def test_flush_and_read_all_give_unread_bytes_only():
    stream = stream_of(b"line\nrest", b"more")
    assert stream.read_line(b"\n") == b"line\n"
    assert stream.flush() == b"rest"
    assert stream.flush() == b""
    assert list(stream.read_all()) == [b"more"]
    stream = stream_of(b"line\nrest", b"more")
    stream.read_line(b"\n")
    assert list(stream.read_all()) == [b"rest", b"more"]


def test_pieces_never_hold_back_what_may_be_passed_on():
    stream = stream_of(b"abc\r", b"def", b"\r", b"\nnext")
    assert list(stream.gen_read_until(b"\r\n")) == [b"abc", b"\rdef", b"\r\n"]
    assert stream.flush() == b"next"
    assert list(stream_of(b"abc\r").gen_read_until(b"\r\n")) == [b"abc", b"\r", b""]


def test_each_byte_is_searched_once():
    """A megabyte in blocks of one byte; the quadratic way takes minutes."""
    stream = buffered_stream(iter([b"x"] * 200_000 + [b"\r", b"\n"]).__next__)
    assert len(stream.read_line()) == 200_002


def test_limits():
    stream = stream_of(*cut(b"x" * 100 + b"\r\n", 7), limit=50)
    with pytest.raises(LimitError, match="within 50 bytes"):
        stream.read_line()
    with pytest.raises(LimitError):  # the bytes are still there
        stream.read_line()
    assert stream.read_line(limit=102) == b"x" * 100 + b"\r\n"
    with pytest.raises(LimitError):
        stream_of(b"12345\n").read_line(b"\n", limit=5)
    assert stream_of(b"1234\n").read_line(b"\n", limit=5) == b"1234\n"


def test_a_peer_without_line_ends_does_not_fill_the_memory():
    produced = 0

    def producer():
        nonlocal produced
        produced += 1
        return b"x" * 1000

    with pytest.raises(LimitError):
        buffered_stream(producer, limit=8192).read_line()
    assert produced == 9


def test_bytes_likes_are_accepted_and_bytes_returned():
    stream = stream_of(bytearray(b"ab"), memoryview(b"\r\ncd"))
    line = stream.read_until(bytearray(b"\r\n"))
    assert (line, type(line)) == (b"ab\r\n", bytes)
    rest = stream.read_exact(9)
    assert (rest, type(rest)) == (b"cd", bytes)


def test_bad_arguments():
    stream = stream_of(b"abc")
    for wrong, error in ((b"", ValueError), ("x", TypeError), (None, TypeError)):
        with pytest.raises(error):
            stream.read_until(wrong)
        with pytest.raises(error):
            next(stream.gen_read_until(wrong))
    for call in (lambda: stream.read_exact(-1), lambda: next(stream.gen_read_exact(-1))):
        with pytest.raises(ValueError, match="at least 0"):
            call()
    for call in (
        lambda: stream.read_line(limit=0),
        lambda: buffered_stream(bytes, limit=-1),
        lambda: socket_producer(None, 0),
    ):
        with pytest.raises(ValueError, match="at least 1"):
            call()
    with pytest.raises(TypeError):
        buffered_stream(b"abc")
    assert stream.flush() == b""
    with pytest.raises(TypeError):
        stream_of("text").read_line()


def test_what_a_failing_producer_interrupts_is_kept():
    def producer():
        step = steps.pop(0)
        if isinstance(step, BaseException):
            raise step
        return step

    steps = [b"ab", OSError("x"), b"c", KeyboardInterrupt(), b"d\r", "no bytes", b"\nrest", b""]
    stream = buffered_stream(producer)
    for error in (OSError, KeyboardInterrupt, TypeError):
        with pytest.raises(error):
            stream.read_line()
    assert stream.read_line() == b"abcd\r\n"
    assert stream.read_exact(10) == b"rest"


# -- over sockets


@in_loop
def test_over_a_socket():
    a, b = coro.socketpair()
    stream = sock_stream(a, 3)

    def peer():
        for piece in (b"GET / HT", b"TP/1.0\r", b"\n\r", b"\nbody"):
            b.sendall(piece)
            coro.yield_slice()
        b.close()

    coro.spawn(peer)
    assert stream.sock is a
    assert stream.read_line() == b"GET / HTTP/1.0\r\n"
    assert stream.read_line() == b"\r\n"
    assert stream.read_exact(2) == b"bo"
    assert b"".join(stream.read_all()) == b"dy"
    assert stream.read_line() == b""


@in_loop
def test_an_interrupted_read_loses_nothing():
    a, b = coro.socketpair()
    stream = sock_stream(a)
    b.sendall(b"one ")
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.001, stream.read_line)
    b.sendall(b"two")
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.001, stream.read_exact, 100)
    b.sendall(b"\r\n")
    assert stream.read_line() == b"one two\r\n"


@in_loop
def test_both_forms_of_the_producer():
    a, b = coro.socketpair()
    producer = socket_producer(a, buffer_size=2)
    b.sendall(b"abcd")
    b.close()
    assert [producer(), producer.next(), producer.next()] == [b"ab", b"cd", b""]
