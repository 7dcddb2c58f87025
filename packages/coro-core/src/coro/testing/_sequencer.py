"""Blocks of different threads in a given order, for tests of what happens when one comes before the other.

A number for each block, and the block with the next number is let in when the one before is left. Nothing but a
counter and the threads that wait for it. The idea is the one of trio.testing's Sequencer
(https://trio.readthedocs.io/en/stable/reference-testing.html).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from coro._runtime import scheduler

__all__ = ["BrokenSequence", "sequencer"]


class BrokenSequence(Exception):
    """A sequencer cannot go on: a thread that waited for its number, or was inside its block, was interrupted or
    failed, so the later numbers would wait for ever. ``args[0]`` says which number broke it."""


class sequencer:
    """Run blocks in the order of their numbers, 0 first, whichever threads they are in.

        seq = coro.testing.sequencer()
        with seq(0): ...      # in one thread
        with seq(1): ...      # in another one: waits until the first is left

    Each number is used once (RuntimeError otherwise), and none is left out. When a block is left by an exception, or a
    thread is interrupted while it waits for its turn, all that wait, and all that come later, get BrokenSequence.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._used: set[int] = set()
        self._waiting: dict[int, Any] = {}
        self._broken: str | None = None

    @contextmanager
    def __call__(self, number: int) -> Iterator[None]:
        if number < 0:
            raise ValueError(f"expected a number of at least 0, not {number}")
        if number in self._used:
            raise RuntimeError(f"number {number} of this sequencer was used before; give each block its own")
        self._used.add(number)
        try:
            if number != self._turn:
                me = scheduler._running_thread()
                self._waiting[number] = me
                try:
                    while number != self._turn and self._broken is None:
                        scheduler._suspend(self)
                finally:
                    del self._waiting[number]
            if self._broken is not None:
                raise BrokenSequence(self._broken)
            yield
        except BaseException as e:
            if self._broken is None:
                self._broken = f"the block with number {number} was left by {type(e).__name__}"
            for thread in self._waiting.values():
                scheduler._wake(thread)
            raise
        self._turn += 1
        following = self._waiting.get(self._turn)
        if following is not None:
            scheduler._wake(following)

    def __repr__(self) -> str:
        state = self._broken or f"it is the turn of {self._turn}"
        return f"<sequencer: {state}, waiting: {sorted(self._waiting)}>"
