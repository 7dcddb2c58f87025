"""Locks by name, with deadlock detection: ``smith.lock("account 7")``.

A mutex exists for a name only while somebody holds or wants it, so names may be anything hashable and any number. When
a thread is about to wait, the smith first follows the chain "waits for what, held by whom" from the holder: if it leads
back to the thread, waiting would never end, and the thread that would close the cycle gets DeadlockError at once. The
chain may lead through other smiths, plain mutexes, the writer of an rw_lock and joins, since every waiting thread knows
what it waits for and every lock knows its owner. A cycle that is closed by something that is not a smith's lock (a
plain mutex, say) is found by the manager thread, which looks every ``deadlock_check_period`` seconds and breaks it by
raising DeadlockError in one of those of its threads that wait for a smith.

The global lock excludes everybody: it waits until all names are free, while threads that hold none are held back. A
thread that holds a name may lock more names meanwhile, since otherwise it might never come to its end.

Cost: a mutex and a dictionary entry per name in use; looking for a cycle costs one step per thread of the chain.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, SupportsFloat

from coro._introspection.lock_cycles import find_cycle, holders_of, waits_for
from coro._runtime import scheduler
from coro._sync.conditions import condition_variable
from coro._sync.locks import mutex
from coro._sync.records import LockSmithStatistics
from coro.exceptions import DeadlockError

__all__ = ["LockSmith", "MutexLockSmith", "find_cycle", "holders_of"]


class _LetGo(condition_variable):
    """Where the thread that has the global lock waits for the others to let go of their names."""

    smith: MutexLockSmith

    @property
    def owners(self) -> tuple[Any, ...]:
        return tuple(self.smith._holders_except(self.smith._global.owner))


class LockSmith:
    """Base of lock managers: the manager thread that looks for deadlocks. Subclasses know what the locks are.

    ``deadlock_check_period`` (seconds, default 60) may be set on the class or the object before the manager starts."""

    deadlock_check_period: float = 60

    def __init__(self) -> None:
        self._manager: Any = None
        self._contended = 0
        self._deadlocks = 0

    def waiting_threads(self) -> Iterable[Any]:
        """The threads that wait for one of this smith's locks."""
        return ()

    def statistics(self) -> LockSmithStatistics:
        """Figures for debugging. What the base class does not know is 0 or None."""
        return LockSmithStatistics(0, 0, len(list(self.waiting_threads())), None, self._contended, self._deadlocks)

    def start_manager_thread(self) -> None:
        """Start the (daemon) thread that looks for deadlocks; does nothing if it runs."""
        if self._manager is None or self._manager.dead:
            self._manager = scheduler.spawn(self._manage, thread_name=f"{type(self).__name__} manager", daemon=True)

    def stop_manager_thread(self) -> None:
        """End it; does nothing if there is none."""
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.shutdown()

    def _manage(self) -> None:
        while True:
            scheduler.sleep_relative(self.deadlock_check_period)
            self.check_for_deadlocks()

    def check_for_deadlocks(self) -> int:
        """Look for cycles of threads that wait for one another, and break each by raising DeadlockError in one of its
        threads that wait for this smith, chosen at random. Returns how many were broken."""
        broken: set[Any] = set()
        waiting = list(self.waiting_threads())
        ours = set(waiting)
        for thread in waiting:
            cycle = find_cycle(thread)
            if cycle is None or broken.intersection(cycle):
                continue
            victim = random.choice([t for t in cycle if t in ours])
            broken.add(victim)
            victim.raise_exception(_error(cycle))
        self._deadlocks += len(broken)
        return len(broken)


def _error(cycle: list[Any]) -> DeadlockError:
    pairs = tuple((t, repr(waits_for(t))) for t in cycle)
    chain = " -> ".join(repr(t) for t in [*cycle, cycle[0]])
    return DeadlockError(
        f"these threads wait for one another's locks: {chain}; lock in the same order everywhere, "
        f"or unlock and try again",
        pairs,
    )


class MutexLockSmith(LockSmith):
    """Re-entrant locks by name, and a global one that excludes them all."""

    def __init__(self) -> None:
        super().__init__()
        self._locks: dict[Hashable, mutex] = {}
        self._users: dict[Hashable, int] = {}  # threads that hold or want the name
        self._held: dict[Any, int] = {}  # thread -> how many locks it holds, every level counted
        self._global = mutex()
        self._someone_let_go = _LetGo()
        self._someone_let_go.smith = self

    # -- by name

    def lock(self, key: Hashable, timeout: SupportsFloat | None = None) -> bool:
        """Wait until the name ``key`` is free, and lock it. Returns True if the thread had to wait. Raises
        DeadlockError if waiting would close a cycle; nothing is locked then.

        ``timeout`` is a number of seconds, 0 to try only, None for ever; ``coro.TimeoutError`` when it is over, and
        nothing is locked. TypeError or ValueError when it is not a number."""
        if timeout is not None:
            limit = scheduler._CallLimit(timeout, "MutexLockSmith.lock()")
            if not self.try_lock(key):
                return False
            with limit:
                return self._lock(key)
        return self._lock(key)

    def _lock(self, key: Hashable) -> bool:
        me = scheduler.current()
        waited = self._pass_gate(me)
        lock = self._use(key)
        try:
            if lock.locked() and not lock.has_lock():
                self._look(me, lock)
            waited = lock.lock() or waited
        except BaseException:
            self._unuse(key)
            raise
        self._held[me] = self._held.get(me, 0) + 1
        return waited

    def try_lock(self, key: Hashable) -> bool:
        """Lock the name ``key`` if that needs no waiting. Returns True on FAILURE, False on success."""
        me = scheduler.current()
        if self._gate_shut(me):
            return True
        lock = self._use(key)
        if lock.trylock():
            self._unuse(key)
            return True
        self._held[me] = self._held.get(me, 0) + 1
        return False

    trylock = try_lock

    def unlock(self, key: Hashable) -> None:
        """Undo one lock(key). KeyError when nobody holds the name, LockError when somebody else does."""
        lock = self._locks.get(key)
        if lock is None or not lock.locked():
            raise KeyError(key)
        lock.unlock()
        self._unuse(key)
        self._let_go(scheduler.current())

    @contextmanager
    def holding(self, key: Hashable, timeout: SupportsFloat | None = None) -> Iterator[None]:
        """``with smith.holding(key):`` locks and unlocks; ``timeout`` and errors as for lock()."""
        self.lock(key, timeout)
        try:
            yield
        finally:
            self.unlock(key)

    def locked(self, key: Hashable) -> bool:
        """Whether a thread holds the name ``key``."""
        lock = self._locks.get(key)
        return lock is not None and lock.locked()

    # -- all names

    def lock_global(self, timeout: SupportsFloat | None = None) -> bool:
        """Wait until nobody else holds any name, and keep everybody out. Returns True when the thread had to wait.
        DeadlockError when waiting would close a cycle; ``timeout`` as for lock()."""
        if timeout is not None:
            limit = scheduler._CallLimit(timeout, "MutexLockSmith.lock_global()")
            if not self.try_lock_global():
                return False
            with limit:
                return self._lock_global()
        return self._lock_global()

    def _lock_global(self) -> bool:
        me = scheduler.current()
        if self._global.locked() and not self._global.has_lock():
            self._look(me, self._global)
        waited = self._global.lock()
        try:
            while self._holders_except(me):
                self._look(me, self._someone_let_go)
                waited = True
                self._someone_let_go.wait()
        except BaseException:
            self._global.unlock()
            raise
        return waited

    def try_lock_global(self) -> bool:
        """Take the global lock if that needs no waiting. Returns True on FAILURE, False on success."""
        if self._holders_except(scheduler.current()):
            return True
        return bool(self._global.trylock())

    def unlock_global(self) -> None:
        """Undo one lock_global(). LockError when the caller does not hold it."""
        self._global.unlock()

    # -- looking

    def waiting_threads(self) -> list[Any]:
        """The threads that wait for a name or for the global lock."""
        found = [t for lock in self._locks.values() for t in lock.waiting]
        found.extend(self._global.waiting)
        found.extend(self._someone_let_go.waiting)
        return found

    def statistics(self) -> LockSmithStatistics:
        """Figures for debugging, see LockSmithStatistics."""
        return super().statistics()._replace(
            names=len(self._locks), holders=len(self._held), global_owner=self._global.owner
        )

    def __len__(self) -> int:
        return len(self._locks)

    def __repr__(self) -> str:
        waiting = len(self.waiting_threads())
        return f"<{type(self).__name__} with {len(self._locks)} names in use, {waiting} threads waiting>"

    # -- inside

    def _look(self, me: Any, what: Any) -> None:
        self._contended += 1
        cycle = find_cycle(me, what)
        if cycle is not None:
            self._deadlocks += 1
            raise _error(cycle)

    def _gate_shut(self, me: Any) -> bool:
        return self._global.locked() and not self._global.has_lock() and me not in self._held

    def _pass_gate(self, me: Any) -> bool:
        """A thread that holds nothing waits for the end of the global lock."""
        waited = False
        while self._gate_shut(me):
            self._look(me, self._global)
            self._global.lock()
            self._global.unlock()
            waited = True
        return waited

    def _use(self, key: Hashable) -> mutex:
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = mutex()
        self._users[key] = self._users.get(key, 0) + 1
        return lock

    def _unuse(self, key: Hashable) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key], self._locks[key]

    def _let_go(self, thread: Any) -> None:
        self._held[thread] -= 1
        if not self._held[thread]:
            del self._held[thread]
            self._someone_let_go.wake_all()

    def _holders_except(self, thread: Any) -> list[Any]:
        # By the locks' own word: a thread that was handed one may not have run since.
        owners = dict.fromkeys(lock.owner for lock in self._locks.values())
        return [t for t in owners if t is not None and t is not thread]
