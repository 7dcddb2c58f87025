"""``coro.statistics()``: the runtime's counters at one moment, as a frozen record."""

from __future__ import annotations

from dataclasses import dataclass

from coro._runtime import scheduler

__all__ = ["Statistics", "statistics"]


@dataclass(frozen=True)
class Statistics:
    """Counters since the process began, and sizes as they are now. For people who look, not for programs to act on.

    ``switches`` slices run; ``evacuations``/``evacuated_bytes`` stacks copied out of their slot, ``restorations``/
    ``restored_bytes`` put back; ``slot_collisions`` new threads that had to share a slot; ``stack_trims`` slots
    whose deep pages were given back; ``passes`` of the loop, ``polls`` of the kernel, ``bounded_drains`` passes
    that left work for the next; ``timers`` pending, ``timers_fired``; ``threads`` alive, ``counted_threads`` of
    them not daemon, ``thread_objects`` in memory, ``spawned`` ever; ``sockets`` in memory; ``slots``, ``slot_size``
    in bytes; ``posts_waiting`` calls from other OS threads.
    """

    switches: int
    evacuations: int
    evacuated_bytes: int
    restorations: int
    restored_bytes: int
    slot_collisions: int
    stack_trims: int
    passes: int
    polls: int
    bounded_drains: int
    timers: int
    timers_fired: int
    threads: int
    counted_threads: int
    thread_objects: int
    spawned: int
    slots: int
    slot_size: int
    posts_waiting: int
    sockets: int


def statistics() -> Statistics:
    """The counters now. May be called from any OS thread."""
    from coro._net.sock import get_live_sockets

    return Statistics(sockets=get_live_sockets(), **scheduler._counters())
