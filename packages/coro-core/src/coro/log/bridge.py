"""From the ``logging`` module of the standard library to coro's log, and back.

    logging.getLogger().addHandler(coro.log.bridge.Handler())       # its records go to coro's logger
    coro.log.set_logger(coro.log.bridge.LoggingLogger("program"))   # coro's records go to logging

You may use both: a record that has crossed the bridge does not cross it again.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Any

from coro import tb
from coro.log import _facility, _loggers

__all__ = ["Handler", "LoggingLogger"]

_crossing: ContextVar[bool] = ContextVar("coro.log.bridge", default=False)


class Handler(logging.Handler):
    """Logs each record as (name of the logger, name of the level, message). With ``exc_info`` there is a fourth item,
    the traceback data. If a formatter is set, it makes the message."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record; errors go to ``handleError``, like with every handler."""
        if _crossing.get():
            return
        token = _crossing.set(True)
        try:
            message = record.getMessage() if self.formatter is None else self.format(record)
            items: list[Any] = [record.name, record.levelname, message]
            if record.exc_info and self.formatter is None:
                items.append(tb.traceback_data(*record.exc_info))
            _facility.log(*items)
        except Exception:
            self.handleError(record)
        finally:
            _crossing.reset(token)


class LoggingLogger:
    """A logger for ``set_logger``: records become one-line messages of ``logging.getLogger(name)`` at that level.

    TypeError when the level is neither a number nor a known name.
    """

    def __init__(self, name: str = "coro", level: int | str = logging.INFO) -> None:
        number = logging.getLevelName(level) if isinstance(level, str) else level
        if not isinstance(number, int):
            raise TypeError(f"expected a level of logging (logging.INFO, 'INFO', ...), not {level!r}")
        self.logger = logging.getLogger(name)
        self.level = number

    def log(self, *data: Any) -> None:
        """Pass a record to ``logging``."""
        if _crossing.get():
            return
        token = _crossing.set(True)
        try:
            self.logger.log(self.level, "%s", _loggers.text_of(data))
        finally:
            _crossing.reset(token)
