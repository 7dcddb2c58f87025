"""Tracebacks for those who read a failed test: without the frames of the test runner and of coro's compiled modules.

Compiled code has no frames; Cython makes some up for a traceback, which show lines of files that nobody has at hand.
What the program called is the last line of its own that is shown. Cost: a pass over the traceback of each failure.
"""

from __future__ import annotations

import os
from types import TracebackType

__all__ = ["shorten"]

_COMPILED = (".pyx", ".pxi")
_HERE = os.path.dirname(os.path.abspath(__file__))
_OWN = (os.path.join(_HERE, "pytest_plugin.py"), os.path.join(_HERE, "_runner.py"))


def _is_hidden(trace: TracebackType) -> bool:
    frame = trace.tb_frame
    file = frame.f_code.co_filename
    if file.endswith(_COMPILED):
        return str(frame.f_globals.get("__name__")).startswith("coro.")
    return file in _OWN


def shorten(error: BaseException) -> bool:
    """Take our own frames out of the traceback of an exception, and of those that led to it. False when the test runner
    itself raised it."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error.__cause__, error.__context__]
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    theirs = trace is None or trace.tb_frame.f_code.co_filename not in _OWN
    _shorten_one(error)
    seen.add(id(error))
    while todo:
        other = todo.pop()
        if other is not None and id(other) not in seen:
            seen.add(id(other))
            _shorten_one(other)
            todo += [other.__cause__, other.__context__]
    return theirs


def _shorten_one(error: BaseException) -> None:
    kept = []
    trace = error.__traceback__
    while trace is not None:
        if not _is_hidden(trace):
            kept.append(trace)
        trace = trace.tb_next
    if not kept:
        return
    result: TracebackType | None = None
    for trace in reversed(kept):
        result = TracebackType(result, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
    error.__traceback__ = result
