"""Publishes a few messages for receive.py: python publish.py [URL]"""

import sys

import coro
from coro import amqp

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://guest:guest@127.0.0.1/"


def main() -> None:
    with amqp.connect(URL) as connection:
        channel = connection.channel()
        for number in range(3):
            channel.basic_publish(f"message {number}", "ething", "notification")


coro.run(main)
