"""A thousand threads that sleep for a random while each and print a star when they wake up.

Run it with ``python sleepers.py --count 1000 --seconds 5``. A sleeping thread costs a timer and what it has
on its stack, so a hundred thousand of them are no trouble either.
"""

import argparse
import random
import time

import coro


class Sleepers:
    def __init__(self) -> None:
        self.asleep = 0
        self.most = 0
        self.woken = 0

    def sleep(self, seconds: float) -> None:
        self.asleep += 1
        self.most = max(self.most, self.asleep)
        coro.sleep(seconds)
        self.asleep -= 1
        self.woken += 1
        coro.write_stderr("*")


def main(count: int, seconds: float) -> None:
    sleepers = Sleepers()
    began = time.monotonic()
    with coro.group() as g:
        for _ in range(count):
            g.spawn(sleepers.sleep, random.uniform(0, seconds))
    coro.write_stderr("\n")
    took = time.monotonic() - began
    print(f"{sleepers.woken} threads woke up, {sleepers.most} slept at once, {took:.1f} s in all")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Many sleeping threads.")
    parser.add_argument("--count", type=int, default=1000, help="number of threads (default 1000)")
    parser.add_argument("--seconds", type=float, default=5, help="longest sleep (default 5)")
    options = parser.parse_args()
    coro.run(main, options.count, options.seconds)
