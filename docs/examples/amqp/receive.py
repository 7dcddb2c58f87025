"""Declares an exchange, a queue and a binding, and prints what arrives: python receive.py [URL [COUNT]]"""

import sys

import coro
from coro import amqp

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://guest:guest@127.0.0.1/"
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else None


def main() -> None:
    with amqp.connect(URL, recovery=True) as connection:
        channel = connection.channel()
        channel.exchange_declare("ething")
        channel.queue_declare("qthing")
        channel.queue_bind("qthing", "ething", "notification")
        print("waiting", flush=True)
        for number, message in enumerate(channel.consume("qthing"), 1):
            print(message.body.decode(), flush=True)
            message.ack()
            if number == COUNT:
                break


coro.run(main)
