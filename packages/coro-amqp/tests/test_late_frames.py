"""Frames that come on a channel after the server has closed it belong to nobody, and the connection goes on.

Whoever closes a channel may have sent more by then: in RabbitMQ one process sends channel.close, and another what was
to be delivered. Both ends drop it until the channel is opened again (specification, channel.close in 1.5.2.5).
"""

from __future__ import annotations

import pytest
from broker_support import HOST, broker_fixture, new_name
from client_support import HANG, Scripted, in_loop
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_support import Pair, delivery, frame, header

import coro
from coro import amqp
from coro.amqp import ProtocolError, spec, wire

broker = broker_fixture("stub", "rabbitmq")

CLOSE = spec.channel.close(404, "NOT_FOUND", 50, 20)
CLOSED = frame(1, 1, CLOSE.pack())
OPENED = frame(1, 1, spec.channel.open_ok().pack())
MESSAGE = delivery(tag=7) + header(6) + frame(3, 1, b"abc") + frame(3, 1, b"def")
LATE = {
    "a delivery": MESSAGE,
    "the rest of a message": header(6) + frame(3, 1, b"abcdef"),
    "a part of a body": frame(3, 1, b"def"),
    "a returned message": frame(1, 1, spec.basic._return(312, "NO_ROUTE", "", "k").pack()) + header(0),
    "a fetched message": frame(1, 1, spec.basic.get_ok(1, False, "", "q", 0).pack()) + header(0),
    "an answer": frame(1, 1, spec.queue.declare_ok("q", 0, 0).pack()),
    "a confirmation": frame(1, 1, spec.basic.ack(1).pack()),
    "a cancelled consumer": frame(1, 1, spec.basic.cancel("c", False).pack()),
    "another close": CLOSED,
    "the answer to a close": frame(1, 1, spec.channel.close_ok().pack()),
}
ELSEWHERE = frame(1, 2, spec.queue.purge_ok(3).pack())


def bodies(events: list) -> list:
    return [(number, what.body if isinstance(what, wire.Message) else what._name) for number, what in events]


@pytest.mark.parametrize("name", LATE)
@pytest.mark.parametrize(
    "begun",
    [b"", delivery(), delivery() + header(6), delivery() + header(6) + frame(3, 1, b"abc")],
    ids=["nothing", "a method", "a header", "a part of a body"],
)
def test_late_frames_are_dropped_wherever_the_stream_is_cut(name: str, begun: bytes) -> None:
    """A message that had begun before the channel was closed never comes."""
    data = begun + CLOSED + LATE[name] * 2 + ELSEWHERE
    for cut in range(len(data) + 1):
        pair = Pair().open(1).open(2)
        events = pair.client.receive(data[:cut]) + pair.client.receive(data[cut:])
        assert bodies(events) == [(1, "channel.close"), (2, "queue.purge_ok")], cut
        assert pair.client.channel_state(1) == "closed"
        pair.client.eof()
        assert b"".join(pair.client.take_output()) == frame(1, 1, spec.channel.close_ok().pack())


@pytest.mark.parametrize("name", [each for each in LATE if each != "another close"])
def test_a_number_that_is_used_again_at_once_gets_only_what_is_new(name: str) -> None:
    data = LATE[name] * 2 + OPENED + MESSAGE + ELSEWHERE
    for cut in range(len(data) + 1):
        pair = Pair().open(1).open(2)
        pair.client.receive(CLOSED)
        pair.client.send_method(1, spec.channel.open())
        events = pair.client.receive(data[:cut]) + pair.client.receive(data[cut:])
        assert bodies(events) == [(1, "channel.open_ok"), (1, b"abcdef"), (2, "queue.purge_ok")], cut
        # and once it is open, a stray frame is a mistake again
        with pytest.raises(ProtocolError, match="no part of a message"):
            pair.client.receive(frame(3, 1, b"x"))


def test_a_channel_that_both_ends_close_may_be_followed_by_deliveries() -> None:
    pair = Pair().open(1)
    pair.client.send_method(1, spec.channel.close(200, "", 0, 0))
    data = CLOSED + MESSAGE + frame(1, 1, spec.channel.close_ok().pack()) + MESSAGE
    assert bodies(pair.client.receive(data)) == [(1, "channel.close"), (1, "channel.close_ok")]
    pair.client.send_method(1, spec.channel.open())
    assert bodies(pair.client.receive(MESSAGE + OPENED + MESSAGE)) == [(1, "channel.open_ok"), (1, b"abcdef")]


def test_only_channels_that_the_server_has_closed_are_excused() -> None:
    pair = Pair().open(1)
    with pytest.raises(ProtocolError, match="channel 2 to be open") as caught:
        pair.client.receive(delivery(channel=2))
    assert caught.value.reply_code == 504
    pair = Pair().open(1)
    pair.client.send_method(1, spec.channel.close(200, "", 0, 0))
    pair.client.receive(frame(1, 1, spec.channel.close_ok().pack()))
    with pytest.raises(ProtocolError, match="channel 1 to be open"):
        pair.client.receive(delivery())
    pair = Pair().open(1)
    with pytest.raises(ProtocolError, match="channel 1 to be open"):
        pair.server.receive(
            frame(1, 1, spec.channel.close(200, "", 0, 0).pack()) + frame(1, 1, spec.tx.select().pack())
        )
        pair.server.receive(b"")


def test_there_may_be_a_million_and_no_more_until_it_is_open_again() -> None:
    pair = Pair().open(1)
    some = frame(3, 1, b"") * 65536
    for _ in range(2):
        pair.client.receive(CLOSED)
        for _ in range(16):
            assert pair.client.receive(some) == []
        pair.client.send_method(1, spec.channel.open())
        pair.client.receive(OPENED)
    pair.client.receive(CLOSED)
    for _ in range(16):
        pair.client.receive(some)
    with pytest.raises(ProtocolError, match="1048576 frames after it") as caught:
        pair.client.receive(frame(3, 1, b""))
    assert caught.value.reply_code == 504


STEPS = st.sampled_from(["open", "close", "we close", "message", "half", "answer"])


@given(st.lists(st.tuples(STEPS, st.integers(1, 3)), max_size=40), st.lists(st.integers(0, 4000), max_size=5))
@settings(max_examples=300, deadline=None)
def test_any_order_of_openings_and_late_frames(steps: list[tuple[str, int]], cuts: list[int]) -> None:
    """A server that closes channels and goes on sending, and what of it a client must see."""
    pair = Pair()
    state: dict[int, str] = {}  # number: "open", "late", or nothing; "half" of a message may have come
    expected: list[tuple[int, object]] = []
    found: list[tuple[int, object]] = []
    for step, number in steps:
        data = b""
        at = state.get(number)
        if step == "open" and at in (None, "late"):
            pair.client.send_method(number, spec.channel.open())
            if at == "late":
                data = delivery(number) + header(3, channel=number) + frame(3, number, b"old")
            data += frame(1, number, spec.channel.open_ok().pack())
            expected.append((number, "channel.open_ok"))
            state[number] = "open"
        elif step == "close" and at in ("open", "half"):
            data = frame(1, number, CLOSE.pack())
            expected.append((number, "channel.close"))
            state[number] = "late"
        elif step == "we close" and at in ("open", "half"):
            pair.client.send_method(number, spec.channel.close(200, "", 0, 0))
            data = delivery(number) + frame(1, number, spec.channel.close_ok().pack())
            expected.append((number, "channel.close_ok"))
            del state[number]
        elif step == "message" and at in ("open", "late"):
            data = delivery(number) + header(3, channel=number) + frame(3, number, b"new")
            if at == "open":
                expected.append((number, b"new"))
        elif step == "half" and at in ("open", "late"):
            data = delivery(number) + header(6, channel=number) + frame(3, number, b"hal")
            if at == "open":
                state[number] = "half"
        elif step == "answer" and at in ("open", "late"):
            data = frame(1, number, spec.queue.purge_ok(1).pack())
            if at == "open":
                expected.append((number, "queue.purge_ok"))
        ends = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
        for start, end in zip(ends, ends[1:], strict=False):
            found += bodies(pair.client.receive(data[start:end]))
    assert found == expected


@pytest.mark.parametrize("again", [False, True], ids=["closed", "used again"])
@in_loop
def test_a_client_goes_on(again: bool) -> None:
    def script(broker: Scripted) -> None:
        broker.open_channel()
        broker.open_channel(2)
        broker.expect(spec.basic.consume)
        broker.say(1, spec.basic.consume_ok("tag"))
        broker.protocol.send_method(1, CLOSE)
        broker.flush()
        late = delivery() + header(3) + frame(3, 1, b"old")
        broker.conn.send(late)
        broker.expect(spec.channel.close_ok)
        broker.conn.send(late + late[:-6])
        if again:
            broker.expect(spec.channel.open)
            broker.conn.send(late[-6:] + late)
            broker.say(1, spec.channel.open_ok())
            broker.expect(spec.basic.consume)
            broker.say(1, spec.basic.consume_ok("tag"))
            broker.protocol.deliver(1, "tag", 1, False, "", "q", None, b"new")
            broker.flush()
        else:
            broker.conn.send(late[-6:])
        broker.expect(spec.queue.declare)
        broker.say(2, spec.queue.declare_ok("q", 0, 0))

    with Scripted(script) as broker, amqp.connect(f"amqp://{HOST}:{broker.port}", timeout=HANG) as client:
        old, other = client.channel(), client.channel()
        consumer = old.basic_consume("q", consumer_tag="tag")
        with pytest.raises(amqp.AMQP_Consumer_Closed, match="404"):
            consumer.get(HANG)
        if again:
            new = client.channel()
            assert new.num == old.num and new.basic_consume("q", consumer_tag="tag").get(HANG).body == b"new"
        other.queue_declare("q")
        assert not broker.errors and client.error is None


@in_loop
def test_channels_that_end_under_deliveries_leave_the_connection(broker) -> None:
    """Each is closed for a mistake while the broker has thousands of messages on the way to it."""
    queue = new_name("late")
    with (
        amqp.connect(f"amqp://{HOST}:{broker.port}", timeout=HANG) as client,
        amqp.connect(f"amqp://{HOST}:{broker.port}", timeout=HANG) as feeding,
    ):
        feed, other = feeding.channel(), client.channel()
        other.queue_declare(queue)
        for _ in range(4000):
            feed.basic_publish(b"x" * 100, routing_key=queue)
        numbers = set()
        for _ in range(40):
            channel = client.channel()
            numbers.add(channel.num)
            consumer = channel.basic_consume(queue, callback=lambda message: None)
            channel._tell(spec.queue.bind(0, new_name("not-there"), "amq.fanout", "", True, {}))
            while not channel.closed:
                coro.sleep_relative(0.001)
            assert consumer.closed and isinstance(channel.error, amqp.ChannelClosed)
        assert client.error is None and len(numbers) == 1
        assert other.queue_delete(queue) is not None
