"""Entry of the workload programs: choose the peer, run it, print the figures, leave at once.

`os._exit` at the end: tearing down thousands of suspended greenlets or tasks is not what is measured, and
takes longer than the measurement.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import NoReturn

Figures = dict[str, float]


class Stopwatch:
    """CPU time (user and system, whole process) and wall time between `start` and `stop`, in seconds."""

    def start(self) -> None:
        self.wall = time.perf_counter()
        self.cpu = time.process_time()

    def stop(self) -> None:
        self.cpu = time.process_time() - self.cpu
        self.wall = time.perf_counter() - self.wall

    def figures(self, count: int) -> Figures:
        """The measurement as the runner wants it; `count`: how many operations were timed."""
        return {"cpu": self.cpu, "wall": self.wall, "count": count}


def resident() -> int:
    """Resident bytes of this process. smaps_rollup is exact; statm lags behind by up to 64 pages a CPU."""
    with open("/proc/self/smaps_rollup") as f:
        for line in f:
            if line.startswith("Rss:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("no Rss line in /proc/self/smaps_rollup: the memory suite needs Linux 4.14 or newer")


def finish(figures: Figures) -> NoReturn:
    """Print the figures and leave the process at once."""
    print(json.dumps(figures), flush=True)
    os._exit(0)


def main(peers: dict[str, Callable[..., Figures]]) -> None:
    """Run `peers[argv[1]](**case)` with the case of argv[2] and print its figures as one line of JSON."""
    peer, case = sys.argv[1], json.loads(sys.argv[2])
    finish(peers[peer](**case))
