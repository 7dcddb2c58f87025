"""python -m pytest -p coro.testing.pytest_plugin test_chat.py

The tests run in a loop of their own, with a virtual clock: ten minutes of silence take no time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from chat import LONGEST_LINE, Room

import coro
from coro import testing
from coro.read_stream import sock_stream


class Client:
    """Somebody at the other end of a connection."""

    def __init__(self, server: coro.Server) -> None:
        self.conn = coro.connect(*server.addresses[0])
        self.stream = sock_stream(self.conn)

    def type(self, text: str) -> None:
        self.conn.send(f"{text}\n".encode())

    def read(self) -> str:
        return self.stream.read_line().decode().rstrip("\r\n")


@pytest.fixture
def room() -> Room:
    return Room(idle=600)


@pytest.fixture
def server(room: Room) -> Iterator[coro.Server]:
    with coro.Server(room.serve, ("127.0.0.1", 0)) as server:
        yield server


@contextmanager
def member(server: coro.Server, name: str) -> Iterator[Client]:
    client = Client(server)
    with client.conn:
        assert client.read() == "* your name?"
        client.type(name)
        testing.wait_all_blocked()  # the server has read the name
        yield client


@pytest.mark.coro
def test_all_see_what_one_types(server: coro.Server) -> None:
    with member(server, "ann") as ann, member(server, "bob") as bob:
        assert ann.read() == "* bob has come"
        bob.type("hello")
        assert ann.read() == bob.read() == "bob: hello"
        bob.conn.close()
        assert ann.read() == "* bob has left"


@pytest.mark.coro
def test_a_name_is_taken_once(server: coro.Server) -> None:
    with member(server, "ann"), member(server, "ann") as other:
        assert other.read() == "* somebody has this name already, another one?"


@pytest.mark.coro
def test_silence(server: coro.Server, coro_autojump_clock: testing.virtual_clock) -> None:
    with member(server, "ann") as ann:
        coro.sleep(599)
        ann.type("still here")
        assert ann.read() == "ann: still here"
        assert ann.read() == "* you have been silent for too long, goodbye"
        assert ann.read() == ""
    assert coro_autojump_clock.elapsed == pytest.approx(599 + 600)


@pytest.mark.coro
def test_a_line_without_end(server: coro.Server) -> None:
    with member(server, "ann") as ann:
        ann.conn.send(b"x" * (LONGEST_LINE + 1))
        assert ann.read() == "* this line is too long, goodbye"


@pytest.mark.coro
def test_one_who_does_not_read_delays_nobody(server: coro.Server, room: Room) -> None:
    with member(server, "sleepy"), member(server, "bob") as bob:
        while "sleepy" in room.members:
            bob.type("x" * (LONGEST_LINE - 10))
            assert bob.read().startswith(("bob: xxx", "* sleepy has left"))
        assert list(room.members) == ["bob"]


@pytest.mark.coro
def test_the_end(server: coro.Server, room: Room, coro_autojump_clock: testing.virtual_clock) -> None:
    with member(server, "ann") as ann, member(server, "bob") as bob:
        assert ann.read() == "* bob has come"
        server.stop()
        room.say("* the server ends in 5 seconds")
        assert ann.read() == bob.read() == "* the server ends in 5 seconds"
        bob.conn.close()
        assert not server.drain(5)
        assert ann.read() == "* bob has left"
        assert ann.read() == ""
    assert coro_autojump_clock.elapsed == pytest.approx(5)
    assert len(room.members) == 0
