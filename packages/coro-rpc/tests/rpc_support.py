"""What several tests need: two connected ends, a server with a few methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import coro
from coro import testing
from coro.rpc import fast_rpc
from coro.rpc._wire import frames
from coro.rpc.packet_stream import PacketStream

PEER_PREAMBLE = frames.preamble()


@contextmanager
def pair(handler: Any = None, push_handler: Any = None, real: bool = False, **options: Any) -> Iterator[Any]:
    """A caller and a serving end, over memory, or a real socket pair."""
    a, b = coro.socketpair() if real else testing.stream_pair()
    ours = PacketStream(a, name="the server", **options).start()
    theirs = PacketStream(b, handler=handler, push_handler=push_handler, name="the client", **options).start()
    try:
        yield ours, theirs
    finally:
        ours.abort()
        theirs.abort()
        ours.wait_closed()
        theirs.wait_closed()


class Raw:
    """The other side by hand: bytes in, packets out."""

    def __init__(self, stream: Any, greet: bool = True) -> None:
        self.stream = stream
        self.reader = frames.FrameReader()
        self.packets: list[Any] = []
        if greet:
            stream.send(PEER_PREAMBLE)

    def send(self, kind: str, number: int, payload: bytes = b"", **options: Any) -> None:
        self.stream.send(frames.encode(frames.KINDS[kind], number, payload, **options))

    def receive(self) -> tuple[str, int, bytes]:
        """The next packet; EOFError at the end."""
        while not self.packets:
            data = self.stream.recv(65536)
            if not data:
                raise EOFError
            self.packets += self.reader.feed(data)
        kind, number, payload = self.packets.pop(0)
        return next(name for name, value in frames.KINDS.items() if value == kind), number, payload


def methods() -> fast_rpc.Registry:
    """A registry with what tests call."""
    registry = fast_rpc.Registry()

    @registry.export
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    @registry.export
    def echo(value: Any) -> Any:
        return value

    @registry.export
    def count(n: int) -> Iterator[int]:
        yield from range(n)
        return "end"

    @registry.export
    def total(items: Iterator[int], scale: int = 1) -> int:
        return sum(items) * scale

    @registry.export
    def fail(kind: str = "ValueError", *args: Any) -> None:
        raise {"ValueError": ValueError, "KeyError": KeyError}[kind](*args)

    @registry.export
    def sleep(seconds: float) -> float:
        coro.sleep_relative(seconds)
        return seconds

    @registry.export
    def back(n: int) -> int:
        call = fast_rpc.current_call()
        assert call is not None
        return n if n == 0 else call.connection.call("back", n - 1) + 1

    return registry


@contextmanager
def served(
    registry: fast_rpc.Registry | None = None, **options: Any
) -> Iterator[tuple[fast_rpc.Server, Callable[..., Any]]]:
    """A server on a free port, and a function that connects to it."""
    opened = []
    with fast_rpc.Server(registry or methods(), ("127.0.0.1", 0), **options) as server:

        def connect(*args: Any, **kwargs: Any) -> fast_rpc.Connection:
            opened.append(fast_rpc.connect(server.addresses[0], *args, **kwargs))
            return opened[-1]

        try:
            yield server, connect
        finally:
            for one in opened:
                one.abort()
                one.wait_closed()
