"""The client of bare packets: connecting anew, and what is sent again. And what coro.rpc.testing gives to tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rpc_support import methods

import coro
from coro.rpc import AuthenticationError, ConnectionLost, ForkedError, GoingAway, NoSuchMethod, fast_rpc
from coro.rpc import testing as rpc_testing
from coro.rpc.packet_client import PacketClient
from coro.rpc.packet_stream import PacketStream
from coro.testing import coro_test


@contextmanager
def echoing(path: str, handler: Any = bytes.upper) -> Iterator[list[PacketStream]]:
    """A server of packets on a UNIX socket; the list has the connections so far."""
    made: list[PacketStream] = []

    def serve(conn: Any, address: Any) -> None:
        with PacketStream(conn, handler=handler, push_handler=pushed.append) as packets:
            made.append(packets)
            packets.wait_closed()

    pushed: list[bytes] = []
    with coro.Server(serve, path):
        yield made


@coro_test
def test_it_connects_when_it_is_needed_and_anew(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    told: list[PacketStream] = []
    with PacketClient(path, on_connect=told.append) as client:
        assert not client.statistics().connected
        with echoing(path) as served:
            assert client.request(b"a") == b"A"
            assert client.request(b"b") == b"B"
            assert len(told) == 1 and client.statistics() == (True, 0, 0, 0, 0)
            served[0].abort()
            client.packets().wait_closed()
            client.push(b"one-way")
            assert client.request(b"c") == b"C"
            assert client.statistics().reconnects == 1 and len(told) == 2
    with pytest.raises(GoingAway):
        client.request(b"after the end")
    assert "closed" in repr(client)


@coro_test
def test_what_is_sent_again(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    seen: list[bytes] = []

    def handler(data: bytes) -> bytes:
        seen.append(data)
        if len(seen) < 3:
            served[-1].abort()
            coro.sleep_relative(60)
        return data

    with echoing(path, handler) as served, PacketClient(path) as client:
        with pytest.raises(ConnectionLost):
            client.request(b"once")
        assert client.request(b"more", idempotent=True) == b"more"
        assert seen == [b"once", b"more", b"more"] and client.statistics().repeated == 1


@coro_test
def test_the_other_side_goes_away(tmp_path: Path) -> None:
    """After its goodbye a request goes over a new connection."""
    path = str(tmp_path / "s")
    with echoing(path) as served, PacketClient(path) as client:
        assert client.request(b"a") == b"A"
        first = client.packets()
        served[0].close()
        while not first.closing:
            coro.yield_slice()
        assert client.request(b"b") == b"B"
        assert client.statistics().reconnects == 1


@coro_test
def test_nobody_listens(tmp_path: Path) -> None:
    client = PacketClient(str(tmp_path / "nobody"), retry_connect=0)
    with pytest.raises(FileNotFoundError):
        client.request(b"x")
    with pytest.raises(FileNotFoundError):
        client.push(b"x")
    assert client.statistics().failures == 2
    with pytest.raises(ValueError, match="at least 1 attempt"):
        PacketClient("x", attempts=0)


# coro_test watches over the time from an OS thread of its own.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@coro_test
def test_after_a_fork(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with echoing(path), PacketClient(path) as client:
        client.request(b"a")
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                client.request(b"b")
            except ForkedError:
                status = 0
            finally:
                os._exit(status)
        assert coro.waitpid(pid)[1] == 0
        assert client.request(b"c") == b"C"


@coro_test
def test_both_sides_in_one_process() -> None:
    mine = fast_rpc.Registry()
    mine.export(lambda n: 0 if n == 0 else n, "back")
    with rpc_testing.connected(methods(), mine) as conn:
        assert conn.call("add", 1, 2) == 3
        assert list(conn.stream("count", 3)) == [0, 1, 2]
        assert conn.call("back", 1) == 1
        with pytest.raises(NoSuchMethod):
            conn.call("nothing")
    assert conn.closed


@coro_test
def test_a_handshake_that_fails_is_seen_by_the_test() -> None:
    with pytest.raises(AuthenticationError):
        with rpc_testing.connected(secret=b"0123456789abcdef"):
            raise AssertionError("the server has no secret")


@coro_test
def test_packets_without_sockets() -> None:
    with rpc_testing.packet_pair(handler=bytes.upper) as (one, two):
        assert one.request(b"a") == b"A" and two.request(b"b") == b"B"
    assert one.closed and two.closed


@coro_test
def test_reports_show_which_call_is_waited_for() -> None:
    with rpc_testing.connected(methods()) as conn:
        thread = coro.spawn(conn.call, "sleep", 60)
        while conn.statistics().outstanding < 1:
            coro.yield_slice()
        waits = {one.thread: one.words for one in coro.wait_graph().threads}
        assert "of sleep at the server: waiting" in waits[thread]
        thread.shutdown()
        thread.join()
