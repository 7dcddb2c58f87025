"""Hello, world: a few threads greet in turn.

Run it with ``python hello.py --count 3``.
"""

import argparse

import coro


def greet(number: int, times: int) -> None:
    for turn in range(1, times + 1):
        print(f"hello from thread {number}, turn {turn}")
        coro.yield_slice()  # let the others run, as any call that waits does


def main(count: int, times: int) -> int:
    with coro.group() as g:
        for number in range(1, count + 1):
            g.spawn(greet, number, times)
        print(f"spawned {count} threads, none has run yet")
    return count * times


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Greet the world from several threads.")
    parser.add_argument("--count", type=int, default=3, help="number of threads (default 3)")
    parser.add_argument("--times", type=int, default=2, help="greetings of each (default 2)")
    options = parser.parse_args()
    greetings = coro.run(main, options.count, options.times)
    print(f"{greetings} greetings")
