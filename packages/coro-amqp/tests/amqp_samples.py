"""Whole objects of the compiled classes that need arguments, for what is done to all of them (test_half_made.py)."""

from __future__ import annotations

from collections.abc import Callable

from protocol_support import Pair

from coro.amqp import _protocol, spec


def delivered() -> _protocol.Message:
    pair = Pair().open()
    properties = _protocol.Properties(content_type="text/plain", headers={"a": 1})
    pair.server.send_content(1, spec.basic.deliver("tag", 1, False, "exchange", "key"), properties, b"body")
    [(_, _, message)] = pair.move()
    return message


def busy() -> _protocol.Protocol:
    """A server that has got a part of a frame, and has something to send."""
    pair = Pair().open()
    pair.client.send_method(1, spec.queue.declare(queue="q"))
    pair.server.receive(b"".join(bytes(piece) for piece in pair.client.take_output())[:-3])
    pair.server.deliver(1, "tag", 1, False, "exchange", "key", None, b"body")
    return pair.server


SAMPLES: dict[str, Callable[[], object]] = {
    "coro.amqp._protocol.Message": delivered,
    "coro.amqp._protocol.Properties": lambda: _protocol.Properties(content_type="text/plain"),
    "coro.amqp._protocol.Protocol": busy,
}
