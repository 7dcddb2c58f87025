"""Emulated `print` and tracebacks: a text of several lines is one write.

The originals write each piece by itself: `print` its arguments, what stands between them and the end of the line, and
`traceback` a line at a time. Over a pipe or terminal that nobody reads any of these may suspend the coro thread, and
what another one prints meanwhile stands in the middle. So the text is made first. A stream that is not an
`io.TextIOWrapper` gets what the original writes: a program may count calls.

Cost: a microsecond for a call of `print`.
"""

from __future__ import annotations

import builtins
import io
import sys
import threading
import traceback
from typing import Any

from coro.emulation._plan import Plan

__all__ = ["plan"]

_print: Any = builtins.print
_excepthook: Any = threading.excepthook
_print_traceback: Any = traceback.TracebackException.print
_print_list: Any = traceback.print_list
_TextIOWrapper = io.TextIOWrapper


def print_at_once(*args: Any, sep: Any = " ", end: Any = "\n", file: Any = None, flush: Any = False) -> None:
    """As the original, with one write."""
    stream = sys.stdout if file is None else file
    between, last = (" " if sep is None else sep), ("\n" if end is None else end)
    if type(stream) is not _TextIOWrapper or not isinstance(between, str) or not isinstance(last, str):
        _print(*args, sep=sep, end=end, file=file, flush=flush)
        return
    stream.write(between.join(map(str, args)) + last)
    if flush:
        stream.flush()


def print_traceback(self: Any, *, file: Any = None, chain: bool = True, **colours: Any) -> None:
    """As the original, with one write."""
    stream = sys.stderr if file is None else file
    if type(stream) is not _TextIOWrapper:
        _print_traceback(self, file=file, chain=chain, **colours)
        return
    stream.write("".join(self.format(chain=chain, **colours)))


def print_list(extracted_list: Any, file: Any = None) -> None:
    """As the original, with one write."""
    stream = sys.stderr if file is None else file
    if type(stream) is not _TextIOWrapper:
        _print_list(extracted_list, file=file)
        return
    stream.write("".join(traceback.StackSummary.from_list(extracted_list).format()))


def excepthook(args: Any, /) -> None:
    """As the original, with one write."""
    stream = sys.stderr
    if type(stream) is not _TextIOWrapper or args.exc_type is SystemExit:
        _excepthook(args)
        return
    who = args.thread.name if args.thread is not None else threading.get_ident()
    told = traceback.TracebackException(args.exc_type, args.exc_value, args.exc_traceback, compact=True)
    stream.write(f"Exception in thread {who}:\n" + "".join(told.format(**_colours())))
    stream.flush()


def _colours() -> dict[str, Any]:
    """Whether Python itself would colour a traceback: from 3.13 on."""
    try:
        import _colorize  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return {}
    return {"colorize": bool(_colorize.can_colorize())}


def plan(p: Plan) -> None:
    """What to replace."""
    p.replace(builtins, "print", print_at_once)
    p.replace(traceback.TracebackException, "print", print_traceback)
    p.replace(traceback, "print_list", print_list)
    p.replace(threading, "excepthook", excepthook)
