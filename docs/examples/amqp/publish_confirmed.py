"""The same, and knows that the broker has each of them: python publish_confirmed.py [URL]"""

import sys

import coro
from coro import amqp

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://guest:guest@127.0.0.1/"


def main() -> None:
    with amqp.connect(URL) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for number in range(3):
            # Does not wait for the broker, unless a thousand messages have no answer yet.
            channel.publish(f"confirmed {number}", "ething", "notification", mandatory=True)
        channel.wait_for_confirms()
        print("the broker has all of them")


coro.run(main)
