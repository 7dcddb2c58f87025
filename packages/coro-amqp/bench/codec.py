"""basic.publish or basic.deliver with header and body of 100 bytes, and two properties, to bytes and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from _common import Figures, Stopwatch, main

if TYPE_CHECKING:
    from coro.amqp import wire

BODY = b"x" * 100


def _pair() -> tuple[wire.Protocol, wire.Protocol]:
    """Our protocol in both roles, with channel 1 open."""
    from coro.amqp import spec, wire

    client, server = wire.Protocol("client"), wire.Protocol("server")

    def carry(source: wire.Protocol, target: wire.Protocol) -> None:
        target.receive(b"".join(bytes(piece) for piece in source.take_output()))

    client.send_header()
    carry(client, server)
    server.send_method(0, spec.connection.start(server_properties={}))
    carry(server, client)
    client.send_method(0, spec.connection.start_ok({}, "PLAIN", b""))
    carry(client, server)
    server.send_method(0, spec.connection.tune(10, 131072, 0))
    carry(server, client)
    client.send_method(0, spec.connection.tune_ok(10, 131072, 0))
    client.send_method(0, spec.connection.open())
    carry(client, server)
    server.send_method(0, spec.connection.open_ok())
    carry(server, client)
    client.send_method(1, spec.channel.open())
    carry(client, server)
    server.send_method(1, spec.channel.open_ok())
    carry(server, client)
    return client, server


def coro(mode: str, count: int) -> Figures:
    client, server = _pair()
    properties = {"content-type": "text/plain", "delivery-mode": 2}
    watch = Stopwatch()
    if mode == "encode":
        watch.start()
        for i in range(count):
            client.publish(1, "exchange", "routing.key", BODY, properties)
            if not i % 100:
                client.take_output()
        watch.stop()
        return watch.figures(count)
    for _ in range(100):
        server.deliver(1, "tag", 1, False, "exchange", "routing.key", properties, BODY)
    data = b"".join(bytes(piece) for piece in server.take_output())
    watch.start()
    for _ in range(count // 100):
        for _, message in client.receive(data):
            assert message.properties  # decoded when asked for
    watch.stop()
    return watch.figures(count)


def pamqp(mode: str, count: int) -> Figures:
    from pamqp import body, commands, frame, header  # type: ignore[import-not-found,unused-ignore]

    properties = commands.Basic.Properties(content_type="text/plain", delivery_mode=2)
    watch = Stopwatch()
    if mode == "encode":
        watch.start()
        for _ in range(count):
            b"".join(
                (
                    frame.marshal(commands.Basic.Publish(0, "exchange", "routing.key"), 1),
                    frame.marshal(header.ContentHeader(0, len(BODY), properties), 1),
                    frame.marshal(body.ContentBody(BODY), 1),
                )
            )
        watch.stop()
        return watch.figures(count)
    data = b"".join(
        (
            frame.marshal(commands.Basic.Deliver("tag", 1, False, "exchange", "routing.key"), 1),
            frame.marshal(header.ContentHeader(0, len(BODY), properties), 1),
            frame.marshal(body.ContentBody(BODY), 1),
        )
    )
    watch.start()
    for _ in range(count):
        at = 0
        while at < len(data):
            used, _, _ = frame.unmarshal(data[at:])
            at += used
    watch.stop()
    return watch.figures(count)


if __name__ == "__main__":
    main({"coro": coro, "pamqp": pamqp})
