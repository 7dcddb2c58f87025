"""Files watched for changes: ``coro.watch(path)`` by name, ``file_watcher.register(fd, callback)`` for an open file.

    with coro.watch("/etc/service", recursive=True) as changes:
        for event in changes:
            print(event.kind, event.path)

A watcher has a thread that takes what the kernel tells (file_watcher/_inotify.py on Linux, file_watcher/_vnode.py
elsewhere), makes events of it and puts them into a channel. So new folders are watched at once, however slow the
program is that reads the events, an interruption of the reader loses nothing, and ``coro.select`` works with the
channel as with any other. The channel is bounded: a reader that falls behind makes the kernel's own queue grow, whose
overflow is an event.

A file is watched by way of its folder, so a file that an editor replaces by renaming another one over it is followed
by its name. Cost: on Linux a descriptor and about 1 KiB of kernel memory a folder; elsewhere a descriptor a file.

Rejected: polling ``stat`` (work without events, events without their order), one inotify instance for the process (its
queue overflows for all when one reader is slow).
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from coro._poll.descriptors import py_kevent
from coro._poll.events import remove_handler, set_handler
from coro._poll.filters import EV, EVFILT, NOTE
from coro._runtime import scheduler
from coro._sync.queues import channel
from coro.exceptions import ChannelClosed, ClosedError, Interrupted, LoopError
from coro.file_watcher._folders import FileEvent, Source, WatchLimitError

__all__ = ["FileEvent", "WatchLimitError", "Watcher", "WatcherStatistics", "register", "unregister", "watch"]

#: Events that wait for their reader; more of them wait in the kernel.
CAPACITY = 1024
_LINUX = sys.platform.startswith("linux")


class _HasFileno(Protocol):
    def fileno(self) -> int: ...


# -- an open file


def register(
    fd: int | _HasFileno,
    callback: Callable[[py_kevent], object],
    what: int = NOTE.DELETE,
    once_only: bool = True,
) -> None:
    """Call ``callback(event)`` in a new thread when something happens to an open file.

    fd: a descriptor of the file, or an object with ``fileno()``; it has to stay open. callback: called with a
    ``py_kevent``, one call at a time; its ``fflags`` say what happened. what: the ``NOTE`` bits of the VNODE filter to
    look for: DELETE, WRITE, EXTEND, ATTRIB, LINK, RENAME, REVOKE. once_only: call it for the first event only.

    Never blocks. Raises SimultaneousError when the descriptor is watched already; ValueError for other bits, or none;
    TypeError for a callback that cannot be called; an ``oserrors`` class when the kernel refuses (EBADF);
    WrongThreadError in another OS thread.
    """
    if not callable(callback):
        raise TypeError(f"expected a function of the event, not {type(callback).__name__}: {callback!r}")
    set_handler((fd, EVFILT.VNODE), callback, EV.ADD | (EV.ONESHOT if once_only else EV.CLEAR), what)


def unregister(fd: int | _HasFileno) -> None:
    """End the registration of ``fd``. KeyError if there is none (any more); WrongThreadError in another OS thread."""
    remove_handler((fd, EVFILT.VNODE))


# -- names


class WatcherStatistics(NamedTuple):
    """What a watcher is doing."""

    #: Folders that are watched.
    folders: int
    #: Events that wait for their reader.
    waiting: int
    #: How often the kernel has dropped events so far.
    overflows: int


def _source_type() -> type[Source]:
    if _LINUX:
        from coro.file_watcher._inotify import InotifySource

        return InotifySource
    from coro.file_watcher._vnode import VnodeSource

    return VnodeSource


class Watcher:
    """What happens to a file, a folder or a tree of folders, as an iterator of ``FileEvent``. The parameters are
    those of ``coro.watch``.

    Also a context manager that closes it at the end. Several threads may read; each event goes to one of them.
    """

    def __init__(self, path: str | bytes | os.PathLike[Any], *, recursive: bool = False) -> None:
        self._pump: _Pump | None = None
        given = os.fsdecode(path)
        if "\0" in given:
            raise ValueError(f"expected a path without a NUL character, not {given!r}")
        scheduler._running_thread()  # refuse before anything is opened
        source = _source_type()(given, bool(recursive))
        #: The path as it was given.
        self.path = given
        #: The events, for ``coro.select(coro.case.get(watcher.events), ...)``. A "failed" event is a value here, while
        #: the watcher's own methods raise its error.
        self.events: channel[FileEvent] = channel(CAPACITY)
        pump = _Pump(source, self.events)
        try:
            source.begin()
            pump.start()
        except BaseException:
            source.end()
            raise
        self._pump = pump

    def __repr__(self) -> str:
        return f"<Watcher of {self.path!r}, {'closed' if self.closed else f'{len(self.events)} events'}>"

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called, or what was watched is gone and everything has been read."""
        return self._pump is None or (self.events.closed and not len(self.events))

    def get(self) -> FileEvent:
        """Wait for the next event.

        Raises the error of a "failed" event (WatchLimitError, EACCES): a folder inside is not watched, the rest goes
        on, and the next call returns the next event. ClosedError when the watcher is closed, after the last event when
        what was watched is gone, and in a forked child. Interruptions lose no event.
        """
        if self._pump is None:
            raise ClosedError(f"the watcher of {self.path!r} is closed; make a new one")
        try:
            event = self.events.get()
        except ChannelClosed:
            raise ClosedError(f"the watcher of {self.path!r} has told its last event; make a new one") from None
        if event.error is not None:
            raise event.error
        return event

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> FileEvent:
        try:
            return self.get()
        except ClosedError:
            raise StopIteration from None

    def statistics(self) -> WatcherStatistics:
        """Figures for debugging."""
        pump = self._pump
        if pump is None:
            return WatcherStatistics(0, 0, 0)
        folders = 0 if pump.over else sum(1 for _ in pump.source.root.all())
        return WatcherStatistics(folders, len(self.events), pump.source.overflows)

    def close(self) -> None:
        """Stop watching and release everything; readers that wait get ClosedError, events not yet read are dropped.

        Waits for the watcher's thread, which has nothing to wait for. May be called again.
        """
        pump, self._pump = self._pump, None
        if pump is not None:
            self.events.close()
            with contextlib.suppress(ChannelClosed):
                while True:
                    self.events.get_nowait()
            pump.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        pump = self._pump
        if pump is not None and not pump.over:
            warnings.warn(f"the watcher of {self.path!r} was not closed", ResourceWarning, stacklevel=2, source=self)
            if scheduler._in_loop_os_thread():
                pump.cancel()
            else:
                with contextlib.suppress(LoopError):  # it ends with its loop
                    scheduler.post(pump.cancel)


class _Pump:
    """The thread of a watcher. It knows nothing of the Watcher, so that a forgotten one can be freed."""

    def __init__(self, source: Source, events: channel[FileEvent]) -> None:
        self.source = source
        self.events = events
        self.over = False
        self.thread: scheduler.coro | None = None

    def start(self) -> None:
        self.thread = scheduler.spawn(self.run, thread_name=f"watcher of {self.source.given!r}", daemon=True)
        _pumps.add(self)

    def run(self) -> None:
        source = self.source
        try:
            while True:
                while source.out:  # from the start, too: folders that cannot be watched
                    self.events.put(source.out[0])
                    source.out.popleft()
                if source.ended:
                    return
                source.take()
        except (Interrupted, ChannelClosed, ClosedError):
            return  # told to end
        except Exception as e:
            with contextlib.suppress(Interrupted, ChannelClosed):
                self.events.put(FileEvent("failed", source.given, None, source.only is None, e))
        finally:
            self.finish()

    def finish(self) -> None:
        if not self.over:
            self.over = True
            _pumps.discard(self)
            self.source.end()
            self.events.close()

    def cancel(self) -> None:
        thread = self.thread
        self.finish()
        if thread is not None and not thread.dead:
            thread.shutdown()

    def stop(self) -> None:
        thread = self.thread
        self.cancel()
        if thread is not None and thread is not scheduler.current():
            thread.join()

    def forget(self) -> None:
        """In a forked child: the thread is dead, and the descriptor is the parent's as well."""
        self.over = True
        self.source.end(forked=True)
        self.events.close()


_pumps: weakref.WeakSet[_Pump] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for pump in list(_pumps):
        pump.forget()
    _pumps.clear()


def watch(path: str | bytes | os.PathLike[Any], *, recursive: bool = False) -> Watcher:
    """Watch a file or a folder for changes, from now on.

    path: what to watch; it has to exist. A symbolic link is followed once; links inside a folder are not followed. A
    file is watched under its name: if it is replaced, or deleted and made again, the new file is watched. A folder is
    watched with what is directly in it. recursive: watch everything below as well, folders that come later included;
    what these contain when they are noticed is reported as created.

    Returns a ``Watcher``: a context manager and an iterator of ``FileEvent``. The iteration ends when a watched folder
    has been deleted or renamed, or when the folder around a watched file is gone. The watcher belongs to the loop.
    Events wait until a thread reads them. If more come than the kernel keeps, an "overflow" says to look at everything
    again.

    On Linux it does not see changes made through mmap(2), or on network file systems by other machines. On other
    systems what happens in quick succession is reported as one, see the manual.

    Raises WatchLimitError when the system's limit is reached; an ``oserrors`` class when the kernel refuses (ENOENT,
    EACCES); ValueError for a path with a NUL, TypeError for a value that is no path; YieldFromMain outside a thread;
    and interruptions.
    """
    return Watcher(path, recursive=recursive)
