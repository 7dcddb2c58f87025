"""An echo server: whatever a client sends comes back. Each client has a thread of its own.

Run it with ``python echo_server.py --port 9000``. Talk to it with ``nc 127.0.0.1 9000`` or with echo_client.py. End it
with Ctrl-C.
"""

import argparse

import coro


def session(conn: coro.sock, address: tuple[str, int]) -> None:
    while block := conn.recv(1000):
        conn.send(block)


def listening(server: coro.Server) -> None:
    print("listening on port", server.addresses[0][1], flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Echo server.")
    parser.add_argument("--port", type=int, default=9000, help="port, 0 for any free one (default 9000)")
    options = parser.parse_args()
    try:
        coro.run(coro.serve, session, ("127.0.0.1", options.port), started=listening)
    except KeyboardInterrupt:
        print("stopped")
