"""What is counted in instructions: `python counted.py WHAT OPERATIONS`, once with few operations and once with many.

encode, decode: a message of 100 bytes with two properties, by the codec alone. publish: given to a channel and encoded;
what leaves is thrown away. consumed: encoded by the codec as a broker does, taken from the consumer and acknowledged,
without a socket in between.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import codec

import coro
from coro import amqp
from coro.amqp import testing

BODY = b"x" * 100
WINDOW = 100


def encode(count: int) -> None:
    codec.coro("encode", count)


def decode(count: int) -> None:
    codec.coro("decode", count)


def publish(count: int) -> None:
    with testing.Broker() as broker, amqp.connect(broker.url, heartbeat=0) as client:
        channel = client.channel()
        link = client._link
        assert link is not None
        for number in range(count):
            channel.basic_publish(BODY, "amq.fanout", "key")
            if number % WINDOW == 0:
                link.protocol.take_output()


def consumed(count: int) -> None:
    with testing.Broker() as broker, amqp.connect(broker.url, heartbeat=0) as client:
        channel = client.channel()
        channel.queue_declare("q")
        consumer = channel.consume("q", prefetch=WINDOW)
        link, other = client._link, broker.sessions[0].protocol
        assert link is not None
        for tag in range(1, count + 1):
            other.deliver(channel.num, consumer.tag, tag, False, "", "q", None, BODY)
            if tag % WINDOW == 0:
                for _, message in link.protocol.receive(b"".join(map(bytes, other.take_output()))):
                    channel._message(message)
                for _ in range(WINDOW):
                    consumer.get().ack()
                link.protocol.take_output()


COUNTED: dict[str, Callable[[int], None]] = {
    "encode": encode,
    "decode": decode,
    "publish": publish,
    "consumed": consumed,
}

if __name__ == "__main__":
    coro.set_latency_warning(0)
    coro.run(COUNTED[sys.argv[1]], int(sys.argv[2]))
