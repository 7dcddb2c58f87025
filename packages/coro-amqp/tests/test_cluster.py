"""The client against a cluster of RabbitMQ: consumers that end because a policy moves their queue."""

from __future__ import annotations

import pytest
from broker_support import new_name

import coro
from coro import amqp
from coro.testing import coro_test

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def connect(cluster, number, **more):
    host, port = cluster.addresses[number]
    return amqp.connect(f"amqp://guest:guest@{host}:{port}/", **{"timeout": 60, **more})


@coro_test(timeout=300)
def test_a_policy_that_moves_a_queue_cancels_its_consumers(cluster):
    """A mirrored queue that a policy puts onto other nodes gets another leader there. Consumers that have asked for it
    are told (https://www.rabbitmq.com/docs/3.12/ha#cancellation); the channel and other consumers go on."""
    first, second = (node.node for node in cluster.nodes[:2])
    name = new_name("mirrored")
    quoted = '","'

    def policy(*nodes):
        rule = f'{{"ha-mode":"nodes","ha-params":["{quoted.join(nodes)}"],"ha-sync-mode":"automatic"}}'
        coro.in_thread(cluster.nodes[0].control, "set_policy", name, f"^{name}$", rule, "--apply-to", "queues")

    def leader():
        lines = coro.in_thread(cluster.nodes[0].control, "list_queues", "name", "pid").splitlines()
        return next(line.split()[1] for line in lines if line.startswith(name))

    with connect(cluster, 0) as declaring, connect(cluster, 1) as consuming:
        declaring.channel().queue_declare(name, durable=True)
        policy(first, second)
        assert first in leader()
        channel = consuming.channel()
        told = []
        channel.on_cancel(told.append)
        ends = channel.basic_consume(name, "ends", arguments={"x-cancel-on-ha-failover": True})
        other = channel.queue_declare("", exclusive=True).queue
        stays = channel.basic_consume(other, "stays", no_ack=True)
        waiting = coro.spawn(outcome, ends)
        policy(second)
        error = waiting.get(120)
        assert isinstance(error, amqp.AMQP_Consumer_Closed) and "cancelled the consumer" in str(error)
        assert told == [ends] and list(channel.consumers) == ["stays"]
        channel.basic_publish(b"still here", routing_key=other)
        assert stays.get(60).body == b"still here"
        while second not in leader():
            pass
        # who wants to go on consumes again
        again = channel.basic_consume(name)
        channel.basic_publish(b"moved", routing_key=name)
        message = again.get(60)
        assert message.body == b"moved"
        message.ack()
        channel.queue_delete(name)
    coro.in_thread(cluster.nodes[0].control, "clear_policy", name)


def outcome(consumer):
    try:
        consumer.get(timeout=120)
    except amqp.AMQPError as error:
        return error
    return None
