"""Blocking functions in worker OS threads: ``coro.in_thread(fun, *args)``.

The caller is parked, a worker runs the function, and the result or exception comes back through the loop's
internal post.  Workers are made on demand up to a bound and end after a while of idleness; they are daemons
and never joined, so a function that hangs holds up nobody at exit.  Nothing is started at import.

Who frees what: results must not be dropped by main, which runs no user code.  When the waiting thread was
interrupted before the job was done, the worker drops the result; when after, the waiting thread does.  One
lock decides which, held for a few bytecodes.

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
_WAIT_OFFLOAD = 8  # coro._runtime.scheduler.WAIT_OFFLOAD, for reports
#: A worker without work ends after this many seconds.
IDLE_SECONDS = 10.0


class _Job:
    __slots__ = ("abandoned", "args", "context", "done", "error", "function", "kwargs", "result", "thread")

    def __init__(self, function: Any, args: Any, kwargs: Any, context: Any, thread: Any) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.context = context
        self.thread = thread
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.abandoned = False

    def __repr__(self) -> str:
        return f"<in_thread {getattr(self.function, '__qualname__', self.function)!s}>"


class _Place:
    """Of a worker that is about to be started: whether the pool counts on it, and whether it has begun."""

    __slots__ = ("begun", "counted")

    def __init__(self) -> None:
        self.begun = self.counted = False


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

    def __init__(self) -> None:
        self.most = DEFAULT_MAX_WORKERS
        self.forks = 0  # between the first process and this one
        self.counted = 0  # what the scheduler was told of our workers, and of threads that wait for them
        self.waiting = 0
        self.reset()

    def reset(self) -> None:
        """Forget everything: at first, and in a forked child, where no worker exists."""
        scheduler._count_own_os_threads(-self.counted)
        scheduler._count_offloaded(-self.waiting)
        self.counted = self.waiting = 0
        self.lock = threading.Lock()
        self.jobs: deque[_Job] = deque()
        self.idle: list[Any] = []  # the lock each idle worker sleeps on; the newest is woken first
        self.workers = 0
        self.busy = 0
        self.finished = 0

    def submit(self, job: _Job) -> None:
        """Queue a job and see that somebody comes for it.  RuntimeError: there is no worker and none can be started.

        A signal handler may raise anywhere in here; that goes to the caller, who has to take the job back."""
        place = _Place()
        try:
            with self.lock:
                self.jobs.append(job)
                if self.idle:
                    self.idle.pop().release()
                    return
                if self.workers >= self.most:
                    return
                self.workers += 1
                place.counted = True
            threading.Thread(target=self.work, args=(place,), name="coro worker", daemon=True).start()
        except BaseException as e:
            with self.lock:
                if place.counted and not place.begun:
                    place.counted = False  # should the thread have been started after all, it ends at once
                    self.workers -= 1
                others = self.workers > 0
            if not others or not _cannot_start(e):
                raise

    def work(self, place: _Place) -> None:
        """The life of a worker."""
        with self.lock:
            if not place.counted:
                return
            place.begun = True
        forks = self.forks
        self.count(+1)
        try:
            while True:
                with self.lock:
                    if self.workers > self.most:
                        self.workers -= 1
                        if self.jobs and self.idle:
                            self.idle.pop().release()  # it was woken for a job: somebody else has to come
                        return
                    job = self.jobs.popleft() if self.jobs else None
                    if job is None:
                        bell = threading.Lock()
                        bell.acquire()
                        self.idle.append(bell)
                    else:
                        self.busy += 1
                if job is None:
                    if not bell.acquire(timeout=IDLE_SECONDS):
                        with self.lock:
                            if bell in self.idle:
                                self.idle.remove(bell)
                                self.workers -= 1
                                return
                    continue
                try:
                    error = _run(job)
                    if self.forks != forks:
                        _end_child(error)
                finally:
                    job = error = None
                    with self.lock:
                        self.busy -= 1
                        self.finished += 1
        finally:
            self.count(-1)

    def count(self, delta: int) -> None:
        """A worker begins or ends."""
        with self.lock:
            self.counted += delta
            scheduler._count_own_os_threads(delta)

    def wait(self, delta: int) -> None:
        """A thread begins or ceases to wait for a job: no deadlock meanwhile."""
        self.waiting += delta
        scheduler._count_offloaded(delta)


_pool = _Pool()


def _after_fork_in_child() -> None:
    _pool.forks += 1
    _pool.reset()


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
    result: Any = None
    error: BaseException | None = None
    try:
        result = job.context.run(job.function, *job.args, **job.kwargs)
    except BaseException as e:  # whatever it is belongs to the caller
        error = e
    job.function = job.args = job.kwargs = job.context = None
    with _pool.lock:
        job.done = True
        if not job.abandoned:
            job.result = result
            job.error = error
            if scheduler._post_internal(_tell, job):
                result = error = None
    return error


def _tell(job: _Job) -> None:
    """In main: wake whoever waits.  The thread holds the job, so nothing is freed here."""
    thread = job.thread
    if thread is not None:
        scheduler._wake(thread, None)


def in_thread(function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run ``function(*args, **kwargs)`` in a worker OS thread; blocks the calling thread only.

    Returns its result or raises its exception.  The function sees a copy of the caller's contextvars, and may
    use nothing of coro but ``post``.  When the caller is interrupted it leaves at once; the function runs to
    its end and its outcome is dropped.  A function that forks has no loop in the child, may run one there, and
    ends the child when it ends: with code 0, that of a SystemExit, or 1 and a traceback for another exception.

    Raises TypeError for something that cannot be called, YieldFromMain outside a thread.
    """
    if not callable(function):
        raise TypeError(f"expected something to call, not {type(function).__name__}: {function!r}")
    job = _Job(function, args, kwargs, contextvars.copy_context(), scheduler._running_thread())
    _pool.wait(+1)
    try:
        _pool.submit(job)
        while not job.done:
            scheduler._suspend(job, _WAIT_OFFLOAD)
    except BaseException:
        with _pool.lock:
            job.abandoned = True
            if job in _pool.jobs:
                _pool.jobs.remove(job)  # nobody has begun it
        # Not into local variables: the traceback of the interruption keeps this frame, perhaps for long.
        job.result = job.error = job.thread = None
        raise
    finally:
        _pool.wait(-1)
    job.thread = None
    if job.error is not None:
        try:
            raise job.error
        finally:
            job.error = None  # the traceback names this frame: no cycle
    return job.result  # type: ignore[no-any-return]


def set_max_workers(number: int) -> int:
    """At most this many worker OS threads (default 16); surplus ones end when done.  Returns the old bound.

    Raises ValueError for a number below 1, TypeError for something else than an int.
    """
    if not isinstance(number, int):
        raise TypeError(f"the number of workers is an int, not {type(number).__name__}: {number!r}")
    if number < 1:
        raise ValueError(f"at least one worker is needed, not {number}")
    old, _pool.most = _pool.most, number
    return old


def get_max_workers() -> int:
    """The present bound on worker OS threads."""
    return _pool.most


def statistics() -> dict[str, int]:
    """Figures for debugging: workers, idle and busy ones, queued jobs, jobs finished since the start."""
    with _pool.lock:
        return {
            "workers": _pool.workers,
            "idle": len(_pool.idle),
            "busy": _pool.busy,
            "queued": len(_pool.jobs),
            "finished": _pool.finished,
            "most": _pool.most,
        }
