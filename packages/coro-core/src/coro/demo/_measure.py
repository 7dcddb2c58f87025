"""What the demonstration measures about processes and latencies, with nothing but the standard library.

Costs: a latency is one list increment in a histogram of fixed size (1 024 counters, 6 % wide steps), so a
run of any length needs no more memory than a short one; the resident size is read from the kernel's exact
sum where it exists. What the C library keeps of freed memory depends on how fast the threads took turns, by
a tenth of the whole; so growth is judged without it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys

STEPS = 16  # of a power of two
_FINE = STEPS.bit_length() - 1


class Latencies:
    """A histogram of durations from a microsecond to centuries, in sixteenths of a power of two."""

    def __init__(self) -> None:
        self.counters = [0] * 1024
        self.count = 0
        self.greatest = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        units = int(seconds * 1e6 * STEPS) | STEPS
        power = units.bit_length()
        self.counters[(power << _FINE) + ((units >> (power - 1 - _FINE)) & (STEPS - 1))] += 1
        self.count += 1
        if seconds > self.greatest:
            self.greatest = seconds

    def percentile(self, share: float) -> float:
        """Seconds that `share` (0 to 1) of the durations did not exceed, within a step; 0.0 for none."""
        seen, goal = 0, share * self.count
        for index, counter in enumerate(self.counters):
            seen += counter
            if counter and seen >= goal:
                power, step = divmod(index, STEPS)
                upper = (STEPS + step + 1) * 2.0 ** (power - 1 - _FINE)
                return min(upper / STEPS / 1e6, self.greatest)
        return 0.0


def resident() -> int:
    """Resident bytes of this process; the greatest size so far where the kernel tells no more."""
    try:
        with open("/proc/self/smaps_rollup") as f:
            for line in f:
                if line.startswith("Rss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class _Mallinfo2(ctypes.Structure):
    """The result of mallinfo2(3), of glibc 2.33 and newer."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def in_use() -> int:
    """Resident bytes without those that the C library keeps for the next malloc(3), where it tells."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return resident()
    mallinfo2.restype = _Mallinfo2
    free: int = mallinfo2().fordblks
    return resident() - free


def descriptors() -> int:
    """How many descriptors this process has open (the one that counts them not included)."""
    return len(os.listdir("/dev/fd")) - 1


def raise_descriptor_limit(wanted: int) -> int:
    """Raise the limit of open descriptors to `wanted`, the hard one too if we may; returns the result."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    attempts = [(wanted, hard)]
    if hard != resource.RLIM_INFINITY and hard < wanted:
        attempts = [(wanted, wanted), (hard, hard)]
    for attempt in attempts:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, attempt)
            return attempt[0]
        except (
            ValueError,
            OSError,
        ):  # a hard limit is raised by root only; macOS has a further limit per process
            continue
    return soft


def ephemeral_ports() -> int:
    """How many connections a pair of addresses can have, by the range of ports the kernel hands out."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
            low, high = f.read().split()
            return int(high) - int(low) + 1
    except OSError:
        return 65535 - 49152 + 1  # RFC 6335, section 6: the dynamic ports


def growth(samples: list[int]) -> float:
    """Mean of the last tenth over mean of the second tenth, minus one; 0.0 for fewer than twenty samples."""
    tenth = len(samples) // 10
    if tenth < 2:
        return 0.0
    early, late = samples[tenth : 2 * tenth], samples[-tenth:]
    return sum(late) / sum(early) - 1
