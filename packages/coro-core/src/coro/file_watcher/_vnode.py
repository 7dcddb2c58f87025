"""Watching files on systems with kqueue(2): EVFILT_VNODE on open descriptors, and listings compared with each other.

The kernel says that a folder has changed, and not how. So each folder's entries are remembered with their identity
(device and inode), a folder that has changed is listed again, and the differences are the events. Every regular file
and every folder is held open: that is how changes of content are heard of, and while it is open its inode number cannot
be given to another file, so an identity that turns up under another name is the same file, moved. Where one has
vanished that still has a name (``st_nlink``), all folders are listed, since its new place may be in any of them.

Nothing is lost by a race, because a folder is registered before it is listed. But what happens between two listings
melts together: a file made and deleted is not seen, one deleted and made anew is only "created".

Cost: a descriptor for each file and folder, O(entries) for each change of a folder, in a worker OS thread. Runs on
every system that has the VNODE filter, the one emulated on Linux included, where it is tested.
"""

from __future__ import annotations

import contextlib
import errno
import os

from coro import oserrors
from coro._poll.descriptors import py_kevent
from coro._poll.events import remove_handler, set_handler
from coro._poll.filters import EV, EVFILT, NOTE
from coro._sync.conditions import event
from coro.file_watcher._folders import Entry, Folder, Source, list_folders
from coro.offload import in_thread

__all__ = ["VnodeSource"]

_ALL = NOTE.DELETE | NOTE.WRITE | NOTE.EXTEND | NOTE.ATTRIB | NOTE.LINK | NOTE.RENAME | NOTE.REVOKE
_CONTENT = NOTE.WRITE | NOTE.EXTEND
_OPEN = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
#: O_EVTONLY (macOS): a descriptor for events only, which keeps no volume from being ejected.
_FOR_EVENTS = getattr(os, "O_EVTONLY", os.O_RDONLY)


class _File:
    """An entry of a folder. ``fd`` is -1 where it is not held open; then it has no events of its own."""

    __slots__ = ("fd", "folder", "ident", "is_directory", "mode", "name", "notes")

    def __init__(self, folder: _Held | None, name: str, ident: tuple[int, int], is_directory: bool) -> None:
        self.folder = folder
        self.name = name
        self.ident = ident
        self.is_directory = is_directory
        self.fd = -1
        self.notes = 0  # what has happened and was not dealt with
        self.mode: tuple[int, int, int] | None = None

    def has_other_mode(self) -> bool:
        """Are permissions or owner other than at the last call? The emulated filter reports attributes of a folder for
        those of its files, too."""
        try:
            s = os.fstat(self.fd)
        except OSError:
            return False
        before, self.mode = self.mode, (s.st_mode, s.st_uid, s.st_gid)
        return before is not None and before != self.mode


class _Held(Folder):
    """A folder that is held open, and what was in it."""

    __slots__ = ("entries", "file")

    def __init__(self, parent: Folder | None, name: str, file: _File) -> None:
        super().__init__(parent, name)
        self.file = file
        self.entries: dict[str, _File] = {}


class VnodeSource(Source):
    """Events from the VNODE filter."""

    limits = {
        errno.EMFILE: "RLIMIT_NOFILE",
        errno.ENFILE: "kern.maxfiles",
        errno.ENOSPC: "fs.inotify.max_user_watches",  # where the filter is emulated
    }
    root: _Held

    def __init__(self, given: str, recursive: bool) -> None:
        super().__init__(given, recursive)
        self.root = _Held(None, "", _File(None, "", (0, 0), True))
        self.above = _File(None, "", (0, 0), True)  # the folder around the root: it hears of the root's end
        self.open_files: dict[int, _File] = {}
        self.held: dict[int, _Held] = {}  # folders, by descriptor
        self.changed: dict[int, _File] = {}  # files with notes, by descriptor
        self.bell = event()

    def begin(self) -> None:
        self.open(self.root.file, self.path)
        self.held[self.root.file.fd] = self.root
        with contextlib.suppress(OSError):  # not readable: then the kernel alone tells of the root's end
            self.open(self.above, os.path.dirname(os.path.realpath(self.path)))
        self.read([self.root], False)
        self.starting = False

    def end(self, forked: bool = False) -> None:
        for file in list(self.open_files.values()):
            self.shut(file, forked)
        self.held.clear()

    # -- descriptors

    def open(self, file: _File, path: str) -> None:
        """Hold a file open and hear of its changes; path is used where it is in no folder of ours.

        Raises an OSError; ENOENT also when the name is that of another file by now."""
        around = None if file.folder is None else file.folder.file.fd
        flags = os.O_RDONLY | os.O_DIRECTORY if file.is_directory else _FOR_EVENTS
        try:
            if around is None:
                fd = os.open(path, _OPEN | flags)
            else:
                fd = os.open(file.name, _OPEN | flags | os.O_NOFOLLOW, dir_fd=around)
        except OSError as e:
            raise self.error(e.errno or 0, path) from None
        try:
            s = os.fstat(fd)
            if around is None:
                file.ident = s.st_dev, s.st_ino
            elif (s.st_dev, s.st_ino) != file.ident:
                raise oserrors.make(errno.ENOENT, path)
            set_handler((fd, EVFILT.VNODE), _Handler(self, file), EV.ADD | EV.CLEAR, _ALL)
        except BaseException as e:
            os.close(fd)
            if isinstance(e, OSError) and e.errno is not None and e.errno in self.limits:
                raise self.error(e.errno, path) from None
            raise
        file.fd = fd
        file.has_other_mode()
        self.open_files[fd] = file

    def shut(self, file: _File, forked: bool = False) -> None:
        fd, file.fd = file.fd, -1
        if fd < 0:
            return
        del self.open_files[fd]
        self.held.pop(fd, None)
        self.changed.pop(fd, None)
        if not forked:
            with contextlib.suppress(KeyError):  # the loop has ended, and its registrations with it
                remove_handler((fd, EVFILT.VNODE))
        os.close(fd)

    def happened(self, file: _File, notes: int) -> None:
        """The filter tells something."""
        if file.fd >= 0:
            file.notes |= notes
            self.changed[file.fd] = file
            self.bell.set()

    # -- listings

    def listings(self, folders: list[_Held]) -> list[list[Entry] | OSError]:
        """What is in folders; by descriptor, because a path may be that of another folder by now."""
        return in_thread(list_folders, [folder.file.fd for folder in folders], True)

    def read(self, level: list[_Held], tell: bool) -> None:
        """Remember what is in folders that are registered, and in those inside. tell: as created."""
        while level:
            following: list[_Held] = []
            for folder, lines in zip(level, self.listings(level), strict=True):
                if isinstance(lines, OSError):
                    self.fail(folder, lines)
                    continue
                for line in lines:
                    following += self.add(folder, line)
                    if tell:
                        self.say("created", folder, line.name, line.is_directory)
            level = following

    def add(self, folder: _Held, line: Entry) -> list[_Held]:
        """Remember an entry, and hold it open where that is of use. Returns the folder to read next, if any."""
        file = folder.entries[line.name] = _File(folder, line.name, line.ident, line.is_directory)
        wanted = self.only is None or line.name == self.only
        if not wanted or not (line.is_regular or line.is_directory):
            return []
        enters = line.is_directory and self.recursive
        inside = _Held(None, "", file)
        try:
            self.open(file, self.place(folder, line.name))
        except OSError as e:
            if enters or e.errno in self.limits:
                inside.parent, inside.name = folder, line.name
                self.fail(inside, e)
            return []
        if not enters:
            return []
        inside.attach(folder, line.name)
        self.held[file.fd] = inside
        return [inside]

    def drop(self, file: _File) -> None:
        """An entry is gone, with everything inside."""
        inside = self.held.get(file.fd)
        if inside is None:
            self.shut(file)
            return
        if inside.parent is not None and inside.parent.folders.get(inside.name) is inside:
            del inside.parent.folders[inside.name]
        for folder in inside.all():
            assert isinstance(folder, _Held)
            for entry in folder.entries.values():
                self.shut(entry)
            self.shut(folder.file)

    def tell_deleted(self, folder: _Held, file: _File) -> None:
        """An entry has no name any more; nor has what was in it, if it was a folder that is gone for good."""
        inside = self.held.get(file.fd)
        if inside is not None and _links(file.fd) == 0:
            for entry in list(inside.entries.values()):
                self.tell_deleted(inside, entry)
        self.say("deleted", folder, file.name, file.is_directory)

    # -- events

    def take(self) -> None:
        self.bell.wait()
        self.bell.clear()
        changed, self.changed = list(self.changed.values()), {}
        folders: list[_Held] = []
        check_root = False
        for file in changed:
            notes, file.notes = file.notes, 0
            if file.fd < 0:
                continue
            if file is self.above:
                check_root = True
                continue
            folder = self.held.get(file.fd)
            if folder is not None:
                folders.append(folder)
                if file is self.root.file and notes & (NOTE.DELETE | NOTE.RENAME | NOTE.REVOKE):
                    check_root = True
                if notes & NOTE.ATTRIB and file.has_other_mode():
                    place = (folder, "") if file.folder is None else (file.folder, file.name)
                    self.say("attributes", *place, True)
            elif file.folder is not None:
                if notes & _CONTENT and not file.is_directory:
                    self.say("modified", file.folder, file.name, False)
                if notes & NOTE.ATTRIB and _links(file.fd):
                    self.say("attributes", file.folder, file.name, file.is_directory)
        if folders:
            self.compare(folders)
        if check_root and self.root_is_gone():
            self.finish()

    def root_is_gone(self) -> bool:
        try:
            s = os.stat(self.path)
        except OSError:
            return True
        return (s.st_dev, s.st_ino) != self.root.file.ident

    def compare(self, folders: list[_Held]) -> None:
        """List folders again; the differences are events."""
        vanished: dict[tuple[int, int], list[_File]] = {}  # a file with several names may lose more than one
        arrived: list[tuple[_Held, Entry]] = []
        self.differ(folders, vanished, arrived)
        if self.recursive:
            known = {line.ident for _, line in arrived}
            if any(ident not in known and _links(files[0].fd) for ident, files in vanished.items()):
                self.differ([folder for folder in self.held.values() if folder not in folders], vanished, arrived)
        moves: list[tuple[_File, _Held, Entry]] = []
        others: list[tuple[_Held, Entry]] = []
        for folder, line in arrived:
            same = vanished.get(line.ident)
            # One that is not held open may be another file with the same number.
            if same and same[-1].fd >= 0:
                moves.append((same.pop(), folder, line))
            else:
                others.append((folder, line))
        taken = {(id(folder), line.name) for folder, line in arrived}
        for files in vanished.values():
            for file in files:
                assert file.folder is not None
                if (id(file.folder), file.name) not in taken:
                    self.tell_deleted(file.folder, file)
                self.drop(file)
        self.move(moves)
        new: list[_Held] = []
        for folder, line in others:
            if folder.file.fd >= 0:
                new += self.add(folder, line)
                self.say("created", folder, line.name, line.is_directory)
        self.read(new, True)

    def differ(
        self, folders: list[_Held], vanished: dict[tuple[int, int], list[_File]], arrived: list[tuple[_Held, Entry]]
    ) -> None:
        for folder, lines in zip(folders, self.listings(folders), strict=True):
            if isinstance(lines, OSError) or folder.file.fd < 0:
                continue  # gone, which its parent tells
            now = {line.name: line for line in lines}
            for name, file in list(folder.entries.items()):
                line = now.get(name)
                if line is None or line.ident != file.ident:
                    del folder.entries[name]
                    vanished.setdefault(file.ident, []).append(file)
            arrived += [(folder, line) for name, line in now.items() if name not in folder.entries]

    def move(self, moves: list[tuple[_File, _Held, Entry]]) -> None:
        """Tell moves so that a name is free, or given up, before another file gets it: b to c comes before a to b."""
        while moves:
            left = {(id(file.folder), file.name) for file, _, _ in moves}
            free = [move for move in moves if (id(move[1]), move[2].name) not in left]
            todo = free or moves[:1]  # a ring of exchanged names: begin anywhere
            moves = [m for m in moves if m not in todo]
            for file, folder, line in todo:
                assert file.folder is not None
                self.say("moved", folder, line.name, file.is_directory, (file.folder, file.name))
                file.folder, file.name = folder, line.name
                folder.entries[line.name] = file
                inside = self.held.get(file.fd)
                if inside is not None:
                    inside.attach(folder, line.name)


class _Handler:
    """What the poller calls, in a thread of its own."""

    __slots__ = ("file", "source")

    def __init__(self, source: VnodeSource, file: _File) -> None:
        self.source = source
        self.file = file

    def __call__(self, happened: py_kevent) -> None:
        self.source.happened(self.file, happened.fflags)


def _links(fd: int) -> int:
    """How many names an open file has; 0 for a descriptor that is not open."""
    try:
        return os.fstat(fd).st_nlink if fd >= 0 else 0
    except OSError:
        return 0
