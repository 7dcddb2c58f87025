"""Single frames, as Shrapnel's client has them: sending, waiting for the connection's, and forgetting channels."""

from __future__ import annotations

import pytest
from client_support import HANG, Scripted, in_loop

import coro
from coro import amqp
from coro.amqp import spec, testing, wire


def header(size: int, properties: dict) -> bytes:
    flags, data = wire.pack_properties(properties)
    return b"\0\x3c\0\0" + size.to_bytes(8) + flags.to_bytes(2) + data


@in_loop
def test_a_message_frame_by_frame_among_others() -> None:
    with testing.Broker() as broker, amqp.connect(broker.url, timeout=HANG) as client, client.channel() as channel:
        channel.queue_declare("q")
        publish = spec.basic.publish(0, "", "q", False, False)
        client.send_frame(spec.FRAME_METHOD, channel.num, publish)
        # what others send meanwhile does not come between
        channel.basic_publish(b"other", routing_key="q")
        client.send_frame(spec.FRAME_HEADER, channel.num, header(6, {"type": "t"}))
        client.send_frame(spec.FRAME_BODY, channel.num, b"abc")
        channel.basic_publish(b"another", routing_key="q")
        client.send_frame(spec.FRAME_BODY, channel.num, memoryview(b"def"))
        client.send_frame(spec.FRAME_METHOD, channel.num, publish)
        client.send_frame(spec.FRAME_HEADER, channel.num, header(0, {}))
        client.send_frame(spec.FRAME_HEARTBEAT, 0, b"")
        consumer = channel.consume("q")
        messages = [consumer.get(HANG) for _ in range(4)]
        assert [message.body for message in messages] == [b"other", b"another", b"abcdef", b""]
        assert [message.type for message in messages] == [None, None, "t", None]


@in_loop
def test_frames_out_of_order_are_refused_and_change_nothing() -> None:
    with testing.Broker() as broker, amqp.connect(broker.url, timeout=HANG) as client, client.channel() as channel:
        channel.queue_declare("q")
        publish = spec.basic.publish(0, "", "q", False, False)
        for ftype, data in ((spec.FRAME_HEADER, header(0, {})), (spec.FRAME_BODY, b"x"), (4, b""), (1, b"bytes")):
            with pytest.raises(amqp.StateError):
                client.send_frame(ftype, channel.num, data)
        client.send_frame(spec.FRAME_METHOD, channel.num, publish)
        for ftype, data in ((spec.FRAME_METHOD, publish), (spec.FRAME_BODY, b"x")):
            with pytest.raises(amqp.StateError):
                client.send_frame(ftype, channel.num, data)
        with pytest.raises(amqp.EncodeError):
            client.send_frame(spec.FRAME_HEADER, channel.num, b"short")
        client.send_frame(spec.FRAME_HEADER, channel.num, header(2, {}))
        with pytest.raises(amqp.EncodeError, match="2 bytes"):
            client.send_frame(spec.FRAME_BODY, channel.num, b"too much")
        channel.confirm_select()
        with pytest.raises(amqp.StateError, match="confirm mode"):
            client.send_frame(spec.FRAME_METHOD, channel.num, publish)
        assert channel.queue_declare("q", passive=True).message_count == 0


@in_loop
def test_methods_of_the_connection_are_waited_for() -> None:
    with testing.Broker() as broker, amqp.connect(broker.url, timeout=HANG) as client:
        secret = spec.connection.update_secret(b"guest", "")
        client.send_frame(spec.FRAME_METHOD, 0, secret)
        ftype, number, method = client.expect_frame(spec.FRAME_METHOD, "connection.update_secret_ok")
        assert (ftype, number, type(method)) == (spec.FRAME_METHOD, 0, spec.connection.update_secret_ok)
        client.send_frame(spec.FRAME_METHOD, 0, secret)
        with pytest.raises(amqp.ProtocolError, match="expected connection.blocked"):
            client.expect_frame(spec.FRAME_METHOD, "connection.blocked")
        with pytest.raises(amqp.AMQPTimeout):
            client.expect_frame(spec.FRAME_METHOD, "connection.blocked", timeout=0.001)
        with pytest.raises(amqp.StateError):
            client.expect_frame(spec.FRAME_BODY)
        channel = client.channel()
        waiting = coro.spawn(client.expect_frame, spec.FRAME_METHOD, "connection.blocked")
        coro.yield_slice()
        broker.block("full")
        channel.basic_publish(b"", "amq.fanout")  # it blocks who publishes
        assert waiting.get(HANG)[2].reason == "full"
        # what is waited for has its usual effect, too
        assert client.blocked == "full"
        broker.unblock()
        client.wait_unblocked()
        lost = coro.spawn(client.expect_frame, spec.FRAME_METHOD, "connection.blocked")
        coro.yield_slice()
        broker.cut_connections()
        with pytest.raises(amqp.AMQPError):
            lost.get(HANG)


@in_loop
def test_the_time_since_something_was_sent() -> None:
    unused = amqp.client()
    assert unused.last_send == 0
    with pytest.raises(amqp.StateError):
        unused.secs_since_send()
    with testing.Broker() as broker, amqp.connect(broker.url, timeout=HANG) as client:
        before = client.last_send
        assert 0 < before <= coro.get_now()
        client.channel()
        assert client.last_send > before
        assert 0 <= client.secs_since_send() < HANG


@in_loop
def test_forgotten_channels_end_for_everybody_here() -> None:
    def script(broker: Scripted) -> None:
        for _ in range(3):
            number, _ = broker.next()
            broker.say(number, spec.channel.open_ok())

    with Scripted(script) as broker:
        client = amqp.client(port=broker.port, timeout=HANG, close_timeout=0.01)
        client.go()
        channels = [client.channel() for _ in range(3)]
        threads = [coro.spawn(each.queue_declare, "q") for each in channels]
        coro.yield_slice()
        client.forget_channel(1)
        client.forget_channel(77)
        assert sorted(client.channels) == [2, 3] and channels[0].closed and not channels[1].closed
        client.notify_channels_of_close()
        assert not client.channels
        for thread in threads:
            with pytest.raises(amqp.StateError, match="was closed"):
                thread.get(HANG)
        client.close()
