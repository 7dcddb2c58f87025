"""What a profile tells of one function, and what the process itself has used.

A bench is filled in when profiling has ended; its class says before that what is to be measured. Cost: nothing while
the program runs; `get()` of `rusage` is one system call.
"""

from __future__ import annotations

import resource
from typing import ClassVar

Number = int | float

#: Fields of getrusage(2) in the order in which they are accounted; the first two are seconds.
USAGE = (
    "utime",
    "stime",
    "maxrss",
    "ixrss",
    "idrss",
    "isrss",
    "minflt",
    "majflt",
    "nswap",
    "inblock",
    "oublock",
    "msgsnd",
    "msgrcv",
    "nsignals",
    "nvcsw",
    "nivcsw",
)


class bench:
    """Calls of one function and the ticks they took: its own, and the aggregate, which includes what it called.

    Attributes: ``calls``, ``own`` and ``aggregate`` (tuples in the order of get_headings()), ``waited`` and
    ``aggregate_waited`` (ticks for which threads were suspended in it). To change the values of a report, give a
    subclass to ``coro.new_profiler()`` or ``coro.profiler.start()``; it overrides get_data() and get_headings().
    """

    usage: ClassVar[bool] = False  # is getrusage(2) asked, too?

    def __init__(
        self,
        calls: int = 0,
        own: tuple[Number, ...] = (),
        aggregate: tuple[Number, ...] = (),
        waited: int = 0,
        aggregate_waited: int = 0,
    ) -> None:
        self.calls = calls
        self.own = own
        self.aggregate = aggregate
        self.waited = waited
        self.aggregate_waited = aggregate_waited

    def get_data(self) -> tuple[int, tuple[Number, ...], tuple[Number, ...]]:
        """(calls, own values, aggregate values), the values in the order of get_headings()."""
        return self.calls, self.own, self.aggregate

    @classmethod
    def get_headings(cls) -> tuple[str, ...]:
        """The names of the values."""
        return ("ticks",)

    def __repr__(self) -> str:
        values = ", ".join(
            f"{name}={value}" for name, value in zip(self.get_headings(), self.get_data()[1], strict=False)
        )
        return f"<{type(self).__name__} calls={self.calls} {values}>"


class rusage_bench(bench):
    """Like ``bench``, with the values of getrusage(2) for the OS thread that runs the loop (for the process, where the
    system does not count by thread). They are read at the end of every slice of a thread, and at calls and returns when
    20 microseconds have passed since the last reading."""

    usage = True

    @classmethod
    def get_headings(cls) -> tuple[str, ...]:
        """Ticks, then the fields of getrusage(2)."""
        return ("ticks", *USAGE)


class rusage:
    """What the process has used, by getrusage(2). A new object has zeros until ``get()``.

    Attributes: ``utime`` and ``stime`` in seconds, ``maxrss``, ``ixrss``, ``idrss``, ``isrss``, ``minflt``, ``majflt``,
    ``nswap``, ``inblock``, ``oublock``, ``msgsnd``, ``msgrcv``, ``nsignals``, ``nvcsw``, ``nivcsw``. Two objects can be
    added and subtracted; values that are no counters (``maxrss`` and the sizes) are then those of the left operand.
    """

    __slots__ = USAGE

    _NO_COUNTERS = frozenset({"maxrss", "ixrss", "idrss", "isrss"})

    utime: float
    stime: float

    def __init__(self) -> None:
        for name in USAGE:
            setattr(self, name, 0)

    def get(self) -> rusage:
        """Read the present values; returns the object itself."""
        sample = resource.getrusage(resource.RUSAGE_SELF)
        for name, value in zip(USAGE, sample, strict=True):
            setattr(self, name, value)
        return self

    def set(self, other: rusage) -> None:
        """Copy the values of ``other``, another ``rusage``. Raises TypeError for anything else."""
        if not isinstance(other, rusage):
            raise TypeError(f"expected a coro.rusage to copy, not {type(other).__name__}: {other!r}")
        for name in USAGE:
            setattr(self, name, getattr(other, name))

    def _combined(self, other: rusage, sign: int) -> rusage:
        result = rusage()
        for name in USAGE:
            mine = getattr(self, name)
            value = mine if name in self._NO_COUNTERS else mine + sign * getattr(other, name)
            setattr(result, name, round(value, 6) if name in ("utime", "stime") else value)
        return result

    def __add__(self, other: rusage) -> rusage:
        return self._combined(other, 1) if isinstance(other, rusage) else NotImplemented

    def __sub__(self, other: rusage) -> rusage:
        return self._combined(other, -1) if isinstance(other, rusage) else NotImplemented

    def __repr__(self) -> str:
        return f"<rusage {' '.join(f'{name}={getattr(self, name)}' for name in USAGE)}>"
