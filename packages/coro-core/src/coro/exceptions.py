"""Every exception of coro-core, with a sentence on when it is raised.

Interruptions (timeouts, shutdown) derive from BaseException on purpose: a blanket ``except Exception`` inside library
code must never eat one. Misuse of the scheduler derives from Exception like any programming error.
"""

from __future__ import annotations

import errno
import queue
from typing import Any

__all__ = [
    "CancelledError",
    "ChannelClosed",
    "ClosedError",
    "DeadCoroutine",
    "DeadlockError",
    "Interrupted",
    "LockCycleWarning",
    "LockError",
    "LoopError",
    "NoSwitchError",
    "NotStartedError",
    "QueueShutDown",
    "ResolverNameError",
    "ScheduleError",
    "Shutdown",
    "SimultaneousError",
    "StackSlotError",
    "TimeoutError",
    "WakeUp",
    "WrongThreadError",
    "YieldFromMain",
]


class Interrupted(BaseException):
    """A thread that waited was interrupted from outside. ``Shutdown`` and ``TimeoutError`` are kinds of it.

    An expired limit is a plain ``Interrupted`` on its way to the ``coro.timeout`` or ``with_timeout`` that it belongs
    to; ``args[0]`` is then the timer. Code that catches it to clean up has to raise it again. If it ended a ``send`` or
    ``sendall``, ``bytes_sent`` is how many bytes were sent.
    """

    bytes_sent: int


class TimeoutError(Interrupted):
    """A time limit is over: that of ``coro.timeout``, of ``with_timeout``, or the ``timeout`` parameter of a call.

    It is raised where the limit was set. Inside the block, the limit is a plain ``Interrupted``. ``seconds`` is the
    limit, None if it is not known. The text says which limit it was, of which thread, and what the thread waited for.

    It is not the built-in ``TimeoutError``. That is an ``Exception``, so an ``except Exception`` on the way would
    swallow it.
    """

    seconds: float | None = None
    _limit: str | None = None  # what set the limit
    _wait: tuple[int, str, str, Any] | None = None  # the thread's id and name, the kind of wait, what was waited for

    def __str__(self) -> str:
        if self.args or self._limit is None or self._wait is None:
            return super().__str__()
        thread, name, kind, what = self._wait
        limit = f"{self._limit}({_number(self.seconds)})"
        return f"{limit} of thread {thread} {name!r} ran out{_waiting(kind, what)}{_at(self)}"

    def __reduce__(self) -> Any:
        text = str(self)
        return type(self), self.args or ((text,) if text else ()), {**self.__dict__, "_limit": None, "_wait": None}


def _number(seconds: Any) -> str:
    try:
        return f"{float(seconds):g}"
    except Exception:
        return f"a {type(seconds).__name__}"  # of the user's: it did well enough as a limit


def _waiting(kind: str, what: Any) -> str:
    """``kind`` as in a thread's ``waiting_for``; ``what`` is the number of a descriptor or thread, or a type."""
    if kind in ("yield", "slice"):
        return ""
    if kind == "sleep":
        return " while it slept"
    if kind in ("read", "write"):
        return f" while waiting to {kind} descriptor {what}"
    if kind == "join":
        return f" while waiting for the end of thread {what}"
    if kind == "in_thread":
        return " while waiting for a function in a worker OS thread"
    if kind == "event":
        return " while waiting for an event of the kernel"
    if kind == "select":
        return " while waiting in a select"
    if what is None:
        return ""
    name = what.__name__
    return f" while waiting for {'an' if name[:1] in 'aeiou' else 'a'} {name}"


def _at(exc: BaseException) -> str:
    """The place that an expired limit interrupted: the traceback begins at the limit only."""
    interruption = exc.__context__
    traceback = interruption.__traceback__ if isinstance(interruption, Interrupted) else None
    place = ""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.endswith((".pyx", ".pxi", ".pxd")):
            place = f", in {code.co_qualname} ({code.co_filename}:{traceback.tb_lineno})"
        traceback = traceback.tb_next
    return place


class Shutdown(Interrupted):
    """The thread is asked to end. It does so by letting this exception leave its function, which is not reported as a
    failure."""


class WakeUp(Exception):
    """For programs that want to wake a thread with an exception that means nothing else. coro never raises it."""


class ScheduleError(Exception):
    """The thread cannot be scheduled: it is scheduled already, it is the running one, or it was started before.
    ``args[0]`` is the thread."""

    _why = "is scheduled already, or is the running thread; look at its `scheduled` and `started` first"

    def __str__(self) -> str:
        return f"{self.args[0]!r} {self._why}" if len(self.args) == 1 else super().__str__()


class DeadCoroutine(ScheduleError):
    """The thread has ended. ``args[0]`` is the thread."""

    _why = "has ended; look at its `dead` first"


class NotStartedError(ScheduleError):
    """An exception was sent to a thread that has not run yet. ``args[0]`` is the thread."""

    _why = "has not run yet, so nothing in it can catch an exception; pass cancel_start=True to cancel it"


class CancelledError(Exception):
    """``thread.get()`` has nothing to return: the thread was shut down, or cancelled before it ran. ``args[0]`` is the
    thread. The cause (``__cause__``) is its Shutdown, if it got one.

    It is an ``Exception``, like the class of this name in concurrent.futures. What asyncio calls CancelledError is
    ``Shutdown`` here.
    """

    def __init__(self, thread: Any, why: str = "was shut down") -> None:
        super().__init__(thread)
        self._why = why

    def __str__(self) -> str:
        return f"{self.args[0]!r} {self._why}, so there is no result; look at its `dead` and `exception` first"


class YieldFromMain(Exception):
    """A call that has to wait was made outside any thread: without a loop, or in code that the scheduler runs."""


class WrongThreadError(Exception):
    """coro was used from an OS thread other than the one its loop runs in. Only ``coro.post`` may be used there."""


class NoSwitchError(Exception):
    """A call that waits was made where the thread must not be suspended: inside ``coro.no_switch()``, in a finaliser
    or callback that the cyclic garbage collector runs, in a greenlet other than the main one, or in Python code that a
    call into a pybind11 module runs."""


class LoopError(Exception):
    """The loop cannot do this now: a loop inside a loop, a new thread while the loop ends, ``coro.post`` after its
    end."""


class StackSlotError(Exception):
    """Stack slots cannot be set: a thread has run already, or that many slots of that size cannot be had."""


class DeadlockError(Exception):
    """A standstill: all threads but daemons wait, and nothing is left that could wake one of them.

    The text is a report of these threads: what each waits for, where, and which ones wait for each other. ``threads``
    has a pair (thread, what it waits for) for each. See ``coro.set_deadlock``.
    """

    def __init__(self, message: str = "", threads: tuple[tuple[Any, str], ...] = ()) -> None:
        super().__init__(message)
        self.threads = threads


class SimultaneousError(Exception):
    """A thread was about to wait for an event of the kernel for which another thread, or a handler, waits already.

    ``co`` is the thread that was refused, ``other`` the thread or handler that waits, ``event`` the event.
    """

    def __init__(self, co: Any, other: Any, event: Any) -> None:
        super().__init__(co, other, event)
        self.co = co
        self.other = other
        self.event = event

    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return (
            f"<SimultaneousError: {self.co!r} cannot wait for {self.event!r}, {self.other!r} waits for it already; "
            f"let one thread do the waiting, or use a second descriptor (dup)>"
        )


class ChannelClosed(Exception):
    """The channel is closed: nothing can be put in, and there is nothing left to take. ``args[0]`` is a sentence,
    ``args[1]`` the channel."""


# From Python 3.13 on the standard library has a class for it, which programs that come from there catch.
_ShutDown: type[Exception] = getattr(queue, "ShutDown", Exception)


class QueueShutDown(_ShutDown):  # type: ignore[misc, valid-type]
    """The ``coro.queue`` is shut down: nothing can be put in, and there is nothing left to take. ``args[0]`` is a
    sentence, ``args[1]`` the queue. On Python 3.13 and later, it is also a ``queue.ShutDown``."""


class ClosedError(OSError):
    """The descriptor (or stream, or watcher) is closed. The text says what was closed, and by which thread.

    If another thread closed it while this one waited, ``closer`` and ``args[0]`` are that thread, or None if it is not
    known. If it was closed before the call, ``args`` is empty. It is an OSError with the ``errno`` EBADF.
    """

    #: The thread that closed it while this one waited, or None.
    closer: Any = None

    def __init__(self, *args: Any, what: str = "the descriptor", by: int = 0) -> None:
        """args: the closer, or a whole sentence. what: what was closed. by: the id of the thread that closed it before
        the operation began, 0 where it is not known."""
        if args and isinstance(args[0], str):
            text = args[0]
        elif args:
            text = f"{what} was closed{_closed_by(args[0])} while this thread was waiting for it"
            self.closer = args[0]
        else:
            text = f"{what} is closed{f', thread {by} closed it' if by else ''}; nothing can be done with it any more"
        super().__init__(errno.EBADF, text)
        self.args = args

    def __str__(self) -> str:
        return str(self.strerror)

    def __reduce__(self) -> Any:
        return type(self), (str(self),)


def _closed_by(closer: Any) -> str:
    if closer is None:
        return ""
    number = getattr(closer, "id", 0)
    return f" by thread {number} {closer.name!r}" if number > 0 else " by code outside any thread"


class LockCycleWarning(RuntimeWarning):
    """Threads wait for each other's locks in a cycle, so none of them can go on. The warning is given when a thread
    begins the wait that closes the cycle. If a filter makes it an error
    (``warnings.simplefilter("error", coro.LockCycleWarning)``), that wait ends with it. See
    ``coro.set_lock_cycle_warning``."""


def end_of_stream(data: bytes, wanted: int) -> EOFError:
    """The exception for a stream that ended inside of something. Its argument is what came, so a note says the rest."""
    raised = EOFError(data)
    raised.add_note(f"the stream ended after {len(data)} of the {wanted} bytes asked for")
    return raised


class LockError(Exception):
    """A thread released a mutex or read-write lock that it does not hold, or asked for the write side while it
    reads."""


class ResolverNameError(Exception):
    """A host name could not be resolved. ``coro.NameError`` is the same class."""
