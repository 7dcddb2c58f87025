"""What attackers send over WebSockets, each with its public source."""

from __future__ import annotations

import tracemalloc
import zlib

import pytest
from ws_support import raw, refused

from coro.http.exceptions import TooMuchData, WebSocketClosed, WebSocketProtocolError
from coro.http.websocket import Deflate
from coro.http.ws import Codec
from coro.testing import coro_test

BIG = Deflate(server_max_window_bits=15, client_max_window_bits=15)


def frame(first: int, payload: bytes) -> bytes:
    """A masked frame, with a mask of zeros."""
    n = len(payload)
    if n < 126:
        size = bytes([0x80 | n])
    elif n < 65536:
        size = b"\xfe" + n.to_bytes(2, "big")
    else:
        size = b"\xff" + n.to_bytes(8, "big")
    return bytes([first]) + size + bytes(4) + payload


def bomb(size: int) -> bytes:
    made = zlib.compressobj(6, zlib.DEFLATED, -15)
    block = bytes(1 << 20)
    out = b"".join(made.compress(block) for _ in range(size >> 20)) + made.flush(zlib.Z_SYNC_FLUSH)
    return out[:-4]


def test_a_large_frame_is_refused_by_its_header():
    """eventlet CVE-2021-21419: frames of any size were gathered."""
    codec = Codec("server")
    tracemalloc.start()
    try:
        codec.feed(b"\x82\xff" + (1 << 40).to_bytes(8, "big") + bytes(4))
        with pytest.raises(TooMuchData):
            codec.next_event()
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_memory_grows_with_what_came_not_with_what_is_announced():
    codec = Codec("server", max_frame=None, max_message=None)
    tracemalloc.start()
    try:
        codec.feed(b"\x82\xff" + (1 << 40).to_bytes(8, "big") + bytes(4) + bytes(1000))
        assert codec.next_event() is None
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", [0, 1])
def test_compressed_bombs(text: int):
    """python-websockets CVE-2018-1000518, undici CVE-2026-1526, autobahn CVE-2026-116579: the limit was on the
    compressed size, or looked at when all had been inflated."""
    payload = bomb(32 << 20)
    assert len(payload) < 1 << 20  # within the limit for what comes
    codec = Codec("server", deflate=BIG)
    codec.feed(frame(0xC1 if text else 0xC2, payload))
    tracemalloc.start()
    try:
        with pytest.raises(TooMuchData) as caught:
            codec.next_event()
        assert caught.value.code == 1009
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def test_a_bomb_in_fragments():
    payload = bomb(16 << 20)
    codec = Codec("server", deflate=BIG)
    half = len(payload) // 2
    codec.feed(frame(0x42, payload[:half]) + frame(0x80, payload[half:]))
    with pytest.raises(TooMuchData):
        codec.next_event()


def test_a_message_of_compressed_streams_only():
    """Each end of a stream costs a new object of zlib's: a megabyte of them would keep a processor busy."""
    codec = Codec("server", deflate=BIG)
    codec.feed(frame(0xC2, b"\x03\x00" * 100_000))
    with pytest.raises(WebSocketProtocolError) as caught:
        codec.next_event()
    assert caught.value.code == 1008


def test_deflate_is_off_unless_asked_for():
    from coro.http import _ws_handshake as handshake

    assert handshake.agree_deflate(None, ["permessage-deflate"]) is None
    assert Deflate().server_max_window_bits == 12


def test_tiny_fragments():
    """ws 8 and others: a message of a million empty or one-byte fragments filled the memory with objects."""
    codec = Codec("server")
    codec.feed(frame(0x02, b""))
    assert codec.next_event() is None
    with pytest.raises(WebSocketProtocolError) as caught:
        for _ in range(5000):
            codec.feed(frame(0x00, b""))
            codec.next_event()
    assert caught.value.code == 1008


def test_fragments_are_joined_in_one_buffer():
    codec = Codec("server", max_fragments=None)
    one = frame(0x00, b"x")
    codec.feed(frame(0x02, b"x"))
    codec.next_event()
    tracemalloc.start()
    try:
        for _ in range(20_000):
            codec.feed(one)
            codec.next_event()
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


@coro_test
def test_frames_without_mask():
    """RFC 6455, section 5.1: a server that takes them lets scripts poison caches of proxies."""
    code, cause = refused({}, b"\x81\x05Hello")
    assert code == 1002
    assert isinstance(cause, WebSocketProtocolError)


@coro_test
def test_masked_frames_from_a_server():
    assert refused({}, b"\x81\x85\0\0\0\0Hello", role="client")[0] == 1002


@coro_test
def test_large_control_frames():
    for first in (0x88, 0x89, 0x8A):
        assert refused({}, frame(first, bytes(126)))[0] == 1002


@coro_test
def test_fragmented_control_frames():
    for first in (0x08, 0x09, 0x0A):
        assert refused({}, frame(first, b""))[0] == 1002


@coro_test
def test_reserved_bits():
    for first in (0xC1, 0xA1, 0x91, 0xC9):
        assert refused({}, frame(first, b"x"))[0] == 1002


@coro_test
def test_lengths_that_are_not_the_shortest():
    assert refused({}, b"\x82\xfe\x00\x01" + bytes(5))[0] == 1002
    assert refused({}, b"\x82\xff" + (1).to_bytes(8, "big") + bytes(5))[0] == 1002
    assert refused({}, b"\x82\xff" + b"\xff" * 8 + bytes(5))[0] == 1002


@coro_test
def test_messages_mixed_up():
    assert refused({}, frame(0x80, b"x"))[0] == 1002
    assert refused({}, frame(0x01, b"x"), frame(0x81, b"y"))[0] == 1002


@coro_test
def test_too_large_over_a_connection():
    code, cause = refused({"max_message": 1000, "max_frame": 1000}, frame(0x82, bytes(1001)))
    assert code == 1009
    assert isinstance(cause, TooMuchData)


@coro_test
def test_a_flood_of_pings_from_a_peer_that_reads_nothing():
    """What waits to be sent is bounded: the newest pongs are kept (RFC 6455, section 5.5.3)."""
    import coro

    stream, ws = raw()
    flood = frame(0x89, bytes(125)) * 500

    def send() -> None:
        try:
            for _ in range(60):
                stream.sendall(flood)
        except OSError:
            pass

    sender = coro.spawn(send)

    def receive() -> None:
        with pytest.raises(WebSocketClosed):
            ws.receive()

    receiver = coro.spawn(receive)
    sender.join()
    assert len(ws._waiting_control()) <= 64
    stream.close()
    receiver.join()


@coro_test
def test_a_close_frame_is_answered_once_and_nothing_follows():
    code, cause = refused({}, frame(0x88, b"\x03\xe8"), frame(0x81, b"late"), frame(0x88, b"\x03\xe9"))
    assert code == 1000
    assert cause is None
