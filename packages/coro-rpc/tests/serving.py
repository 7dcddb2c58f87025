"""A program for tests: a server that prints its port (`--prefork`: in two processes; `--port N`), or a client that
makes load."""

from __future__ import annotations

import os
import sys
import time

from rpc_support import methods

import coro
from coro.rpc import fast_rpc

ADDRESS = ("127.0.0.1", 0)


def main() -> None:
    registry = methods()
    registry.export(os.getpid, "pid")
    notes: list[object] = []
    registry.export(notes.append, "note")
    registry.export(lambda: notes, "noted")
    registry.export(time.sleep, "block")  # stops the whole loop, which no handler should
    secret = os.environ.get("TEST_SECRET")
    options = {"secret": secret.encode()} if secret else {}
    if "--load" in sys.argv:
        port = int(sys.argv[-1])

        def load() -> None:
            conn = fast_rpc.connect(("127.0.0.1", port))
            coro.in_parallel([(conn.call, ("sleep", 1000)) for _ in range(100)])

        coro.run(load)
    elif "--prefork" in sys.argv:
        import socket

        listener = socket.socket()
        listener.bind(ADDRESS)
        listener.listen(100)
        print(listener.getsockname()[1], flush=True)
        fast_rpc.prefork(2, registry, listener)
    else:

        def serve() -> None:
            listener = coro.tcp_sock()
            port = int(sys.argv[2]) if "--port" in sys.argv else 0
            listener.set_reuse_addr()
            listener.bind((ADDRESS[0], port))
            listener.listen()
            print(listener.getsockname()[1], flush=True)
            fast_rpc.serve(registry, listener, drain_timeout=10, **options)

        coro.run(serve)


if __name__ == "__main__":
    main()
