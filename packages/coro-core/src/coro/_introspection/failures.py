"""What is told of exceptions that nobody has caught: the default exception notifier, and a shorter one.

A block for each: a line with the thread's number and name, then the traceback as Python itself writes it, with causes,
notes and groups, and with colours where Python has them (3.13) and stderr is a terminal. What comes from outside (the
text of the exception, notes, names, lines of sources) cannot send escape sequences to that terminal, and cannot begin a
line like another block.

The same exception again and again, as when a data base is down, must not fill the disk or hold up the loop: of each
kind (its type and the places of its traceback) MOST blocks are written in WINDOW seconds. The rest is counted, and the
count is told when the next block is written, or at the loop's end. There is no timer for it: the last block before that
says that more will only be counted.

A notifier of the program that fails is told of in the same way, and the default one takes its place for the exception
that it was called for.

Where stderr is made of records, a line each (`coro.log.redirect_stderr`), one line is written.

Cost: a block reads the sources, once a file; an exception that is only counted costs O(depth) and touches no file.
"""

from __future__ import annotations

import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from coro import tb
from coro._runtime import output, scheduler

__all__ = ["compact_exception_notifier", "default_exception_notifier", "notifier_failed"]

#: Blocks of one kind in WINDOW seconds; kinds that are remembered; frames, and exceptions of a group, that make a kind.
MOST = 5
WINDOW = 10.0
KINDS = 64
FRAMES = 10
#: Characters of a notifier's name.
MOST_NAME = 80

_HAS_COLOURS = sys.version_info >= (3, 13)
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
# What begins a block, or a line of print_stderr().
_LIKE_OURS = re.compile(r"^(?=(?:\x1b\[[0-9;]*m)*(?:Exception in |-?[0-9]+:\t))", re.MULTILINE)

_Kind = tuple[Any, ...]


class _Repeated:
    """A kind of exception in the current stretch of time."""

    __slots__ = ("began", "left_out", "name", "told")

    def __init__(self, name: str, began: float) -> None:
        self.name = name
        self.began = began
        self.told = self.left_out = 0


_seen: dict[_Kind, _Repeated] = {}


def _after_fork_in_child() -> None:
    _seen.clear()  # the parent tells of them


def default_exception_notifier() -> None:
    """Write the exception being handled to stderr: a line with the thread's number and name, and below it the traceback
    as Python writes it, in colour on a terminal from Python 3.13 on (``NO_COLOR``, ``FORCE_COLOR`` and
    ``PYTHON_COLORS`` are respected). When the same exception comes again and again, five are written in ten seconds and
    the others counted. What ``coro.log.redirect_stderr`` logs is the one line of
    ``coro.compact_exception_notifier``."""
    exc = sys.exception()
    if exc is None or getattr(output.saved_stderr, "_lines_are_records", False):
        compact_exception_notifier()
    else:
        _tell(exc)


def notifier_failed(notifier: Callable[[], object]) -> None:
    """Write the exception being handled, which the program's exception notifier has raised, and the notifier's name.
    Never raises Exception."""
    exc = sys.exception()
    try:
        name = output.one_line(getattr(notifier, "__qualname__", None) or repr(notifier))[:MOST_NAME]
    except Exception:
        name = type(notifier).__name__
    if exc is None or getattr(output.saved_stderr, "_lines_are_records", False):
        output.print_stderr(f"the exception notifier {name} has failed: error {tb.traceback_string()}")
    else:
        _tell(exc, name)


def _tell(exc: BaseException, notifier: str | None = None) -> None:
    """Write a block about the exception, or count it; ``notifier`` is the name of one that has raised it."""
    now = time.monotonic()
    tell_left_out(now)
    text = ""
    try:
        kind = _kind_of(exc)
        repeated = _seen.get(kind)
        if repeated is None or now - repeated.began >= WINDOW:
            repeated = _remember(kind, exc, now)
        if repeated.told >= MOST:
            repeated.left_out += 1
            return
        repeated.told += 1
        text = _block(exc, notifier)
        if repeated.told == MOST:
            text += f"(more of this kind are only counted for {WINDOW:g} seconds)\n"
    except Exception:
        text = ""  # no memory or stack for it, or an exception that cannot be printed at all
    if text:
        output.write_stderr(text)
    elif notifier is not None:
        output.print_stderr(f"the exception notifier {notifier} has failed: error {tb.traceback_string()}")
    else:
        compact_exception_notifier()


def compact_exception_notifier() -> None:
    """Write the exception being handled to stderr in one line: the thread, and ``coro.compact_traceback()``. For
    ``coro.set_exception_notifier``, where each line of stderr becomes a record of its own."""
    me = scheduler.current()
    output.print_stderr(f"thread {me.id} ({output.one_line(me.name)}): error {tb.traceback_string()}")


def tell_left_out(now: float | None = None) -> None:
    """Write how many exceptions were only counted: those whose time is over at ``now``; None: all of them."""
    for kind, repeated in list(_seen.items()):
        if now is not None and now - repeated.began < WINDOW:
            continue
        del _seen[kind]
        if repeated.left_out:
            more = "exception" if repeated.left_out == 1 else "exceptions"
            output.print_stderr(f"{repeated.left_out} more {more} of this kind not printed: {repeated.name}")


def _remember(kind: _Kind, exc: BaseException, now: float) -> _Repeated:
    if len(_seen) >= KINDS:
        oldest = min(_seen, key=lambda k: (_seen[k].left_out > 0, _seen[k].began))
        del _seen[oldest]
    places = tb.traceback_data(type(exc), None, exc.__traceback__)[2]  # without its text, which runs foreign code
    at = f" in {places[-1][1]} ({places[-1][0]}:{places[-1][2]})" if places else ""
    repeated = _seen[kind] = _Repeated(output.one_line(type(exc).__qualname__ + at), now)
    return repeated


def _kind_of(exc: BaseException, depth: int = 3) -> _Kind:
    frames = []
    at = exc.__traceback__
    while at is not None:
        frames.append((at.tb_frame.f_code.co_filename, at.tb_lineno))
        at = at.tb_next
    before = exc.__cause__ or exc.__context__
    inside: tuple[_Kind, ...] = ()
    if depth and isinstance(exc, BaseExceptionGroup):
        inside = tuple(_kind_of(one, depth - 1) for one in exc.exceptions[:FRAMES])
    name = type(exc).__module__, type(exc).__qualname__
    return *name, *frames[-FRAMES:], type(before).__qualname__, inside


def _block(exc: BaseException, notifier: str | None) -> str:
    me = scheduler.current()
    thread = f"thread {me.id} {me.name!r}" if me.id > 0 else "the event loop itself"
    chain, trace = True, exc.__traceback__
    if notifier is not None:
        thread = f"the exception notifier {notifier}, called in {thread}"
        chain = False  # the exception that it was called for has a block of its own, the next one
        trace = trace and trace.tb_next  # without the scheduler's call
    told = traceback.TracebackException(type(exc), exc, trace, compact=True)
    text = "".join(told.format(chain=chain))
    if _HAS_COLOURS and "\x1b" not in text and _wants_colours():
        text = "".join(told.format(chain=chain, colorize=True))  # type: ignore[call-arg,unused-ignore]
        pieces = _COLOUR.split(text)
        pieces[::2] = map(_harmless, pieces[::2])
        text = "".join(pieces)
    else:
        text = _harmless(text)
    lines = [f"Exception in {thread}, {time.ctime()}:\n"]
    if trace is None and notifier is None:
        lines.append("  (no line of Python was running: the call of the thread's function has failed)\n")
    lines.append(_LIKE_OURS.sub("  ", text))
    if isinstance(exc, SystemExit) and notifier is None:
        lines.append("(sys.exit() ends a thread only; coro.set_exit(code) ends the program's loop)\n")
    return "".join(lines)


def _harmless(text: str) -> str:
    """The text with everything unprintable as escape sequences, but for ends of lines and tabs."""
    if text.isascii() and not _CONTROLS.search(text):
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def _wants_colours() -> bool:
    """As Python decides it for its own tracebacks, but for the stream that is written to here."""
    if not sys.flags.ignore_environment:
        wish = os.environ.get("PYTHON_COLORS")
        if wish in ("0", "1"):
            return wish == "1"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    if os.environ.get("TERM") == "dumb":
        return False
    try:
        return bool(output.saved_stderr.isatty())
    except Exception:
        return False
