"""Asks rpc_server.py for ten numbers at once: python rpc_client.py [URL]"""

import sys

import coro
from coro import amqp
from coro.amqp import rpc

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://guest:guest@127.0.0.1/"


def main() -> None:
    with amqp.connect(URL) as connection, rpc.client(connection.channel()) as caller:

        def ask(number: int) -> str:
            return caller.request(str(number), "rpc_queue", timeout=10).body.decode()

        print(*coro.parallel_map(ask, range(10)))


coro.run(main)
