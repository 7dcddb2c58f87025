"""The library's own way to stderr: one line at a time, never failing, never redirected by accident.

The stream is the ``sys.stderr`` of import time, so that a program (or a back door session) that replaces ``sys.stderr``
for a while does not swallow messages of other threads.
"""

from __future__ import annotations

import sys
import time

from coro._runtime import scheduler

__all__ = ["print_stderr", "saved_stderr", "write_stderr"]

saved_stderr = sys.stderr


def one_line(s: str) -> str:
    """``s`` with line ends and other unprintable characters as escape sequences. For names that may come from outside:
    a name with a line end in it must not look like two reports."""
    return s if s.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in s)


def write_stderr(s: str) -> None:
    """Write ``s`` to the stderr of import time, as it is. Errors are ignored: there is nowhere to report them."""
    try:
        saved_stderr.write(s)
        saved_stderr.flush()
    except Exception:
        return


def print_stderr(s: str) -> None:
    """Write ``<thread id>:<tab><local time> <s>`` and a line end to the stderr of import time; errors are ignored."""
    s = str(s)
    write_stderr(f"{scheduler.current().id}:\t{time.ctime()} {s}{'' if s.endswith(chr(10)) else chr(10)}")
