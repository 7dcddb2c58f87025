"""Micro-pipes: one thread puts values in, another one iterates over them.

The idea. What both ends share is a channel, bounded so that a fast producer waits for a slow reader. The reader holds
a `micro_pipe`, the producer only what is inside it: when the reader drops its pipe, in the middle of a `for` say, the
pipe is closed and the producer's next `put` ends that thread, silently and with its `finally` blocks run. What a
producer raises travels through the pipe, behind the values it had put in before, and is raised in the reader.

Each thread that a pipe function starts has a standard output, the pipe it feeds, and perhaps a standard input, the pipe
of the stage before. Both are closed when it ends. They are found through a ThreadLocal, so that functions called from
that thread find them, and threads started by it do not.

Cost: a channel, and a thread for each producer.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, ParamSpec, TypeVar, overload

from coro._runtime import scheduler
from coro._sync.local import ThreadLocal
from coro._sync.queues import channel
from coro.exceptions import ChannelClosed, Interrupted, Shutdown, WrongThreadError

_T = TypeVar("_T")
_P = ParamSpec("_P")

#: How many values a pipe holds unless told otherwise: enough for both ends to work in batches, few in memory.
CAPACITY = 16

_own = ThreadLocal()


class PipeClosed(Shutdown):
    """Raised by a ``put`` into a closed pipe, which will not be read any more. It ends the thread that puts.

    It is a kind of Shutdown, so ``except Exception`` lets it pass and the thread ends without a report.
    """


class ProducerEnded(Exception):
    """Raised in the reader when a producer was interrupted before it had put in all its values. The cause is what ended
    the producer."""


class _Inside:
    """What both ends of a pipe share, and all that a producer holds."""

    __slots__ = ("failure", "items", "producers")

    def __init__(self, capacity: int) -> None:
        self.items: channel[Any] = channel(capacity)
        self.producers = 0
        self.failure: BaseException | None = None

    def put(self, item: Any) -> None:
        try:
            self.items.put(item)
        except ChannelClosed:
            raise PipeClosed("put into a pipe that was closed: nobody will read it; let the producer end") from None

    def take_from(self, iterable: Iterable[Any]) -> None:
        for item in iterable:
            self.put(item)

    def close(self) -> None:
        self.items.close()

    def fail(self, error: BaseException) -> bool:
        """Have the reader raise this after the last value; False when nobody will read it."""
        if self.items.closed:
            return False
        self.failure = error
        self.items.close()
        return True

    def start(self, stdin: micro_pipe[Any] | None, function: Callable[..., Any], args: Any, kws: Any) -> None:
        """Run the function in a new thread that feeds this pipe."""
        if not callable(function):
            raise TypeError(f"expected a function to run, not {type(function).__name__}: {function!r}")
        producer = _Producer(self, stdin, _name_of(function))
        scheduler.spawn(producer.run, function, args, kws, thread_name=producer.name)

    def close_from_anywhere(self) -> None:
        """For finalisers, which the collector may run in any OS thread."""
        try:
            self.close()
        except WrongThreadError:
            try:
                scheduler.post(self.close)
            except Exception:
                pass  # the loop has ended, and the producers with it


class _Producer:
    """One thread that feeds a pipe. Ends its part in the pipe when it goes away without having run, too."""

    __slots__ = ("inside", "name", "stdin")

    def __init__(self, inside: _Inside, stdin: micro_pipe[Any] | None, name: str) -> None:
        self.inside: _Inside | None = inside
        self.stdin = stdin
        self.name = name
        inside.producers += 1

    def run(self, function: Callable[..., Any], args: Any, kws: Any) -> None:
        """The body of the thread."""
        inside = self.inside
        assert inside is not None
        _own.stdout, _own.stdin = inside, self.stdin
        try:
            function(*args, **kws)
        except PipeClosed:
            pass
        except Interrupted as interruption:
            self.interrupted(inside, interruption)
            raise
        except BaseException as error:
            if not inside.fail(error):
                raise
        finally:
            _own.stdout = _own.stdin = None
            self.inside = None
            inside.producers -= 1
            if inside.producers == 0:
                inside.close()
            if self.stdin is not None:
                self.stdin.close()

    def interrupted(self, inside: _Inside, interruption: BaseException | None) -> None:
        ended = ProducerEnded(f"{self.name} was interrupted before it had put in all it had")
        ended.__cause__ = interruption
        inside.fail(ended)

    def __del__(self) -> None:
        inside = self.inside
        if inside is None:
            return
        inside.producers -= 1
        if not inside.items.closed:
            inside.failure = ProducerEnded(f"{self.name} was shut down before it began")
            inside.close_from_anywhere()


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__qualname__


class micro_pipe(Generic[_T]):
    """A one-way pipe between threads: ``put`` at one end, iteration at the other.

    capacity: how many values may lie in it (0: a ``put`` waits until its value is taken); ValueError and TypeError as
    for ``coro.channel``. The iteration ends when the pipe is closed and everything in it was taken. A pipe is closed by
    ``close()``, by the end of its last producer, or when nothing refers to it any more.
    """

    __slots__ = ("__weakref__", "_inside")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._inside = _Inside(capacity)

    def put(self, item: _T) -> None:
        """Put the value ``item`` in. Waits while the pipe is full. If the pipe is closed, before the call or during it,
        PipeClosed ends the calling thread."""
        self._inside.put(item)

    def take_from(self, iterable: Iterable[_T]) -> None:
        """Put in everything an iterable yields, as ``put`` does."""
        self._inside.take_from(iterable)

    def close(self) -> None:
        """No more values: what lies in the pipe can still be read. Closing it again does nothing."""
        self._inside.close()

    @property
    def closed(self) -> bool:
        """Whether nothing can be put in any more."""
        return self._inside.items.closed

    def feed(self, function: Callable[_P, object], /, *args: _P.args, **kws: _P.kwargs) -> micro_pipe[_T]:
        """Start one more producer: ``function(*args, **kws)`` in a thread of its own, whose ``put`` goes into this
        pipe. The pipe ends with its last producer, or with the first that fails. Returns the pipe.

        Raises TypeError for something that cannot be called, PipeClosed (an interruption) when the pipe is closed.
        """
        if self.closed:
            raise PipeClosed(
                "a closed pipe can get no further producer; "
                "look at its `closed` first, or make another pipe"
            )
        self._inside.start(None, function, args, kws)
        return self

    def into(self, function: Callable[_P, object], /, *args: _P.args, **kws: _P.kwargs) -> micro_pipe[Any]:
        """Start a stage that reads this pipe: ``function(*args, **kws)`` in a thread of its own, with this pipe as its
        standard input. Returns the pipe that the stage feeds. It has the capacity of this one."""
        following: micro_pipe[Any] = micro_pipe(self._inside.items.maxsize)
        following._inside.start(self, function, args, kws)
        return following

    def __iter__(self) -> Iterator[_T]:
        return self

    def __next__(self) -> _T:
        inside = self._inside
        try:
            item: _T = inside.items.get()
        except ChannelClosed:
            failure, inside.failure = inside.failure, None
            if failure is None:
                raise StopIteration from None
            try:
                raise failure from failure.__cause__
            finally:
                del failure  # its traceback names this frame
        return item

    def __enter__(self) -> micro_pipe[_T]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        inside = getattr(self, "_inside", None)
        if inside is not None and not inside.items.closed:
            inside.close_from_anywhere()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self._inside.producers} producers"
        return f"<micro_pipe with {len(self._inside.items)} values, {state}, at {id(self):#x}>"


def generate(function: Callable[_P, object], /, *args: _P.args, **kws: _P.kwargs) -> micro_pipe[Any]:
    """Run ``function(*args, **kws)`` in a thread of its own and return the pipe that its ``put`` feeds.

    The pipe is an iterator over those values. What the function returns is ignored. What it raises is raised in the
    reader, after the last value. Raises TypeError for something that cannot be called.
    """
    pipe: micro_pipe[Any] = micro_pipe()
    pipe._inside.start(None, function, args, kws)
    return pipe


def pipeline(
    first: Callable[[], object], /, *stages: Callable[[], object], capacity: int = CAPACITY
) -> micro_pipe[Any]:
    """Run functions side by side, each of which reads what the one before puts out. Returns the pipe of the last one.

    first: feeds the first pipe. stages: read their standard input (``iter()``, ``next()``) and put into the next pipe.
    capacity: that of each pipe. When a stage ends, or is no longer read, the stages before it end too.
    """
    pipe: micro_pipe[Any] = micro_pipe(capacity)
    pipe._inside.start(None, first, (), {})
    for stage in stages:
        pipe = pipe.into(stage)
    return pipe


def _end(name: str) -> Any:
    found = getattr(_own, name, None)
    if found is None:
        which = "output" if name == "stdout" else "input"
        raise LookupError(
            f"this thread has no standard {which} pipe: it was not started by generate(), feed(), into() or pipeline()"
            + (" as a later stage" if name == "stdin" else "")
        )
    return found


def put(item: object) -> None:
    """Put the value ``item`` into the standard output pipe of the calling thread. Waits while it is full.

    LookupError when the thread has no such pipe; PipeClosed, which ends the thread, when the pipe is no longer read.
    """
    _end("stdout").put(item)


def take_from(iterable: Iterable[object]) -> None:
    """Put everything an iterable yields into the standard output pipe of the calling thread, as ``put`` does."""
    _end("stdout").take_from(iterable)


def iter(*args: Any) -> Iterator[Any]:
    """Without arguments: the standard input pipe of the calling thread (LookupError when it has none). With arguments:
    what the built-in ``iter`` returns for them."""
    if args:
        return builtins.iter(*args)
    found: Iterator[Any] = _end("stdin")
    return found


@overload
def next() -> Any: ...
@overload
def next(iterator: Iterator[_T], /) -> _T: ...
@overload
def next(iterator: Iterator[_T], default: _T, /) -> _T: ...


def next(*args: Any) -> Any:
    """Without arguments: the next value of the calling thread's standard input pipe, StopIteration at its end,
    LookupError when the thread has none. With arguments: what the built-in ``next`` returns for them."""
    return builtins.next(*args) if args else _end("stdin").__next__()
