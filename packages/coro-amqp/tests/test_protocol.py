"""The state machines of connection and channels, both roles against each other and against frames made by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_support import Pair, delivery, frame, header

from coro.amqp import EncodeError, LimitExceeded, ProtocolError, StateError, spec, wire

BODIES = (b"", b"x", b"y" * 4088, b"z" * 4089, bytes(range(256)) * 400)


@pytest.mark.parametrize("chunk", [0, 1, 7, 4096])
def test_a_conversation_in_pieces_of_any_size(chunk: int) -> None:
    """The events are the same wherever the stream is cut."""
    pair = Pair(chunk, client={"frame_max": 4096}).open(1).open(2)
    pair.client.publish(1, "e", "k", b"hello", {"headers": {"a": [1, None]}, "delivery-mode": 2}, mandatory=True)
    pair.client.send_method(2, spec.queue.declare(queue="q", arguments={"x-max-length": 5}))
    for body in BODIES:
        pair.client.publish(2, "", "q", body)
    pair.server.deliver(1, "tag", 9, True, "e", "k", {"priority": 3}, b"w" * 9000)
    events = pair.move()
    assert [who for who, _, _ in events] == ["server"] * 7 + ["client"]
    first = events[0][2]
    assert (first.kind, first.exchange, first.routing_key, first.body) == ("publish", "e", "k", b"hello")
    assert first.properties == {"headers": {"a": [1, None]}, "delivery-mode": 2} and first.mandatory
    assert events[1][1:] == (2, spec.queue.declare(queue="q", arguments={"x-max-length": 5}))
    assert tuple(event[2].body for event in events[2:7]) == BODIES
    last = events[7][2]
    assert (last.consumer_tag, last.delivery_tag, last.redelivered, last.body) == ("tag", 9, True, b"w" * 9000)
    assert last.priority == 3 and last.headers == {} and last.reply_to is None
    assert last.deliver_method() == spec.basic.deliver("tag", 9, True, "e", "k")


def test_contents_of_two_channels_interleave() -> None:
    pair = Pair().open(1).open(2)
    data = b"".join(
        [
            delivery(1, 1),
            delivery(2, 2),
            header(6, channel=2),
            header(4, channel=1),
            frame(3, 2, b"abc"),
            frame(3, 1, b"1234"),
            frame(8, 0, b""),
            frame(3, 2, b"def"),
        ]
    )
    for step in (1, 3, len(data)):
        pair = Pair().open(1).open(2)
        found = []
        for start in range(0, len(data), step):
            found += pair.client.receive(data[start : start + step])
        assert [(number, what.body) for number, what in found] == [(1, b"1234"), (2, b"abcdef")]
        assert pair.client.heartbeats_in == 1
    assert pair.client.messages_in == 2


@pytest.mark.parametrize("offered", [0, 4096, 5000, 131072])
@pytest.mark.parametrize("wanted", [0, 4096, 131072])
def test_frame_max_is_kept_and_bodies_are_cut(offered: int, wanted: int) -> None:
    pair = Pair(client={"frame_max": wanted}, server={"frame_max": offered}).open(1)
    agreed = min(offered or wanted, wanted or offered)
    assert pair.client.frame_max == pair.server.frame_max == agreed
    body = b"q" * 3_000_000
    pair.client.publish(1, "", "k", body)
    pieces = b"".join(bytes(piece) for piece in pair.client.take_output())
    at, sizes = 0, []
    while at < len(pieces):
        size = int.from_bytes(pieces[at + 3 : at + 7], "big")
        sizes.append(size + 8)
        assert pieces[at + 7 + size] == 206
        at += size + 8
    if agreed:
        assert max(sizes) == agreed
    [(_, message)] = pair.server.receive(pieces)
    assert message.body == body


def test_long_bodies_are_not_copied() -> None:
    pair = Pair().open(1)
    body = b"b" * 1_000_000
    pair.client.publish(1, "", "k", body)
    assert pair.client.pending > len(body)
    views = [piece for piece in pair.client.take_output() if isinstance(piece, memoryview)]
    assert all(view.obj is body for view in views) and sum(map(len, views)) == len(body)
    assert pair.client.pending == 0 and pair.client.take_output() == []


def test_the_handshake_goes_one_step_after_the_other() -> None:
    pair = Pair(opened=False)
    states = [pair.client.state]
    pair.client.send_header()
    states.append(pair.client.state)
    assert pair.move() == [("server", 0, wire.HEADER_OK)]
    with pytest.raises(ProtocolError, match=r"expected connection.start, got connection.tune"):
        wrong = wire.Protocol("client")
        wrong.send_header()
        wrong.receive(frame(1, 0, spec.connection.tune().pack()))
    pair.server.send_method(0, spec.connection.start(server_properties={}))
    pair.move()
    states.append(pair.client.state)
    with pytest.raises(StateError):
        pair.client.send_header()
    with pytest.raises(StateError, match="state 'secure'"):
        pair.client.send_method(1, spec.channel.open())
    assert states == ["header", "start", "secure"]


def test_tuning_takes_the_lower_limits() -> None:
    pair = Pair(client={"channel_max": 10, "heartbeat": 0}, server={"channel_max": 5, "heartbeat": 30})
    assert (
        (pair.client.channel_max, pair.client.heartbeat) == (5, 30) == (pair.server.channel_max, pair.server.heartbeat)
    )
    with pytest.raises(StateError, match="from 1 to 5"):
        pair.client.send_method(6, spec.channel.open())


@pytest.mark.parametrize("tune_ok", [(9999, 4096, 0), (10, 131073, 0), (10, 0, 0), (10, 100, 0)])
def test_a_client_may_not_raise_the_limits(tune_ok: tuple[int, int, int]) -> None:
    pair = Pair(opened=False, server={"channel_max": 10})
    pair.client.send_header()
    pair.move()
    pair.server.send_method(0, spec.connection.start(server_properties={}))
    pair.client.receive(b"".join(pair.server.take_output()))
    pair.client.send_method(0, spec.connection.start_ok({}, "PLAIN", b""))
    pair.move()
    pair.server.send_method(0, spec.connection.tune(10, 131072, 0))
    pair.move()
    with pytest.raises(ProtocolError, match="at most|4096 and more"):
        pair.server.receive(frame(1, 0, spec.connection.tune_ok(*tune_ok).pack()))


def test_the_wrong_version() -> None:
    server = wire.Protocol("server")
    with pytest.raises(ProtocolError, match="0-9-1"):
        server.receive(b"AMQP\1\1\0\x0a")
    server.send_header()
    client = wire.Protocol("client")
    client.send_header()
    [(number, what)] = client.receive(b"".join(server.take_output()))
    assert number == 0 and isinstance(what, wire.VersionRefused) and what.version == (0, 0, 9, 1)
    assert client.state == "closed"


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n", b"220 mail ESMTP\r\n", b"\x16\x03\x01", b"AMQQ"])
def test_peers_that_do_not_speak_amqp_are_recognised_by_their_first_bytes(greeting: bytes) -> None:
    client = wire.Protocol("client")
    client.send_header()
    with pytest.raises(ProtocolError, match="AMQP"):
        client.receive(greeting)
    with pytest.raises(ProtocolError):
        client.receive(b"")


def test_channels_open_and_close() -> None:
    pair = Pair()
    assert pair.client.channel_state(1) == "closed"
    pair.client.send_method(1, spec.channel.open())
    assert pair.client.channel_state(1) == "opening"
    with pytest.raises(StateError, match="opening"):
        pair.client.publish(1, "", "", b"")
    with pytest.raises(StateError):
        pair.client.send_method(1, spec.channel.open())
    pair.move()
    pair.server.send_method(1, spec.channel.open_ok())
    pair.move()
    assert pair.client.channel_state(1) == "open"
    pair.client.send_method(1, spec.channel.close(200, "bye", 0, 0))
    assert pair.client.channel_state(1) == "closing"
    with pytest.raises(StateError, match="closing"):
        pair.client.ack(1, 1)
    events = pair.move()
    assert events == [("server", 1, spec.channel.close(200, "bye", 0, 0)), ("client", 1, spec.channel.close_ok())]
    assert pair.client.channel_state(1) == pair.server.channel_state(1) == "closed"
    pair.open(1)


def test_after_closing_a_channel_everything_else_on_it_is_dropped() -> None:
    pair = Pair().open(1)
    pair.client.send_method(1, spec.channel.close(200, "", 0, 0))
    pair.server.deliver(1, "c", 1, False, "", "", None, b"late")
    pair.server.send_method(1, spec.basic.cancel("c"))
    events = pair.move()
    assert [what._name for _, _, what in events] == ["channel.close", "channel.close_ok"]


def test_both_ends_close_a_channel_at_once() -> None:
    pair = Pair().open(1)
    pair.client.send_method(1, spec.channel.close(200, "", 0, 0))
    pair.server.send_method(1, spec.channel.close(404, "gone", 0, 0))
    pair.move()
    assert pair.client.channel_state(1) == pair.server.channel_state(1) == "closed"


def test_both_ends_close_the_connection_at_once() -> None:
    pair = Pair().open(1)
    pair.client.send_method(0, spec.connection.close(200, "", 0, 0))
    pair.server.send_method(0, spec.connection.close(320, "", 0, 0))
    pair.move()
    assert pair.client.state == pair.server.state == "closed"
    with pytest.raises(StateError):
        pair.client.send_method(0, spec.connection.close(200, "", 0, 0))


@pytest.mark.parametrize(
    ("data", "code", "match"),
    [
        (frame(1, 2, spec.queue.purge_ok(1).pack()), 504, "channel 2 to be open"),
        (frame(1, 1, spec.queue.purge(0, "q").pack()), 503, "what a server sends"),
        (frame(1, 1, b"\0\x63\0\1"), 503, "method 99.1"),
        (frame(1, 1, b"\0\x63"), 502, "at least 4 bytes"),
        (frame(1, 0, spec.queue.purge_ok(1).pack()), 503, "on channel 0"),
        (frame(1, 1, spec.connection.blocked("x").pack()), 503, "on channel 0"),
        (frame(1, 0, spec.connection.open_ok().pack()), 503, "got connection.open_ok"),
        (frame(1, 0, spec.connection.close_ok().pack()), 503, "only after"),
        (frame(1, 1, spec.channel.close_ok().pack()), 503, "only after"),
        (frame(1, 1, spec.channel.open_ok().pack()), 504, "open"),
        (frame(1, 1, spec.basic.deliver("c", 1, False, "", "").pack()[:-1]), 502, "more bytes"),
        (header(0), 505, "no content header"),
        (frame(3, 1, b"x"), 505, "no part of a message"),
        (delivery() + frame(3, 1, b"x"), 505, "no part of a message"),
        (delivery() + delivery(), 505, "content of a message"),
        (delivery() + header(3) + header(3), 505, "no content header"),
        (delivery() + header(3) + frame(3, 1, b"1234"), 501, "3 more bytes"),
        (delivery() + frame(2, 1, b"\0\x32" + bytes(12)), 502, "class 60"),
        (delivery() + frame(2, 1, b"\0\x3c\0\1" + bytes(10)), 502, "weight"),
        (delivery() + frame(2, 1, bytes(13)), 502, "14 bytes"),
        (frame(8, 1, b""), 501, "heartbeat"),
        (frame(8, 0, b"x"), 501, "heartbeat"),
        (frame(1, 0, b"\0\x0a\0\x3c\0", end=205), 501, "0xce"),
        (frame(4, 0, b""), 501, "expected a frame"),
    ],
)
def test_violations(data: bytes, code: int, match: str) -> None:
    pair = Pair().open(1)
    good = pair.client.receive(frame(1, 0, spec.connection.blocked("full").pack()) + data)
    assert good == [(0, spec.connection.blocked("full"))]
    assert pair.client.error is not None
    with pytest.raises(ProtocolError, match=match) as caught:
        pair.client.receive(b"")
    assert caught.value.reply_code == code and caught.value is pair.client.error


def test_the_end_of_the_stream() -> None:
    pair = Pair().open(1)
    pair.client.eof()
    pair.client.receive(delivery())
    with pytest.raises(ProtocolError, match="within a message"):
        pair.client.eof()
    pair = Pair()
    pair.client.receive(b"\1\0")
    with pytest.raises(ProtocolError, match="2 bytes of a frame"):
        pair.client.eof()


def test_an_encoding_error_leaves_nothing_behind() -> None:
    pair = Pair(client={"frame_max": 4096}).open(1)
    for properties in ({"headers": {"a": object()}}, {"headers": {"a": "x" * 5000}}, {"nonsense": 1}):
        with pytest.raises(EncodeError):
            pair.client.publish(1, "e", "k", b"body", properties)
    with pytest.raises(EncodeError):
        pair.client.publish(1, "e" * 256, "k", b"body")
    with pytest.raises(EncodeError, match="expected bytes"):
        pair.client.publish(1, "e", "k", 5)
    with pytest.raises(EncodeError):
        pair.client.send_method(1, spec.queue.declare(queue="q", arguments={"a": "x" * 5000}))
    assert pair.client.pending == 0
    pair.client.publish(1, "e", "k", "text")
    [(_, _, message)] = pair.move()
    assert message.body == b"text"


def test_bodies_of_all_kinds() -> None:
    pair = Pair().open(1)
    for body in (b"abc", bytearray(b"abc"), memoryview(b"abc"), "abc"):
        pair.client.publish(1, "", "", body)
    assert [what.body for _, _, what in pair.move()] == [b"abc"] * 4


def test_methods_with_content_go_with_their_content() -> None:
    pair = Pair().open(1)
    with pytest.raises(StateError, match="send_content"):
        pair.server.send_method(1, spec.basic._return(312, "NO_ROUTE", "", "k"))
    with pytest.raises(StateError, match="send_method"):
        pair.server.send_content(1, spec.basic.ack(1), None, b"")
    pair.server.send_content(1, spec.basic._return(312, "NO_ROUTE", "e", "k"), {"type": "t"}, b"back")
    pair.server.send_content(1, spec.basic.get_ok(4, False, "e", "k", 7), None, b"got")
    [(_, _, back), (_, _, got)] = pair.move()
    assert (back.kind, back.reply_code, back.reply_text, back.type) == ("return", 312, "NO_ROUTE", "t")
    assert back.deliver_method() == spec.basic._return(312, "NO_ROUTE", "e", "k")
    assert (got.kind, got.delivery_tag, got.message_count) == ("get_ok", 4, 7)
    assert got.deliver_method() == spec.basic.get_ok(4, False, "e", "k", 7)
    with pytest.raises(StateError, match="without a channel"):
        got.ack()


def test_limits_that_make_no_sense() -> None:
    for wrong in ({"frame_max": 100}, {"channel_max": 0}, {"heartbeat": -1}, {"max_body": -1}, {"max_table_depth": 0}):
        with pytest.raises(ValueError, match="expected"):
            wire.Protocol("client", **wrong)
    with pytest.raises(ValueError, match="role"):
        wire.Protocol("peer")


@given(st.lists(st.binary(max_size=12000), min_size=1, max_size=4), st.data())
@settings(max_examples=30, deadline=None)
def test_messages_come_back_however_the_stream_is_cut(bodies: list[bytes], data) -> None:
    pair = Pair(client={"frame_max": 4096}).open(1)
    for body in bodies:
        pair.client.publish(1, "e", "k", body)
    stream = b"".join(bytes(piece) for piece in pair.client.take_output())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += pair.server.receive(stream[start:end])
    assert [message.body for _, message in found] == bodies


@given(st.binary(max_size=200), st.sampled_from(["client", "server"]))
def test_any_bytes_are_events_or_a_protocol_error(data: bytes, role: str) -> None:
    pair = Pair().open(1)
    end = getattr(pair, role)
    try:
        for _, what in end.receive(data):
            if isinstance(what, wire.Message):
                assert isinstance(what.properties, dict)
        end.receive(b"")
    except ProtocolError:
        pass


def test_damaged_properties_are_the_senders_fault() -> None:
    pair = Pair().open(1)
    [(_, message)] = pair.client.receive(delivery() + header(0, b"\x80\0\5abc"))
    with pytest.raises(ProtocolError):
        assert message.properties
    assert LimitExceeded("x").reply_code == 502
