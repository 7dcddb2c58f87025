"""Waiting for many threads: ``coro.wait`` and ``coro.as_completed``; for one there are its ``join`` and ``get``.

Names and results are those of concurrent.futures (asyncio has them too; gevent calls them ``joinall`` and ``iwait``),
with threads in the place of futures. Both only watch: whatever happens to the caller, the threads go on. To have
threads end with a block there is ``coro.group``.

Cost: a note of 72 bytes for each thread that is watched and has not ended, and O(1) for each end, see
_runtime/parts/ends.pxi. Rejected: a ``coro.select`` of joins for each step, which looks at all threads every time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, Literal, NamedTuple, SupportsFloat, TypeVar

from coro._clock import ticks
from coro._runtime import scheduler
from coro._runtime.arguments import number_of_seconds
from coro.exceptions import TimeoutError

__all__ = ["ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION", "WaitResult", "as_completed", "wait"]

_T = TypeVar("_T")

#: For ``return_when``: when any thread has ended.
FIRST_COMPLETED: Literal["FIRST_COMPLETED"] = "FIRST_COMPLETED"
#: When any thread has ended by an exception, or all have ended.
FIRST_EXCEPTION: Literal["FIRST_EXCEPTION"] = "FIRST_EXCEPTION"
#: When all have ended.
ALL_COMPLETED: Literal["ALL_COMPLETED"] = "ALL_COMPLETED"


class WaitResult(NamedTuple, Generic[_T]):
    """What ``coro.wait`` returns."""

    #: The threads that have ended.
    done: set[scheduler.coro[_T]]
    #: The others.
    not_done: set[scheduler.coro[_T]]


def wait(
    threads: Iterable[scheduler.coro[_T]],
    timeout: SupportsFloat | None = None,
    return_when: Literal["ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION"] = ALL_COMPLETED,
) -> WaitResult[_T]:
    """Wait until threads have ended; returns two sets, ``(done, not_done)``. Ask those in ``done`` with ``get()``::

        done, late = coro.wait([coro.spawn(ask, peer) for peer in peers], timeout=5)

    timeout: a number of seconds; after that the result tells which have not ended, and nothing is raised. 0 only looks,
    None is for ever. return_when: ``coro.ALL_COMPLETED``, ``FIRST_COMPLETED`` or ``FIRST_EXCEPTION`` (a Shutdown counts
    as one). Without threads it returns at once.

    Raises TypeError for what is no thread, TypeError or ValueError for an impossible timeout, ValueError for another
    ``return_when``, AssertionError when the caller is one of the threads, YieldFromMain outside a thread if it would
    have to wait. The threads are left alone whatever happens. It is ``concurrent.futures.wait``; gevent calls it
    ``joinall``.
    """
    if return_when not in (ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION):
        raise ValueError(
            f"expected coro.ALL_COMPLETED, FIRST_COMPLETED or FIRST_EXCEPTION as return_when, not {return_when!r}"
        )
    everybody = _threads(threads)
    seconds = None if timeout is None else number_of_seconds(timeout)
    watch = scheduler._EndWatch(everybody)
    done: set[scheduler.coro] = set()
    try:
        enough = _take(watch, done, return_when)
        if not enough and watch.missing and (seconds is None or seconds > 0):
            _refuse_oneself(everybody)
            if seconds is None:
                _wait(watch, done, return_when)
            else:
                with scheduler.move_on_after(seconds):
                    _wait(watch, done, return_when)
    finally:
        watch.leave()
    done.update(t for t in everybody if t.dead)
    return WaitResult(done, {t for t in everybody if t not in done})


def _wait(watch: scheduler._EndWatch, done: set[scheduler.coro], return_when: str) -> None:
    while watch.missing:
        watch.wait()
        if _take(watch, done, return_when):
            break


def _take(watch: scheduler._EndWatch, done: set[scheduler.coro], return_when: str) -> bool:
    """Move those that have ended to ``done``. Is it what the caller waits for?"""
    enough = False
    while (thread := watch.take()) is not None:
        done.add(thread)
        enough = (
            enough
            or return_when == FIRST_COMPLETED
            or (return_when == FIRST_EXCEPTION and thread.exception is not None)
        )
    return enough


def as_completed(
    threads: Iterable[scheduler.coro[_T]], timeout: SupportsFloat | None = None
) -> Iterator[scheduler.coro[_T]]:
    """An iterator over threads in the order in which they end; those that have ended already come first::

        for thread in coro.as_completed(downloads):
            print(thread.name, thread.get())

    timeout: seconds from this call on, after which the iterator raises ``coro.TimeoutError`` when there are threads
    that have not ended; None is for ever. Each thread comes once, however often it was given. One thread goes through
    the iterator at a time, ValueError otherwise. Errors as for ``coro.wait``, those of the arguments at once, others
    while iterating. It is ``concurrent.futures.as_completed``; gevent calls it ``iwait``.
    """
    everybody = _threads(threads)
    if timeout is None:
        return _one_by_one(everybody, None, timeout)
    return _one_by_one(everybody, _seconds_now() + number_of_seconds(timeout), timeout)


def _seconds_now() -> float:
    return ticks.get_now() / ticks.ticks_per_sec


def _one_by_one(everybody: list[scheduler.coro], deadline: float | None, timeout: Any) -> Iterator[scheduler.coro]:
    watch = scheduler._EndWatch(everybody)  # not before: an iterator that is never begun would not leave it
    try:
        for number in range(len(everybody)):
            thread = watch.take()
            if thread is None:
                _refuse_oneself(everybody)
                if deadline is None:
                    watch.wait()
                else:
                    left = deadline - _seconds_now()
                    expired = left <= 0
                    if not expired:
                        with scheduler.move_on_after(left) as scope:
                            watch.wait()
                        expired = scope.expired
                    if expired:
                        raise TimeoutError(
                            f"{len(everybody) - number} of {len(everybody)} threads had not ended when the timeout of "
                            f"{timeout} s of as_completed() was over"
                        )
                thread = watch.take()
                assert thread is not None
            yield thread
    finally:
        watch.leave()


def _threads(threads: Any) -> list[scheduler.coro]:
    """Without duplicates, in order."""
    if isinstance(threads, scheduler.coro) or not isinstance(threads, Iterable):
        raise TypeError(
            f"expected several threads, a list of them say, not {type(threads).__name__}: {threads!r}; for one thread "
            f"there are its join() and get()"
        )
    everybody = list(dict.fromkeys(threads))
    for thread in everybody:
        if not isinstance(thread, scheduler.coro):
            raise TypeError(f"expected threads (see coro.spawn), not {type(thread).__name__}: {thread!r}")
    return everybody


def _refuse_oneself(everybody: list[scheduler.coro]) -> None:
    me = scheduler.current()
    if me in everybody:
        raise AssertionError(f"a thread cannot wait for its own end: {me!r} is one of the threads that it waits for")
