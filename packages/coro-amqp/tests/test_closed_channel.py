"""What a channel and its messages do after the broker has closed it: raise, and send nothing.

A number that the broker has freed is given to the next channel. The broker counts the deliveries of that one from 1, so
a late acknowledgement of the former one would take the place of another message's; without a new channel it would end
the connection (specification, 1.5.2.5 and reply code 504).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from broker_support import HOST, broker_fixture, new_name
from client_support import HANG, Scripted, in_loop

import coro
from coro import amqp
from coro.amqp import spec, wire

broker = broker_fixture("stub", "rabbitmq")

SETTLE: dict[str, Callable[[wire.Message], object]] = {
    "message.ack": lambda m: m.ack(),
    "message.ack multiple": lambda m: m.ack(multiple=True),
    "message.nack": lambda m: m.nack(),
    "message.nack multiple": lambda m: m.nack(multiple=True),
    "message.reject": lambda m: m.reject(),
    "channel.basic_ack": lambda m: m.channel.basic_ack(m.delivery_tag),
    "channel.basic_ack all": lambda m: m.channel.basic_ack(0, multiple=True),
    "channel.get_ack": lambda m: m.channel.get_ack(m.delivery_tag),
    "channel.basic_nack": lambda m: m.channel.basic_nack(m.delivery_tag),
    "channel.basic_nack all": lambda m: m.channel.basic_nack(0, multiple=True),
    "channel.basic_reject": lambda m: m.channel.basic_reject(m.delivery_tag),
}

ASK: dict[str, Callable[[amqp.channel], object]] = {
    "exchange_declare": lambda c: c.exchange_declare("e"),
    "exchange_declare nowait": lambda c: c.exchange_declare("e", nowait=True),
    "exchange_delete": lambda c: c.exchange_delete("e"),
    "exchange_bind": lambda c: c.exchange_bind("e", "amq.fanout"),
    "exchange_unbind": lambda c: c.exchange_unbind("e", "amq.fanout"),
    "queue_declare": lambda c: c.queue_declare("q"),
    "queue_bind": lambda c: c.queue_bind("q", "amq.fanout"),
    "queue_unbind": lambda c: c.queue_unbind("q", "amq.fanout"),
    "queue_purge": lambda c: c.queue_purge("q"),
    "queue_delete": lambda c: c.queue_delete("q"),
    "basic_qos": lambda c: c.basic_qos(1),
    "basic_consume": lambda c: c.basic_consume("q"),
    "consume": lambda c: c.consume("q"),
    "basic_cancel": lambda c: c.basic_cancel("tag"),
    "basic_cancel nowait": lambda c: c.basic_cancel("tag", nowait=True),
    "basic_get": lambda c: c.basic_get("q"),
    "basic_recover": lambda c: c.basic_recover(),
    "basic_publish": lambda c: c.basic_publish(b"x"),
    "confirm_select": lambda c: c.confirm_select(),
    "tx_select": lambda c: c.tx_select(),
    "tx_commit": lambda c: c.tx_commit(),
    "tx_rollback": lambda c: c.tx_rollback(),
    "flow": lambda c: c.flow(True),
}


def closed_by_the_broker(channel: amqp.channel) -> None:
    with pytest.raises(amqp.ChannelClosed, match="404"):
        channel.queue_declare(new_name("not-there"), passive=True)
    assert channel.closed


@pytest.mark.parametrize("reused", [False, True], ids=["number free", "number reused"])
@in_loop
def test_nothing_is_sent_for_a_message_of_a_closed_channel(broker, reused: bool) -> None:
    queue = new_name("closed-channel")
    with amqp.connect(f"amqp://{HOST}:{broker.port}", timeout=HANG) as client:
        other = client.channel()
        other.queue_declare(queue)
        for how, settle in SETTLE.items():
            for body in "first", "second":
                other.basic_publish(body, routing_key=queue)
            old = client.channel()
            message = old.consume(queue, prefetch=1).get(HANG)
            closed_by_the_broker(old)
            if reused:
                new = client.channel()
                assert new.num == old.num
                mine = new.consume(queue, prefetch=1).get(HANG)
                assert (mine.body, mine.delivery_tag) == (message.body, message.delivery_tag)
            frames = client.statistics().frames_out
            with pytest.raises(amqp.StaleDelivery, match="delivers it again"):
                settle(message)
            assert client.statistics().frames_out == frames, how
            if reused:
                new.close()
            assert other.queue_purge(queue).message_count == 2, how
        other.queue_delete(queue)


@pytest.mark.parametrize("reused", [False, True], ids=["number free", "number reused"])
@in_loop
def test_every_call_says_why_the_channel_is_closed(broker, reused: bool) -> None:
    with amqp.connect(f"amqp://{HOST}:{broker.port}", timeout=HANG) as client:
        other, old = client.channel(), client.channel()
        queue = other.queue_declare(new_name("closed-channel")).queue
        consumer = old.consume(queue)
        old.confirm_select()
        closed_by_the_broker(old)
        if reused:
            assert client.channel().num == old.num
        frames = client.statistics().frames_out
        for name, call in {**ASK, "publish": lambda c: c.publish(b"x")}.items():
            if name == "tx_select":
                continue  # not in confirm mode, which is said first
            with pytest.raises(amqp.ChannelClosed, match="404"):
                call(old)
        with pytest.raises(amqp.AMQP_Consumer_Closed, match="404"):
            consumer.get(HANG)
        consumer.cancel()
        consumer.close()
        assert old.close() is None
        assert client.statistics().frames_out == frames
        other.queue_delete(queue)
        plain = client.channel()
        plain.close()
        frames = client.statistics().frames_out
        for call in ASK.values():
            with pytest.raises(amqp.StateError):
                call(plain)
        assert client.statistics().frames_out == frames


@in_loop
def test_a_handler_that_ends_after_its_channel_leaves_the_message_to_the_broker(broker) -> None:
    queue = new_name("closed-channel")
    with amqp.connect(f"amqp://{HOST}:{broker.port}", timeout=HANG) as client:
        other, old = client.channel(), client.channel()
        other.queue_declare(queue)
        other.basic_publish(b"x", routing_key=queue)
        begun, go_on = coro.event(), coro.event()

        def handle(message: wire.Message) -> None:
            begun.set()
            go_on.wait()

        worker = coro.spawn(old.consume(queue, prefetch=1).run, handle)
        begun.wait()
        closed_by_the_broker(old)
        new = client.channel()
        again = new.consume(queue, prefetch=1).get(HANG)
        go_on.set()
        with pytest.raises(amqp.AMQP_Consumer_Closed, match="404"):
            worker.get(HANG)
        assert again.redelivered
        again.reject()
        new.close()
        assert other.queue_delete(queue).message_count == 1


CLOSE = spec.channel.close(406, "PRECONDITION_FAILED", 0, 0)


def in_one_packet(*what: Callable[[wire.Protocol], object]) -> Callable[[Scripted], None]:
    """A broker that accepts a subscription, and then says all this at once."""

    def script(broker: Scripted) -> None:
        broker.open_channel()
        broker.open_channel(2)
        broker.expect(spec.basic.consume)
        broker.say(1, spec.basic.consume_ok("tag"))
        for each in what:
            each(broker.protocol)
        broker.flush()
        # nothing else comes, and the connection is well
        assert {type(broker.next()[1]) for _ in range(2)} == {spec.channel.close_ok, spec.queue.declare}
        broker.say(2, spec.queue.declare_ok("q", 0, 0))

    return script


@pytest.mark.parametrize("tag", ["tag", "unknown"])
@in_loop
def test_a_delivery_right_before_the_end_of_its_channel_is_not_settled(tag: str) -> None:
    """Both are in the hands of the codec before the first is handled."""
    errors: list[amqp.AMQPError] = []

    def callback(message: wire.Message | None) -> None:
        if message is not None:
            for settle in SETTLE.values():
                with pytest.raises(amqp.StaleDelivery) as caught:
                    settle(message)
                errors.append(caught.value)

    def deliver(protocol: wire.Protocol) -> None:
        protocol.deliver(1, tag, 1, False, "", "q", None, b"x")

    with Scripted(in_one_packet(deliver, lambda protocol: protocol.send_method(1, CLOSE))) as broker:
        with amqp.connect(f"amqp://{HOST}:{broker.port}", timeout=HANG) as client:
            channel, other = client.channel(), client.channel()
            channel.basic_consume("q", callback=callback)
            other.queue_declare("q")
            assert channel.closed and len(errors) == (len(SETTLE) if tag == "tag" else 0)
            assert not broker.errors


@pytest.mark.parametrize(
    "method", [spec.basic.cancel("tag", False), spec.channel.flow(False)], ids=["basic.cancel", "channel.flow"]
)
@in_loop
def test_a_method_right_before_the_end_of_its_channel_is_not_answered(method) -> None:
    def speak(protocol: wire.Protocol) -> None:
        protocol.send_method(1, method)
        protocol.send_method(1, CLOSE)

    with Scripted(in_one_packet(speak)) as broker, amqp.connect(f"amqp://{HOST}:{broker.port}", timeout=HANG) as client:
        channel, other = client.channel(), client.channel()
        consumer = channel.basic_consume("q")
        other.queue_declare("q")
        with pytest.raises(amqp.AMQP_Consumer_Closed):
            consumer.get(HANG)
        assert not broker.errors


@in_loop
def test_a_message_right_before_the_end_of_the_connection_is_not_settled() -> None:
    def speak(protocol: wire.Protocol) -> None:
        protocol.deliver(1, "tag", 1, False, "", "q", None, b"x")
        protocol.send_method(0, spec.connection.close(320, "CONNECTION_FORCED", 0, 0))

    def script(broker: Scripted) -> None:
        broker.open_channel()
        broker.expect(spec.basic.consume)
        broker.say(1, spec.basic.consume_ok("tag"))
        speak(broker.protocol)
        broker.flush()

    refused = coro.event()

    def callback(message: wire.Message | None) -> None:
        if message is not None:
            for settle in SETTLE.values():
                with pytest.raises(amqp.StaleDelivery):
                    settle(message)
            refused.set()

    with Scripted(script) as broker:
        client = amqp.connect(f"amqp://{HOST}:{broker.port}", timeout=HANG)
        client.channel().basic_consume("q", callback=callback)
        refused.wait()
        client.close()
