"""Whole objects of the compiled classes that need arguments, for what is done to all of them (test_half_made.py)."""

from __future__ import annotations

from collections.abc import Callable

import coro
from coro.rpc import _calls, packet_stream
from coro.rpc._wire import frames


class Stream:
    """Of a peer that has greeted and says nothing more."""

    def __init__(self) -> None:
        self.pieces = [frames.preamble(65536, 65536)]

    def recv(self, size: int, flags: int = 0) -> bytes:
        if not self.pieces:
            coro.sleep_relative(3600)
        return self.pieces.pop()

    def send(self, data: bytes) -> int:
        return len(data)

    sendall = send

    def close(self) -> None:
        pass

    def shutdown(self, how: int) -> None:
        pass


def packets() -> packet_stream.PacketStream:
    made = packet_stream.PacketStream(Stream(), handler=bytes)
    made.start()
    coro.yield_slice()
    return made


def reader() -> frames.FrameReader:
    made = frames.FrameReader()
    made.feed(frames.preamble(65536, 65536) + frames.encode(1, 1, b"hello")[:-2])
    return made


def method() -> _calls.Method:
    return _calls.Method("m", print, serial="method")


SAMPLES: dict[str, Callable[[], object]] = {
    "coro.rpc._calls.Limits": lambda: _calls.Limits(5),
    "coro.rpc._calls.Method": method,
    "coro.rpc._wire.frames.FrameReader": reader,
    "coro.rpc.packet_stream.Call": lambda: packets().begin(b"x"),
    "coro.rpc.packet_stream.PacketStream": packets,
}
