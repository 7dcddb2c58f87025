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
    """Something outside interrupted a thread that waited.

    While a timeout travels to its ``with_timeout``, it is an ``Interrupted`` whose ``args[0]`` is the timer that
    expired. Code that catches it for cleaning up has to raise it again. ``bytes_sent`` is set on an interruption that
    broke off a ``sendall``.
    """

    bytes_sent: int


class TimeoutError(Interrupted):
    """The time limit of a ``with_timeout`` or ``coro.timeout`` expired; seen from that call outwards only.

    ``seconds`` is the limit that expired, None where it is not known. The text says which limit it was, of which
    thread, and what the thread was waiting for; it is made when somebody asks for it.

    Not related to the built-in ``TimeoutError``, which is an ``Exception`` and would be swallowed on the way.
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
    """The thread was asked to end. A thread complies by letting this exception leave its function; nothing is reported
    then."""


class WakeUp(Exception):
    """For programs that want to wake a thread with an exception that means nothing else. coro never raises it."""


class ScheduleError(Exception):
    """The thread cannot be scheduled now: it is scheduled already, or it is the running one, or it was started
    before. ``args[0]`` is the thread."""

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
    """``thread.get()`` found that the thread has neither a result nor an error of its own: it was shut down, or
    cancelled before it ran. ``args[0]`` is the thread; the cause is its Shutdown, if there was one.

    An Exception like the class of this name in concurrent.futures; asyncio's is what ``Shutdown`` is here.
    """

    def __init__(self, thread: Any, why: str = "was shut down") -> None:
        super().__init__(thread)
        self._why = why

    def __str__(self) -> str:
        return f"{self.args[0]!r} {self._why}, so there is no result; look at its `dead` and `exception` first"


class YieldFromMain(Exception):
    """A call that waits was made outside any thread: without a loop, or in code that the scheduler itself runs."""


class WrongThreadError(Exception):
    """coro was used from an OS thread other than the one its loop runs in. Only ``coro.post`` may be used there."""


class NoSwitchError(Exception):
    """A call that waits was made where the thread must not be suspended: inside ``coro.no_switch()``, or in a finaliser
    or callback that the cyclic garbage collector runs."""


class LoopError(Exception):
    """The event loop is not in a state for this: nested loops, spawning while it ends, posting after its end."""


class StackSlotError(Exception):
    """Stack slots cannot be made as asked: the first thread has run already, or the number or size is impossible."""


class DeadlockError(Exception):
    """Every thread that the loop waits for (daemon threads do not count) is blocked, and nothing is left that could
    wake one.

    ``threads`` lists them as (thread, what it waits for) pairs; the text is the whole report.
    """

    def __init__(self, message: str = "", threads: tuple[tuple[Any, str], ...] = ()) -> None:
        super().__init__(message)
        self.threads = threads


class SimultaneousError(Exception):
    """Two threads want to wait for the same event of the kernel.

    ``co`` is the thread that was refused, ``other`` the one (or the handler) that waits already, ``event`` the event.
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
    """A value was put into a closed channel, or was to be taken from a closed channel that has none left. ``args[0]``
    is a sentence, ``args[1]`` the channel."""


# From Python 3.13 on the standard library has a class for it, which programs that come from there catch.
_ShutDown: type[Exception] = getattr(queue, "ShutDown", Exception)


class QueueShutDown(_ShutDown):  # type: ignore[misc, valid-type]
    """A ``coro.queue`` was shut down: a value was put into it, or it has no value left. ``args[0]`` is a sentence,
    ``args[1]`` the queue. On Python 3.13 and later it is a ``queue.ShutDown`` as well."""


class ClosedError(OSError):
    """The descriptor (or stream, or watcher) was closed: by another thread while this one waited (``args[0]`` and
    ``closer`` are that thread, None where it is not known), or before the operation began (no arguments).

    An OSError with the ``errno`` EBADF. The text says what was closed and by which thread.
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
    """Threads wait for one another's locks, so that none of them can go on by itself; given when the wait begins that
    closes the cycle. A filter that makes an error of it (``warnings.simplefilter("error", coro.LockCycleWarning)``)
    breaks that wait off. See ``coro.set_lock_cycle_warning``."""


def end_of_stream(data: bytes, wanted: int) -> EOFError:
    """The exception for a stream that ended inside of something. Its argument is what came, so a note says the rest."""
    raised = EOFError(data)
    raised.add_note(f"the stream ended after {len(data)} of the {wanted} bytes asked for")
    return raised


class LockError(Exception):
    """A mutex or read-write lock was released by a thread that does not hold it, or a reader asked for the write
    side."""


class ResolverNameError(Exception):
    """A host name could not be resolved. ``coro.NameError`` is the same class."""
