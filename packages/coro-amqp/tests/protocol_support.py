"""Two ends of a connection, tied together without a network, for tests of the codec."""

from __future__ import annotations

from coro.amqp import spec, wire


class Pair:
    """A client and a server; `move` carries what both have to send, whole or in pieces, and collects the events."""

    def __init__(self, chunk: int = 0, client=None, server=None, opened: bool = True) -> None:
        self.client = wire.Protocol("client", **(client or {}))
        self.server = wire.Protocol("server", **(server or {}))
        self.chunk = chunk
        if opened:
            self.handshake()

    def _carry(self, source, target, events, who):
        data = b"".join(bytes(piece) for piece in source.take_output())
        step = self.chunk or len(data) or 1
        for start in range(0, len(data), step):
            events += [(who, *event) for event in target.receive(data[start : start + step])]

    def move(self):
        """Everything, until both have nothing more to say: [(who received it, channel, what)]."""
        events: list = []
        while self.client.pending or self.server.pending:
            self._carry(self.client, self.server, events, "server")
            self._carry(self.server, self.client, events, "client")
        return events

    def handshake(self):
        self.client.send_header()
        self.move()
        self.server.send_method(0, spec.connection.start(server_properties={"product": "test"}))
        self.move()
        self.client.send_method(0, spec.connection.start_ok({}, "PLAIN", b"\0guest\0guest"))
        self.move()
        server = self.server
        self.server.send_method(0, spec.connection.tune(server.channel_max, server.frame_max, server.heartbeat))
        [(_, _, tune)] = self.move()
        self.client.send_method(0, self.client.answer_tune(tune))
        self.client.send_method(0, spec.connection.open())
        self.move()
        self.server.send_method(0, spec.connection.open_ok())
        self.move()

    def open(self, number: int = 1):
        self.client.send_method(number, spec.channel.open())
        self.move()
        self.server.send_method(number, spec.channel.open_ok())
        self.move()
        return self


def frame(kind: int, channel: int, payload: bytes, end: int = 206) -> bytes:
    """A frame as section 4.2.3 of the specification draws it."""
    return bytes([kind]) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + bytes([end])


def header(size: int, properties: bytes = b"\0\0", channel: int = 1) -> bytes:
    """A content header of class basic."""
    return frame(2, channel, b"\0\x3c\0\0" + size.to_bytes(8, "big") + properties)


def delivery(channel: int = 1, tag: int = 1) -> bytes:
    """The frame of a basic.deliver."""
    return frame(1, channel, spec.basic.deliver("c", tag, False, "", "q").pack())
