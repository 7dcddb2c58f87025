"""What the server has to tell: one line for each event, and a whole traceback for an exception of the program's.

Where it goes: to the logger that the program has given coro (`coro.log.set_logger`), as data; else to the ``logging``
module, as loggers ``coro.http`` and ``coro.http.handlers``, if the program has configured it; else to stderr. Nothing
else decides, so that a program need not know that the server has a log of its own.

Cost: a walk up the loggers of ``logging`` for each message; nothing for a request without one.
"""

from __future__ import annotations

import sys
import time
import traceback
from typing import Any

import coro
from coro.log import Facility, StderrLogger, get_logger

__all__ = ["LOG", "LOG_HANDLERS", "Reports"]

#: Characters of a traceback that are written: one of a deep recursion has megabytes.
LONGEST_TRACEBACK = 16384


class Reports(Facility):
    """A facility whose records people read: ``f(*items)`` reports an event, ``f.failure(exc, *items)`` an exception."""

    def __init__(self, name: str, logger: str) -> None:
        super().__init__(name)
        self.logger = logger

    def __call__(self, *data: Any) -> None:
        logger = self._configured()
        if logger is None:
            super().__call__(*data)
        else:
            logger.warning("%s", _words(data))

    def exc(self) -> None:
        """Report the exception being handled; call it in an ``except`` block."""
        error = sys.exc_info()[1]
        assert error is not None
        self.failure(error, "error")

    def failure(self, error: BaseException, *data: Any) -> None:
        """Report ``error``, with ``data`` on what it has ended."""
        logger = self._configured()
        if logger is not None:
            logger.error("%s", _words(data), exc_info=error)
        elif type(get_logger()) is StderrLogger:
            lines = "".join(traceback.format_exception(error))
            if len(lines) > LONGEST_TRACEBACK:
                half = LONGEST_TRACEBACK // 2
                lines = f"{lines[:half]}\n  ...\n{lines[-half:]}"
            coro.write_stderr(f"{time.ctime()} {self.name}: {_words(data)}\n{_printable(lines)}")
        else:
            super().__call__(*data)
            super().__call__("exception", coro.traceback_data(type(error), error, error.__traceback__))

    def _configured(self) -> Any:
        """The logger of ``logging``, if the program wants to have it there."""
        logging = sys.modules.get("logging")
        if logging is None or type(get_logger()) is not StderrLogger:
            return None
        logger = logging.getLogger(self.logger)
        return logger if logger.hasHandlers() else None


def _words(data: tuple[Any, ...]) -> str:
    return _printable(" ".join(str(item) for item in data)).replace("\n", "\\n")


def _printable(text: str) -> str:
    """Without what would control a terminal: a message may hold what a client has sent."""
    return text.translate(_CONTROLS)


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)}

LOG = Reports("http", "coro.http")
LOG_HANDLERS = Reports("http handlers", "coro.http.handlers")
