"""How long callers wait for their answers: `python packages/coro-rpc/tests/latency.py --seconds 30`.

A hundred threads share one connection to a server in another process and call it without a pause; every call answers
with its own number, after a moment for one call in ten, so that answers overtake one another. The answer of each call
has to wake the thread that waits for it, at once and no other: where some other thread has to notice it first, a few
callers sleep until something else happens, and the average does not show it. So the 99th percentile and the longest
wait are what is looked at, and the exit status says whether the percentile stays below its bar. Needs an idle machine.
"""

from __future__ import annotations

import argparse
import sys
import time
from array import array
from subprocess import PIPE, Popen

import coro
from coro.rpc import fast_rpc

CALLERS = 100
#: Milliseconds below which 99 of a hundred calls have to stay, and no call may take as long as that of `LONGEST`.
BAR, LONGEST = 50.0, 1000.0


def answer(number: int) -> int:
    if number % 10 == 0:
        coro.sleep_relative(0.001)
    return number


def serve() -> None:
    registry = fast_rpc.Registry()
    registry.export(answer, "answer")
    listener = coro.tcp_sock()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    fast_rpc.serve(registry, listener)


def calls(port: int, seconds: float) -> array[float]:
    """Milliseconds of each call."""
    took: array[float] = array("d")
    connection = fast_rpc.connect(("127.0.0.1", port))
    end = time.monotonic() + seconds

    def caller(first: int) -> None:
        number = first
        while (began := time.monotonic()) < end:
            if connection.call("answer", number) != number:
                raise AssertionError("an answer for somebody else")
            took.append((time.monotonic() - began) * 1000)
            number += CALLERS

    coro.in_parallel([(caller, (first,)) for first in range(CALLERS)])
    connection.close()
    return took


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--serve", action="store_true", help="be the server")
    arguments = parser.parse_args()
    if arguments.serve:
        coro.run(serve)
        return 0
    with Popen([sys.executable, __file__, "--serve"], stdout=PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            took = sorted(coro.run(calls, int(server.stdout.readline()), arguments.seconds))
        finally:
            server.kill()
    percentile, longest = took[len(took) * 99 // 100], took[-1]
    print(f"{len(took)} calls; half of them within {took[len(took) // 2]:.2f} ms", end=", ")
    print(f"99 % within {percentile:.2f} ms, all within {longest:.2f} ms")
    return 0 if percentile < BAR and longest < LONGEST else 1


if __name__ == "__main__":
    sys.exit(main())
