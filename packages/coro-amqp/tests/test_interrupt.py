"""Every call that waits can be interrupted at the point where it waits, and others on the connection notice nothing."""

from __future__ import annotations

import os

import pytest
from client_support import HANG, Gate, Scripted, in_loop

import coro
from coro import amqp
from coro.amqp import testing

#: The calls that wait for an answer of the broker, on a channel.
CALLS = {
    "exchange_declare": lambda channel: channel.exchange_declare("e"),
    "exchange_delete": lambda channel: channel.exchange_delete("e"),
    "exchange_bind": lambda channel: channel.exchange_bind("amq.fanout", "amq.topic"),
    "exchange_unbind": lambda channel: channel.exchange_unbind("amq.fanout", "amq.topic"),
    "queue_declare": lambda channel: channel.queue_declare("other"),
    "queue_bind": lambda channel: channel.queue_bind("q", "amq.fanout"),
    "queue_unbind": lambda channel: channel.queue_unbind("q", "amq.fanout"),
    "queue_purge": lambda channel: channel.queue_purge("purged"),
    "queue_delete": lambda channel: channel.queue_delete("other"),
    "basic_qos": lambda channel: channel.basic_qos(5),
    "basic_consume": lambda channel: channel.basic_consume("q"),
    "basic_get": lambda channel: channel.basic_get("q"),
    "basic_recover": lambda channel: channel.basic_recover(),
    "confirm_select": lambda channel: channel.confirm_select(),
    "tx_select": lambda channel: channel.tx_select(),
    "close": lambda channel: channel.close(),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("how", ["with_timeout", "shutdown"])
@in_loop
def test_calls_that_wait_for_an_answer(name: str, how: str) -> None:
    with testing.Broker() as broker, Gate(broker.port) as gate, amqp.client(port=gate.port, timeout=HANG) as client:
        channel, other = client.channel(), client.channel()
        for queue in ("q", "purged"):
            other.queue_declare(queue)
        other.basic_publish(b"kept", routing_key="q")
        other.queue_declare("q", passive=True)
        gate.shut()
        if how == "with_timeout":
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.002, CALLS[name], channel)
        else:
            thread = coro.spawn(CALLS[name], channel)
            coro.yield_slice()
            thread.shutdown()
            thread.join(HANG)
        assert client._link.waiting == 0
        gate.open()
        # the connection and the other channel are as good as before
        other.queue_declare("after", passive=False)
        if name == "close":
            assert channel.closed
            channel = client.channel()
        elif name not in ("confirm_select", "tx_select"):
            channel.queue_declare("after", passive=True)
        # nothing was taken away: the message is where it was
        message = None
        with coro.timeout(HANG):
            while message is None:
                message = other.basic_get("q")
        assert message.body == b"kept"
        assert not channel.consumers and not channel._replies


@in_loop
def test_a_confirmation_that_nobody_waits_for_any_more() -> None:
    with testing.Broker() as broker, amqp.client(port=broker.port, timeout=HANG) as client:
        channel = client.channel()
        channel.queue_declare("q")
        channel.confirm_select(window=2)
        with broker.hold_confirms():
            for _ in range(2):
                with pytest.raises(coro.TimeoutError):
                    coro.with_timeout(0.002, channel.basic_publish, b"x", routing_key="q")
            for call in (channel.publish, channel.wait_for_confirms):
                with pytest.raises(coro.TimeoutError):
                    coro.with_timeout(0.002, call, *([b"x"] if call == channel.publish else []))
            assert channel.unconfirmed == 2
        channel.wait_for_confirms()
        channel.basic_publish(b"x", routing_key="q")
        assert channel.queue_declare("q", passive=True).message_count == 3


@in_loop
def test_publishing_while_the_broker_does_not_read() -> None:
    """What is interrupted before it is encoded is not sent, and what is encoded is sent whole."""
    gate = coro.event()

    def script(broker) -> None:
        broker.open_channel()
        gate.wait(HANG)
        while True:
            broker.next()

    with Scripted(script) as broker, amqp.client(port=broker.port, timeout=HANG) as client:
        channel = client.channel()
        sent = 0
        body = b"x" * 100_000
        while True:
            try:
                coro.with_timeout(0.01, channel.basic_publish, body, "e", "k")
            except coro.TimeoutError:
                break
            sent += 1
        with pytest.raises(amqp.AMQPTimeout, match="read what is published"):
            while True:
                channel.basic_publish(body, "e", "k", timeout=0.002)
                sent += 1
        gate.set()
        with coro.timeout(HANG):
            while broker.protocol.messages_in < sent:
                coro.sleep(0.001)
        channel.basic_publish(b"last", timeout=HANG)
        with coro.timeout(HANG):
            while broker.protocol.messages_in < sent + 1:
                coro.sleep(0.001)
        assert all(what.body == body for what in broker.seen if getattr(what, "body", b"last") != b"last")
        client._link.end(amqp.ConnectionLost("enough"))
        broker.thread.shutdown()


@in_loop
def test_opening_and_connecting() -> None:
    with testing.Broker() as broker, Gate(broker.port) as gate, amqp.client(port=gate.port, timeout=HANG) as client:
        gate.shut()
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.002, client.channel)
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.002, client.update_secret, "x")
        gate.open()
        channel = client.channel()
        channel.queue_declare("q")
        with coro.timeout(HANG):
            while len(client.channels) > 1:
                coro.sleep(0.001)
        assert list(client.channels.values()) == [channel]


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts descriptors by /proc")
@in_loop
def test_connecting_leaves_no_socket() -> None:
    def attempt() -> int:
        with Scripted(greet=False) as silent:
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.01, amqp.client(port=silent.port).go)
            silent.thread.shutdown()
            silent.thread.join(HANG)
        return len(os.listdir("/proc/self/fd"))

    attempt()
    assert attempt() == attempt()


@in_loop
def test_waiting_for_a_message_and_for_the_broker_to_unblock() -> None:
    with testing.Broker() as broker, amqp.client(port=broker.port, timeout=HANG) as client, client.channel() as channel:
        channel.queue_declare("q")
        consumer = channel.consume("q")
        thread = coro.spawn(consumer.get)
        coro.yield_slice()
        thread.shutdown()
        thread.join(HANG)
        broker.block("alarm")
        channel.basic_publish(b"x", routing_key="q")
        while client.blocked is None:
            coro.sleep(0.001)
        for call in (client.wait_unblocked, lambda: channel.basic_publish(b"y", routing_key="q")):
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.002, call)
        broker.unblock()
        assert consumer.get(HANG).body == b"x"
        channel.basic_publish(b"z", routing_key="q")
        assert consumer.get(HANG).body == b"z"


@in_loop
def test_calls_during_recovery() -> None:
    rule = amqp.Recovery(first=0.01, most=0.02)
    with testing.Broker() as broker:
        client = amqp.client(port=broker.port, timeout=HANG, recovery=rule)
        client.go()
        channel = client.channel()
        channel.queue_declare("q", durable=True)
        broker.stop(crash=True)
        while client.connected:  # a call before that is one on the old connection, and fails with it
            coro.sleep_relative(0.001)
        for call in (client.channel, lambda: channel.queue_declare("q"), lambda: channel.basic_publish(b"x", "", "q")):
            with pytest.raises(coro.TimeoutError):
                while True:
                    coro.with_timeout(0.02, call)
        broker.start()
        channel.queue_declare("q", durable=True)
        client.close()
