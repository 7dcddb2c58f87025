"""The OS threads that check passwords, and how long a failed login takes.

PBKDF2 costs tens of milliseconds of a processor, and strangers decide how often. So it has a few OS threads of its own:
those of `coro.in_thread`, which write to the disk, are never taken by it. Clients take turns by address, so that one
that guesses delays its own logins.

How long a failed login takes must not tell whether the user exists. Each one costs at least a check of the scheme that
new passwords have, and then waits until it has taken as long as the dearest check that was ever seen (`Pace`). What
counts is the processor time of the checks: the time in the queue is the same for all.

Cost: at most half of the processors.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

import coro

__all__ = ["Hashing", "Pace"]

#: Seconds that a failed login is held back at most.
_MOST = 2.0


class Pace:
    """How many seconds of a processor the dearest check has taken."""

    def __init__(self) -> None:
        self.dearest = 0.0

    def rest(self, spent: float) -> float:
        """The seconds that one who has spent so many has to wait still."""
        self.dearest = min(max(self.dearest, spent * 1.1), _MOST)
        return max(self.dearest - spent, 0.0)


class _Job:
    __slots__ = ("call", "done", "error", "result", "spent")

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.done = coro.event()
        self.result: Any = None
        self.error: BaseException | None = None
        self.spent = 0.0


class Hashing:
    """Runs functions in a few OS threads.  workers: how many; None: half of the processors, at most 4."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers if workers is not None else max(1, min(4, (os.cpu_count() or 1) // 2))
        self._waiting: dict[Hashable, deque[_Job]] = {}
        self._running = 0
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads = 0

    def run(self, client: Hashable, function: Callable[..., Any], *args: Any) -> tuple[Any, float]:
        """Call a function in one of the OS threads when it is this client's turn.

        Returns its result and the seconds of a processor that it took; raises what it raises.  One that is interrupted
        leaves, and the function is not called if it has not begun.
        """
        job = _Job(lambda: function(*args))
        self._waiting.setdefault(client, deque()).append(job)
        self._go_on()
        try:
            job.done.wait()
        except BaseException:
            mine = self._waiting.get(client)
            if mine is not None and job in mine:
                mine.remove(job)
                if not mine:
                    del self._waiting[client]
            raise
        if job.error is not None:
            raise job.error
        return job.result, job.spent

    def _go_on(self) -> None:
        while self._waiting and self._running < self.workers:
            client = next(iter(self._waiting))
            mine = self._waiting.pop(client)
            job = mine.popleft()
            if mine:
                self._waiting[client] = mine  # behind the others
            self._running += 1
            if self._threads < self._running:
                threading.Thread(target=self._work, name="LDAP passwords", daemon=True).start()
                self._threads += 1
            self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            began = time.thread_time()
            try:
                job.result = job.call()
            except BaseException as exc:
                job.error = exc
            job.spent = time.thread_time() - began
            # Where the loop has ended, nobody waits.
            with suppress(coro.LoopError):
                coro.post(self._finish, job)
            del job

    def _finish(self, job: _Job) -> None:
        self._running -= 1
        job.done.set()
        self._go_on()

    def close(self) -> None:
        """End the OS threads when they have done what they do."""
        for _ in range(self._threads):
            self._jobs.put(None)
        self._threads = 0
