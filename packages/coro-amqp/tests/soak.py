"""Minutes of trouble: RabbitMQ is stopped, killed and started at random, and connections are cut at random bytes.

    python soak.py --seconds 600 [--seed N]

Publishers and a consumer (load_support.py) go through a proxy, which ends each connection after a random number of
bytes in either direction, within a frame as well as between two. At the end every confirmed message must have arrived,
each that came twice must have been redelivered or published again, and memory and descriptors must be where they were
after the first tenth of the time.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "tests" / "support")]

from load_support import Load  # noqa: E402
from real_programs import RabbitMQ  # noqa: E402

import coro  # noqa: E402
from coro import amqp  # noqa: E402

#: MiB and descriptors that may be in use beyond those of the beginning.
MEMORY, DESCRIPTORS = 48, 30


class Proxy:
    """Passes bytes on to the broker; ends each connection after some random number of them."""

    def __init__(self, port, rng, least, most):
        self.port, self.rng, self.least, self.most = port, rng, least, most
        self.cuts = 0
        self._server = coro.Server(self._serve, ("127.0.0.1", 0)).start()
        self.address = self._server.addresses[0]

    def _serve(self, near, address):
        far = coro.tcp_sock()
        try:
            far.connect(("127.0.0.1", self.port))
        except OSError:
            far.close()
            return
        left = self.rng.randrange(self.least, self.most)

        def pump(source, target):
            nonlocal left
            try:
                while data := source.recv(65536):
                    data, left = data[: max(0, left)], left - len(data)
                    target.send(data)
                    if left <= 0:
                        self.cuts += 1
                        break
            except OSError:
                pass
            for sock in (near, far):
                try:
                    sock.shutdown(coro.SHUT.RDWR)
                except (OSError, coro.ClosedError):
                    pass

        with coro.group() as group:
            group.spawn(pump, near, far)
            group.spawn(pump, far, near)
        far.close()

    def close(self):
        self._server.close()


def resources():
    """MiB that this process has in memory, and its descriptors."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir("/proc/self/fd"))


def soak(seconds, rng):
    with RabbitMQ() as broker:
        proxy = Proxy(broker.port, rng, 20_000, 2_000_000)
        recovery = amqp.Recovery(first=0.02, most=0.5)
        clients = [
            amqp.connect(
                [f"amqp://guest:guest@127.0.0.1:{proxy.address[1]}"], recovery=recovery, timeout=180, heartbeat=10
            )
            for _ in range(2)
        ]
        load = Load(*clients, "soak")
        ends = time.monotonic() + seconds
        stops, before = 0, None
        next_stop = time.monotonic() + min(rng.uniform(5, 30), seconds / 4)
        told = time.monotonic()
        while time.monotonic() < ends:
            coro.sleep_relative(0.1)
            if before is None and time.monotonic() > ends - 0.9 * seconds:
                before = resources()
            if time.monotonic() > next_stop:
                way = rng.choice(["stop", "kill"])
                coro.in_thread(getattr(broker, way))
                coro.in_thread(broker.start)
                stops += 1
                next_stop = time.monotonic() + rng.uniform(5, 30)
            if time.monotonic() > told + 10:
                told = time.monotonic()
                print(
                    f"{load.account.confirmed} confirmed, {proxy.cuts} cuts, {stops} stops of the broker, "
                    f"{resources()[0]:.0f} MiB",
                    flush=True,
                )
        # From here on nothing is cut, so that what is left can come.
        proxy.least, proxy.most = 1 << 50, 1 << 51
        count = load.finish(limit=300)
        after = resources()
        for client in clients:
            client.close()
        proxy.close()
    print(f"{count} messages confirmed, all came; {proxy.cuts} cuts, {stops} stops of the broker")
    before = before or after
    print(f"memory {before[0]:.0f} -> {after[0]:.0f} MiB, descriptors {before[1]} -> {after[1]}")
    # The byte that is kept of each message, and the room in which its array grows, are not the client's.
    own = len(load.account) * 2 / 2**20
    assert after[0] - before[0] < MEMORY + own, f"memory grew from {before[0]:.0f} to {after[0]:.0f} MiB"
    assert after[1] - before[1] < DESCRIPTORS, f"descriptors grew from {before[1]} to {after[1]}"
    assert stops and proxy.cuts, "nothing was broken: the time was too short"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(2**32)
    print(f"seed {seed}", flush=True)
    coro.run(soak, options.seconds, random.Random(seed))


if __name__ == "__main__":
    main()
