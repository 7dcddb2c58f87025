"""GarageMQ, a broker of other people's making: the common ground works, and what it lacks is refused in words."""

from __future__ import annotations

import pytest
from broker_support import broker_fixture, new_name

import coro
from coro import amqp
from coro.testing import coro_test

pytestmark = pytest.mark.slow

broker = broker_fixture("garagemq")


def connect(broker, **more):
    return amqp.connect(f"amqp://guest:guest@127.0.0.1:{broker.port}", timeout=60, **more)


@coro_test(timeout=60)
def test_declare_publish_confirm_consume_and_acknowledge(broker):
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_select()
        exchange, queue = new_name("exchange"), new_name("queue")
        channel.exchange_declare(exchange, "topic")
        channel.queue_declare(queue)
        channel.queue_bind(queue, exchange, "a.*")
        sizes = [1, 65528, 65529, 1 << 20]
        for size in sizes:
            channel.publish(bytes(size), exchange, "a.b", properties={"type": "t", "headers": {"n": size}})
        channel.wait_for_confirms()
        consumer = channel.consume(queue, prefetch=2)
        for size in sizes:
            message = consumer.get(timeout=60)
            assert (len(message.body), message.type, message.headers) == (size, "t", {"n": size})
            message.ack()
        consumer.cancel()
        assert channel.queue_delete(queue).message_count == 0


@coro_test(timeout=60)
def test_many_threads_and_messages_that_return(broker):
    with connect(broker) as connection:
        queue = new_name("queue")
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare(queue)
        coro.parallel_map(lambda n: channel.basic_publish(str(n), routing_key=queue), range(200))
        first = channel.basic_get(queue)
        first.nack(requeue=True)
        found = {int(channel.basic_get(queue, no_ack=True).body) for _ in range(200)}
        assert found == set(range(200))
        # It returns a message and does not confirm it.
        returned = coro.fifo()
        with connection.channel() as plain:
            plain.on_return(returned.push)
            plain.basic_publish(b"back", routing_key=new_name("nobody"), mandatory=True)
            assert returned.pop(60).body == b"back"


@coro_test(timeout=60)
def test_what_it_refuses_is_an_error_of_the_channel_or_connection(broker):
    with connect(broker) as connection:
        channel = connection.channel()
        with pytest.raises(amqp.ChannelClosed) as caught:
            channel.queue_declare(new_name("nowhere"), passive=True)
        assert caught.value.reply_code == 404
        connection.channel().queue_declare(new_name("queue"))
    with pytest.raises(amqp.AMQPError):
        amqp.connect(f"amqp://guest:wrong@127.0.0.1:{broker.port}")


@coro_test(timeout=60)
@pytest.mark.parametrize(
    "lacking",
    [
        lambda c: c.exchange_bind("amq.fanout", "amq.direct", "k"),
        lambda c: c.tx_select(),
    ],
    ids=["bindings between exchanges", "transactions"],
)
def test_what_it_lacks_ends_no_other_connection(broker, lacking):
    with connect(broker) as bystander:
        connection = connect(broker)
        connection.timeout = 1.0
        with pytest.raises(amqp.AMQPError):
            lacking(connection.channel())
        connection.close()
        with bystander.channel() as channel:
            channel.queue_declare(new_name("queue"))
