"""``redirect_stderr``: what is written to stderr becomes records of the facility ``stderr``, a line each."""

from __future__ import annotations

import io
import sys
from typing import Any

from coro._runtime import output
from coro.log import _facility

__all__ = ["Redirector", "redirect_stderr"]

#: A line that is longer is logged in pieces.
MAX_LINE = 64 * 1024


class Redirector(io.TextIOBase):
    """Stands for stderr. ``restore()`` undoes the redirection; it is also a context manager that does so."""

    encoding = "utf-8"
    errors = "backslashreplace"
    _lines_are_records = True  # see _introspection/failures.py

    def __init__(self) -> None:
        self._facility = _facility.Facility("stderr")
        self._line = ""
        self._inside = False
        self._before: tuple[Any, Any] | None = None

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, text: str, /) -> int:
        """Log the lines of ``text`` that are complete. Never raises: there is nowhere else to report to."""
        if not isinstance(text, str):
            raise TypeError(f"write() takes a str, not {type(text).__name__}")
        lines = (self._line + text).split("\n")
        self._line = lines.pop()
        if len(self._line) > MAX_LINE:
            lines.append(self._line)
            self._line = ""
        for line in lines:
            self._log(line)
        return len(text)

    def flush(self) -> None:
        """Nothing: an unfinished line waits for its end."""

    def _log(self, line: str) -> None:
        if self._inside or not line:
            return  # a logger that writes to stderr itself must not come back here
        self._inside = True
        try:
            self._facility(line)
        except Exception:
            pass
        finally:
            self._inside = False

    def restore(self) -> None:
        """Put back what was there before; an unfinished line is logged."""
        if self._before is not None:
            stderr, saved = self._before
            self._before = None
            if sys.stderr is self:
                sys.stderr = stderr
            if output.saved_stderr is self:
                output.saved_stderr = saved
        line, self._line = self._line, ""
        self._log(line)

    def __exit__(self, *args: object) -> None:
        self.restore()


def redirect_stderr() -> Redirector:
    """Log what is written to ``sys.stderr`` and by coro's own functions (``print_stderr``, the exception notifier, the
    latency warning). What C code writes to descriptor 2 still goes there, for example the watchdog's reports. Returns
    the object that now replaces stderr; its ``restore()`` undoes the redirection."""
    redirector = Redirector()
    redirector._before = (sys.stderr, output.saved_stderr)
    sys.stderr = redirector
    output.saved_stderr = redirector
    return redirector
