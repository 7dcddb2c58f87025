"""A proxy that lets you watch a protocol: it passes bytes both ways and prints what goes by.

Run it with ``python proxy.py 127.0.0.1 9000 --port 9001``, point a client at port 9001, end it with Ctrl-C.
"""

import argparse
import itertools

import coro


def feed(number: int, arrow: str, source: coro.sock, target: coro.sock) -> None:
    """Pass on what one side says, until it has nothing more to say."""
    while True:
        block = source.recv(4096)
        print(f"{arrow} {number} {block!r}", flush=True)
        if not block:
            break
        target.send(block)
    try:
        target.shutdown(coro.SHUT.WR)  # pass on the end too; the other direction may go on
    except coro.oserrors.ENOTCONN:
        pass  # the target has gone altogether


def session(number: int, conn: coro.sock, host: str, port: int) -> None:
    with conn, coro.tcp_sock() as server:
        server.connect((host, port))
        there = coro.spawn(feed, number, "==>", conn, server)
        back = coro.spawn(feed, number, "<==", server, conn)
        there.join()
        back.join()


def serve(port: int, host: str, host_port: int) -> None:
    with coro.tcp_sock() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
        print("listening on port", listener.getsockname()[1], flush=True)
        for number in itertools.count(1):
            conn, address = listener.accept()
            coro.spawn(session, number, conn, host, host_port)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Watch a protocol from between client and server.")
    parser.add_argument("host", help="host name or address of the server")
    parser.add_argument("host_port", type=int, help="port of the server")
    parser.add_argument("--port", type=int, default=9001, help="port, 0 for any free one (default 9001)")
    options = parser.parse_args()
    try:
        coro.run(serve, options.port, options.host, options.host_port)
    except KeyboardInterrupt:
        print("stopped")
