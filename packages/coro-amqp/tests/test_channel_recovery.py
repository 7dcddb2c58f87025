"""A channel that the broker closes opens again, with all it had, on a client with recovery."""

from __future__ import annotations

import pytest
from broker_support import HOST, broker_fixture, new_name
from client_support import HANG, in_loop
from test_recovery import QUICK, Events, object_to_all, recovering

import coro
from coro import amqp
from coro.amqp import testing

broker = broker_fixture("stub", "rabbitmq")


def connect(broker, **more):
    return amqp.connect(f"amqp://{HOST}:{broker.port}", **{"timeout": HANG, "recovery": QUICK, **more})


def blame(channel: amqp.channel) -> None:
    """Do what the broker closes the channel for, without waiting for an answer."""
    channel._tell(amqp.spec.queue.bind(0, new_name("not-there"), "amq.fanout", "", True, {}))


def provoke(channel: amqp.channel) -> None:
    with pytest.raises(amqp.ChannelClosed, match="404"):
        channel.queue_declare(new_name("not-there"), passive=True)


@in_loop
def test_consumers_limits_and_confirms_come_back(broker) -> None:
    with connect(broker) as client:
        events = Events(client)
        channel, other = client.channel(), client.channel()
        queue, second = (other.queue_declare(new_name("recovered")).queue for _ in range(2))
        channel.basic_qos(7, _global=True)
        channel.confirm_select()
        told: list[amqp.AMQPError] = []
        channel.on_recovery(told.append)
        narrow = channel.consume(queue, prefetch=2)
        wide = channel.consume(second, prefetch=4)
        for closing in (provoke, blame):
            number = channel.num
            closing(channel)
            facts = events.wait("channel-recovered", len(told) + 1)
            assert facts["channel"] is channel and isinstance(facts["error"], amqp.ChannelClosed)
            assert not channel.closed and channel.num == number and client.connected
            for body in range(9):
                channel.basic_publish(str(body), routing_key=queue)
                channel.basic_publish(str(body), routing_key=second)
            # 2 and 4 of each, as the broker's own count of what is not acknowledged says
            for consumer, most in ((narrow, 2), (wide, 4)):
                taken = [consumer.get(HANG) for _ in range(most)]
                with pytest.raises(amqp.AMQPTimeout):
                    consumer.get(0.05)
                taken[-1].ack(multiple=consumer is narrow and False)
                for message in taken[:-1]:
                    message.ack()
                for _ in range(9 - most):
                    consumer.get(HANG).ack()
            assert told[-1] is facts["error"]
        assert [name for name, _ in events.seen] == ["channel-lost", "channel-recovered"] * 2
        assert client.statistics().connections == 1
        for name in queue, second:
            assert other.queue_delete(name).message_count == 0


@in_loop
def test_what_was_under_way_is_unknown_and_what_was_taken_comes_again(broker) -> None:
    with connect(broker) as client:
        events = Events(client)
        channel, other = client.channel(), client.channel()
        queue = other.queue_declare(new_name("recovered")).queue
        other.basic_publish(b"job", routing_key=queue)
        consumer = channel.consume(queue)
        old = consumer.get(HANG)
        channel.confirm_select()
        blame(channel)
        lost = channel.publish(b"x", "amq.fanout")
        with pytest.raises(amqp.ChannelClosed, match="404"):
            lost.wait()
        with pytest.raises(amqp.StaleDelivery):
            old.ack()
        events.wait("channel-recovered")
        with pytest.raises(amqp.StaleDelivery):
            old.ack()
        with pytest.raises(amqp.ChannelClosed, match="404"):
            channel.wait_for_confirms()
        new = consumer.get(HANG)
        assert new.body == b"job" and new.redelivered and new.delivery_tag > old.delivery_tag
        new.ack()
        channel.publish(b"y", "amq.fanout").wait()
        assert other.queue_delete(queue).message_count == 0


@in_loop
def test_publishes_are_repeated_by_choice_but_not_the_one_to_blame(broker) -> None:
    with connect(broker) as client:
        events = Events(client)
        channel, other = client.channel(), client.channel()
        queue = other.queue_declare(new_name("recovered")).queue
        channel.confirm_select(republish=True)
        blame(channel)
        kept = [channel.publish(str(i), routing_key=queue) for i in range(3)]
        channel.wait_for_confirms()
        assert all(each.delivered for each in kept)
        assert other.queue_purge(queue).message_count == 3
        wrong = channel.publish(b"x", new_name("no-exchange"))
        with pytest.raises(amqp.ChannelClosed, match="404"):
            wrong.wait()
        events.wait("channel-recovered", 2)
        channel.basic_publish(b"y", routing_key=queue)
        assert other.queue_delete(queue).message_count == 1


@in_loop
def test_a_consumer_whose_queue_has_gone_ends_and_the_others_come_back(broker) -> None:
    with connect(broker) as client:
        events = Events(client)
        channel, other = client.channel(), client.channel()
        gone, stays = (other.queue_declare(new_name("recovered")).queue for _ in range(2))
        first, second, third = channel.consume(stays), channel.consume(gone), channel.consume(stays)
        # both leave in one packet, so the queue is gone before anything can be restored
        blame(channel)
        other._tell(amqp.spec.queue.delete(0, gone, False, False, True))
        events.wait("channel-recovered")
        with pytest.raises(amqp.AMQP_Consumer_Closed):
            second.get(HANG)
        assert {*channel.consumers.values()} == {first, third}
        first.cancel()
        other.basic_publish(b"x", routing_key=stays)
        assert third.get(HANG).body == b"x"
        other.queue_delete(stays)


@in_loop
def test_a_transaction_that_was_cut_is_not_committed(broker) -> None:
    with connect(broker) as client:
        events = Events(client)
        channel, other = client.channel(), client.channel()
        queue = other.queue_declare(new_name("recovered")).queue
        channel.tx_select()
        channel.basic_publish(b"half", routing_key=queue)
        provoke(channel)
        events.wait("channel-recovered")
        with pytest.raises(amqp.ChannelClosed, match="404"):
            channel.tx_commit()
        channel.basic_publish(b"whole", routing_key=queue)
        channel.tx_commit()
        assert other.basic_get(queue).body == b"whole"
        other.queue_delete(queue)


@in_loop
def test_without_recovery_a_closed_channel_stays_closed(broker) -> None:
    with connect(broker, recovery=None) as client:
        channel = client.channel()
        provoke(channel)
        assert channel.closed and not client.channels


@in_loop
def test_probing_with_calls_that_fail_is_not_slowed_down() -> None:
    """The program knows of these, and decides how often."""
    rule = amqp.Recovery(first=1000, most=1000)
    with testing.Broker() as broker, recovering(broker, recovery=rule) as client:
        channel = client.channel()
        for _ in range(20):
            provoke(channel)
        channel.queue_declare("q")
        assert list(client.channels) == [channel.num]


@in_loop
def test_a_channel_that_is_closed_again_and_again_is_given_up() -> None:
    rule = amqp.Recovery(attempts=3, first=0.001, most=1000)
    with testing.Broker() as broker, recovering(broker, recovery=rule) as client:
        events = Events(client)
        channel, other = client.channel(), client.channel()
        other.queue_declare("q")
        consumer = channel.consume("q")
        for number in range(1, 4):
            blame(channel)
            events.wait("channel-recovered", number)
        blame(channel)
        with pytest.raises(amqp.AMQP_Consumer_Closed, match="404"):
            consumer.get(HANG)
        assert channel.closed and client.connected
        assert other.queue_declare("q").consumer_count == 0


@in_loop
def test_pauses_grow_and_calls_wait_or_fail_meanwhile() -> None:
    with testing.Broker() as broker:
        for calls in "wait", "fail":
            rule = amqp.Recovery(first=1000, most=1000, calls=calls)
            with recovering(broker, recovery=rule) as client:
                events = Events(client)
                channel = client.channel()
                blame(channel)
                events.wait("channel-recovered")
                blame(channel)
                events.wait("channel-lost", 2)
                if calls == "fail":
                    with pytest.raises(amqp.ChannelClosed, match="404"):
                        channel.queue_declare("q")
                else:
                    client.timeout = 0.02
                    with pytest.raises(amqp.AMQPTimeout, match=r"channel 1 to be recovered.*404"):
                        channel.basic_publish(b"x")
                    assert "waiting to be opened again" in repr(channel)
                waiting = coro.spawn(channel.close)
                waiting.get(HANG)
                assert channel.closed and not client.channels
        coro.yield_slice()
        assert not [t for t in coro.all_threads.values() if "recovery of channel" in str(t.name)]


@in_loop
def test_a_connection_that_is_lost_meanwhile_takes_over() -> None:
    rule = amqp.Recovery(first=0.001, most=1000)
    with testing.Broker() as broker, recovering(broker, recovery=rule) as client:
        events = Events(client)
        channel, other = client.channel(), client.channel()
        other.queue_declare("q", durable=True)
        consumer = channel.consume("q")
        blame(channel)
        events.wait("channel-recovered")
        blame(channel)
        events.wait("channel-lost", 2)
        broker.cut_connections()
        events.wait("recovered")
        other.basic_publish(b"x", routing_key="q")
        assert consumer.get(HANG).body == b"x"
        assert other.queue_declare("q", passive=True).consumer_count == 1


@in_loop
def test_the_broker_closes_all_channels_while_a_connection_is_restored() -> None:
    with testing.Broker() as broker, recovering(broker) as client:
        events = Events(client)
        channels = [client.channel() for _ in range(5)]
        channels[0].queue_declare("q", durable=True)
        consumers = [each.consume("q", prefetch=1) for each in channels]
        object_to_all(broker)
        with coro.timeout(HANG):
            while not broker.sessions or events.seen == []:
                coro.yield_slice()
            for _ in range(200):
                broker.close_channels()
                coro.yield_slice()
            while not client.connected or any(each._held for each in channels):
                coro.sleep_relative(0.001)
        assert not any(each.closed for each in channels)
        for number in range(5):
            channels[0].basic_publish(str(number), routing_key="q")
        assert sorted(each.get(HANG).body for each in consumers) == [b"%d" % n for n in range(5)]


@in_loop
def test_a_full_inbox_of_a_lost_channel_does_not_stop_the_connection() -> None:
    for recovery in QUICK, None:
        with testing.Broker() as broker, recovering(broker, recovery=recovery) as client:
            channel, other = client.channel(), client.channel()
            other.queue_declare("q")
            consumer = channel.basic_consume("q", max_inbox=1)
            for _ in range(5):
                other.basic_publish(b"x", routing_key="q")
            with coro.timeout(HANG):
                while not client._link.full:
                    coro.yield_slice()
            provoke(channel)
            if recovery is None:
                assert consumer.closed and not client._link.full
            else:
                for _ in range(5):
                    consumer.get(HANG).ack()
                assert not client._link.full


@in_loop
def test_consume_keeps_the_limit_that_the_program_has_set() -> None:
    with testing.Broker() as broker, recovering(broker) as client:
        channel, other = client.channel(), client.channel()
        other.queue_declare("q")
        for _ in range(300):
            other.basic_publish(b"x", routing_key="q")

        def delivered(consumer: amqp.consumer) -> int:
            """How many come without an acknowledgement; the next call's answer is behind them."""
            channel.queue_declare("q", passive=True)
            channel.queue_declare("q", passive=True)
            count = len(consumer)
            consumer.cancel()
            return count

        assert delivered(channel.consume("q")) == 100  # nothing was set
        assert delivered(channel.basic_consume("q", max_inbox=1000)) == 300  # nor was it by that
        channel.basic_qos(7)
        assert delivered(channel.consume("q")) == 7
        assert delivered(channel.consume("q", prefetch=3)) == 3
        assert delivered(channel.basic_consume("q")) == 7  # which the one before has not changed
        assert delivered(channel.consume("q", prefetch=0)) == 300
        assert delivered(channel.consume("q")) == 7
