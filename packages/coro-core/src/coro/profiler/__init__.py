"""Profiler: what each function and each thread used, and where the time went that nobody used.

    import coro.profiler
    coro.profiler.go(coro.run, main)                 # then: python -m coro.print_profile FILE > report.html

or ``start()`` … ``stop()`` around a part of a program that runs. Every call is accounted exactly, Python functions and
C functions, along the path of calls that led to it and for each thread by itself; a thread that is parked uses nothing,
and the time it was parked is told apart. The file it leaves holds plain numbers and strings, and reading it runs no
code.

Cost: from 3.12 on two events of ``sys.monitoring`` for each call, about 50 ns together; on 3.11 the interpreter's
profile function, for which it makes a frame object at each Python call. ``coro.rusage_bench`` adds a system call for
each slice of a thread.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any, TypeVar

from coro.profiler._benches import bench, rusage_bench
from coro.profiler._exports import to_pstats, to_speedscope
from coro.profiler._file import Profile, ProfileError, ThreadProfile, load, save
from coro.profiler._session import Profiler, get_the_profiler, new_profiler

_Result = TypeVar("_Result")


def default_filename() -> str:
    """Where the profile is written when no name is given: ``coro_profile.bin`` in the folder for temporary files."""
    return os.path.join(tempfile.gettempdir(), "coro_profile.bin")


def go(
    fun: Callable[..., _Result],
    /,
    *args: Any,
    profile_filename: str | os.PathLike[str] | None = None,
    profile_bench: type[bench] = rusage_bench,
    **kwargs: Any,
) -> _Result:
    """Run ``fun(*args, **kwargs)`` under the profiler and return what it returns.

    The profile is written to ``profile_filename`` (None: see default_filename()) whether ``fun`` returns or raises;
    what it raises is passed on. ``profile_bench`` says what is measured: ``coro.rusage_bench`` or ``coro.bench``, or a
    subclass. SystemError when a profiler is active, RuntimeError when the interpreter's hooks belong to another tool,
    OSError when the file cannot be written, TypeError when ``fun`` cannot be called."""
    if not callable(fun):
        raise TypeError(f"expected a function to profile, not {type(fun).__name__}: {fun!r}")
    start(profile_bench)
    try:
        return fun(*args, **kwargs)
    finally:
        stop(profile_filename)


def start(profile_bench: type[bench] = rusage_bench) -> None:
    """Profile from here on, all threads. SystemError when a profiler is active, RuntimeError when the interpreter's
    hooks belong to another tool, TypeError when ``profile_bench`` is no subclass of ``coro.bench``."""
    new_profiler(profile_bench).start()


def stop(filename: str | os.PathLike[str] | None = None) -> Profile:
    """Stop profiling, write the profile to ``filename`` (None: see default_filename()) and return it.

    RuntimeError when no profiler is active or it was started in another OS thread, OSError when the file cannot be
    written; the profiler is stopped even then."""
    profiler = get_the_profiler()
    if profiler is None:
        raise RuntimeError("no profiler is active; call coro.profiler.start() first")
    profiler.stop()
    profile = profiler.profile()
    save(profile, default_filename() if filename is None else filename)
    return profile


__all__ = [
    "Profile",
    "ProfileError",
    "Profiler",
    "ThreadProfile",
    "default_filename",
    "get_the_profiler",
    "go",
    "load",
    "new_profiler",
    "save",
    "start",
    "stop",
    "to_pstats",
    "to_speedscope",
]
