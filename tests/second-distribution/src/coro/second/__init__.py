"""A package in `coro` that coro-core knows nothing about."""

from coro.second._probe import elapsed, yields

__all__ = ["elapsed", "yields"]
