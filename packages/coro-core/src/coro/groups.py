"""Structured concurrency: ``with coro.group() as g: g.spawn(f)``, a block that ends when all its threads have ended.

The idea is that of nurseries and task groups (PEP 654 has the exception groups they need): a thread that was started
in a block is never left running behind it, and never fails unheard.  What that takes is in this file alone; it is made
of the scheduler's public parts.

Invariants: (1) `_children` holds every thread of the group that is started and has not finished its function, `_queue`
those that wait for room; at most `limit` are in `_children`.  (2) A child is told to end at most once by its group, so
that its clean-up is not interrupted by a second failure.  (3) Whoever waits in `_wait` is woken when both are empty.
Threads that are cancelled before they run never execute a line of ours; they are noticed by the finaliser of the object
that carries their call (_sync/group_calls.pyx), which dies with them.

While the owner waits for its children after an interruption it is shielded: further timeouts and a shutdown stay noted
with it and strike at its next wait, so none is lost.

Cost: one small object a child; a group wakes its owner once, not once a child.  Rejected: joining
one child after the other (a wake-up each), and a `spawn` that blocks when the group is full (it would be the only spawn
that switches; `wait_for_room` does it where wanted).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, NamedTuple, SupportsFloat

from coro._runtime import scheduler
from coro._runtime.output import one_line
from coro._sync.group_calls import GroupCall
from coro.exceptions import Interrupted, LoopError, Shutdown

__all__ = ["GroupError", "GroupStatistics", "group"]

#: Seconds; the limit of a shield whose end is not a matter of time.
_FOREVER = 1e9


def _typed_as_spawn(method: Any) -> scheduler._Spawn:
    """For type checkers: the method, called on a group, takes what ``coro.spawn`` takes, so they check the arguments
    of the function and know the thread's result."""
    return method  # type: ignore[no-any-return]


class GroupError(Exception):
    """The group is not in a state for this: spawning before its block or once it is ending, a second use, or leaving
    the block in another thread than the one that entered it."""


class GroupStatistics(NamedTuple):
    """State of a group; debugging information."""

    #: Children that are started and have not finished.
    running: int
    #: Children that wait for room.
    queued: int
    #: Children that have finished so far, failed ones included.
    finished: int
    #: Children that have failed so far.
    failed: int
    #: How many may run at once, or None.
    limit: int | None
    #: No more can be spawned.
    closed: bool


class _Broken(Interrupted):
    """Gets the owner out of the block after a child's failure.  ``args[0]`` is the group."""


scheduler._know_wrapper(GroupCall)


class group:
    """``with coro.group() as g:`` ends when every thread started by ``g.spawn`` has ended.

    ``limit`` is how many of them may run at once (None: any number). The others are queued in the order in which they
    were spawned.

    When a child fails, or the block raises, the other children and the block are shut down. When all have ended, the
    failures leave as an ``ExceptionGroup``, even if there is only one (as a ``BaseExceptionGroup`` if one of them is no
    ``Exception``).  A child's own ``Shutdown`` is no failure.  An interruption of the thread that owns the block (a
    timeout, Shutdown), SystemExit, KeyboardInterrupt and the like shut the children down too.  They leave as they are,
    in no group, once the children have ended; failures of children then go to the exception notifier.

    Raises TypeError or ValueError for an impossible limit; GroupError when the group is used twice, or left in another
    thread; what every blocking call raises outside a thread.
    """

    def __init__(self, limit: int | None = None) -> None:
        check_limit(limit)
        self._limit = limit
        self._owner: scheduler.coro | None = None
        self._in_block = False
        self._closed = False
        self._break_sent = False
        self._children: dict[scheduler.coro, None] = {}
        self._queue: deque[scheduler.coro] = deque()
        self._leaving: list[scheduler.coro] = []  # their functions have ended, they themselves perhaps not quite
        self._errors: list[BaseException] = []
        self._waiter: scheduler.coro | None = None
        self._room_waiters: list[scheduler.coro] = []
        self._finished = self._failed = 0

    def __repr__(self) -> str:
        state = "ended" if self._closed and not self._children else "closing" if self._closed else "open"
        owner = "nobody" if self._owner is None else one_line(self._owner.name)
        return f"<group of {owner}: {state}, {len(self._children)} running, {len(self._queue)} queued>"

    # -- the block

    def __enter__(self) -> group:
        if self._owner is not None:
            raise GroupError("this group is in use already, or was; make a new coro.group() for every block")
        self._owner = scheduler._running_thread()
        self._in_block = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        self._in_block = False
        if scheduler.current() is not self._owner:
            self._close()
            raise GroupError(
                f"the block of a group must be left in the thread that entered it ({self._owner!r}); its children were "
                "shut down, but nobody waits for them. Do not yield inside the block in a generator"
            )
        parting: BaseException | None = None  # what leaves bare
        if exc is not None:
            self._close()
            if self._is_own_break(exc):
                self._break_sent = False
            else:
                parting = self._sort(exc)
        if parting is None:
            try:
                self._wait()
            except BaseException as e:
                parting = self._sort(e)
        self._close()
        while not self._over():
            try:
                with scheduler.shield(_FOREVER):
                    self._wait()
            except Shutdown as e:  # through a shield: the loop's grace period is over, and every wait raises this
                parting = e if parting is None else parting
                break
            except BaseException as e:  # sent by somebody; we wait on
                late = self._sort(e)
                parting = late if parting is None else parting
        errors, self._errors = self._errors, []
        try:
            if parting is not None:
                _tell([e for e in errors if e is not exc])
                if parting is not exc:
                    raise parting
            elif errors:
                raise _grouped(errors) from None
        finally:
            del parting, errors, exc  # their tracebacks name this frame
        return False

    def _is_own_break(self, exc: BaseException) -> bool:
        return isinstance(exc, _Broken) and exc.args[0] is self

    def _sort(self, exc: BaseException) -> BaseException | None:
        """What the owner raised: a failure like any other (None), or something that leaves bare (returned)."""
        if isinstance(exc, (Exception, BaseExceptionGroup)):
            self._errors.append(exc)
            self._close()
            return None
        self._close()
        return exc

    def _over(self) -> bool:
        return not (self._children or self._queue or self._leaving or self._break_sent)

    def _wait(self) -> None:
        """Until no child is left, and the interruption that was sent to the owner, if any, has arrived."""
        me = scheduler._running_thread()
        while self._break_sent:
            try:
                scheduler.yield_slice()
                self._break_sent = False  # a Shutdown has displaced it
            except _Broken as e:
                if not self._is_own_break(e):
                    raise
                self._break_sent = False
        self._sweep()
        self._waiter = me
        try:
            while self._children or self._queue:
                scheduler._suspend(self)
        finally:
            self._waiter = None
        self._closed = True
        while self._leaving:
            self._leaving[-1].join()
            self._leaving.pop()

    # -- children

    @_typed_as_spawn
    def spawn(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        thread_name: str | None = None,
        daemon: bool | None = None,
        **kwargs: Any,
    ) -> scheduler.coro:
        """Start a thread of the group that calls ``function(*args, **kwargs)``; returns it and never switches.

        When ``limit`` children run already it is queued, and starts when one of them has ended. Every thread of the
        loop may call this while the group is open: children can spawn siblings. ``thread_name`` as for ``coro.spawn``;
        ``daemon`` defaults to what the group's owner is. What a child returns is its ``result``, a failed child's
        exception its ``exception``, as of every thread; the group raises the failure as well, and the notifier does not
        hear of it.

        Raises GroupError before the block and once the group is closing (a failure, an interruption, ``shutdown``, or
        all children have ended after the block); TypeError for something that cannot be called or is an
        ``async def`` function; LoopError while the loop ends; WrongThreadError in another OS thread.
        """
        scheduler._check_function(function)
        owner = self._owner
        if owner is None:
            raise GroupError("a group starts threads inside its block only: with coro.group() as g: g.spawn(...)")
        if self._closed:
            raise self._too_late(function)
        if thread_name is None:
            label = getattr(function, "__qualname__", None)
            thread_name = label if isinstance(label, str) else type(function).__qualname__
        return self._start(
            GroupCall(self, function, args, kwargs), thread_name, owner.daemon if daemon is None else daemon
        )

    def _too_late(self, function: Any) -> GroupError:
        return GroupError(
            f"cannot spawn {function!r}: {self!r} starts no more threads; "
            "spawn before the group ends, or in another one"
        )

    def _start(self, call: GroupCall, thread_name: str, daemon: bool) -> scheduler.coro:
        """Start a thread with this call, or queue it."""
        thread = scheduler.new(call, thread_name=thread_name, daemon=daemon)
        if self._full():
            self._queue.append(thread)
        else:
            thread.start()
            self._children[thread] = None
        return thread

    def wait_for_room(self, timeout: SupportsFloat | None = None) -> None:
        """Wait until ``spawn`` would start a thread at once; for loops that should not run ahead of their children.

        ``timeout`` is a number of seconds, 0 to look only, None for ever; ``coro.TimeoutError`` when it is over.
        TypeError or ValueError when it is not a number; GroupError once the group is closing; YieldFromMain outside a
        thread.
        """
        limit = scheduler._CallLimit(timeout, "group.wait_for_room()")
        me = scheduler._running_thread()
        if not self._closed and self._full():
            with limit:
                self._await_room(me)
        if self._closed:
            raise GroupError(
                f"there will be no room in {self!r}: it starts no more threads; "
                "look at its `closed` first"
            )

    def _await_room(self, me: scheduler.coro) -> None:
        while not self._closed and self._full():
            self._room_waiters.append(me)
            try:
                scheduler._suspend(self)
            finally:
                if me in self._room_waiters:
                    self._room_waiters.remove(me)

    def shutdown(self) -> None:
        """Ask all children to end, and close the group.  Does not wait; the end of the block does.

        If a child calls it, Shutdown is raised in that child at once.  WrongThreadError in another OS thread.
        """
        self._close()
        me = scheduler.current()
        if me in self._children:
            me.shutdown()

    @property
    def closed(self) -> bool:
        """Whether the group starts no more threads."""
        return self._closed

    @property
    def limit(self) -> int | None:
        """How many children may run at once; None: any number."""
        return self._limit

    @property
    def threads(self) -> list[scheduler.coro]:
        """The children that have not ended, queued ones last."""
        return [t for t in (*self._children, *self._queue) if not t.dead]

    def statistics(self) -> GroupStatistics:
        """Figures for debugging."""
        return GroupStatistics(
            len(self._children), len(self._queue), self._finished, self._failed, self._limit, self._closed
        )

    def _full(self) -> bool:
        return self._limit is not None and len(self._children) >= self._limit

    def _fail(self, exc: BaseException) -> None:
        """In a child: it has raised this."""
        self._errors.append(exc)
        self._failed += 1
        self._close()
        owner = self._owner
        if self._in_block and not self._break_sent and owner is not None and not owner.dead:
            self._break_sent = True
            owner.raise_exception(_Broken(self))

    def _leave(self, me: scheduler.coro) -> None:
        """In a child: its function has ended."""
        self._children.pop(me, None)
        self._finished += 1
        self._leaving = [t for t in self._leaving if not t.dead]
        self._leaving.append(me)
        self._go_on()

    def _cancelled(self) -> None:
        """A child was cancelled before it ran.  Runs in a finaliser."""
        if not self._closed:
            self._sweep()
            self._go_on()

    def _sweep(self) -> None:
        """Forget threads that died without telling: cancelled ones, and in a forked process all others."""
        self._children = {t: None for t in self._children if not t.dead}
        self._leaving = [t for t in self._leaving if not t.dead]

    def _go_on(self) -> None:
        """There is perhaps room: start who waits for it, and wake whom it concerns."""
        while self._queue and not self._full():
            thread = self._queue.popleft()
            if thread.dead or thread.started or thread.scheduled:  # somebody else did
                continue
            try:
                thread.start()
                self._children[thread] = None
            except LoopError:  # the loop is ending; nothing starts any more
                self._close()
        if self._waiter is not None and not self._children and not self._queue:
            scheduler._wake(self._waiter)
        self._wake_room_waiters()

    def _wake_room_waiters(self) -> None:
        for thread in self._room_waiters:
            scheduler._wake(thread)

    def _close(self) -> None:
        """No more children; those there are have to end.  Tells each one once."""
        if self._closed:
            return
        self._closed = True
        me = scheduler.current()
        queue, self._queue = self._queue, deque()
        for thread in (*queue, *self._children):
            if thread is not me:
                thread.shutdown()
        self._sweep()
        if self._waiter is not None and not self._children:
            scheduler._wake(self._waiter)
        self._wake_room_waiters()


def check_limit(limit: int | None, name: str = "limit", what: str = "threads that may run at once") -> None:
    """Refuse an impossible limit with TypeError or ValueError; also for those who pass it on under another name."""
    if limit is None:
        return
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise TypeError(f"{name} is the number of {what}, an int or None, not {type(limit).__name__}: {limit!r}")
    if limit < 1:
        raise ValueError(f"{name} is the number of {what}: at least one, not {limit}; None means no limit")


def _grouped(errors: list[BaseException]) -> BaseExceptionGroup[BaseException]:
    many = "1 failure" if len(errors) == 1 else f"{len(errors)} failures"
    return BaseExceptionGroup(f"{many} in a coro.group", errors)


def _tell(errors: list[BaseException]) -> None:
    """Hand failures that leave nowhere to the exception notifier, which is called in an except block."""
    if not errors:
        return
    try:
        raise _grouped(errors)
    except BaseException:
        scheduler._notify()
