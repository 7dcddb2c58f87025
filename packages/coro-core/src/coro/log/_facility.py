"""``log``, the facilities, and the one logger of the process that they use."""

from __future__ import annotations

import sys
from typing import Any

from coro import tb
from coro.log._loggers import Logger, StderrLogger

__all__ = ["Facility", "NoFacility", "get_logger", "log", "set_logger"]

_logger: Logger = StderrLogger()


def set_logger(logger: Logger) -> Logger:
    """Have records go to ``logger``, anything with a method ``log(*data)``; returns the one before. TypeError when it
    has no such method."""
    global _logger
    if not callable(getattr(logger, "log", None)):
        raise TypeError(f"expected a logger, with a method log(*data), not {type(logger).__name__}: {logger!r}")
    before, _logger = _logger, logger
    return before


def get_logger() -> Logger:
    """The logger that records go to now."""
    return _logger


def log(*data: Any) -> None:
    """Log a record. Pass the items as they are, not as one text: a program that reads the log can then tell them apart.

    Raises what the logger raises: an error of its file, or a value that a binary log cannot hold.
    """
    _logger.log(*data)


class NoFacility:
    """``f(*data)`` logs the items; ``f.exc()`` the exception being handled, as ``'exception'`` and its traceback
    data."""

    def __call__(self, *data: Any) -> None:
        _logger.log(*data)

    def exc(self) -> None:
        """Log the exception being handled; call it in an ``except`` block."""
        self("exception", tb.traceback_data(*sys.exc_info()))


class Facility(NoFacility):
    """A named part of a program: ``f(*data)`` logs the name and the items. TypeError unless the name is a str."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a facility's name is a str, not {type(name).__name__}: {name!r}")
        self.name = name

    def __call__(self, *data: Any) -> None:
        _logger.log(self.name, *data)

    def __repr__(self) -> str:
        return f"Facility({self.name!r})"
