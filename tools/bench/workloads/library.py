"""Ordinary library code inside a thread, against the same on the main stack.

Work through json, email and logging is done 0 to 15 Python calls deep, in a thread and on the main stack in turn, and
the least times are compared, depth by depth; the figure is the worst ratio. A thread's data stack begins as a small
chunk (see coro/_switch/datastack.h). A call that just crosses its edge must not map memory each time, whatever the
depth, and that is what this would show. A depth that looks bad is measured once more, for another program may have been
in the way. Cost: `rounds` times `calls` times 16 depths times two, some 100 us each.
"""

from __future__ import annotations

import email
import io
import json
import logging
import time

from _common import Figures, Stopwatch, main

DATA = {"name": "value", "list": list(range(20)), "nested": {"a": [1.5, None, True], "b": "text" * 5}}
MAIL = "From: a@example.org\nTo: b@example.org\nSubject: =?utf-8?q?hello?=\nContent-Type: text/plain\n\nbody\n"
LOG = logging.getLogger("measure")
DEPTHS = 16
#: A ratio that is looked at once more.
DOUBTFUL = 1.1


def work(calls: int) -> None:
    for _ in range(calls):
        json.loads(json.dumps(DATA))
        message = email.message_from_string(MAIL)
        message.as_string()
        LOG.info("worked on %s", message["Subject"])


def at_depth(depth: int, calls: int) -> float:
    """Seconds of this OS thread for the work, `depth` calls further down."""
    if depth:
        return at_depth(depth - 1, calls)
    start = time.thread_time()
    work(calls)
    return time.thread_time() - start


def coro(rounds: int, calls: int) -> Figures:
    import coro

    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    coro.set_latency_warning(0)
    watch = Stopwatch()
    watch.start()

    def ratio(depth: int) -> float:
        inside = outside = float("inf")
        for _ in range(rounds):
            inside = min(inside, coro.run(at_depth, depth, calls))
            outside = min(outside, at_depth(depth, calls))
            text.seek(0)
            text.truncate()
        return inside / outside

    ratio(0)
    worst = 0.0
    for depth in range(DEPTHS):
        found = ratio(depth)
        worst = max(worst, min(found, ratio(depth)) if found > DOUBTFUL else found)
    watch.stop()
    return {**watch.figures(2 * DEPTHS * rounds * calls), "slowdown": worst}


main({"coro": coro})
