"""Emulated `select` and `selectors`: looking costs what it did, waiting suspends the calling coro thread only.

Every wait first asks the kernel without waiting, by the original function, which also judges the arguments. If nothing
is ready and one descriptor is awaited, the loop's poller watches it; several are put into an epoll object of their own
for the time of the call, and that is what the poller watches. Afterwards the kernel is asked again, so that what is
returned is what the original would have returned at that moment.

Where there is no epoll, a worker OS thread waits for several descriptors.

Cost of a wait for n descriptors: two calls of the original, and n + 2 system calls for the epoll object unless n is 1.
Rejected: a handler in the loop per descriptor, which knows one waiter each and starts a thread for each event.
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
import select
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any

from coro.emulation import _blocking
from coro.emulation._plan import Plan

__all__ = ["closing", "plan", "wait_many"]

_select: Any = select.select
_poll: Any = getattr(select, "poll", None)
_epoll: Any = getattr(select, "epoll", None)
_INT_MAX = 2**31 - 1
#: Seconds to sleep when the kernel reported something that nobody asked for, as a hang-up always is: it goes on so.
_FRUITLESS = 0.002


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - monotonic())


def wait_many(pairs: Sequence[tuple[int, int]], timeout: float | None) -> list[tuple[int, int]]:
    """Suspend the calling coro thread until one of several descriptors is ready, at most ``timeout`` seconds.

    pairs: (descriptor, poll(2) bits). Returns the ready ones as poll() does, [] when the time is over.
    """
    wanted = looked_for(pairs)
    looker = _poll()
    for fd, events in wanted.items():
        looker.register(fd, events)
    deadline = None if timeout is None else monotonic() + timeout
    found: list[tuple[int, int]] = looker.poll(0)
    if found or timeout == 0:
        return found
    if _epoll is None:
        from coro.offload import in_thread

        return in_thread(looker.poll, None if timeout is None else timeout * 1000)
    watcher = _epoll()
    try:
        for fd, events in wanted.items():
            try:
                watcher.register(fd, events)
            except PermissionError:
                pass  # a regular file: poll() said that it is not awaited
        for fd in wanted:
            _watchers.setdefault(fd, []).append(watcher)
        while True:
            in_time = _blocking.wait_fd(watcher.fileno(), False, _left(deadline))
            found = looker.poll(0)
            if found or not in_time:
                return found
            if _always:
                with contextlib.suppress(OSError):
                    watcher.unregister(_always[0])
    finally:
        for fd in wanted:
            others = _watchers.get(fd, [])
            if watcher in others:
                others.remove(watcher)
            if not others:
                _watchers.pop(fd, None)
        watcher.close()


#: The epoll objects of those who wait for several descriptors, by descriptor.
_watchers: dict[int, list[Any]] = {}
#: One that is always ready, made when it is needed first.
_always: list[int] = []


def closing(fd: int) -> None:
    """A descriptor is about to be closed. The kernel drops it from all epoll objects without a word, and with it what
    it had to tell those who wait: so they are woken to look."""
    for watcher in _watchers.get(fd, ()) if _watchers and _blocking.in_thread_of_loop() else ():
        if not _always:
            _always.append(os.eventfd(1, os.EFD_CLOEXEC))
        with contextlib.suppress(OSError):  # it was told already
            watcher.register(_always[0], select.EPOLLIN)
    _blocking.closing(fd)


def looked_for(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Each descriptor once, with all that is awaited of it."""
    merged: dict[int, int] = {}
    for fd, events in pairs:
        merged[fd] = merged.get(fd, 0) | events
    return merged


def wait_some(pairs: Sequence[tuple[int, int]], timeout: float | None) -> bool:
    """Suspend until one of them may be ready; False when the time is over."""
    if not pairs:
        deadline = None if timeout is None else monotonic() + timeout
        while deadline is None or monotonic() < deadline:
            _blocking.wait_for_wake(select, _left(deadline))
        return False
    if len(pairs) == 1 and pairs[0][1] in (select.POLLIN, select.POLLOUT):
        return _blocking.wait_fd(pairs[0][0], pairs[0][1] == select.POLLOUT, timeout)
    return bool(wait_many(pairs, timeout))


def _fileno(file: Any) -> int:
    return int(file if isinstance(file, int) else file.fileno())


def emulated_select(
    rlist: Any, wlist: Any, xlist: Any, timeout: Any = None, /
) -> tuple[list[Any], list[Any], list[Any]]:
    """Wait until one or more file descriptors are ready for some kind of I/O; see select.select."""
    if not _blocking.in_thread_of_loop():
        return _select(rlist, wlist, xlist, timeout)  # type: ignore[no-any-return]
    if timeout is not None:
        if not isinstance(timeout, (int, float)) and not hasattr(timeout, "__index__"):
            raise TypeError("timeout must be a float or None")
        if timeout < 0:
            raise ValueError("timeout must be non-negative")
    lists = [_as_list(files) for files in (rlist, wlist, xlist)]
    deadline = None if timeout is None else monotonic() + timeout
    ready: tuple[list[Any], list[Any], list[Any]] = _select(*lists, 0)
    if any(ready) or timeout == 0:
        _blocking.fair()
        return ready
    pairs = [
        (_fileno(file), bits)
        for files, bits in zip(lists, (select.POLLIN, select.POLLOUT, select.POLLPRI), strict=True)
        for file in files
    ]
    readers = list(lists[0])
    while True:
        in_time = wait_some(pairs, _left(deadline))
        if in_time and len(pairs) == 1 and pairs[0][1] == select.POLLIN:
            return readers, [], []  # whatever the poller tells of one who would read is "readable" for select()
        try:
            ready = _select(*lists, 0)
        except (OSError, ValueError):
            # Another thread has closed one of them between the wake-up and this look.
            ready = _look_at_numbers(lists, pairs)
            if not any(ready):
                raise
        if any(ready) or not in_time:
            return ready
        _blocking.sleep_thread(_FRUITLESS)


def _look_at_numbers(lists: Sequence[Any], pairs: Sequence[tuple[int, int]]) -> tuple[list[Any], list[Any], list[Any]]:
    """What select() would tell if it went by the descriptors that the files had. A closed one is ready: the next call
    does not wait."""
    looker = _poll()
    for fd, events in looked_for(pairs).items():
        looker.register(fd, events)
    found = dict(looker.poll(0))
    tells = (  # as the kernel groups them, select(2)
        select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL,
        select.POLLOUT | select.POLLERR | select.POLLNVAL,
        select.POLLPRI,
    )
    numbers = iter(pairs)
    read, write, urgent = (
        [file for file in files if found.get(next(numbers)[0], 0) & bits]
        for files, bits in zip(lists, tells, strict=True)
    )
    return read, write, urgent


def _as_list(files: Any) -> Any:
    """What may be gone through more than once. The original sees the program's own lists, which may change under it."""
    if isinstance(files, (list, tuple)):
        return files
    try:
        return list(files)
    except TypeError:
        raise TypeError("arguments 1-3 must be sequences") from None


def _milliseconds(timeout: Any) -> float | None:
    """A timeout of poll() in seconds, None for ever."""
    if timeout is None:
        return None
    if isinstance(timeout, float):
        if timeout != timeout:
            raise ValueError("Invalid value NaN (not a number)")
        rounded = math.ceil(timeout) if timeout > 0 else math.floor(timeout)
    else:
        try:
            rounded = operator.index(timeout)
        except TypeError:
            raise TypeError("timeout must be an integer or None") from None
    if not -_INT_MAX - 1 <= rounded <= _INT_MAX:
        raise OverflowError("timeout is too large")
    return None if rounded < 0 else rounded / 1000


class Poll:
    """A polling object, see select.poll."""

    _native: Any
    _events: dict[int, int]
    _polling: bool

    def __new__(cls, *args: Any, **kwargs: Any) -> Poll:
        raise TypeError("cannot create 'select.poll' instances")

    def register(self, fd: Any, eventmask: int = select.POLLIN | select.POLLPRI | select.POLLOUT, /) -> None:
        """Register a file descriptor, or change what is awaited of it."""
        self._native.register(fd, eventmask)
        self._events[_fileno(fd)] = eventmask

    def modify(self, fd: Any, eventmask: int, /) -> None:
        """Change what is awaited of a registered descriptor."""
        self._native.modify(fd, eventmask)
        self._events[_fileno(fd)] = eventmask

    def unregister(self, fd: Any, /) -> None:
        """Forget a descriptor; KeyError when it is not registered."""
        self._native.unregister(fd)
        self._events.pop(_fileno(fd), None)

    def poll(self, timeout: Any = None, /) -> list[tuple[int, int]]:
        """The ready descriptors, waiting at most ``timeout`` milliseconds."""
        if not _blocking.in_thread_of_loop():
            return self._native.poll(timeout)  # type: ignore[no-any-return]
        if self._polling:
            raise RuntimeError("concurrent poll() invocation")
        seconds = _milliseconds(timeout)
        found: list[tuple[int, int]] = self._native.poll(0)
        if found or seconds == 0:
            _blocking.fair()
            return found
        deadline = None if seconds is None else monotonic() + seconds
        self._polling = True
        try:
            while True:
                in_time = wait_some(list(self._events.items()), _left(deadline))
                found = self._native.poll(0)
                if found or not in_time:
                    return found
                _blocking.sleep_thread(_FRUITLESS)
        finally:
            self._polling = False


Poll.__name__ = Poll.__qualname__ = "poll"
Poll.__module__ = "select"


def make_poll() -> Poll:
    """Return a polling object; see select.poll."""
    poll = object.__new__(Poll)
    poll._native = _poll()
    poll._events = {}
    poll._polling = False
    return poll


class Epoll:
    """An edge and level trigger polling object, see select.epoll."""

    def __init__(self, sizehint: int = -1, flags: int = 0, *, _native: Any = None) -> None:
        self._native = _epoll(sizehint, flags) if _native is None else _native

    @classmethod
    def fromfd(cls, fd: int, /) -> Epoll:
        """Create an epoll object from a descriptor."""
        return cls(_native=_epoll.fromfd(fd))

    @property
    def closed(self) -> bool:
        """Is it closed?"""
        return bool(self._native.closed)

    def close(self) -> None:
        """Close the descriptor."""
        if not self._native.closed:
            closing(self._native.fileno())
        self._native.close()

    def fileno(self) -> int:
        """The descriptor."""
        return int(self._native.fileno())

    def register(self, fd: Any, eventmask: int = select.POLLIN | select.POLLPRI | select.POLLOUT) -> None:
        """Register a new descriptor."""
        self._native.register(fd, eventmask)

    def modify(self, fd: Any, eventmask: int) -> None:
        """Change what is awaited of a registered descriptor."""
        self._native.modify(fd, eventmask)

    def unregister(self, fd: Any) -> None:
        """Forget a descriptor."""
        self._native.unregister(fd)

    def poll(self, timeout: float | None = None, maxevents: int = -1) -> list[tuple[int, int]]:
        """The ready descriptors, waiting at most ``timeout`` seconds."""
        if not _blocking.in_thread_of_loop():
            return self._native.poll(timeout, maxevents)  # type: ignore[no-any-return]
        if timeout is not None and not isinstance(timeout, (int, float)):
            raise TypeError("timeout must be an integer or None")
        found: list[tuple[int, int]] = self._native.poll(0, maxevents)
        if found or timeout == 0:
            _blocking.fair()
            return found
        deadline = None if timeout is None or timeout < 0 else monotonic() + timeout
        while True:
            in_time = _blocking.wait_fd(self._native.fileno(), False, _left(deadline))
            found = self._native.poll(0, maxevents)
            if found or not in_time:
                return found

    def __enter__(self) -> Epoll:
        if self._native.closed:
            raise ValueError("I/O operation on closed epoll object")
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def plan(p: Plan) -> None:
    """What to replace."""
    p.replace(select, "select", emulated_select)
    if _poll is not None:
        p.replace(select, "poll", make_poll)
    if _epoll is not None:
        p.replace(select, "epoll", Epoll)


def wait_process(pid: int, timeout: float | None) -> bool:
    """Suspend the calling coro thread until a process has ended; False when the time is over. OSError from
    pidfd_open(2)."""
    fd = os.pidfd_open(pid)
    try:
        return _blocking.wait_fd(fd, False, timeout)
    finally:
        os.close(fd)
