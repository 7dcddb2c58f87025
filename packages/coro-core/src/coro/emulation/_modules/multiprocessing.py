"""Emulated locks of `multiprocessing`: its SemLock, which is made in C of a semaphore of the kernel.

The original blocks the OS thread, and its recursive kind is owned by one, so all threads of a loop could enter. Here
the semaphore is the same (other processes need not have the emulation), and who owns it is a coro thread.

No descriptor tells when a semaphore is free. So threads of this process stand in a line of their own. Who releases
hands the semaphore to the first of the line; that needs no system call. For what other processes release, an OS thread
waits as long as there is a line, and hands over what it gets. It is started when a wait has lasted for a while, ends
soon after the line has, and is the only one, however many threads wait for that lock. When the line has just dissolved
it may get the semaphore for nobody, and puts it back; whoever only asks just then waits for its word, or a lock that
nobody has would seem taken.

Cost: a microsecond for a lock that is free. Between processes the first wait costs an OS thread, about 0.1 ms, and the
next ones a switch of OS threads. A line with an end in sight hands over at most `_IN_A_ROW` times before other
processes get their chance.

Rejected: asking every few milliseconds (a pool of idle workers would never let the machine rest, and each task would
wait for the next time), and a pipe in the place of the semaphore (processes without the emulation would see another
lock).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
from collections import deque
from time import monotonic
from typing import Any

from coro._runtime import scheduler
from coro.emulation import _blocking, _originals
from coro.emulation._plan import Plan

__all__ = ["SemLock", "plan", "stand_in"]

_module: Any = None
with contextlib.suppress(ImportError):  # a system without semaphores that processes share
    _module = importlib.import_module("_multiprocessing")
_NativeSemLock: Any = getattr(_module, "SemLock", None)
_sleep: Any = time.sleep
#: As in multiprocessing.synchronize.
_RECURSIVE_MUTEX, _SEMAPHORE = range(2)
#: Seconds before an OS thread is started, and after which it looks whether somebody still waits.
_SOON, _LOOK = 0.001, 0.05
#: Seconds, the most that a lock takes.
_LONGEST = 4e9
#: How often in a row the semaphore goes to a thread of this process although others may be waiting in theirs.
_IN_A_ROW = 50


class _Waiter:
    """A thread in the line. ``bell`` is held until the semaphore is the thread's.

    asks: it does not wait for the semaphore, only to hear whether it is free. refused: it is not. told: whoever took it
    out of the line has made up its mind."""

    __slots__ = ("asks", "bell", "refused", "told")

    def __init__(self, asks: bool) -> None:
        self.bell = _blocking.Lock()
        self.bell.acquire()
        self.asks = asks
        self.refused = self.told = False

    def ring_within(self, seconds: float | None, end: float | None) -> bool:
        """Wait for the bell: at most so many seconds, and not beyond the end."""
        if end is not None:
            left = max(0.0, end - monotonic())
            seconds = left if seconds is None else min(seconds, left)
        return self.bell.acquire(True, -1 if seconds is None else min(seconds, _LONGEST))

    def tell(self, refused: bool) -> None:
        """It is out of the line: give it the semaphore, or not."""
        self.refused = refused
        self.told = True
        self.bell.release()

    def hear(self) -> None:
        """Somebody else has taken it out of the line, perhaps an OS thread that has not yet come to tell()."""
        while not self.told:
            _sleep(0.00001)


class SemLock:
    """Semaphore/Mutex type, for coro threads and OS threads of any number of processes."""

    SEM_VALUE_MAX: int = getattr(_NativeSemLock, "SEM_VALUE_MAX", 0)

    def __init__(self, kind: int, value: int, maxvalue: int, name: str, unlink: bool) -> None:
        if kind not in (_RECURSIVE_MUTEX, _SEMAPHORE):
            raise ValueError("unrecognized kind")
        self._begin(kind, _NativeSemLock(_SEMAPHORE, value, maxvalue, name, unlink))

    def _begin(self, kind: int, native: Any) -> None:
        self.kind = kind
        self.maxvalue: int = native.maxvalue
        self.name: str | None = native.name
        self.handle: int = native.handle
        self._native = native
        self._held = 0  # how often this process has it: acquired less released
        self._owner = 0  # the thread that acquired it last
        self._line: deque[_Waiter] = deque()
        self._in_a_row = 0
        self._listening = False
        self._process = os.getpid()

    @classmethod
    def _rebuild(cls, handle: int, kind: int, maxvalue: int, name: str | None) -> SemLock:
        """The same semaphore in another process."""
        self = cls.__new__(cls)
        self._begin(kind, _NativeSemLock._rebuild(handle, _SEMAPHORE, maxvalue, name))
        return self

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Acquire the semaphore/lock: at most ``timeout`` seconds (None: for ever), or only if that needs no waiting.
        Returns whether it was acquired. Suspends only the calling coro thread."""
        me = _blocking.get_ident()
        if self.kind == _RECURSIVE_MUTEX and self._held and self._owner == me:
            self._held += 1
            return True
        if not self._native.acquire(False):
            if not block and (self._line or not self._listening or not _blocking.in_thread_of_loop()):
                _blocking.fair()
                return False
            if not self._wait(timeout, not block):
                return False
        self._held += 1
        self._owner = me
        return True

    def _wait(self, timeout: float | None, asks: bool) -> bool:
        if not _blocking.in_thread_of_loop() or _blocking.is_forking():
            return self._native.acquire(True, timeout)  # type: ignore[no-any-return]
        self._forget_parent()
        end = None if timeout is None else monotonic() + timeout
        waiter = _Waiter(asks)
        self._line.append(waiter)
        try:
            rung = waiter.ring_within(_SOON, end)
            if not rung and (end is None or end > monotonic()):
                self._listen()
                rung = waiter.ring_within(None, end)
        except BaseException:
            if not self._leave(waiter):
                waiter.hear()
                if not waiter.refused:
                    self._pass_on()
            raise
        if not rung and self._leave(waiter):
            return False
        waiter.hear()
        return not waiter.refused

    def _leave(self, waiter: _Waiter) -> bool:
        """Take a thread out of the line. False: somebody else has."""
        try:
            self._line.remove(waiter)
        except ValueError:
            return False
        return True

    def _forget_parent(self) -> None:
        """In a forked child there is nobody in the line, and no OS thread that listens."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._line = deque()
            self._listening = False

    def release(self) -> None:
        """Release the semaphore/lock. AssertionError for a recursive lock that the calling thread does not own,
        ValueError for more releases than there were acquisitions."""
        if self.kind == _RECURSIVE_MUTEX:
            if not self._is_mine():
                raise AssertionError("attempt to release recursive lock not owned by thread")
            if self._held > 1:
                self._held -= 1
                return
        self._held -= 1
        try:
            self._pass_on()
        except BaseException:
            self._held += 1
            raise
        _blocking.fair()

    def _pass_on(self) -> None:
        """Give the semaphore to the first of the line or, from time to time and if there is none, to whoever comes."""
        if self._line:
            self._forget_parent()
            if self._in_a_row < _IN_A_ROW and self._hand_over():
                self._in_a_row += 1
                return
        self._in_a_row = 0
        self._native.release()
        if self._line:
            self._listen()

    def _hand_over(self) -> bool:
        try:
            waiter = self._line.popleft()
        except IndexError:
            return False
        waiter.tell(refused=False)
        return True

    def _refuse(self) -> None:
        for waiter in [waiter for waiter in self._line if waiter.asks]:
            if self._leave(waiter):
                waiter.tell(refused=True)

    def _listen(self) -> None:
        """Have an OS thread wait for the semaphore, unless one does."""
        if self._listening:
            return
        self._listening = True
        try:
            thread = _originals.original("threading").Thread(
                target=self._hand_over_all, name="coro semaphore", daemon=True
            )
            thread.start()
        except BaseException:
            self._listening = False
            raise

    def _hand_over_all(self) -> None:
        """In that OS thread: hand over as long as somebody waits."""
        scheduler._count_own_os_threads(+1)
        try:
            while self._line:
                if self._native.acquire(True, _LOOK):
                    self._in_a_row = 0
                    if not self._hand_over():
                        self._native.release()
                else:
                    self._refuse()
        finally:
            self._listening = False
            scheduler._count_own_os_threads(-1)
        if self._line:  # somebody came between the last look and the word that nobody listens
            self._listen()

    def _count(self) -> int:
        return self._held

    def _is_mine(self) -> bool:
        return self._held > 0 and self._owner == _blocking.get_ident()

    def _get_value(self) -> int:
        return self._native._get_value()  # type: ignore[no-any-return]

    def _is_zero(self) -> bool:
        return self._native._is_zero()  # type: ignore[no-any-return]

    def _after_fork(self) -> None:
        self._held = 0
        self._forget_parent()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


_exchanged: list[Any] = []


def stand_in(holder: Any) -> bool | None:
    """Have a lock of `multiprocessing` that was made before the emulation wait as one made today. None: `holder` is
    none; False: it is locked."""
    synchronize: Any = sys.modules.get("multiprocessing.synchronize")
    if synchronize is None:
        return None
    if isinstance(holder, synchronize.Condition):
        if type(holder._lock._semlock) is SemLock or stand_in(holder._lock):
            holder._make_methods()
            return True
        return False
    if not isinstance(holder, synchronize.SemLock):
        return None
    old: Any = holder._semlock
    if type(old) is not SemLock:
        if old._count():
            return False
        # The old one stays for good: it would close the semaphore, which is no other for having two objects.
        _exchanged.append(old)
        holder._semlock = SemLock._rebuild(old.handle, old.kind, old.maxvalue, None)
        holder._semlock.name = old.name
    holder._make_methods()
    return True


def plan(p: Plan) -> None:
    """What to replace."""
    if _NativeSemLock is not None:
        p.replace(_module, "SemLock", SemLock)
