"""The echo server with manners: it hangs up on silent clients, and a line ``quit`` ends it.

Run it with ``python polite_server.py --port 9000 --idle 10``. It is one solution of the exercises in the chapter.
"""

import argparse
import functools

import coro


def session(conn: coro.sock, address: tuple[str, int], idle: float) -> None:
    try:
        while True:
            with coro.timeout(idle):
                block = conn.recv(1000)
            if not block:
                break
            if block.strip() == b"quit":
                coro.set_exit()  # asks the loop to end; this thread goes on until it next waits
            conn.send(block)
    except coro.TimeoutError:
        conn.send(b"too slow, bye\r\n")


def listening(server: coro.Server) -> None:
    print("listening on port", server.addresses[0][1], flush=True)


def main(port: int, idle: float) -> None:
    try:
        coro.serve(functools.partial(session, idle=idle), ("127.0.0.1", port), started=listening)
    finally:
        print("no longer listening", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Echo server that hangs up on silent clients.")
    parser.add_argument("--port", type=int, default=9000, help="port, 0 for any free one (default 9000)")
    parser.add_argument("--idle", type=float, default=10, help="seconds of silence allowed (default 10)")
    options = parser.parse_args()
    coro.run(main, options.port, options.idle)
