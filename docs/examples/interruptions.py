"""Timeouts, shutdown, and cleaning up in spite of them."""

import coro


def transfer(s: coro.sock, data: bytes) -> None:
    try:
        s.send(data)
    except coro.Interrupted as e:
        print("interrupted, some of it went out:", 0 < e.bytes_sent < len(data))
        raise  # always: whoever set the limit waits for it


def worker() -> None:
    try:
        coro.sleep(3600)
    finally:
        with coro.shield(5):  # five seconds to say goodbye, shutdown or not
            coro.sleep(0.01)
            print("cleaned up")


def main() -> None:
    ours, theirs = coro.socketpair()
    with ours, theirs:
        try:
            coro.with_timeout(0.02, transfer, ours, bytes(10_000_000))
        except coro.TimeoutError:
            print("too slow")

    with_limit = coro.timeout(0.01)
    try:
        with with_limit:
            coro.sleep(3600)
    except coro.TimeoutError:
        print("expired:", with_limit.expired)

    thread = coro.spawn(worker)
    coro.yield_slice()
    thread.shutdown()
    thread.join()
    print("ended by", type(thread.exception).__name__)


if __name__ == "__main__":
    coro.run(main)
