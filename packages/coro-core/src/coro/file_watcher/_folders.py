"""What the two ways of watching files share: events, errors, the tree of watched folders. See `_watcher.py`.

A source (file_watcher/_inotify.py, file_watcher/_vnode.py) turns what its kernel tells into ``FileEvent``s. It keeps
the tree of the folders it watches, because both kernels speak of folders by a number, and a folder that was renamed has
another path from then on. Paths are made when an event is, by walking up the tree: a folder that moves costs nothing
for what is inside.

Folders are listed in a worker OS thread, a level of the tree at a time: a listing may wait for the disk.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator
from typing import Literal, NamedTuple

from coro import oserrors

__all__ = ["Entry", "FileEvent", "Folder", "Kind", "Source", "WatchLimitError", "list_folders"]

Kind = Literal["created", "modified", "deleted", "moved", "attributes", "overflow", "failed"]


class WatchLimitError(OSError):
    """The system allows no more files to be watched. ``setting`` is the limit to raise (a sysctl(8) name, or
    ``RLIMIT_NOFILE``), ``filename`` what could not be watched."""

    def __init__(self, errno: int, setting: str, filename: str) -> None:
        super().__init__(errno, os.strerror(errno), filename)
        self.setting = setting

    def __reduce__(self) -> tuple[type[WatchLimitError], tuple[int | None, str, str]]:
        return type(self), (self.errno, self.setting, self.filename)

    def __str__(self) -> str:
        return f"{super().__str__()}: the limit {self.setting} is reached; raise it, or watch less"


class FileEvent(NamedTuple):
    """Something that happened to a file or a folder."""

    #: "created": it is there now; it may also have come from outside of what is watched, or have replaced another file
    #: of its name. "modified": its content changed. "deleted": its name is gone. "moved": it has another name.
    #: "attributes": permissions, owner, times. "overflow": the kernel has dropped events; look at everything again.
    #: "failed": the folder ``path`` should be watched and cannot be, see ``error``.
    kind: Kind
    #: Its path, beginning with the path that was given. Bytes that are not in the file system's encoding are surrogates
    #: (``os.fsencode`` gives them back).
    path: str
    #: Where it was before, for "moved" only.
    old_path: str | None = None
    #: Whether it is a folder.
    is_directory: bool = False
    #: Why it failed, for "failed" only.
    error: Exception | None = None


class Folder:
    """A watched folder."""

    __slots__ = ("folders", "name", "parent")

    def __init__(self, parent: Folder | None, name: str) -> None:
        self.parent = parent
        self.name = name
        self.folders: dict[str, Folder] = {}

    def below(self) -> str:
        """The path from the root; empty for the root."""
        names = []
        at: Folder = self
        while at.parent is not None:
            names.append(at.name)
            at = at.parent
        return "/".join(reversed(names))

    def all(self) -> Iterator[Folder]:
        """This folder and everything inside."""
        waiting = [self]
        while waiting:
            folder = waiting.pop()
            yield folder
            waiting.extend(folder.folders.values())

    def attach(self, parent: Folder, name: str) -> None:
        """Give it a (new) place in the tree."""
        if self.parent is not None and self.parent.folders.get(self.name) is self:
            del self.parent.folders[self.name]
        self.parent, self.name = parent, name
        parent.folders[name] = self


class Entry(NamedTuple):
    """A line of a listing."""

    name: str
    ident: tuple[int, int]
    is_directory: bool
    is_regular: bool


def _list_one(folder: str | int, full: bool) -> list[Entry] | OSError:
    try:
        with os.scandir(folder) as lines:
            found = []
            for line in lines:
                try:
                    if full:
                        s = line.stat(follow_symlinks=False)
                        ident = s.st_dev, s.st_ino
                        entry = Entry(line.name, ident, stat.S_ISDIR(s.st_mode), stat.S_ISREG(s.st_mode))
                    else:
                        entry = Entry(line.name, (0, 0), line.is_dir(follow_symlinks=False), False)
                except OSError:
                    continue  # gone meanwhile, about which there will be an event
                found.append(entry)
            found.sort()
            return found
    except OSError as e:
        return oserrors.make(e.errno or 0, folder if isinstance(folder, str) else None)


def list_folders(folders: list[str] | list[int], full: bool) -> list[list[Entry] | OSError]:
    """What is in folders (paths or descriptors), or why they cannot be read. Full: with identities. Blocks the OS
    thread."""
    return [_list_one(folder, full) for folder in folders]


class Source:
    """What is common to both. A subclass implements ``begin``, ``take``, ``end``.

    Invariants: events stand in ``out`` in the order in which they are to be told; only the threads of one Watcher call
    the methods, never two at a time, but ``end``, which may be called at any moment and any number of times.
    """

    #: The limits that ``WatchLimitError`` may name, by errno.
    limits: dict[int, str] = {}

    def __init__(self, given: str, recursive: bool) -> None:
        self.given = given
        self.recursive = recursive
        #: The one name that is watched, where a file is.
        self.only: str | None = None
        #: What paths of events begin with.
        self.shown = given
        self.path = os.path.abspath(given)
        if not stat.S_ISDIR(_stat(given).st_mode):
            self.path, self.only = os.path.split(os.path.realpath(given))
            self.shown = self.path if os.path.islink(given) else os.path.dirname(given)
            self.recursive = False
        self.root = Folder(None, "")
        self.out: deque[FileEvent] = deque()
        self.starting = True
        self.ended = False
        self.overflows = 0

    def begin(self) -> None:
        """Start to watch; blocks. Raises what the kernel raises."""
        raise NotImplementedError

    def take(self) -> None:
        """Wait until the kernel tells something, and put what it means into ``out``."""
        raise NotImplementedError

    def end(self, forked: bool = False) -> None:
        """Release everything. forked: in a child that must not touch what it shares with its parent."""
        raise NotImplementedError

    # -- paths

    def place(self, folder: Folder, name: str = "") -> str:
        """The real path."""
        return os.path.join(self.path, *(part for part in (folder.below(), name) if part))

    def show(self, folder: Folder, name: str) -> str:
        """The path in events."""
        if self.only is not None and name == self.only:
            return self.given
        below = folder.below()
        if not name and not below:
            return self.given
        return os.path.join(self.shown, below, name) if name else os.path.join(self.shown, below)

    # -- events

    def say(
        self, kind: Kind, folder: Folder, name: str, is_directory: bool, old: tuple[Folder, str] | None = None
    ) -> None:
        """Note an event, if it is about what is watched."""
        old_path = None if old is None else self.show(*old)
        self.note(kind, folder, name, is_directory, old_path, None if old is None else old[1])

    def note(
        self, kind: Kind, folder: Folder, name: str, is_directory: bool, old_path: str | None, old_name: str | None
    ) -> None:
        """The same with an old path that was made before the tree changed."""
        if self.only is not None and self.only not in (name, old_name):
            return
        event = FileEvent(kind, self.show(folder, name), old_path, is_directory)
        if kind not in ("modified", "attributes") or not self.out or self.out[-1] != event:
            self.out.append(event)

    def fail(self, folder: Folder, error: OSError) -> None:
        """A folder cannot be watched: tell, unless it is gone, about which there is another event.

        Raises the error instead when nothing can be watched at all, and at the start for a limit of the system."""
        if folder is self.root or (self.starting and isinstance(error, WatchLimitError)):
            raise error
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            self.out.append(FileEvent("failed", self.show(folder, ""), None, True, error))

    def finish(self) -> None:
        """What is watched is gone: the last event."""
        if not self.ended:
            self.ended = True
            self.out.append(FileEvent("deleted", self.given, None, self.only is None))

    # -- help

    def error(self, number: int, path: str) -> OSError:
        """The exception for an errno of the kernel."""
        setting = self.limits.get(number)
        return oserrors.make(number, path) if setting is None else WatchLimitError(number, setting, path)


def _stat(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as e:
        raise oserrors.convert(e) from None
