"""Answers with Fibonacci numbers, as in RabbitMQ's tutorial: python rpc_server.py [URL]"""

import sys

import coro
from coro import amqp
from coro.amqp import rpc

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://guest:guest@127.0.0.1/"


def fib(message: amqp.Message) -> str:
    a, b = 0, 1
    for _ in range(int(message.body)):
        a, b = b, a + b
    return str(a)


def main() -> None:
    with amqp.connect(URL, recovery=True) as connection:
        channel = connection.channel()
        channel.queue_declare("rpc_queue")
        with rpc.server(channel, "rpc_queue", handler=fib):
            print("waiting", flush=True)
            coro.event().wait()


coro.run(main)
