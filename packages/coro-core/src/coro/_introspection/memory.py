"""``coro.memory()``: which threads take how much memory, and what has been added since an earlier look.

A thread costs its object, its part of the C stack (in its slot, or saved on the heap) and its data stack, where CPython
keeps the frames of Python functions. What its variables refer to is not counted: nobody can say whose that is.

Cost: a few hundred nanoseconds and about 200 bytes per thread for the time of the report; for a million threads that is
a pause of about a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from coro._runtime import scheduler
from coro._runtime.output import one_line

__all__ = ["Memory", "ThreadMemory", "memory"]

#: Rows of the table that str() makes.
ROWS = 20


class ThreadMemory(NamedTuple):
    """Bytes of one thread. ``stack`` is its C stack, saved or in its slot; ``data_stack`` the frames of its Python
    functions; ``growth`` the difference of ``total`` to the earlier report, for a new thread all of it."""

    id: int
    name: str
    object: int
    stack: int
    data_stack: int
    total: int
    growth: int


@dataclass(frozen=True)
class Memory:
    """A report of ``coro.memory()``; ``str()`` of it is a table.

    ``threads`` are the rows, biggest first (by growth, if there was an earlier report). ``total`` is their sum.
    ``growth`` is the difference from the earlier report; memory of threads that have ended since counts as negative.
    """

    threads: tuple[ThreadMemory, ...]
    total: int
    growth: int
    since: Memory | None = None

    def __iter__(self) -> Iterator[ThreadMemory]:
        return iter(self.threads)

    def __len__(self) -> int:
        return len(self.threads)

    def __str__(self) -> str:
        lines = [f"{'thread':>8} {'object':>8} {'stack':>9} {'data':>9} {'total':>9} {'growth':>9}  name"]
        for row in self.threads[:ROWS]:
            lines.append(
                f"{row.id:>8} {row.object:>8} {row.stack:>9} {row.data_stack:>9} {row.total:>9} {row.growth:>+9}"
                f"  {one_line(row.name)}"
            )
        if len(self.threads) > ROWS:
            rest = self.threads[ROWS:]
            lines.append(
                f"{'...':>8} {sum(row.total for row in rest):>38} {sum(r.growth for r in rest):>+9}  {len(rest)} more"
            )
        lines.append(f"{'all':>8} {self.total:>38} {self.growth:>+9}  {len(self.threads)} threads")
        return "\n".join(lines)

    __repr__ = __str__


def memory(since: Memory | None = None) -> Memory:
    """The memory that the threads of this process take now, biggest first.

    With an earlier report as ``since``, the rows are sorted by how much each thread has grown since then. TypeError for
    anything else; WrongThreadError in another OS thread than the loop's.
    """
    if since is not None and not isinstance(since, Memory):
        raise TypeError(f"expected an earlier report of coro.memory(), not {type(since).__name__}: {since!r}")
    before: dict[int, int] = {} if since is None else {row.id: row.total for row in since.threads}
    rows: list[ThreadMemory] = []
    thread: Any
    for thread in scheduler._all_threads():
        own, stack, data = scheduler._thread_memory(thread)
        total = own + stack + data
        rows.append(ThreadMemory(thread.id, thread.name, own, stack, data, total, total - before.get(thread.id, 0)))
    rows.sort(key=(lambda row: (-row.growth, row.id)) if since is not None else (lambda row: (-row.total, row.id)))
    everything = sum(row.total for row in rows)
    if since is not None:  # a chain of reports would keep all of them
        since = Memory(since.threads, since.total, since.growth)
    return Memory(tuple(rows), everything, everything - (0 if since is None else since.total), since)
