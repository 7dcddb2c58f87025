"""Time for programs that run for years: scales, moments, sleeping until a time of day, schedules, time servers.

    from coro import clocks

    clock = clocks.best()                   # the module tsc_time, posix_time or mach_time
    t = clock.now_posix_usec()
    clocks.sleep_until(t + 1_500_000)
    for when in clocks.cron("*/5 * * * *"):
        clocks.sleep_until(when)

This file holds names only.  Importing it starts no thread and opens no descriptor; `coro.clocks.sntp` is imported by
those who ask time servers.
"""

from __future__ import annotations

from coro.clocks._core import explained as _explained

with _explained():
    from coro.clocks import mach_time, posix_time, tsc_time
    from coro.clocks._choice import Description, best, describe
    from coro.clocks.schedules import CronError, cron
    from coro.clocks.sleeping import sleep_until

__version__ = "0.1.0"

__all__ = [
    "CronError",
    "Description",
    "best",
    "cron",
    "describe",
    "mach_time",
    "posix_time",
    "sleep_until",
    "tsc_time",
]
