"""Reports for programs that run for months: what the cyclic collector cannot free, and what only grows.

    coro.spawn(coro.gc_monitor.monitor_thread, daemon=True)

Memory is usually lost because objects of some type become more and more. Rarely, a C extension makes objects that the
collector cannot free (`gc.garbage`). A report names both. It walks all containers, about 20 ms for a million of them,
and no other thread runs during that time. So the default is one report an hour.
"""

# Rejected: gc.callbacks, which would see every collection but cost something in each.

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from typing import NoReturn

from coro._runtime.output import print_stderr
from coro._runtime.scheduler import sleep_relative

__all__ = ["garbage_report", "growth_report", "monitor_sleep_interval", "monitor_thread"]

#: Seconds between two reports of ``monitor_thread``. Read before each pause, so it may be changed.
monitor_sleep_interval: float = 3600

#: How many objects, or types, a report names.
_NAMED = 5


def garbage_report() -> str | None:
    """A line about ``gc.garbage``: how many objects, and type and address of the first five. None when it is empty."""
    garbage = gc.garbage
    if not garbage:
        return None
    first = ", ".join(f"{type(ob).__module__}.{type(ob).__qualname__} at {id(ob):#x}" for ob in garbage[:_NAMED])
    more = ", ..." if len(garbage) > _NAMED else ""
    return f"WARNING: the cyclic collector could not free {len(garbage)} objects: {first}{more}"


def _count() -> Counter[type]:
    return Counter(map(type, gc.get_objects()))


def growth_report(before: Counter[type] | None = None, least: int = 1000) -> tuple[str | None, Counter[type]]:
    """Which types have more objects than before.

    before: the second item of an earlier result, None for the first look. least: growth that is worth a word.

    Returns a line with the five types that grew most, None when none grew by ``least``, and the present numbers, for
    the next call. Only objects that the collector tracks are counted. ValueError for a ``least`` below 1.
    """
    if least < 1:
        raise ValueError(f"expected a growth of at least 1 object, not {least}")
    now = _count()
    if before is None:
        return None, now
    grown = [(number - before[kind], kind) for kind, number in now.items() if number - before[kind] >= least]
    grown.sort(key=lambda item: (-item[0], item[1].__qualname__))
    if not grown:
        return None, now
    text = ", ".join(f"{kind.__module__}.{kind.__qualname__} +{more} ({now[kind]})" for more, kind in grown[:_NAMED])
    return f"more objects than at the last look: {text}", now


def monitor_thread(report: Callable[[str], object] = print_stderr, growth: int | None = None) -> NoReturn:
    """Collect and report every ``monitor_sleep_interval`` seconds, for ever: the function of a (daemon) thread.

    report: called with each line; by default it goes to stderr. growth: also report types that got at least so many
    more objects in between; None (the default) leaves that out. What ``report`` raises ends the thread. ValueError for
    a growth below 1, YieldFromMain outside a thread.
    """
    before = None
    if growth is not None:
        _, before = growth_report(least=growth)
    while True:
        sleep_relative(monitor_sleep_interval)
        gc.collect()
        lines = [garbage_report()]
        if growth is not None:
            line, before = growth_report(before, growth)
            lines.append(line)
        for line in lines:
            if line is not None:
                report(line)
