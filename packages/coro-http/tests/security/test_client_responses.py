"""Responses that try to be read as something else: smuggled, split, cut, endless, and those that unpack to
gigabytes."""

from __future__ import annotations

import gzip
import zlib

import client_support
import pytest
from client_support import raw, response, site

import coro
from coro import testing
from coro.http import _decompress
from coro.http.client import Client, Limits, Timeout
from coro.http.exceptions import (
    BombError,
    DeadlineExceeded,
    DecodeError,
    IncompleteError,
    LimitError,
    ReadError,
    ReadTimeout,
    RemoteError,
)
from coro.testing import coro_test

pytestmark = pytest.mark.usefixtures("leaves_nothing")

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nhello",
        OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        OK + b"Content-Length: 5, 6\r\n\r\nhello!",
        OK + b"Content-Length: +5\r\n\r\nhello",
        OK + b"Content-Length: -5\r\n\r\nhello",
        OK + b"Content-Length: 0x5\r\n\r\nhello",
        OK + b"Content-Length: 5_0\r\n\r\nhello",
        OK + b"Content-Length: 99999999999999999999\r\n\r\nhello",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
        OK + b"X : y\r\nContent-Length: 0\r\n\r\n",
        OK + b"X: y\r\n folded\r\nContent-Length: 0\r\n\r\n",
        OK + b"X: a\0b\r\nContent-Length: 0\r\n\r\n",
        OK + b"X: a\rb\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 0200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n",
        b"<html>" + b"x" * 20_000,
    ],
)
@coro_test
def test_framing_that_can_be_read_in_two_ways(answer):
    with raw(answer) as server, Client() as client:
        with pytest.raises((RemoteError, ReadError)):
            client.get(server.url)
        assert client.statistics()[:2] == (0, 0)


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("GET", OK + b"Content-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
        ("HEAD", OK + b"Content-Length: 4\r\n\r\nevil"),
        ("GET", b"HTTP/1.1 204 X\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
        ("GET", b"HTTP/1.1 304 X\r\nContent-Length: 4\r\n\r\nevil"),
        ("GET", OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nevil"),
    ],
)
@coro_test
def test_bytes_behind_a_response_do_not_answer_the_next_request(method, answer):
    """A connection with more on it than was asked for is not used again."""

    def first(conn):
        while client_support.read_head(conn):
            conn.send(answer)

    def then(conn):
        while client_support.read_head(conn):
            conn.send(response(200, [], b"good"))

    with raw(first, then) as server, Client() as client:
        assert b"evil" not in client.request(method, server.url).content
        assert client.get(server.url).content == b"good"
        assert client.get(server.url).content == b"good"
        assert server.connections == 2


@coro_test
def test_a_response_before_its_request_is_not_taken():
    sent = coro.event()

    def eager(conn):
        client_support.read_head(conn)
        conn.send(response(200, [], b"good"))
        coro.yield_slice()
        conn.send(response(200, [], b"evil"))
        sent.set()
        conn.recv(1)

    def then(conn):
        while client_support.read_head(conn):
            conn.send(response(200, [], b"good"))

    with raw(eager, then) as server, Client() as client:
        assert client.get(server.url).content == b"good"
        sent.wait()
        for _ in range(3):
            assert client.get(server.url).content == b"good"
        assert server.connections == 2


@pytest.mark.parametrize(
    "head",
    [
        OK + b"".join(b"X-%d: y\r\n" % n for n in range(500)) + b"\r\n",
        OK + b"X: " + b"y" * 200_000 + b"\r\n\r\n",
        OK + b"X: y\r\n" * 200_000,
        b"HTTP/1.1 200 " + b"y" * 200_000,
    ],
)
@coro_test
def test_floods_of_headers(head):
    with raw(head) as server, Client() as client:
        with pytest.raises((LimitError, ReadError)):
            client.get(server.url)
        assert client.statistics()[:2] == (0, 0)


@coro_test
def test_endless_interim_responses():
    def endless(conn):
        client_support.read_head(conn)
        while True:
            conn.send(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 10)
            coro.yield_slice()

    def thrice(conn):
        while client_support.read_head(conn):
            conn.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 3 + response(200, [], b"good"))

    with raw(thrice, endless) as server, Client() as client:
        for _ in range(2):
            assert client.get(server.url).content == b"good"
        client.pool.expire()
        client.pool._close_oldest()
        with pytest.raises(RemoteError):
            client.get(server.url)
        assert client.statistics()[:2] == (0, 0)


@coro_test
def test_endless_trailers_and_chunk_extensions():
    def trailers(conn):
        client_support.read_head(conn)
        conn.send(OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n")
        while True:
            conn.send(b"X: y\r\n" * 1000)
            coro.yield_slice()

    def extensions(conn):
        client_support.read_head(conn)
        conn.send(OK + b"Transfer-Encoding: chunked\r\n\r\n1;")
        while True:
            conn.send(b"x" * 10_000)
            coro.yield_slice()

    for script in (trailers, extensions):
        with raw(script) as server, Client() as client:
            with pytest.raises(RemoteError):
                client.get(server.url)


@coro_test
def test_a_switch_of_protocols_that_nobody_asked_for():
    with raw(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nevil") as server, Client() as client:
        with pytest.raises((RemoteError, ReadError)):
            client.get(server.url)
        assert client.statistics()[:2] == (0, 0)


@coro_test
def test_a_body_that_does_not_end_is_cut_at_the_limit():
    def endless(conn):
        client_support.read_head(conn)
        conn.send(OK + b"\r\n")
        while True:
            conn.send(b"x" * 10_000)

    with raw(endless) as server, Client(limits=Limits(body=1_000_000)) as client:
        with pytest.raises(LimitError, match="larger than 1000000 bytes"):
            client.get(server.url)
    with raw(response(200, [], b"x" * 100)) as server, Client(limits=Limits(body=99)) as client:
        with pytest.raises(LimitError):
            client.get(server.url)
    with site(lambda s: (200, [], b"x" * len(s.target))) as server, Client(limits=Limits(body=10)) as client:
        for _ in range(2):
            client.get(server.url + "/" + "y" * 9)
        client._plans[server.url + "/y"] = client._plans[server.url + "/" + "y" * 9]
        assert client.statistics().used == 0


# ---- compressed bodies


def bomb(layers: int, size: int) -> bytes:
    engine = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(1_000_000)
    data = b"".join(engine.compress(block) for _ in range(size)) + engine.flush()
    for _ in range(layers - 1):
        data = gzip.compress(data, 9)
    return data


@coro_test
def test_a_zip_bomb_is_not_unpacked():
    answer = response(200, [("Content-Encoding", "gzip")], bomb(1, 3))
    with raw(answer) as server, Client(limits=Limits(ratio=10, ratio_floor=100_000)) as client:
        with pytest.raises(BombError):
            client.get(server.url)
        with client.stream("GET", server.url) as streamed, pytest.raises(BombError):
            for piece in streamed.iter_bytes():
                assert len(piece) <= 65_536
        assert client.statistics()[:2] == (0, 0)


@pytest.mark.slow
@coro_test
def test_a_bomb_of_nothing_is_not_unpacked():
    """A coding makes millions of empty members for the next one, which take minutes and give no byte to be counted."""
    inner = gzip.compress(b"", mtime=0) * (1 << 18)
    for codings in ("gzip, gzip", "gzip, gzip, deflate"):
        body = gzip.compress(inner)
        if codings.endswith("deflate"):
            body = zlib.compress(body)
        answer = response(200, [("Content-Encoding", codings)], body)
        with raw(answer) as server, Client() as client:
            with pytest.raises(BombError, match="between its codings"):
                client.get(server.url)
            assert client.statistics()[:2] == (0, 0)


@coro_test
def test_a_bomb_in_layers_is_not_unpacked():
    answer = response(200, [("Content-Encoding", "gzip, gzip")], bomb(2, 3))
    with raw(answer) as server, Client(limits=Limits(ratio=10, ratio_floor=100_000)) as client:
        with pytest.raises(BombError):
            client.get(server.url)
    answer = response(200, [("Content-Encoding", ", ".join(["gzip"] * 50))], b"x")
    with raw(answer) as server, Client() as client:
        with pytest.raises(DecodeError, match="at most 3 codings"):
            client.get(server.url)
        assert client.statistics()[:2] == (0, 0)


@coro_test
def test_what_is_unpacked_counts_for_the_limit_of_the_body():
    answer = response(200, [("Content-Encoding", "gzip")], bomb(1, 3))
    with raw(answer) as server, Client(limits=Limits(body=1_000_000)) as client:
        with pytest.raises(LimitError):
            client.get(server.url)


@pytest.mark.parametrize("coding", ["gzip", "deflate", *(c for c in _decompress.available() if c in ("br", "zstd"))])
@coro_test
def test_damaged_and_cut_bodies(coding):
    for body in (b"this is not compressed at all", b"\x00" * 50, b"\xff"):
        with raw(response(200, [("Content-Encoding", coding)], body)) as server, Client() as client:
            with pytest.raises(DecodeError):
                client.get(server.url)
            assert client.statistics().used == 0
    whole = zlib.compress(b"x" * 1000)
    for cut in range(1, len(whole)):
        with raw(response(200, [("Content-Encoding", "deflate")], whole[:cut])) as server, Client() as client:
            with pytest.raises((DecodeError, IncompleteError)):
                client.get(server.url)


@coro_test
def test_a_server_that_sends_a_byte_now_and_then_of_its_head():
    def drip(conn):
        client_support.read_head(conn)
        while True:
            conn.send(b"H")
            coro.sleep(1)

    def drip_well(conn):
        client_support.read_head(conn)
        for byte in b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1000:
            conn.send(bytes([byte]))
            coro.sleep(1)

    with testing.virtual_clock(autojump=True), raw(drip, drip_well) as server:
        with Client(timeout=Timeout(total=100)) as client:
            for _ in range(2):
                with pytest.raises((RemoteError, DeadlineExceeded)):
                    client.get(server.url)
            assert client.statistics()[:2] == (0, 0)


@coro_test
def test_a_server_that_stops_in_the_middle():
    def stop(conn):
        client_support.read_head(conn)
        conn.send(OK + b"Content-Length: 10\r\n\r\nhalf")
        client_support.forever(conn)

    with testing.virtual_clock(autojump=True), raw(stop) as server, Client() as client:
        with pytest.raises(ReadTimeout):
            client.get(server.url)
        assert client.statistics()[:2] == (0, 0)
