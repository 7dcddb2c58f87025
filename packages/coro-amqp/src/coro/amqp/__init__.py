"""AMQP 0-9-1: a client for RabbitMQ and its relatives, RPC over it, and a broker for tests.

    import coro
    from coro import amqp

    def main():
        with amqp.connect("amqp://guest:guest@localhost/") as broker, broker.channel() as channel:
            channel.queue_declare("jobs", durable=True)
            channel.basic_publish(b"hello", routing_key="jobs")
            for message in channel.consume("jobs"):
                print(message.body)
                message.ack()

    coro.run(main)

This file holds names only. Importing it starts no thread and opens no descriptor. `coro.amqp.rpc` and
`coro.amqp.testing` are imported by those who use them.
"""

from __future__ import annotations

from coro.amqp._core import explained as _explained

with _explained():
    from coro.amqp import spec, wire
    from coro.amqp._channel import channel
    from coro.amqp._client import Recovery, Statistics, client, connect
    from coro.amqp._confirms import Confirmation
    from coro.amqp._consumer import consumer
    from coro.amqp._protocol import Message, Properties
    from coro.amqp.exceptions import (
        AMQP_Consumer_Closed,
        AMQPError,
        AMQPTimeout,
        AuthenticationError,
        ChannelClosed,
        ConnectionBlocked,
        ConnectionClosed,
        ConnectionLost,
        EncodeError,
        LimitExceeded,
        LocalError,
        ProtocolError,
        PublishNacked,
        PublishReturned,
        RemoteError,
        StaleDelivery,
        StateError,
        UnexpectedClose,
    )
    from coro.amqp.wire import pack_properties, unpack_properties

__version__ = "0.1.0"

__all__ = [
    "AMQPError",
    "AMQPTimeout",
    "AMQP_Consumer_Closed",
    "AuthenticationError",
    "ChannelClosed",
    "Confirmation",
    "ConnectionBlocked",
    "ConnectionClosed",
    "ConnectionLost",
    "EncodeError",
    "LimitExceeded",
    "LocalError",
    "Message",
    "Properties",
    "ProtocolError",
    "PublishNacked",
    "PublishReturned",
    "Recovery",
    "RemoteError",
    "StaleDelivery",
    "StateError",
    "Statistics",
    "UnexpectedClose",
    "channel",
    "client",
    "connect",
    "consumer",
    "pack_properties",
    "spec",
    "unpack_properties",
    "wire",
]
