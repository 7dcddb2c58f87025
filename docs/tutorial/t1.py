"""An echo server: whatever a client sends comes back, and every client has a thread of its own.

Run it with ``python t1.py --port 9000``, talk to it with ``nc 127.0.0.1 9000`` or t2.py, end it with Ctrl-C.
"""

import argparse

import coro


def session(conn: coro.sock) -> None:
    with conn:  # closed however this function is left
        while True:
            block = conn.recv(1000)
            if not block:  # the client has finished sending
                break
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
    parser = argparse.ArgumentParser(description="Echo server.")
    parser.add_argument("--port", type=int, default=9000, help="port, 0 for any free one (default 9000)")
    options = parser.parse_args()
    try:
        coro.run(serve, options.port)
    except KeyboardInterrupt:
        print("stopped")
