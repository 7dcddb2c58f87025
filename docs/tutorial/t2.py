"""An echo client: a hundred threads, each with a connection of its own, keep the server of t1.py busy.

Run it with ``python t2.py --port 9000 --count 100`` while the server runs; it ends by itself. A dot is a
thread that has finished.
"""

import argparse
import sys

import coro

MESSAGE = b"howdy there\r\n"


class Clients:
    """What all the threads share. Nothing is locked: a thread is only ever suspended in a call that waits."""

    def __init__(self, host: str, port: int, messages: int) -> None:
        self.address = (host, port)
        self.messages = messages
        self.echoed = 0

    def talk(self) -> None:
        with coro.tcp_sock() as s:
            s.connect(self.address)
            for _ in range(self.messages):
                s.send(MESSAGE)
                reply = s.recv_exact(len(MESSAGE))
                if reply != MESSAGE:
                    raise ValueError(f"expected {MESSAGE!r} back, got {reply!r}")
                self.echoed += 1
        coro.write_stderr(".")


def main(host: str, port: int, count: int, messages: int) -> int:
    clients = Clients(host, port, messages)
    threads = [coro.spawn(clients.talk) for _ in range(count)]
    for thread in threads:
        thread.join()
    failed = sum(thread.exception is not None for thread in threads)
    coro.write_stderr("\n")
    print(f"{count - failed} of {count} clients done, {clients.echoed} messages echoed")
    return 1 if failed else 0


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
