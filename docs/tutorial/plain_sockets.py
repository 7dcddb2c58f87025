"""The echo server without ``coro.serve`` and ``coro.run``: sockets, threads and the event loop by hand.

Run it with ``python plain_sockets.py --port 9000``. End it with Ctrl-C.
"""

import argparse

import coro


def session(conn: coro.sock) -> None:
    with conn:  # closed however this function is left
        while block := conn.recv(1000):
            conn.send(block)


def serve(port: int) -> None:
    with coro.tcp_sock() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
        print("listening on port", listener.getsockname()[1], flush=True)
        while True:
            conn, address = listener.accept()
            coro.spawn(session, conn)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Echo server made of plain sockets.")
    parser.add_argument("--port", type=int, default=9000, help="port, 0 for any free one (default 9000)")
    options = parser.parse_args()
    coro.spawn(serve, options.port)
    coro.event_loop()
