"""Logging of data instead of text: facilities, loggers for files, stderr and syslog, binary logs.

    LOG = coro.log.Facility("mailer")
    LOG("sent", message_id, recipients)
    LOG.exc()       # in an except block

    coro.log.set_logger(coro.log.asn1.Logger("/var/log/mailer"))

The process has one logger. Until ``set_logger`` is called, it writes to stderr. No logger ever suspends the calling
thread. ``coro.log.asn1`` has binary logs, ``coro.log.catlog`` is the program that shows them, and ``coro.log.bridge``
connects coro's log with the ``logging`` module.
"""

from __future__ import annotations

from coro.log import asn1
from coro.log._facility import Facility, NoFacility, get_logger, log, set_logger
from coro.log._loggers import Background, ComboLogger, FileLogger, Logger, StderrLogger, SysLogger
from coro.log._redirect import Redirector, redirect_stderr

__all__ = [
    "Background",
    "ComboLogger",
    "Facility",
    "FileLogger",
    "Logger",
    "NoFacility",
    "Redirector",
    "StderrLogger",
    "SysLogger",
    "asn1",
    "get_logger",
    "log",
    "redirect_stderr",
    "set_logger",
]
