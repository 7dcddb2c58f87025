"""`coro.Stream`: the classes that have its calls, at run time. What type checkers say: test_types.py."""

from __future__ import annotations

import socket

import pytest
from support import in_loop

import coro
from coro import testing

NAMES = {name for name in vars(coro.Stream) if not name.startswith("_")} | {"__enter__", "__exit__"}


def test_what_is_a_stream():
    left, right = testing.stream_pair()
    here, there = coro.socketpair()
    with here, there:
        for stream in (left, testing.faulty_stream(right), here, coro.tcp_sock()):
            assert isinstance(stream, coro.Stream)
            assert {name for name in NAMES if not callable(getattr(stream, name))} == {"closed"}
            stream.close()
            assert stream.closed is True


def test_what_is_no_stream():
    with socket.socket() as plain, open("/dev/null", "rb") as file:
        for thing in (plain, file, None, coro.fifo()):
            assert not isinstance(thing, coro.Stream)


def pairs():
    yield testing.stream_pair()
    yield coro.socketpair()
    left, right = testing.stream_pair()
    yield testing.faulty_stream(left), right


def exchange(here: coro.Stream, there: coro.Stream) -> None:
    """Each call of the protocol, as code that knows nothing else would make it."""
    with here, there:
        assert here.send(b"one") == 3
        assert here.sendall(bytearray(b"twothree")) == 8
        assert there.recv(3) == b"one"
        assert there.recv_exact(3) == b"two"
        buffer = bytearray(10)
        assert there.recv_into(buffer, 5) == 5 and buffer[:5] == b"three"
        assert type(here.getsockname()) is type(there.getpeername())
        here.shutdown(coro.SHUT.WR)
        assert there.recv(100) == b""
        with pytest.raises(EOFError):
            there.recv_exact(1)
        assert there.sendall(b"back") == 4
        assert here.recv(100) == b"back"
    assert here.closed and there.closed


@in_loop
def test_streams_are_used_alike():
    for here, there in pairs():
        exchange(here, there)


def test_the_name_is_made_when_it_is_asked_for():
    assert coro.Stream is coro.Stream
    assert vars(coro)["Stream"] is coro.Stream
