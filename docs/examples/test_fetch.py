"""A client that tries again, and its tests: `python -m pytest -p coro.testing.pytest_plugin test_fetch.py`."""

from collections.abc import Callable, Sequence

import pytest

import coro
from coro import oserrors, read_stream, testing
from coro.testing import faults


def fetch(connect: Callable[[], coro.Stream], name: bytes, attempts: int = 3, pause: float = 10) -> bytes:
    """Ask a server for a line; when the connection breaks, or an answer takes 30 seconds, try again after a pause."""
    for attempt in range(attempts):
        if attempt:
            coro.sleep(pause)
        try:
            with connect() as conn, coro.timeout(30):
                conn.send(name + b"\r\n")
                line = read_stream.sock_stream(conn).read_line(limit=1000)
                if line.endswith(b"\r\n"):
                    return line[:-2]
        except (coro.TimeoutError, oserrors.ECONNRESET, oserrors.EPIPE):
            continue
    raise LookupError(f"no answer in {attempts} attempts")


class Server:
    """Answers over streams in memory; the faults of its n-th connection are those of the n-th list."""

    def __init__(self, *bad: Sequence[faults.Fault]) -> None:
        self.bad = list(bad)
        self.connections = 0

    def connect(self) -> coro.Stream:
        self.connections += 1
        client, server = testing.stream_pair()
        coro.spawn(self.serve, server)
        return faults.faulty_stream(client, *(self.bad.pop(0) if self.bad else []), seed=1)

    def serve(self, conn: coro.Stream) -> None:
        with conn:
            name = read_stream.sock_stream(conn).read_line()
            if name:
                conn.send(b"hello " + name)


@pytest.mark.coro
def test_an_answer() -> None:
    assert fetch(Server().connect, b"you") == b"hello you"


@pytest.mark.coro
def test_an_answer_in_single_bytes() -> None:
    assert fetch(Server([faults.short(1)]).connect, b"you") == b"hello you"


@pytest.mark.coro
def test_broken_connections(coro_autojump_clock: testing.virtual_clock) -> None:
    server = Server([faults.cut(after=8)], [faults.cut(after=3, how="reset", side="recv")])
    assert fetch(server.connect, b"you") == b"hello you"
    assert server.connections == 3
    assert coro_autojump_clock.elapsed == pytest.approx(20)


@pytest.mark.coro
def test_a_server_that_never_answers(coro_autojump_clock: testing.virtual_clock) -> None:
    server = Server(*[[faults.stall(side="recv")]] * 3)
    with pytest.raises(LookupError):
        fetch(server.connect, b"you")
    assert coro_autojump_clock.elapsed == pytest.approx(3 * 30 + 2 * 10)
