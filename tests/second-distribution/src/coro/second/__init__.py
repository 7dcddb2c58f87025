"""A package in `coro` that coro-core knows nothing about."""

from coro.second._probe import Alarm, ask, elapsed, yields

__all__ = ["Alarm", "ask", "elapsed", "yields"]
