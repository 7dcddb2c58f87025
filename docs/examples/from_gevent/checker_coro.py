"""Which servers answer? The program of checker_gevent.py, for coro.

    python checker_coro.py 127.0.0.1:22 127.0.0.1:25 --rounds 2

SIGTERM ends it after the round.
"""

import argparse
import signal

import coro
from coro import signal_handler

PATIENCE = 2  # seconds

Answers = coro.channel[tuple[str, str]]


def check(target: str, answers: Answers) -> None:
    host, _, port = target.rpartition(":")
    state = "no answer"
    with coro.move_on_after(PATIENCE):
        try:
            with coro.connect(host, int(port)) as s:
                state = s.recv(100).decode(errors="replace").strip() or "closed"
        except (OSError, coro.NameError) as e:
            state = str(e)
    answers.put((target, state))


def report(answers: Answers) -> None:
    for target, state in answers:
        print(f"{target}: {state}", flush=True)


def main(targets: list[str], rounds: int, pause: float) -> None:
    stop = coro.event()
    signal_handler.register(signal.SIGTERM, lambda number: stop.set())
    answers = Answers(100)
    reporter = coro.spawn(report, answers)
    pool = coro.pool(20)
    for _ in range(rounds):
        for target in targets:
            pool.spawn(check, target, answers)
        pool.join()
        with coro.move_on_after(pause):
            stop.wait()
            break
    answers.close()
    reporter.get()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Show which servers answer, and what they say first.")
    parser.add_argument("targets", nargs="+", metavar="HOST:PORT")
    parser.add_argument("--rounds", type=int, default=1, help="how often to look (default 1)")
    parser.add_argument("--pause", type=float, default=1, help="seconds after each round (default 1)")
    options = parser.parse_args()
    coro.run(main, options.targets, options.rounds, options.pause)
