"""Blocking functions in worker OS threads: ``coro.in_thread(fun, *args)``.

The caller is parked, a worker runs the function, and the result or exception comes back through the loop's
internal post.  Workers are made on demand up to a bound and end after a while of idleness; they are daemons
and never joined, so a function that hangs holds up nobody at exit.  Nothing is started at import.

Who frees what: results must not be dropped by main, which runs no user code.  When the waiting thread was
interrupted before the job was done, the worker drops the result; when after, the waiting thread does.  Who of
them comes first is decided by popping the one element of a list, which only one of them can.

No locks in the loop's OS thread: a signal handler may raise between any two bytecodes there, from Python 3.14 on
also between the taking of a lock and the block that gives it back.  So what both sides use are lists, sets and
deques, whose single operations are atomic under the GIL, in an order in which whoever comes second sees what the
first has done.  Workers, in which no signal handler runs, have a lock among themselves.

Calls that the thread emulation sends here have a pool of their own without a bound. They stand for calls that block an
OS thread each in the program as it was written, and may wait for one another: for locks in a database, say.

Cost: two OS thread switches and one wake of the poller, about 30 to 60 us a call; 8 MiB of address space a
worker. Rejected: concurrent.futures (joins its threads at exit, and imports a lot), one OS thread per call
(four times the cost).
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn, ParamSpec, TypeVar

from coro._runtime import scheduler

__all__ = ["get_max_workers", "in_thread", "set_max_workers", "statistics"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Workers at most, unless set_max_workers() says otherwise: enough for a few slow name servers at once.
DEFAULT_MAX_WORKERS = 16
#: A worker without work ends after this many seconds.
IDLE_SECONDS = 10.0


class _Job:
    __slots__ = ("call", "done", "error", "name", "result", "thread", "turn")

    def __init__(self, function: Any, args: Any, kwargs: Any, context: Any, thread: Any) -> None:
        self.call: tuple[Any, Any, Any, Any] | None = (context, function, args, kwargs)
        # Not the function itself where it has no name: a report may be made when it is long gone.
        self.name = getattr(function, "__qualname__", type(function).__qualname__)
        self.thread = thread
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.turn = [None]  # for the first: the worker that has the outcome, or the thread that no longer wants it

    def __repr__(self) -> str:
        return f"<in_thread {self.name}>"


class _Place:
    """Of a worker that is about to be started. ``turn`` is for the first: the worker that begins, or whoever gave up
    starting it."""

    __slots__ = ("turn",)

    def __init__(self) -> None:
        self.turn = [None]


def _comes_first(turn: list[None]) -> bool:
    try:
        turn.pop()
    except IndexError:
        return False
    return True


def _ring(bell: Any) -> bool:
    """Wake the worker that sleeps on it, unless somebody has before, be it the worker itself."""
    try:
        bell.release()
    except RuntimeError:
        return False
    return True


def _cannot_start(e: BaseException) -> bool:
    """Is this the answer of Thread.start that there is no OS thread to be had?  What a signal handler raises meanwhile
    may be of the same class, but it does not come from that module."""
    traceback = e.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return (
        isinstance(e, (RuntimeError, MemoryError))
        and traceback is not None
        and traceback.tb_frame.f_globals is vars(threading)
    )


class _Pool:
    """The workers of one process.  Invariant: every queued job has a worker that will come for it."""

    def __init__(self, most: int = DEFAULT_MAX_WORKERS) -> None:
        self.most = most
        self.forks = 0  # between the first process and this one
        self.counted = 0  # what the scheduler was told of our workers
        self.reset()

    def reset(self) -> None:
        """Forget everything: at first, and in a forked child, where no worker exists."""
        scheduler._count_own_os_threads(-self.counted)
        self.counted = 0
        self.lock = threading.Lock()  # of the workers
        self.jobs: deque[_Job] = deque()
        self.idle: list[Any] = []  # the lock each idle worker sleeps on; the newest is woken first
        self.places: set[_Place] = set()  # of the workers that live or are being started
        self.busy = 0
        self.finished = 0

    def submit(self, job: _Job) -> None:
        """Queue a job and see that somebody comes for it.  RuntimeError: there is no worker and none can be started.

        A signal handler may raise anywhere in here; that goes to the caller, who has to take the job back."""
        self.jobs.append(job)
        self.call_worker()

    def call_worker(self) -> None:
        """Wake an idle worker or start another.  Where neither is possible a busy one will come when it is done."""
        while self.idle:
            try:
                bell = self.idle[-1]
            except IndexError:
                break
            rung = _ring(bell)
            with contextlib.suppress(ValueError):
                self.idle.remove(bell)
            if rung:
                return
        if len(self.places) >= self.most:
            return
        place = _Place()
        try:
            self.places.add(place)
            threading.Thread(target=self.work, args=(place,), name="coro worker", daemon=True).start()
        except BaseException as e:
            if _comes_first(place.turn):
                self.places.discard(place)  # should the thread have been started after all, it ends at once
            if not self.places or not _cannot_start(e):
                raise

    def work(self, place: _Place) -> None:
        """The life of a worker."""
        if not _comes_first(place.turn):
            return
        forks = self.forks
        self.count(+1)
        try:
            while not self.is_surplus(place):
                try:
                    job = self.jobs.popleft()
                except IndexError:
                    if not self.sleep():
                        break
                    continue
                with self.lock:
                    self.busy += 1
                try:
                    error = _run(job)
                    if self.forks != forks:
                        _end_child(error)
                finally:
                    del job
                    error = None
                    with self.lock:
                        self.busy -= 1
                        self.finished += 1
        finally:
            self.places.discard(place)
            self.count(-1)
            # Somebody may have queued a job and counted on this worker, which is none any more.
            if self.jobs:
                with contextlib.suppress(RuntimeError, MemoryError):
                    self.call_worker()

    def is_surplus(self, place: _Place) -> bool:
        """Are there more workers than there may be?  Then the one in this place is none any more."""
        with self.lock:
            if len(self.places) <= self.most:
                return False
            self.places.discard(place)
            return True

    def sleep(self) -> bool:
        """Wait until there may be a job.  False: there was none for long."""
        bell = threading.Lock()
        bell.acquire()
        self.idle.append(bell)
        woken = not self.jobs and bell.acquire(timeout=IDLE_SECONDS)
        if not woken:
            woken = not _ring(bell) or bool(self.jobs)
        with contextlib.suppress(ValueError):
            self.idle.remove(bell)
        return woken

    def count(self, delta: int) -> None:
        """A worker begins or ends."""
        with self.lock:
            self.counted += delta
            scheduler._count_own_os_threads(delta)


_pool = _Pool()
_unbounded = _Pool(sys.maxsize)


def _after_fork_in_child() -> None:
    for pool in (_pool, _unbounded):
        pool.forks += 1
        pool.reset()


def _end_child(error: BaseException | None) -> NoReturn:
    """The function has forked, and this is the child, where nobody waits for it: what is left is to end the process."""
    code: object = None
    if isinstance(error, SystemExit):
        code = error.code
    elif error is not None:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code or 0)


def _run(job: _Job) -> BaseException | None:
    """In a worker: call the function, then tell the loop or, if nobody waits any more, drop what came out.

    Returns what the function raised if nobody else has it."""
    call, job.call = job.call, None
    if call is None:
        return None  # nobody waits any more
    context, function, args, kwargs = call
    del call
    result: Any = None
    error: BaseException | None = None
    try:
        result = context.run(function, *args, **kwargs)
    except BaseException as e:  # whatever it is belongs to the caller
        error = e
    del context, function, args, kwargs
    job.result, job.error = result, error
    del result, error
    if _comes_first(job.turn):
        job.done = True
        if scheduler._post_internal(_tell, job):
            return None
    error = job.error
    job.result = job.error = None
    return error


def _tell(job: _Job) -> None:
    """In main: wake whoever waits.  The thread holds the job, so nothing is freed here."""
    thread = job.thread
    if thread is not None:
        scheduler._wake(thread, None)


def in_thread(function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run ``function(*args, **kwargs)`` in a worker OS thread. Only the calling thread waits.

    Returns its result or raises its exception.  The function sees a copy of the caller's contextvars, and may use
    nothing of coro but ``post``.  If the caller is interrupted, it leaves at once; the function runs to its end and its
    outcome is dropped.  A function that forks has no loop in the child, may run one there, and ends the child when it
    ends: with code 0, with that of a SystemExit, or with 1 and a traceback for another exception.

    Raises TypeError for something that cannot be called or is an ``async def`` function, YieldFromMain outside a
    thread.
    """
    scheduler._check_function(function)
    return _run_in(_pool, function, args, kwargs)  # type: ignore[no-any-return]


def _in_thread_of_its_own(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """As in_thread(), however many do the same: for the thread emulation."""
    return _run_in(_unbounded, function, args, kwargs)


def _run_in(pool: _Pool, function: Any, args: Any, kwargs: Any) -> Any:
    job = _Job(function, args, kwargs, contextvars.copy_context(), scheduler._running_thread())
    try:
        pool.submit(job)
        while not job.done:
            scheduler._suspend_offloaded(job)
    except BaseException:
        job.thread = None
        if not _comes_first(job.turn):
            # Not into local variables: the traceback of the interruption keeps this frame, perhaps for long.
            job.result = job.error = None
        with contextlib.suppress(ValueError):
            pool.jobs.remove(job)  # nobody has begun it
        job.call = None
        raise
    job.thread = None
    if job.error is not None:
        try:
            raise job.error
        finally:
            job.error = None  # the traceback names this frame: no cycle
    return job.result


def set_max_workers(number: int) -> int:
    """Set how many worker OS threads there may be (default 16). Surplus workers end when they are done.  Returns the
    old number.

    Raises ValueError for a number below 1, TypeError for something else than an int.
    """
    if not isinstance(number, int):
        raise TypeError(f"the number of workers is an int, not {type(number).__name__}: {number!r}")
    if number < 1:
        raise ValueError(f"expected at least one worker, not {number}; functions that wait for one would never run")
    old, _pool.most = _pool.most, number
    return old


def get_max_workers() -> int:
    """How many worker OS threads there may be."""
    return _pool.most


def statistics() -> dict[str, int]:
    """Figures for debugging: workers, idle and busy ones, queued jobs, jobs finished since the start."""
    pools = (_pool, _unbounded)
    return {
        "workers": sum(len(pool.places) for pool in pools),
        "idle": sum(len(pool.idle) for pool in pools),
        "busy": sum(pool.busy for pool in pools),
        "queued": sum(len(pool.jobs) for pool in pools),
        "finished": sum(pool.finished for pool in pools),
        "most": _pool.most,
    }
