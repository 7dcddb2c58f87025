"""A small shop with a mistake in it, and a back door to find the mistake by: orders are no longer written.

Two threads take orders and one writes a journal. All of them use one mutex, which is right; one of them asks a slow
service for something while it holds the mutex, which is not.
"""

import argparse

import coro
from coro import backdoor

journal_lock = coro.mutex()
journal: list[tuple[str, object]] = []


def take_orders(shop: str, orders: range) -> None:
    for order in orders:
        with journal_lock:
            journal.append((shop, order))
        coro.sleep(0.001)


def check_credit(service: coro.sock, customer: str) -> bytes:
    with journal_lock:
        journal.append(("credit", customer))
        return service.recv(100)  # the service does not answer, and everybody else wants the mutex


def main(path: str) -> None:
    service, far_end = coro.socketpair()
    coro.spawn(check_credit, service, "Miller", thread_name="credit")
    coro.spawn(take_orders, "north", range(3), thread_name="north")
    coro.spawn(take_orders, "south", range(3), thread_name="south")
    backdoor.start(unix_path=path, welcome_message="The shop's back door.")
    print("ready", flush=True)
    coro.sleep(3600)
    far_end.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A program that is stuck, with a back door.")
    parser.add_argument("path", help="where the UNIX socket of the back door is made")
    try:
        coro.run(main, parser.parse_args().path)
    except KeyboardInterrupt:
        print("stopped")
