"""Calls side by side: ``in_parallel`` with the outcome of each, ``parallel_map`` with the first failure ending it all.

``in_parallel`` keeps the contract it has had for a long time: all calls run to their end whatever happens to the
others, and a caller that is interrupted leaves them behind.  New code is mostly better off with ``parallel_map`` or
``coro.group``, which leave nothing behind.

Cost: a thread for every call, made when it may run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsFloat, TypeVar, overload

from coro._runtime import scheduler
from coro.exceptions import Shutdown
from coro.groups import GroupError, group

__all__ = ["FAILURE", "SUCCESS", "InParallelError", "in_parallel", "parallel_map"]

_A = TypeVar("_A")
_B = TypeVar("_B")
_C = TypeVar("_C")
_T = TypeVar("_T")

SUCCESS = "success"
FAILURE = "failure"

_Outcome = tuple[str, Any]


class InParallelError(Exception):
    """At least one of the calls of ``in_parallel`` failed.

    ``result_list`` has an entry for each, in order: ``(SUCCESS, value)`` or ``(FAILURE, (type, exception,
    traceback))``.  The first failure is the cause of this exception.
    """

    def __init__(self, result_list: list[_Outcome]) -> None:
        super().__init__(result_list)
        self.result_list = result_list

    def __str__(self) -> str:
        errors = [value[1] for what, value in self.result_list if what == FAILURE]
        return f"{len(errors)} of {len(self.result_list)} calls failed, the first with {errors[0]!r}"


class _Run:
    """One in_parallel: the outcomes so far, and whether anybody is still interested."""

    __slots__ = ("abandoned", "outcomes")

    def __init__(self, number: int) -> None:
        self.outcomes: list[_Outcome | None] = [None] * number
        self.abandoned = False

    def call(self, index: int, function: Callable[..., Any], args: Iterable[Any]) -> None:
        try:
            self.outcomes[index] = (SUCCESS, function(*args))
        except BaseException as e:
            if self.abandoned:
                raise  # to the notifier: nobody would ever see it
            # Without this frame, which leads back to the list the triple goes into.
            traceback = e.__traceback__
            if traceback is not None and traceback.tb_next is not None:
                traceback = traceback.tb_next
            self.outcomes[index] = (FAILURE, (type(e), e.with_traceback(traceback), traceback))
            del self, function, args, traceback  # the frames of the traceback lead to this one by their f_back


@overload
def in_parallel(
    fun_arg_list: Iterable[tuple[Callable[..., _T], Sequence[Any]]],
    *,
    shutdown: bool = False,
    timeout: SupportsFloat | None = None,
) -> list[_T]: ...
@overload  # calls of several kinds in one list, which have no common type
def in_parallel(
    fun_arg_list: Iterable[tuple[Callable[..., Any], Sequence[Any]]],
    *,
    shutdown: bool = False,
    timeout: SupportsFloat | None = None,
) -> list[Any]: ...
def in_parallel(
    fun_arg_list: Iterable[tuple[Callable[..., Any], Sequence[Any]]],
    *,
    shutdown: bool = False,
    timeout: SupportsFloat | None = None,
) -> list[Any]:
    """Call each function of ``fun_arg_list``, ``[(function, args), ...]``, in a thread of its own. Wait until all have
    ended.

    Returns the results in the order of the list; ``[]`` for an empty list, without waiting.  Raises InParallelError
    when any call failed (every exception counts, Shutdown too), TypeError when an entry is no such pair.  A caller that
    is interrupted leaves at once; the calls go on by themselves, or are asked to end if ``shutdown`` is true.  What
    they raise after that goes to the exception notifier.  The same happens with ``coro.TimeoutError`` when ``timeout``
    seconds are over (None: no limit; with 0 nothing is started).  TypeError or ValueError when it is not a number.
    """
    limit = scheduler._CallLimit(timeout, "in_parallel()")
    if not isinstance(fun_arg_list, Iterable):
        raise TypeError(
            f"expected a list of pairs of a function and a tuple of its arguments, not {type(fun_arg_list).__name__}"
        )
    calls = []
    for entry in fun_arg_list:
        try:
            function, args = entry
        except (TypeError, ValueError):
            raise TypeError(f"expected pairs of a function and a tuple of its arguments, not {entry!r}") from None
        if not callable(function):
            raise TypeError(f"expected something to call as the first of a pair, not {function!r}")
        scheduler._check_function(function)
        calls.append((function, tuple(args)))
    if not calls:
        return []
    scheduler._running_thread()  # refuse before anything is started
    run = _Run(len(calls))
    threads: list[scheduler.coro] = []
    try:
        with limit:
            for index, (function, args) in enumerate(calls):
                name = getattr(function, "__qualname__", None)
                if not isinstance(name, str):
                    name = type(function).__qualname__
                threads.append(scheduler.spawn(run.call, index, function, args, thread_name=name))
            for thread in threads:
                thread.join()
    except BaseException:
        run.abandoned = True
        if shutdown:
            for thread in threads:
                thread.shutdown()
        raise
    outcomes: list[_Outcome] = []
    first: BaseException | None = None
    for outcome in run.outcomes:
        if outcome is None:  # cancelled before it ran
            outcome = (FAILURE, (Shutdown, Shutdown("cancelled before it ran"), None))
        outcomes.append(outcome)
        if first is None and outcome[0] == FAILURE:
            first = outcome[1][1]
    if first is None:
        return [value for _, value in outcomes]
    try:
        raise InParallelError(outcomes) from first
    finally:
        del outcomes, outcome, first, run  # the traceback names this frame


@overload
def parallel_map(
    function: Callable[[_A], _T],
    a: Iterable[_A],
    /,
    *,
    limit: int | None = None,
    timeout: SupportsFloat | None = None,
) -> list[_T]: ...
@overload
def parallel_map(
    function: Callable[[_A, _B], _T],
    a: Iterable[_A],
    b: Iterable[_B],
    /,
    *,
    limit: int | None = None,
    timeout: SupportsFloat | None = None,
) -> list[_T]: ...
@overload
def parallel_map(
    function: Callable[[_A, _B, _C], _T],
    a: Iterable[_A],
    b: Iterable[_B],
    c: Iterable[_C],
    /,
    *,
    limit: int | None = None,
    timeout: SupportsFloat | None = None,
) -> list[_T]: ...
@overload
def parallel_map(
    function: Callable[..., _T],
    a: Iterable[Any],
    b: Iterable[Any],
    c: Iterable[Any],
    d: Iterable[Any],
    /,
    *more: Iterable[Any],
    limit: int | None = None,
    timeout: SupportsFloat | None = None,
) -> list[_T]: ...
def parallel_map(
    function: Callable[..., _T],
    iterable: Iterable[Any],
    /,
    *more: Iterable[Any],
    limit: int | None = None,
    timeout: SupportsFloat | None = None,
) -> list[_T]:
    """Like ``list(map(function, iterable, *more))``, with every call in a thread of its own.

    At most ``limit`` of them run at once (None: all). The iterables are advanced in the calling thread, and no faster
    than the calls are made.  Returns the results in order.  When a call or an iterable fails, the others are shut down,
    and the failures leave as an ExceptionGroup.  An interruption of the caller leaves as it is.  No thread is left
    behind either way.  A call that other code has shut down counts as failed.

    ``timeout`` limits the whole, in seconds: ``coro.TimeoutError`` when it is over, and the calls are shut down (None:
    no limit; with 0 nothing is started).  TypeError or ValueError for an impossible ``limit`` or ``timeout``.
    """
    scheduler._check_function(function)
    results: dict[int, _T] = {}

    def call(index: int, args: tuple[Any, ...]) -> None:
        results[index] = function(*args)

    number = 0
    name = getattr(function, "__qualname__", None)
    with scheduler._CallLimit(timeout, "parallel_map()"), group(limit) as g:
        for args in zip(iterable, *more, strict=False):
            if limit is not None:
                g.wait_for_room()
            g.spawn(call, number, args, thread_name=name if isinstance(name, str) else None)
            number += 1
    if len(results) < number:
        lost = [i for i in range(number) if i not in results]
        raise GroupError(
            f"{len(lost)} of {number} calls were shut down from outside, the first is number {lost[0]}: "
            "they have no result"
        )
    return [results[i] for i in range(number)]
