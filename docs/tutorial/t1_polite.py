"""The echo server of t1.py with manners: it hangs up on silent clients, and a line ``quit`` ends it.

Run it with ``python t1_polite.py --port 9000 --idle 10``. One solution of the exercises in the chapter.
"""

import argparse

import coro


def session(conn: coro.sock, idle: float) -> None:
    with conn:
        try:
            while True:
                block = coro.with_timeout(idle, conn.recv, 1000)
                if not block:
                    break
                if block.strip() == b"quit":
                    coro.set_exit()  # asks the loop to end; this thread goes on until it waits for something
                conn.send(block)
        except coro.TimeoutError:
            conn.send(b"too slow, bye\r\n")


def serve(port: int, idle: float) -> None:
    with coro.tcp_sock() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
        print("listening on port", listener.getsockname()[1], flush=True)
        try:
            while True:
                conn, address = listener.accept()
                coro.spawn(session, conn, idle)
        finally:
            print("no longer listening", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Echo server that hangs up on silent clients.")
    parser.add_argument("--port", type=int, default=9000, help="port, 0 for any free one (default 9000)")
    parser.add_argument("--idle", type=float, default=10, help="seconds of silence allowed (default 10)")
    options = parser.parse_args()
    coro.spawn(serve, options.port, options.idle)
    coro.event_loop()
