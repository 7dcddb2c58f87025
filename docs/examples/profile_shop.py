"""A small server under the profiler: which of its functions is the slow one?

The shop answers one search in a line of JSON for each line of JSON that a customer sends. The profile is written to
the file that is named: python profile_shop.py shop.bin; python -m coro.print_profile shop.bin > shop.html

For the picture in the manual: chromium --headless=new --hide-scrollbars --window-size=1100,760
--screenshot=docs/images/profiler_report.png shop.html
"""

import json
import sys
from typing import Any

import coro
import coro.profiler

THINGS = ("red lamp", "green lamp", "blue lamp", "red sofa", "green sofa", "blue sofa")
TITLES = [f"{thing} {n}" for n in range(8) for thing in THINGS]
stock = {title: 100 + 7 * i for i, title in enumerate(TITLES)}
stock_lock = coro.mutex()


def distance(a: str, b: str) -> int:
    """How many letters have to change to make one word of the other."""
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        above, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (letter != other))
    return row[-1]


def search(words: str) -> str:
    """The title that is most like the words."""
    return min(TITLES, key=lambda title: distance(words, title))


def sell(title: str) -> int:
    """Take one out of the stock; how many are left."""
    with stock_lock:
        coro.sleep(0.0005)  # the books are kept somewhere else
        stock[title] -= 1
        return stock[title]


def shop(conn: Any, address: Any) -> None:
    """One customer: a line for each line."""
    with conn.makefile("rw") as lines:
        for line in lines:
            request = json.loads(line)
            title = search(request["words"])
            print(json.dumps({"title": title, "left": sell(title)}), file=lines, flush=True)


def customer(address: Any, number: int) -> None:
    """Ask for a few things, with a slip of the pen."""
    with coro.connect(address) as conn, conn.makefile("rw") as lines:
        for n in range(5):
            words = TITLES[(7 * number + n) % len(TITLES)].replace("l", "1")
            print(json.dumps({"words": words}), file=lines, flush=True)
            json.loads(lines.readline())


def main() -> None:
    with coro.Server(shop, ("127.0.0.1", 0)) as server:
        with coro.group() as customers:
            for number in range(40):
                customers.spawn(customer, server.addresses[0], number, thread_name=f"customer {number}")
        server.drain(timeout=10)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python profile_shop.py PROFILE; name the file to write")
    coro.profiler.go(coro.run, main, profile_filename=sys.argv[1])
