"""Lookups with limits of 10 and 100 ms against servers that lose, delay, truncate and forge: every one ends.

Beside them threads are shut down at any moment, and resolvers are opened and closed. At the end no descriptor, no
question under way and no place of the semaphore may be missing.

    python soak_lookups.py --lookups 5000000
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[3] / "tests" / "support")]

from dns_support import fakes, reply  # noqa: E402
from stub_support import RA, address, over_tcp, resolver  # noqa: E402

import coro  # noqa: E402
from coro.dns.stub_resolver import QueryFailed  # noqa: E402


def server(query):
    chance = random.random()
    if chance < 0.1:
        return None
    if chance < 0.102:
        coro.sleep_relative(0.02)  # all that come after it are late, too
    if chance < 0.25:
        return reply(query, aa=False, flags=RA | 0x0200)
    forged = address(query, "6.6.6.6", ident=query.id ^ 1)
    return [forged, address(query)] if chance < 0.4 else address(query)


def main(lookups: int) -> None:
    with fakes({1: server, 2: server}) as servers, over_tcp(servers, {1: server, 2: server}):
        r = resolver(servers, cache_size=100_000, inflight=10)
        with contextlib.suppress(QueryFailed):
            r.query("warm.test", timeout=1)
        r.close()
        before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        left = lookups
        answered = failed = 0

        def worker() -> None:
            nonlocal left, answered, failed
            while left > 0:
                left -= 1
                try:
                    found = r.query(
                        f"n{random.randrange(200)}.test",
                        timeout=random.choice((0.01, 0.1)),
                        no_cache=random.random() < 0.9,
                    )
                    assert found == [(found[0][0], "192.0.2.1")], found
                    answered += 1
                except QueryFailed:
                    failed += 1

        def disturb() -> None:
            while left > 0:
                victim = coro.spawn(worker)
                coro.sleep_relative(random.random() / 100)
                victim.shutdown()
                with contextlib.suppress(coro.CancelledError):
                    victim.get()
                with resolver(servers) as other, contextlib.suppress(QueryFailed):
                    other.query("other.test", timeout=0.01)

        with coro.group() as threads:
            for _ in range(20):
                threads.spawn(worker)
            threads.spawn(disturb)
        assert not r._flights.table and r._places.avail == 10
        r.close()
        coro.sleep_relative(0.2)
        del servers.asked[:]
        if before:
            # the servers' ends of connections are closed a moment later
            with coro.timeout(60):
                while len(os.listdir("/proc/self/fd")) > before:
                    coro.sleep_relative(0.1)
        print(f"{lookups} lookups: {answered} answered, {failed} failed, {r.statistics()}")
        assert answered and failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lookups", type=int, default=5_000_000)
    coro.run(main, parser.parse_args().lookups)
