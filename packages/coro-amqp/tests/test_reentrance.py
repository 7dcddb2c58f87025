"""Code of a program that runs while a message is encoded, and uses the same connection meanwhile: frames do not mix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from protocol_support import Pair

from coro.amqp import wire
from coro.amqp.exceptions import StateError


class Lazy:
    """A mapping of properties that does something before it tells them."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.act = act

    def keys(self) -> Iterator[str]:
        self.act()
        return iter(["content-type"])

    def __getitem__(self, name: str) -> str:
        return "text/plain"


def received(pair: Pair) -> list[tuple[bytes, Any]]:
    return [(what.body, what.content_type) for _, _, what in pair.move()]


@pytest.mark.parametrize("size", [0, 5, 20000, 300000])
def test_a_message_within_a_message(size: int) -> None:
    pair = Pair().open()
    lazy = Lazy(lambda: pair.client.publish(1, "", "inner", b"i" * 20000))
    pair.client.publish(1, "", "outer", b"o" * size, lazy)
    assert received(pair) == [(b"i" * 20000, None), (b"o" * size, "text/plain")]


def test_what_is_waiting_is_taken_within_a_message() -> None:
    pair = Pair().open()
    pair.client.publish(1, "", "before", b"before")
    taken: list[Any] = []
    pair.client.publish(1, "", "outer", b"outer", Lazy(lambda: taken.extend(pair.client.take_output())))
    events = pair.server.receive(b"".join(bytes(piece) for piece in taken))
    assert [what.body for _, what in events] == [b"before"]
    assert received(pair) == [(b"outer", "text/plain")]


def test_a_message_whose_properties_fail_after_another_message() -> None:
    pair = Pair().open()

    def act() -> None:
        pair.client.publish(1, "", "inner", b"inner")
        raise RuntimeError("no properties")

    with pytest.raises(RuntimeError, match="no properties"):
        pair.client.publish(1, "", "outer", b"outer", Lazy(act))
    assert received(pair) == [(b"inner", None)]


def test_a_delivery_within_a_delivery() -> None:
    pair = Pair().open()
    lazy = Lazy(lambda: pair.server.deliver(1, "t", 1, False, "", "inner", None, b"inner"))
    pair.server.deliver(1, "t", 2, False, "", "outer", lazy, b"outer")
    assert received(pair) == [(b"inner", None), (b"outer", "text/plain")]


def test_the_connection_breaks_within_a_message() -> None:
    pair = Pair().open()
    with pytest.raises(StateError, match="closed"):
        pair.client.publish(1, "", "outer", b"outer", Lazy(pair.client.abandon))
    assert pair.client.pending == 0


def test_a_protocol_is_initialised_once() -> None:
    made = wire.Protocol("client")
    with pytest.raises(RuntimeError, match="cannot be initialised twice: make a new one"):
        made.__init__("server")


def test_properties_that_were_never_filled() -> None:
    nothing = wire.Properties.__new__(wire.Properties)
    assert dict(nothing) == {}
    assert nothing == wire.Properties()
    pair = Pair().open()
    pair.client.publish(1, "", "k", b"x", nothing)
    assert received(pair) == [(b"x", None)]
