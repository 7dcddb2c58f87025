"""A thousand callers of two servers that are killed, held and restarted.

Run: `python packages/coro-rpc/tests/soak_storm.py --seconds 60`.

The servers are processes of their own (serving.py). In turn one of them is killed, held with SIGSTOP and let go, or
told to end with SIGTERM and started again at the same port. Callers go through one Pool with limits of one to three
seconds and know what each answer has to be; a fifth of the calls has an iterator as its argument. Expected: no wrong
answer, no call that never ends, and none that returns later than its limit by more than 0.3 seconds and the longest
gap of a thread that only wakes ten times a second: what a busy machine holds up is no fault of a limit. The seed is
printed.
"""

from __future__ import annotations

import argparse
import collections
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import coro
from coro.rpc import RpcError, fast_rpc

SERVING = Path(__file__).with_name("serving.py")
#: Seconds that a limit may be overrun by, beside the longest gap of the heartbeat.
SLACK = 0.3


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Servers:
    """Processes at fixed ports."""

    def __init__(self, n: int) -> None:
        self.ports = [free_port() for _ in range(n)]
        self.processes = [self._start(port) for port in self.ports]

    def _start(self, port: int) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            [sys.executable, str(SERVING), "--port", str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert made.stdout is not None
        made.stdout.readline()  # it listens
        return made

    def trouble(self, what: str, which: int, pause: float) -> None:
        """In an OS thread."""
        process = self.processes[which]
        if what == "hold":
            process.send_signal(signal.SIGSTOP)
            time.sleep(pause)
            process.send_signal(signal.SIGCONT)
            return
        process.send_signal(signal.SIGKILL if what == "kill" else signal.SIGTERM)
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()
        self.processes[which] = self._start(self.ports[which])

    def stop(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


class Heartbeat:
    """The longest time that a thread which only sleeps was held up."""

    def __init__(self) -> None:
        self.longest = 0.0

    def run(self) -> None:
        last = time.monotonic()
        while True:
            coro.sleep_relative(0.1)
            now = time.monotonic()
            self.longest = max(self.longest, now - last - 0.1)
            last = now


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--callers", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    counts: collections.Counter[str] = collections.Counter()
    wrong: list[str] = []
    overruns: list[float] = []
    heartbeat = Heartbeat()

    def caller(pool: fast_rpc.Pool, seed: int, end: float) -> None:
        chance = random.Random(seed)
        while time.monotonic() < end:
            n = chance.randrange(1000)
            limit = chance.uniform(1, 3)
            begin = time.monotonic()
            kind = chance.choice(["add", "add", "add", "echo", "total"])
            expected: Any = n + 7 if kind == "add" else {"n": n} if kind == "echo" else sum(range(n))
            try:
                if kind == "add":
                    got = pool.call("add", n, 7, timeout=limit)
                elif kind == "echo":
                    got = pool.call("echo", {"n": n}, timeout=limit)
                else:
                    numbers: Any = fast_rpc.Items(lambda n=n: iter(range(n))) if n & 1 else iter(range(n))
                    got = pool.call("total", numbers, timeout=limit)
            except (RpcError, OSError) as e:
                counts[type(e).__name__] += 1
            else:
                counts["right"] += 1
                if got != expected:
                    wrong.append(f"{kind}({n}) gave {got!r}")
            overruns.append(time.monotonic() - begin - limit)
            coro.sleep_relative(chance.uniform(0, 0.4))

    def run() -> int:
        chance = random.Random(options.seed)
        servers = coro.in_thread(Servers, 2)
        coro.spawn(heartbeat.run, daemon=True)
        try:
            pool = fast_rpc.Pool(
                [("127.0.0.1", port) for port in servers.ports], check_every=1, check_timeout=1
            ).start()
            end = time.monotonic() + options.seconds
            threads = [coro.spawn(caller, pool, chance.getrandbits(32), end) for _ in range(options.callers)]
            while time.monotonic() < end:
                coro.sleep_relative(chance.uniform(0.3, 1.5))
                what = chance.choice(["kill", "hold", "restart", "restart"])
                counts[f"({what})"] += 1
                coro.in_thread(servers.trouble, what, chance.randrange(2), chance.uniform(0.5, 4))
            stuck = 0
            last = time.monotonic() + 30
            for thread in threads:
                with coro.move_on_after(max(0.0, last - time.monotonic())) as scope:
                    thread.get()
                stuck += scope.expired
            pool.close()
        finally:
            coro.in_thread(servers.stop)
        return stuck

    stuck = coro.run(run)
    worst = max(overruns)
    print(", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    print(f"{len(overruns)} calls, {len(wrong)} wrong, {stuck} callers stuck")
    print(f"limits overrun by {max(worst, 0):.2f} s at most, longest gap of the heartbeat {heartbeat.longest:.2f} s")
    for one in wrong[:10]:
        print("wrong:", one)
    if not counts["right"]:
        print("expected calls that succeed, got none")
    return 1 if wrong or stuck or worst > SLACK + heartbeat.longest or not counts["right"] else 0


if __name__ == "__main__":
    sys.exit(main())
