"""A package in `coro` that coro-core knows nothing about."""

from coro.second._probe import ask, elapsed, yields

__all__ = ["ask", "elapsed", "yields"]
