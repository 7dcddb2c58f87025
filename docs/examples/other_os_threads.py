"""Both ways across: a blocking function moved to a worker OS thread, and another OS thread that calls in."""

import threading
import time

import coro


def slow_square(n: int) -> int:
    time.sleep(0.02)  # blocks a worker OS thread, nobody else
    return n * n


def ticker(stop: list[bool]) -> int:
    ticks = 0
    while not stop:
        coro.sleep(0.002)
        ticks += 1
    return ticks


def main() -> None:
    stop: list[bool] = []
    ticking = coro.spawn(ticker, stop)
    print("in_thread:", coro.in_thread(slow_square, 7))
    stop.append(True)
    ticking.join()
    print("the other thread went on meanwhile:", ticking.result > 1)

    messages: coro.fifo[str] = coro.fifo()

    def outside() -> None:  # runs in an OS thread of its own: post() is all it may use of coro
        coro.post(messages.push, "a message from outside")

    threading.Thread(target=outside).start()
    print("post:", messages.pop())


if __name__ == "__main__":
    coro.run(main)
