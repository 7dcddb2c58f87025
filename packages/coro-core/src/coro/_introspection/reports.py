"""What is said about threads: where they are, what they wait for, who failed, who is stuck.

Everything here formats; nothing decides. The scheduler calls it through hooks, so it never imports upwards.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from coro import tb
from coro._introspection.failures import default_exception_notifier, notifier_failed
from coro._introspection.wait_graph import describe_wait, wait_graph
from coro._runtime import scheduler
from coro._runtime.output import one_line, print_stderr, write_stderr
from coro.exceptions import DeadlockError

__all__ = ["all_threads", "describe_wait", "where", "where_all"]


class _Threads(Mapping[int, Any]):
    """A live view of the registered threads by id: those that were spawned or started and have not ended."""

    def __getitem__(self, key: int) -> Any:
        return scheduler.get_thread_by_id(key)

    def __iter__(self) -> Iterator[int]:
        return iter(scheduler._thread_ids())

    def __len__(self) -> int:
        return int(scheduler._thread_count())

    def __repr__(self) -> str:
        return f"<all_threads: {len(self)} threads>"


all_threads = _Threads()


def where(co: Any) -> str:
    """The stack of the thread ``co`` on one line, innermost call first; ``[]`` if it has not run or has ended. Raises
    TypeError if it is not a thread."""
    if not isinstance(co, scheduler.coro):
        raise TypeError(f"expected a thread (see coro.spawn), not {type(co).__name__}: {co!r}")
    frame = co.get_frame()
    if frame is not None and co is scheduler.current():
        frame = frame.f_back
    if frame is None:
        return "[]"
    return tb.stack_string(frame)


def where_all() -> dict[int, tuple[str, Any, str]]:
    """``{id: (name, thread, where)}`` for every registered thread."""
    found = {}
    for t in scheduler._all_threads():
        frame = t.get_frame()
        if frame is not None and t is scheduler.current():
            frame = frame.f_back  # this function is not where the caller is
        found[t.id] = (t.name, t, "[]" if frame is None else tb.stack_string(frame))
    return found


#: How the names of files begin that are not the program's: those of this library, and of the import system.
_NOT_THE_PROGRAM = (os.path.dirname(os.path.dirname(__file__)) + os.sep, "<frozen ")


def deadlock(log_only: bool) -> DeadlockError | None:
    """Word the report of a deadlock; log it, or return it as the exception to raise."""
    graph = wait_graph()
    threads = [(t.thread, t.words) for t in graph.threads if not t.daemon]
    lines = [f"  {t.thread!r} waits {t.words}\n    at {t.where}" for t in graph.threads if not t.daemon]
    for cycle in graph.cycles:
        names = " -> ".join(f"#{t.id} {one_line(t.name)}" for t in (*cycle, cycle[0]))
        lines.append(f"  these wait for one another: {names}")
    one = len(threads) == 1
    who = "the only thread" if one else f"all {len(threads)} threads"
    text = (
        f"{who} that the loop waits for {'is' if one else 'are'} blocked, and nothing is left that could wake "
        f"{'it' if one else 'one'} (no timer, no descriptor, no handler, no worker; daemon threads do not count):\n"
        + "\n".join(lines)
    )
    if log_only:
        print_stderr("DEADLOCK unless another OS thread calls coro.post(): " + text)
        return None
    return DeadlockError(text, tuple(threads))


def latency(t: Any, seconds: float) -> None:
    """Report a thread that held the CPU for long: in one line, with the place where it waits now, and the program's own
    place that led there if that is another one."""
    innermost = frame = t.get_frame()
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_PROGRAM):
        frame = frame.f_back
    places = [tb._place_of(f) for f in dict.fromkeys((innermost, frame)) if f is not None]
    write_stderr(f"{time.ctime()} High Latency: ({seconds:.3f}s) for {t!r} {' '.join(places) or '[]'}\n")


def report_refused() -> None:
    """Name the threads that a loop had to give up."""
    for t, frame in scheduler._take_refused():
        at = tb.stack_string(frame) if frame is not None else "[]"
        print_stderr(f"thread {t.id} ({one_line(t.name)}) did not end in time and was abandoned at {at}")


def install() -> None:
    """Give the scheduler its hooks, and the limit of the latency warning that the environment asks for.

    Raises ImportError when CORO_LATENCY_WARNING is not a number from 0 to 300.
    """
    scheduler._hooks(default_exception_notifier, latency, deadlock, notifier_failed)
    asked = "" if sys.flags.ignore_environment else os.environ.get("CORO_LATENCY_WARNING", "")
    if asked:
        try:
            scheduler.set_latency_warning(int(asked))
        except ValueError:
            raise ImportError(
                "expected CORO_LATENCY_WARNING in the environment to be a number from 0 (no warnings) to 300, "
                f"not {asked!r}; unset it for the usual limit"
            ) from None


install()
