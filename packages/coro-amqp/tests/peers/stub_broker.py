"""The broker of coro.amqp.testing as a program: port [heartbeat]."""

import sys

import coro
from coro.amqp import testing


def main() -> None:
    more = {"heartbeat": int(sys.argv[2])} if len(sys.argv) > 2 else {}
    with testing.Broker(int(sys.argv[1]), **more):
        coro.event().wait()


coro.run(main)
