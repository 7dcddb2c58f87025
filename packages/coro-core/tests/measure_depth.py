"""Does ordinary library code cost more inside a thread than on the main stack? `python measure_depth.py [--rounds N]`.

Work through json, email and logging is done 0 to 15 Python calls deep, in a thread and on the main stack in turn, and
the best times are compared. A thread's data stack begins as a small chunk (see _switch/datastack.h): a call that just
crosses its edge must not map memory each time, whatever the depth, which is what this would show.
"""

from __future__ import annotations

import argparse
import email
import io
import json
import logging
import sys
import time

import coro

DATA = {"name": "value", "list": list(range(20)), "nested": {"a": [1.5, None, True], "b": "text" * 5}}
MAIL = "From: a@example.org\nTo: b@example.org\nSubject: =?utf-8?q?hello?=\nContent-Type: text/plain\n\nbody\n"
LOG = logging.getLogger("measure")


def setup():
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    return handler


def work(n):
    for _ in range(n):
        json.loads(json.dumps(DATA))
        message = email.message_from_string(MAIL)
        message.as_string()
        LOG.info("worked on %s", message["Subject"])


def at_depth(depth, n):
    if depth:
        at_depth(depth - 1, n)
        return
    start = time.thread_time()
    work(n)
    measured.append(time.thread_time() - start)


measured: list[float] = []


def once(depth, n, inside):
    measured.clear()
    if inside:
        coro.run(at_depth, depth, n)
    else:
        at_depth(depth, n)
    return measured[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--calls", type=int, default=10)
    options = parser.parse_args()
    handler = setup()
    coro.set_latency_warning(0)
    once(0, 5, True), once(0, 5, False)
    worst = 0.0
    for depth in range(16):
        best = {True: float("inf"), False: float("inf")}
        for _ in range(options.rounds):
            for inside in (True, False):
                best[inside] = min(best[inside], once(depth, options.calls, inside))
            handler.stream.seek(0)
            handler.stream.truncate()
        ratio = best[True] / best[False]
        worst = max(worst, ratio)
        print(f"depth {depth:2}: thread {best[True] / options.calls * 1e6:7.1f} us, "
              f"main {best[False] / options.calls * 1e6:7.1f} us, ratio {ratio:.3f}")  # fmt: skip
    print(f"{sys.version.split()[0]}: worst ratio {worst:.3f} (wanted: at most 1.1)")


if __name__ == "__main__":
    main()
