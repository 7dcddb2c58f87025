"""Which servers answer? A program for gevent; checker_coro.py is the same for coro.

    python checker_gevent.py 127.0.0.1:22 127.0.0.1:25 --rounds 2

SIGTERM ends it after the round.
"""

from gevent import monkey

monkey.patch_all()

import argparse
import signal
import socket

import gevent
from gevent.event import Event
from gevent.pool import Pool
from gevent.queue import Queue

PATIENCE = 2  # seconds


def check(target, answers):
    host, _, port = target.rpartition(":")
    state = "no answer"
    with gevent.Timeout(PATIENCE, False):
        try:
            with socket.create_connection((host, int(port))) as s:
                state = s.recv(100).decode(errors="replace").strip() or "closed"
        except OSError as e:
            state = str(e)
    answers.put((target, state))


def report(answers):
    for target, state in iter(answers.get, None):
        print(f"{target}: {state}", flush=True)


def main(targets, rounds, pause):
    stop = Event()
    gevent.signal_handler(signal.SIGTERM, stop.set)
    answers = Queue()
    reporter = gevent.spawn(report, answers)
    pool = Pool(20)
    for _ in range(rounds):
        for target in targets:
            pool.spawn(check, target, answers)
        pool.join()
        if stop.wait(pause):
            break
    answers.put(None)
    reporter.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Show which servers answer, and what they say first.")
    parser.add_argument("targets", nargs="+", metavar="HOST:PORT")
    parser.add_argument("--rounds", type=int, default=1, help="how often to look (default 1)")
    parser.add_argument("--pause", type=float, default=1, help="seconds after each round (default 1)")
    options = parser.parse_args()
    main(options.targets, options.rounds, options.pause)
