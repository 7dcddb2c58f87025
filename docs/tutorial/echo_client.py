"""An echo client: a hundred threads keep the echo server busy, each with a connection of its own.

Run it with ``python echo_client.py --port 9000 --count 100`` while the server runs. It ends by itself. Each dot is a
thread that has finished.
"""

import argparse
import sys

import coro

MESSAGE = b"howdy there\r\n"


def talk(host: str, port: int, messages: int) -> int:
    with coro.connect(host, port) as conn:
        for _ in range(messages):
            conn.send(MESSAGE)
            reply = conn.recv_exact(len(MESSAGE))
            if reply != MESSAGE:
                raise ValueError(f"expected {MESSAGE!r} back, got {reply!r}")
    coro.write_stderr(".")
    return messages


def main(host: str, port: int, count: int, messages: int) -> int:
    try:
        with coro.group() as g:
            threads = [g.spawn(talk, host, port, messages) for _ in range(count)]
    except* OSError as failures:
        print(failures.exceptions[0])
        return_code = 1
    else:
        echoed = sum(thread.result for thread in threads)
        coro.write_stderr("\n")
        print(f"{count} clients done, {echoed} messages echoed")
        return_code = 0
    return return_code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Echo client of many threads.")
    parser.add_argument("--host", default="127.0.0.1", help="where the server runs (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=9000, help="its port (default 9000)")
    parser.add_argument("--count", type=int, default=100, help="number of connections (default 100)")
    parser.add_argument("--messages", type=int, default=10, help="messages on each (default 10)")
    options = parser.parse_args()
    try:
        sys.exit(coro.run(main, options.host, options.port, options.count, options.messages))
    except KeyboardInterrupt:
        print("stopped")
