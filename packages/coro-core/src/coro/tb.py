"""Short forms of stacks and tracebacks, for one line of a log.

A place is written `[dir/file.py function|line]`: the last folder and the file, the function's name, the line. These
functions read no files, unlike Python's `traceback` module, which reads the sources. Where Python knows no line for a
frame (`f_lineno` and `tb_lineno` may be None), texts have `?`, and data None.
"""

# Frames of the scheduler itself never show up, by construction: a thread's first frame has no `f_back`.
#
# Cost: O(depth), no caches.

import sys as _sys
from types import FrameType, TracebackType
from typing import Any

__all__ = ["stack_string", "traceback_data", "traceback_string"]

#: (file, function, line): the file is shortened to its last folder and name.
Place = tuple[str, str, int | None]

_NO_TRACEBACK = "There is no exception and no traceback: it is None"


def _short(path: str) -> str:
    """The last folder and the file name: "a/b/c.py" -> "b/c.py"; "<stdin>" stays."""
    return "/".join(path.rsplit("/", 2)[-2:])


def _text(place: Place) -> str:
    file, function, line = place
    return f"[{file} {function}|{'?' if line is None else line}]"


def _str(value: object) -> str:
    """str(value), whatever the object does."""
    try:
        return str(value)
    except BaseException as e:  # a SystemExit or Shutdown in there must not take the place of what is told of
        return f"<unprintable {type(value).__name__}: str() raised {type(e).__name__}>"


def _triple(t: Any, v: Any, tb: TracebackType | None) -> tuple[Any, Any, TracebackType | None]:
    """Sort out the arguments: nothing (the exception being handled), one exception, or the classic three."""
    if isinstance(t, BaseException):
        return type(t), t, t.__traceback__ if tb is None else tb
    if t is None and v is None and tb is None:
        return _sys.exc_info()
    if tb is None and isinstance(v, BaseException):
        tb = v.__traceback__
    if tb is not None and not isinstance(tb, TracebackType):
        raise TypeError(f"expected a traceback, got {type(tb).__name__}; or pass the exception object alone")
    return t, v, tb


def _places(tb: TracebackType | None) -> list[Place]:
    places: list[Place] = []
    while tb is not None:
        code = tb.tb_frame.f_code
        places.append((_short(code.co_filename), code.co_name, tb.tb_lineno))
        tb = tb.tb_next
    return places


def stack_string(f: FrameType | None = None) -> str:
    """The stack from frame `f` outward, innermost first: "[dir/file.py function|line] [...] ...".

    f: a frame; None is the caller's.  Raises TypeError for anything else.
    """
    frame: FrameType | None
    if f is None:
        frame = _sys._getframe(1)
    elif isinstance(f, FrameType):
        frame = f
    else:
        raise TypeError(f"expected a frame, got {type(f).__name__}; sys._getframe() gives your own")
    parts = []
    while frame is not None:
        parts.append(_place_of(frame))
        frame = frame.f_back
    return " ".join(parts)


def _place_of(frame: FrameType) -> str:
    code = frame.f_code
    return _text((_short(code.co_filename), code.co_name, frame.f_lineno))


def traceback_string(t: Any = None, v: Any = None, tb: TracebackType | None = None) -> str:
    """An exception in one line: the `repr` of (innermost place, str(type), str(value), all places).

    t: an exception object, or a type with its value `v` and traceback `tb` as from `sys.exc_info()`; with
    nothing, the exception being handled.  Places are texts as in `stack_string`; "all" are
    one string, outermost first.
    Without a traceback (a call that failed before any line of Python ran) both places are `[]`.  Without an
    exception the result is a fixed sentence that says so.  Raises TypeError when `tb` is no traceback.
    """
    t, v, tb = _triple(t, v, tb)
    if t is None and v is None and tb is None:
        return _NO_TRACEBACK
    texts = [_text(p) for p in _places(tb)] or ["[]"]
    return repr((texts[-1], _str(t), _str(v), " ".join(texts)))


def traceback_data(
    t: Any = None, v: Any = None, tb: TracebackType | None = None
) -> tuple[str, str, list[Place]]:
    """An exception as data: (str(type), str(value), [(file, function, line), ...]), places outermost first.

    Parameters as for `compact_traceback`. Without a traceback the list is empty. Raises TypeError if `tb` is no
    traceback.
    """
    t, v, tb = _triple(t, v, tb)
    return _str(t), _str(v), _places(tb)
