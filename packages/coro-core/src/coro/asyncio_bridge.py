"""asyncio in a thread: blocking-style code uses a library that only asyncio can talk to.

    from coro import asyncio_bridge

    def handler(connection, address):
        row = asyncio_bridge.run(pool.fetchrow("select 1"))     # waits for the coroutine; other threads run meanwhile

The idea. One daemon thread runs an ordinary asyncio event loop, begun when it is first needed and ended with coro's
loop. Its selector is the standard one of the system, whose own descriptor can be watched; where asyncio would block in
the kernel, the thread waits for that descriptor like for any other. So both loops share one OS thread and one place to
wait, nothing is polled, and callbacks of asyncio and threads of coro never run at the same time.

The running loop, the current task and the hooks for asynchronous generators belong to that thread, as every switch
exchanges them: for everybody else no asyncio runs here.

Asyncio takes for granted that between two `await` nothing else of its loop runs. Most tasks could begin at once, in the
thread that starts them (`start_task`), and many end there. But the thread of the loop, or one that begins a task, may
have to wait in the middle of such a step, for a lock that an OS thread holds for instance. So there is one baton,
`idle`: who has not got it does not step. The loop's thread gives it away while it waits in its selector.

Asyncio code must not block the coro way: it would hold up its whole event loop. `call` is for that.

Cost: per `run` a task and two switches; per wait of asyncio's loop one more system call than alone; no switch
for a task that is started and does not wait.
"""

# Rejected: a `mutex` as the baton. Each task that is started would pay for it, and hardly any thread ever waits.

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import selectors
import sys
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, ParamSpec, TypeVar

from coro._poll import events as _events
from coro._poll.filters import EVFILT
from coro._runtime import scheduler
from coro.exceptions import Interrupted, TimeoutError

__all__ = ["call", "entered", "get_loop", "iterate", "run", "start_task"]

_T = TypeVar("_T")
_P = ParamSpec("_P")

#: Tasks may begin in the thread that makes them.
_EAGER = sys.version_info >= (3, 12)
_Events = list[tuple[selectors.SelectorKey, int]]


class _Selector(selectors.DefaultSelector):
    """The system's selector (epoll or kqueue), which waits as threads of coro do."""

    bridge: _Bridge

    def select(self, timeout: float | None = None) -> _Events:
        """The events there are, or after a wait; see selectors.BaseSelector."""
        events: _Events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            self.bridge.give_baton()
            try:
                scheduler.yield_slice()
            finally:
                self.bridge.take_baton()
            return events or super().select(0)
        # A loop that watches nothing but its own waker is woken by others that run, and by nothing else.
        scheduler._set_helper(len(self.get_map()) <= 1)
        self.bridge.give_baton()
        try:
            if timeout is None:
                _events.wait_for(self.fileno(), EVFILT.READ)
            else:
                with contextlib.suppress(TimeoutError):
                    scheduler.with_timeout(timeout, _events.wait_for, self.fileno(), EVFILT.READ)
        finally:
            self.bridge.take_baton()
        return super().select(0)


class _Bridge:
    """The thread that runs asyncio, and its loop.

    Invariant: code of asyncio's is under way in at most one thread, and in none while `idle` is true.
    """

    def __init__(self) -> None:
        selector = _Selector()
        selector.bridge = self
        self.idle = False
        self.waits = False  # the thread of the loop, for the baton
        loop: Any = asyncio.SelectorEventLoop(selector)
        self.loop: asyncio.SelectorEventLoop = loop
        self.hooks = (loop._asyncgen_firstiter_hook, loop._asyncgen_finalizer_hook)
        self.thread = scheduler.spawn(self.body, daemon=True, thread_name="asyncio")

    def give_baton(self) -> None:
        """No code of asyncio's is under way in this thread any more."""
        self.idle = True
        if self.waits:
            self.waits = False
            scheduler._wake(self.thread)

    def take_baton(self) -> None:
        """In the thread of the loop: wait until no other one has it."""
        try:
            while not self.idle:
                self.waits = True
                scheduler._suspend(self)
        finally:
            self.waits = self.idle = False

    def step(self, coroutine: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Begin a task in this thread."""
        loop: Any = self.loop
        timers = len(loop._scheduled)
        hooks = sys.get_asyncgen_hooks()
        self.idle = False
        sys.set_asyncgen_hooks(*self.hooks)
        asyncio._set_running_loop(loop)
        try:
            task: asyncio.Task[_T] = asyncio.Task(coroutine, loop=loop, eager_start=True)  # type: ignore[call-arg]
        finally:
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            self.give_baton()
            if loop._ready or len(loop._scheduled) != timers:
                loop._write_to_self()  # there is something to do for it
        return task

    def body(self) -> None:
        loop = self.loop
        try:
            loop.run_forever()
        finally:
            self.finish()

    def finish(self) -> None:
        """The end of coro's loop: cancel what is left, let it clean up, close."""
        global _bridge
        if _bridge is self:
            _bridge = None
        loop = self.loop
        try:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


_bridge: _Bridge | None = None
_inherited: list[_Bridge] = []  # by a forked process: kept, because closing would tell the parent's kernel objects


def _after_fork_in_child() -> None:
    global _bridge
    if _bridge is not None:
        _inherited.append(_bridge)
        _bridge = None


def _get() -> _Bridge:
    global _bridge
    scheduler._running_thread()  # refuse before anything is made
    if _bridge is None or _bridge.thread.dead:
        _bridge = _Bridge()
    return _bridge


def get_loop() -> asyncio.AbstractEventLoop:
    """The asyncio event loop of this process, which is started if necessary.

    Give it to asyncio libraries that want one. Call its methods from threads of coro through ``run`` only: otherwise it
    does not notice that there is something to do. Raises YieldFromMain outside threads.
    """
    return _get().loop


def start_task(
    coroutine: Coroutine[Any, Any, _T], created: Callable[[asyncio.Task[_T]], object]
) -> asyncio.Task[_T] | None:
    """Have asyncio run a coroutine as a task, in a copy of the calling thread's context, and do not wait for it.

    coroutine: what a call of an ``async def`` function returns. created: called with the task in asyncio's thread,
    unless this call returns it.

    On CPython 3.12 and newer the task begins at once, in this thread, and this call returns it when it waits for the
    first time or has ended. Where that cannot be, it returns None, and asyncio begins the task when it is its turn: on
    CPython 3.11, before asyncio's loop has begun, while another thread is in the middle of a step of asyncio's, and
    in asyncio's debug mode under the thread emulation.

    Raises what ``run`` raises for the caller's mistakes. If the thread is interrupted while the task begins in it, and
    the coroutine lets that pass, the interruption is raised here, too.
    """
    try:
        if not isinstance(coroutine, Coroutine):
            raise TypeError(f"expected a coroutine, not {type(coroutine).__name__}: {coroutine!r}")
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("this is asyncio code: call asyncio.create_task(), which begins a task of its own loop")
        bridge = _get()
    except BaseException:
        if isinstance(coroutine, Coroutine):
            coroutine.close()
        raise
    loop: Any = bridge.loop
    if _EAGER and bridge.idle and not (loop._debug and loop._thread_id != threading.get_ident()):
        task = bridge.step(coroutine)
        if task.done() and not task.cancelled():
            error = task.exception()
            if isinstance(error, Interrupted):
                raise error
        return task
    loop.call_soon_threadsafe(_create, loop, coroutine, created, context=contextvars.copy_context())
    return None


def _create(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, _T], created: Callable[[asyncio.Task[_T]], object]
) -> None:
    created(loop.create_task(coroutine))


class _Waiter:
    """One `run`: the thread that waits, and the task it waits for."""

    __slots__ = ("done", "error", "result", "task", "thread")

    def __init__(self, thread: scheduler.coro) -> None:
        self.thread: scheduler.coro | None = thread
        self.task: asyncio.Task[Any] | None = None
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None

    def start(self, loop: asyncio.AbstractEventLoop, awaitable: Awaitable[Any], context: contextvars.Context) -> None:
        if self.thread is None:  # interrupted before asyncio had its turn
            if isinstance(awaitable, Coroutine):
                awaitable.close()
            return
        coroutine = awaitable if isinstance(awaitable, Coroutine) else _awaited(awaitable)
        self.task = loop.create_task(coroutine, context=context)
        self.task.add_done_callback(self.finished)

    def finished(self, task: asyncio.Task[Any]) -> None:
        thread, self.thread = self.thread, None
        if task.cancelled():
            self.error = asyncio.CancelledError("the asyncio task was cancelled")
        else:
            self.error = task.exception()
            if self.error is None:
                self.result = task.result()
        self.done = True
        if thread is not None:
            scheduler._wake(thread)

    def abandon(self, loop: asyncio.AbstractEventLoop) -> None:
        self.thread = None
        if self.task is not None and not self.task.done():
            loop.call_soon_threadsafe(self.task.cancel)


async def _awaited(awaitable: Awaitable[_T]) -> _T:
    return await awaitable


def run(awaitable: Awaitable[_T]) -> _T:
    """Have asyncio run a coroutine (or await any awaitable of its loop) and wait for the outcome.

    The coroutine runs in a copy of the calling thread's context (contextvars). Returns its result and raises what it
    raises; asyncio.CancelledError when other asyncio code cancelled it. A thread that is interrupted while it waits
    leaves at once; the task is cancelled and cleans up by itself. Raises TypeError for something that cannot be
    awaited; YieldFromMain outside threads; RuntimeError inside asyncio code, which should await instead.
    """
    if not isinstance(awaitable, Awaitable):
        raise TypeError(f"expected a coroutine or another awaitable, not {type(awaitable).__name__}: {awaitable!r}")
    if asyncio._get_running_loop() is not None:
        if isinstance(awaitable, Coroutine):
            awaitable.close()
        raise RuntimeError("this is asyncio code: await it, instead of blocking the whole event loop")
    try:
        bridge = _get()
    except BaseException:
        if isinstance(awaitable, Coroutine):
            awaitable.close()
        raise
    waiter = _Waiter(scheduler._running_thread())
    # The thread-safe form because it ends the wait of the loop's thread.
    bridge.loop.call_soon_threadsafe(waiter.start, bridge.loop, awaitable, contextvars.copy_context())
    try:
        while not waiter.done:
            scheduler._suspend_outside(awaitable)
    except BaseException:
        waiter.abandon(bridge.loop)
        raise
    if waiter.error is not None:
        try:
            raise waiter.error
        finally:
            waiter.error = None  # its traceback names this frame
    result: _T = waiter.result
    return result


def iterate(iterable: AsyncIterable[_T]) -> Iterator[_T]:
    """Iterate over an asynchronous iterable in blocking style. Raises what ``run`` raises.

    An asynchronous generator is closed when the iteration is given up.
    """
    iterator = aiter(iterable)
    try:
        while True:
            try:
                item = run(anext(iterator))
            except StopAsyncIteration:
                return
            yield item
    finally:
        close = getattr(iterator, "aclose", None)
        if close is not None:
            run(close())


@contextlib.contextmanager
def entered(manager: AbstractAsyncContextManager[_T]) -> Iterator[_T]:
    """Use an asynchronous context manager as an ordinary one. Raises what ``run`` raises, and TypeError for any other
    object."""
    if not isinstance(manager, AbstractAsyncContextManager):
        raise TypeError(f"expected an asynchronous context manager, not {type(manager).__name__}: {manager!r}")
    value = run(manager.__aenter__())
    try:
        yield value
    except Interrupted:
        # No thread may swallow an interruption, and asyncio code knows none.
        run(manager.__aexit__(None, None, None))
        raise
    except BaseException as error:
        if not run(manager.__aexit__(type(error), error, error.__traceback__)):
            raise
    else:
        run(manager.__aexit__(None, None, None))


async def call(function: Callable[_P, _T], /, *args: _P.args, **kws: _P.kwargs) -> _T:
    """In asyncio code: call a function that waits the coro way, in a thread of its own, and await its result.

    Cancelling the await shuts the thread down. Raises what the function raises; RuntimeError when something else
    interrupted the thread, or outside the event loop of this bridge.
    """
    bridge = _bridge
    if bridge is None or asyncio.get_running_loop() is not bridge.loop:
        raise RuntimeError("expected to be awaited on the event loop of coro.asyncio_bridge, see run()")
    future: asyncio.Future[_T] = bridge.loop.create_future()

    def outcome(setter: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            setter(value)

    def body() -> None:
        try:
            result = function(*args, **kws)
        except Interrupted as interruption:
            error = RuntimeError("the thread was interrupted before the function returned")
            error.__cause__ = interruption
            bridge.loop.call_soon_threadsafe(outcome, future.set_exception, error)
            raise
        except BaseException as error:
            bridge.loop.call_soon_threadsafe(outcome, future.set_exception, error)
        else:
            bridge.loop.call_soon_threadsafe(outcome, future.set_result, result)

    thread = scheduler.spawn(body, thread_name=getattr(function, "__qualname__", None))
    try:
        return await future
    except asyncio.CancelledError:
        if not thread.dead:
            thread.shutdown()
        raise
