"""Starting functions: to be forgotten about, or for the sake of their result.

`start_in_parallel` keeps what the function returned or raised until somebody asks, as a process keeps its exit status;
a failure that nobody ever asked for is reported when the object goes away. Cost: a thread and two small objects each.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

from coro._runtime import scheduler
from coro._runtime.output import one_line, print_stderr
from coro.exceptions import Interrupted
from coro.tb import traceback_string

_T = TypeVar("_T")
_P = ParamSpec("_P")


class ThreadEnded(Exception):
    """Raised by ``wait()`` when the thread was interrupted before its function returned. The cause is what ended it."""


def _check(function: Any) -> None:
    if not callable(function):
        raise TypeError(f"expected a function to run, not {type(function).__name__}: {function!r}")


def _name_of(function: Any) -> str:
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__qualname__


def start_and_forget(
    function: Callable[..., object],
    /,
    *args: Any,
    exception_handler: Callable[[BaseException], object] | None = None,
    **kws: Any,
) -> None:
    """Run ``function(*args, **kws)`` in a thread of its own; its result is dropped.

    exception_handler: called in that thread with the exception that the function raised; None leaves it to the
    exception notifier, where what the handler itself raises goes, too. Being shut down is no failure. Raises TypeError
    when function or handler cannot be called.
    """
    _check(function)
    if exception_handler is not None:
        _check(exception_handler)
    scheduler.spawn(_guarded, exception_handler, function, args, kws, thread_name=_name_of(function))


def _guarded(
    handler: Callable[[BaseException], object] | None, function: Callable[..., object], args: Any, kws: Any
) -> None:
    try:
        function(*args, **kws)
    except Interrupted:
        raise
    except BaseException as error:
        if handler is None:
            raise
        handler(error)


class _Outcome:
    """What came of a function; shared by the thread and the object that its parent holds."""

    __slots__ = ("asked", "failure", "name", "ran", "result", "traceback")

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = self.ran = False
        self.failure: BaseException | None = None
        self.traceback: TracebackType | None = None
        self.result: Any = None

    def run(self, function: Callable[..., Any], args: Any, kws: Any) -> None:
        """The body of the thread."""
        self.ran = True
        try:
            self.result = function(*args, **kws)
        except Interrupted as interruption:
            self.failure = ThreadEnded(f"{one_line(self.name)} was interrupted before it returned")
            self.failure.__cause__ = interruption
            raise
        except BaseException as error:
            # Without this frame, whose arguments lead back to the object that the exception goes into.
            self.traceback = error.__traceback__.tb_next if error.__traceback__ is not None else None
            self.failure = error.with_traceback(self.traceback)
        finally:
            del self, function, args, kws

    def get(self) -> Any:
        """The result, or the failure raised; of a thread that never ran, that it ended."""
        self.asked = True
        if self.failure is None:
            if not self.ran:
                raise ThreadEnded(
                    f"{one_line(self.name)} was shut down before it began, so there is no result; "
                    "start it again if you need one"
                )
            return self.result
        # With the traceback it came with: what each raise adds would pile up from one wait to the next.
        raise self.failure.with_traceback(self.traceback)

    def __del__(self) -> None:
        failure = self.failure
        if failure is not None and not self.asked and not isinstance(failure, ThreadEnded):
            print_stderr(f"{one_line(self.name)} failed, and nobody has waited for it: {traceback_string(failure)}")


class micro_thread(Generic[_T]):
    """A function that runs in a thread of its own, for the sake of its result; made by ``start_in_parallel``."""

    __slots__ = ("__weakref__", "_outcome", "thread")

    def __init__(self, function: Callable[..., _T], args: Any, kws: Any) -> None:
        name = _name_of(function)
        self._outcome = _Outcome(name)
        #: The thread itself (coro.coro): its name, where it is, shutdown().
        self.thread = scheduler.spawn(self._outcome.run, function, args, kws, thread_name=name)

    def wait(self) -> _T:
        """Wait for the end of the function and return its result, or raise what it raised; may be called repeatedly.

        Raises ThreadEnded when the thread was interrupted first, YieldFromMain where nothing can wait.
        """
        self.thread.join()
        result: _T = self._outcome.get()
        return result

    @property
    def done(self) -> bool:
        """Whether ``wait()`` would return at once."""
        return self.thread.dead

    def __repr__(self) -> str:
        return f"<micro_thread {self.thread.name!r} {'done' if self.done else 'running'} at {id(self):#x}>"


def start_in_parallel(function: Callable[_P, _T], /, *args: _P.args, **kws: _P.kwargs) -> micro_thread[_T]:
    """Run ``function(*args, **kws)`` in a thread of its own and return an object whose ``wait()`` gives its result.

    If no thread ever waits for it, a failure is reported on stderr when that object goes away. Raises TypeError when
    the function cannot be called.
    """
    _check(function)
    return micro_thread(function, args, kws)
