"""A bounded number of threads for many calls: ``coro.pool``.

What gevent has as ``Pool`` and concurrent.futures as an executor. There are no waiting workers: each call gets a thread
of its own, which is cheap here, and a semaphore says how many there are at once (trio's CapacityLimiter). So the
result of ``spawn`` is an ordinary thread, with ``get``, ``join`` and ``shutdown``.

Beside it there are ``coro.group``, where the failure of one ends all, and ``coro.parallel_map``, for one list of calls.
A pool is for many calls over time that have nothing to do with each other.

Cost: one small object and one Python frame for each call, as in a group. Threads that are cancelled before they run
are noticed by the finaliser of the object that carries their call.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Literal, NamedTuple, ParamSpec, Self, SupportsFloat, TypeVar

from coro._runtime import scheduler
from coro._runtime.arguments import whole
from coro._sync.conditions import inverted_semaphore
from coro._sync.locks import semaphore
from coro.exceptions import LoopError, Shutdown

__all__ = ["PoolStatistics", "pool"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Seconds; the limit of a shield whose end is not a matter of time.
_FOREVER = 1e9


#: All there are, for children that are forked.
_pools: weakref.WeakValueDictionary[int, pool] = weakref.WeakValueDictionary()


class PoolStatistics(NamedTuple):
    """State of a pool; debugging information."""

    #: Calls that have a thread.
    running: int
    #: Threads that wait for room.
    waiting: int
    #: How many calls may run at once.
    size: int
    #: Calls that have ended so far.
    finished: int


class _Call:
    """What a thread of a pool runs; it lives exactly as long as the call may still happen or is going on."""

    __slots__ = ("args", "begun", "forks", "function", "kwargs", "mapped", "owner")

    def __init__(self, owner: pool, mapped: bool, function: Any, args: Any, kwargs: Any) -> None:
        self.owner = owner
        self.mapped = mapped
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.forks = owner._forks
        self.begun = False  # last: what is not whole was not counted

    def __call__(self) -> Any:
        owner = self.owner
        self.begun = True
        try:
            return self.function(*self.args, **self.kwargs)
        except Shutdown:
            raise
        except BaseException as e:
            if not self.mapped:
                raise
            scheduler._note_failure(e)  # who iterates over the results gets it, and nobody else
            return None
        finally:
            owner._leave(scheduler.current())
            del self, owner  # the frames of a failure's traceback lead to this one by their f_back

    def __del__(self) -> None:
        if not getattr(self, "begun", True) and self.forks == self.owner._forks:
            self.owner._leave(None)


class pool:
    """At most ``size`` calls at once, each in a thread::

        downloads = coro.pool(10)
        for url in urls:
            downloads.spawn(fetch, url)       # waits while ten are running
        downloads.join()

        for page in downloads.imap_unordered(fetch, urls):
            ...

    ``with coro.pool(10) as p:`` waits at the end of the block for all its calls; when the block raises, they are shut
    down first. It is gevent's ``Pool``, and ``ThreadPoolExecutor`` of concurrent.futures.

    TypeError or ValueError when ``size`` is not an int of at least 1.
    """

    def __init__(self, size: int) -> None:
        self._size = whole(size, "the size of a pool", 1)
        self._room = semaphore(size)
        self._running = inverted_semaphore()
        self._threads: dict[scheduler.coro, None] = {}
        self._finished = 0
        self._forks = 0  # that this pool has come through in a child: older calls that have not begun are gone
        _pools[id(self)] = self

    def _after_fork(self) -> None:
        """In a forked child: the calls of all threads but this one are gone, and so are those who waited for room."""
        self._threads = {t: None for t in self._threads if not t.dead}
        lost = self._running.value - len(self._threads)
        if lost:
            self._forks += 1
            self._running.release(lost)
        self._room.release(self._size - len(self._threads) - self._room.avail)

    # -- calls

    def spawn(self, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> scheduler.coro[_T]:
        """Wait for room, then start a thread that calls ``function(*args, **kwargs)``; returns the thread.

        Its ``get()`` has the result. What it raises goes to the exception notifier as well, as for ``coro.spawn``. An
        interruption while it waits leaves nothing behind; ``coro.timeout`` limits the wait, or ``wait_for_room``
        before. TypeError for something that cannot be called; YieldFromMain outside a thread if it would have to wait;
        LoopError while the loop ends.
        """
        if not callable(function):
            raise TypeError(f"expected something to call, not {type(function).__name__}: {function!r}")
        self._room.acquire()
        return self._start(False, function, args, kwargs)

    def _start(self, mapped: bool, function: Any, args: Any, kwargs: Any) -> scheduler.coro:
        """A thread for which room has been taken."""
        label = getattr(function, "__qualname__", None)
        self._running.acquire()
        call = _Call(self, mapped, function, args, kwargs)  # gives room and count back, from here on
        thread = scheduler.new(call, thread_name=label if isinstance(label, str) else type(function).__qualname__)
        try:
            thread.start()
        except LoopError:
            thread.raise_exception(Shutdown, cancel_start=True)
            del call  # the traceback keeps this frame, and room and count must be back when the error arrives
            raise
        self._threads[thread] = None
        return thread

    def _leave(self, thread: scheduler.coro | None) -> None:
        """A call has ended, or will never begin (None). May run in a finaliser."""
        if thread is None:
            self._threads = {t: None for t in self._threads if not t.dead}
        else:
            self._threads.pop(thread, None)
        self._finished += 1
        self._running.release()
        self._room.release()

    def apply(self, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call the function in a thread of the pool and return its result, or raise what it raises: a call that waits
        for room. When the caller is interrupted the call is shut down."""
        thread = self.spawn(function, *args, **kwargs)
        try:
            return thread.get()
        except BaseException:
            thread.shutdown()
            raise
        finally:
            del thread  # it has the failure, whose traceback has this frame

    def map(self, function: Callable[..., _T], /, *iterables: Iterable[Any]) -> list[_T]:
        """Like ``list(map(function, *iterables))`` with each call in a thread of the pool. The first failure, in the
        order of the iterables, is raised, and the calls that have not ended are shut down."""
        return list(self.imap(function, *iterables))

    def imap(self, function: Callable[..., _T], /, *iterables: Iterable[Any]) -> Iterator[_T]:
        """An iterator over the results of ``function``, in the order of the iterables. They are advanced in the calling
        thread, and no further ahead than the pool is large. A failed call raises where its result would come. When the
        iterator ends early, by a failure or because it is closed, the calls that have not ended are shut down."""
        return self._results(_check(function), zip(*iterables, strict=False), True)

    def imap_unordered(self, function: Callable[..., _T], /, *iterables: Iterable[Any]) -> Iterator[_T]:
        """The same as ``imap``, with the results in the order in which the calls end."""
        return self._results(_check(function), zip(*iterables, strict=False), False)

    def _results(self, function: Any, calls: Iterator[tuple[Any, ...]], ordered: bool) -> Iterator[Any]:
        pending: deque[scheduler.coro] = deque()
        results: list[Any] = []
        more = True
        try:
            while True:
                while more and len(pending) < self._size:
                    # With a call of our own on its way we take what room there is; without, we wait for some.
                    if not self._room.acquire(blocking=not pending):
                        break
                    try:
                        arguments = next(calls, None)
                    except BaseException:
                        self._room.release()
                        raise
                    if arguments is None:
                        more = False
                        self._room.release()
                    else:
                        pending.append(self._start(True, function, arguments, {}))
                if not pending:
                    return
                if not ordered:
                    _first_to_end_first(pending)
                # No names: the thread has the result as well, or the failure, whose traceback has this frame.
                results.append(pending[0].get())
                pending.popleft()
                yield results.pop()
        finally:
            while pending:
                pending.popleft().shutdown()

    # -- the whole

    def wait_for_room(self, timeout: SupportsFloat | None = None) -> None:
        """Wait until ``spawn`` would not have to. ``timeout`` in seconds, 0 to look only, None for ever;
        ``coro.TimeoutError`` when it is over. Errors as for ``semaphore.acquire``."""
        self._room.acquire(1, timeout)
        self._room.release()

    def join(self, timeout: SupportsFloat | None = None) -> None:
        """Wait until no call is running. ``timeout`` in seconds, 0 to look only, None for ever; ``coro.TimeoutError``
        when it is over. Errors as for ``inverted_semaphore.block_till_zero``."""
        self._running.block_till_zero(timeout)

    def shutdown(self) -> None:
        """Ask all calls that are running to end; gevent's ``kill``. Does not wait, see ``join``; the pool can be used
        further. WrongThreadError in another OS thread than the loop's."""
        scheduler._check_os_thread()
        me = scheduler.current()
        for thread in list(self._threads):
            if thread is not me:
                thread.shutdown()

    @property
    def size(self) -> int:
        """How many calls may run at once."""
        return self._size

    @property
    def free(self) -> int:
        """How many calls would not have to wait now; gevent's ``free_count()``."""
        return self._room.avail

    @property
    def threads(self) -> list[scheduler.coro]:
        """The threads of the calls that are running."""
        return [t for t in self._threads if not t.dead]

    def statistics(self) -> PoolStatistics:
        """Figures for debugging."""
        return PoolStatistics(self._running.value, len(self._room.waiting), self._size, self._finished)

    def __len__(self) -> int:
        return self._running.value

    def __bool__(self) -> bool:
        return True  # an idle pool is one all the same

    def __repr__(self) -> str:
        return f"<pool of {self._size}: {self._running.value} running, {len(self._room.waiting)} waiting for room>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        try:
            if exc is None:
                self.join()
                return False
        except BaseException:
            self.shutdown()
            with scheduler.shield(_FOREVER):
                self.join()
            raise
        self.shutdown()
        with scheduler.shield(_FOREVER):
            self.join()
        return False


def _check(function: Callable[..., _T]) -> Callable[..., _T]:
    if not callable(function):
        raise TypeError(f"expected something to call, not {type(function).__name__}: {function!r}")
    return function


def _first_to_end_first(threads: deque[scheduler.coro]) -> None:
    """Wait until one of the threads has ended, and put it in front of the others."""
    watch = scheduler._EndWatch(threads)
    try:
        while (thread := watch.take()) is None:
            watch.wait()
    finally:
        watch.leave()
    threads.remove(thread)
    threads.appendleft(thread)


def _after_fork_in_child() -> None:
    for p in list(_pools.values()):
        p._after_fork()
