"""Threads that run in a random order, the same for the same seed: for finding code that relies on the order of wakeups.

The run queue is worked off in batches (see ``coro._runtime.scheduler``). Each batch is shuffled, and a random part of
it is put off behind whatever becomes runnable meanwhile, so that any interleaving of runnable threads may come out. The
generator is our own, in C: the same seed means the same order on every machine and Python, as long as the program does
the same and what comes from outside comes at the same time. A virtual clock and in-memory streams see to that; with
real descriptors and real time the order is random but cannot be repeated exactly.

Cost: some 10 ns a switch while it is on. Only places where threads switch anyway are affected: nothing is preempted.
"""

from __future__ import annotations

import os
import random
from types import TracebackType

from coro._runtime import scheduler

__all__ = ["random_order"]

#: Name of the environment variable that gives the seed where the program gives none.
SEED_VARIABLE = "CORO_TEST_SEED"


class random_order:
    """``with coro.testing.random_order(seed) as order:``: chance decides which runnable thread runs next.

    ``seed`` is an int; None takes the environment variable ``CORO_TEST_SEED``, or else a number never used before. The
    seed is ``order.seed``, and an exception that leaves the block carries a note that tells it.

    What the scheduler promises about order does not hold inside the block: threads woken together, threads in
    ``yield_slice()`` and posted functions run in any order. Locks and queues are first come, first served as ever, and
    no thread starves. Blocks may be nested. TypeError when the seed is not an int, ValueError when the variable is not.
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is None:
            seed = _chosen_seed()
        if not isinstance(seed, int):
            raise TypeError(f"expected a seed as an int, or None for a new one, not {seed!r}")
        #: What ``random_order()`` has to be given for the same order again.
        self.seed = seed
        self._before: int | None = None

    def __enter__(self) -> random_order:
        # Small seeds differ in few bits, and the generator would need some steps to spread them.
        self._before = scheduler._set_random_order(random.Random(self.seed).getrandbits(64))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        scheduler._set_random_order(self._before)
        if exc is not None:
            exc.add_note(self.describe())

    def describe(self) -> str:
        """A line that tells the seed, and how to use it."""
        return f"threads ran in a random order; coro.testing.random_order({self.seed}) runs them so again"


def _chosen_seed() -> int:
    text = os.environ.get(SEED_VARIABLE)
    if not text:
        return random.SystemRandom().getrandbits(32)
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"expected an int in the environment variable {SEED_VARIABLE}, not {text!r}") from None
