"""Calls, streams, cancellations and broken connections under load: `python packages/coro-rpc/tests/soak.py --seconds
30`.

A server and clients in one process, over TCP. Clients call, stream both ways, cancel, send large values, and cut their
connections in the middle. After a time to warm up, memory and descriptors are looked at between rounds in which
nothing is under way: they have to stay what they were. The seed is printed.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import time

import coro
from coro.rpc import CallTimeout, RpcError, fast_rpc

CLIENTS, THREADS = 4, 10
#: Growth that is noise: bytes of resident memory over the whole run.
SLACK = 16 << 20


def resident() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def registry() -> fast_rpc.Registry:
    made = fast_rpc.Registry()
    made.export(lambda value: value, "echo")
    made.export(lambda n: (i for i in range(n)), "count")  # a generator answers with a stream
    made.export(lambda items: sum(items), "total")
    made.export(coro.sleep_relative, "sleep")
    return made


def work(address: object, seed: int, end: float, counts: dict[str, int]) -> None:
    """A client with its threads, until `end`; now and then the connection is cut."""
    chance = random.Random(seed)

    def thread(conn: fast_rpc.Connection, mine: random.Random) -> None:
        while time.monotonic() < end and not conn.closed:
            what = mine.choice(["echo", "large", "stream", "part", "upload", "cancel", "limit", "cast"])
            counts[what] = counts.get(what, 0) + 1
            try:
                if what == "echo":
                    assert conn.call("echo", {"a": [1, "b"]}) == {"a": [1, "b"]}
                elif what == "large":
                    data = bytes(mine.randrange(1, 1 << 20))
                    assert conn.call("echo", data) == data
                elif what == "stream":
                    assert sum(conn.stream("count", 1000)) == 499500
                elif what == "part":
                    with conn.stream("count", 10**9) as stream:
                        for _ in zip(range(mine.randrange(5000)), stream, strict=False):
                            pass
                elif what == "upload":
                    assert conn.call("total", iter(range(1000))) == 499500
                elif what == "cancel":
                    call = conn.call_async("sleep", 1000)
                    if mine.random() < 0.5:
                        coro.yield_slice()
                    call.cancel()
                elif what == "limit":
                    try:
                        conn.call("sleep", 1000, timeout=0.001)
                    except CallTimeout:
                        pass
                else:
                    conn.cast("echo", b"x" * mine.randrange(100_000))
            except RpcError:
                if not conn.closed:
                    raise

    while time.monotonic() < end:
        conn = fast_rpc.connect(address)
        threads = [coro.spawn(thread, conn, random.Random(chance.random())) for _ in range(THREADS)]
        if chance.random() < 0.5:
            coro.sleep_relative(chance.uniform(0, 1))
            conn.abort()
        for one in threads:
            one.get()
        conn.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    chance = random.Random(options.seed)
    counts: dict[str, int] = {}
    found: list[tuple[int, int]] = []

    def run() -> None:
        begin = time.monotonic()
        round_ = max(3.0, min(60.0, options.seconds / 8))
        with fast_rpc.Server(registry(), ("127.0.0.1", 0)) as server:
            while time.monotonic() - begin < options.seconds:
                end = time.monotonic() + round_
                seeds = [chance.getrandbits(32) for _ in range(CLIENTS)]
                coro.in_parallel([(work, (server.addresses[0], seed, end, counts)) for seed in seeds])
                while server.running or server.connections:
                    coro.sleep_relative(0.01)
                coro.sleep_relative(0.1)
                gc.collect()
                found.append((resident(), descriptors()))
                print(
                    f"{time.monotonic() - begin:6.0f} s: {found[-1][0] >> 10} KiB, {found[-1][1]} descriptors",
                    flush=True,
                )

    coro.run(run)
    print(", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    warm = found[len(found) // 3 :]
    if warm[-1][0] > warm[0][0] + SLACK:
        print(f"expected constant memory, it grew from {warm[0][0]} to {warm[-1][0]} bytes")
        return 1
    if warm[-1][1] > warm[0][1]:
        print(f"expected constant descriptors, they grew from {warm[0][1]} to {warm[-1][1]}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
