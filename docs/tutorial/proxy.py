"""A proxy that lets you watch a protocol: it passes bytes both ways and prints what goes by.

Run it with ``python proxy.py 127.0.0.1 9000 --port 9001``. Point a client at port 9001. End it with Ctrl-C.
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


def listening(server: coro.Server) -> None:
    print("listening on port", server.addresses[0][1], flush=True)


def main(port: int, host: str, host_port: int) -> None:
    numbers = itertools.count(1)

    def session(client: coro.sock, address: tuple[str, int]) -> None:
        number = next(numbers)
        with coro.connect(host, host_port) as server, coro.group() as g:
            g.spawn(feed, number, "==>", client, server)
            g.spawn(feed, number, "<==", server, client)

    coro.serve(session, ("127.0.0.1", port), started=listening)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Watch a protocol from between client and server.")
    parser.add_argument("host", help="host name or address of the server")
    parser.add_argument("host_port", type=int, help="port of the server")
    parser.add_argument("--port", type=int, default=9001, help="port, 0 for any free one (default 9001)")
    options = parser.parse_args()
    try:
        coro.run(main, options.port, options.host, options.host_port)
    except KeyboardInterrupt:
        print("stopped")
