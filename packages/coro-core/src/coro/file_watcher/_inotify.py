"""Watching files on Linux: inotify(7), a descriptor of its own for each watcher.

The kernel is asked through ctypes: three functions, called once per folder, do not deserve a compiled module; events
come by read(2) on a file_sock. Cost: about 1 KiB of kernel memory a folder, one system call a batch of events.

What inotify(7) leaves to its users:

* A folder may be filled before it is watched. So it is listed after that, and what is found is told as created. The
  names stay in ``seen`` until the kernel tells of their creation or end, so that nothing is told twice.
* The two halves of a move are separate events, and the second need not be there yet. The kernel makes them one right
  after the other, so who misses it waits PAIR_SECONDS, once for everything that came by then.
* A folder is watched and listed by its path, which may be that of another folder by now, or of none: what came in
  between stands further back in the queue. So after a listing, and for a whole tree that has moved, the kernel is asked
  again to watch each path: the same watch descriptor shows that it is still the same folder. What was not so is read
  again when its move is told.
* When the queue overflows, folders may exist that nobody watches. A new inotify instance replaces the old one, which
  drops all its watches with one close, and the tree is read again before the overflow is told: whoever looks at
  everything then misses nothing.
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
import struct
from collections import deque
from typing import Any

from coro._clock.ticks import get_now, ticks_per_sec
from coro._net.sock import file_sock
from coro._runtime.scheduler import with_timeout
from coro.exceptions import TimeoutError
from coro.file_watcher._folders import FileEvent, Folder, Source, WatchLimitError, list_folders
from coro.offload import in_thread

__all__ = ["InotifySource"]

# <sys/inotify.h>; the same on every architecture
IN_MODIFY = 0x2
IN_ATTRIB = 0x4
IN_MOVED_FROM = 0x40
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_DELETE_SELF = 0x400
IN_MOVE_SELF = 0x800
IN_UNMOUNT = 0x2000
IN_Q_OVERFLOW = 0x4000
IN_IGNORED = 0x8000
IN_ONLYDIR = 0x1000000
IN_DONT_FOLLOW = 0x2000000
IN_EXCL_UNLINK = 0x4000000
IN_ISDIR = 0x40000000

_WANTED = (
    IN_MODIFY
    | IN_ATTRIB
    | IN_MOVED_FROM
    | IN_MOVED_TO
    | IN_CREATE
    | IN_DELETE
    | IN_DELETE_SELF
    | IN_MOVE_SELF
    | IN_ONLYDIR
    | IN_EXCL_UNLINK
)
_HEAD = struct.Struct("iIII")
#: Bytes read at a time; some thousand events.
_BLOCK = 65536
#: How long the second half of a move is waited for, in seconds; it is usually there within microseconds.
PAIR_SECONDS = 0.01


class _Library:
    """The three functions, each raising nothing and returning a number or minus an errno."""

    def __init__(self) -> None:
        lib = ctypes.CDLL(None, use_errno=True)
        self._init = lib.inotify_init1
        self._add = lib.inotify_add_watch
        self._remove = lib.inotify_rm_watch

    def init(self) -> int:
        fd = self._init(os.O_CLOEXEC | os.O_NONBLOCK)
        return fd if fd >= 0 else -ctypes.get_errno()

    def add(self, fd: int, path: str, mask: int) -> int:
        wd = self._add(fd, os.fsencode(path), ctypes.c_uint32(mask))
        return wd if wd >= 0 else -ctypes.get_errno()

    def remove(self, fd: int, wd: int) -> int:
        return 0 if self._remove(fd, wd) >= 0 else -ctypes.get_errno()


_library: _Library | None = None


def _functions() -> _Library:
    global _library
    if _library is None:
        _library = _Library()
    return _library


def _can_open() -> bool:
    """inotify_init1(2) answers EMFILE for two limits. Is it that of descriptors?"""
    try:
        os.close(os.open("/", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as e:
        return e.errno != errno.EMFILE
    return True


class _Watched(Folder):
    """A folder with its watch descriptor, -1 where it has none, the names that a listing has told, and whether it was
    listed while it was surely this folder."""

    __slots__ = ("listed", "seen", "wd")

    def __init__(self, parent: Folder | None, name: str) -> None:
        super().__init__(parent, name)
        self.wd = -1
        self.listed = False
        self.seen: set[str] = set()


class _Raw:
    """An event as it came."""

    __slots__ = ("cookie", "mask", "name", "time", "used", "wd")

    def __init__(self, wd: int, mask: int, cookie: int, name: str, time: int) -> None:
        self.wd = wd
        self.mask = mask
        self.cookie = cookie
        self.name = name
        self.time = time
        self.used = False


class InotifySource(Source):
    """Events of an inotify instance."""

    limits = {errno.ENOSPC: "fs.inotify.max_user_watches", errno.EMFILE: "fs.inotify.max_user_instances"}
    root: _Watched

    def __init__(self, given: str, recursive: bool) -> None:
        super().__init__(given, recursive)
        self.root = _Watched(None, "")
        self.file: io.FileIO | None = None
        self.sock: file_sock | None = None
        self.watches: dict[int, _Watched] = {}
        self.raw: deque[_Raw] = deque()
        self.arrivals: dict[int, _Raw] = {}  # second halves of moves that are in `raw`, by cookie

    def begin(self) -> None:
        self.open()
        self.watch(self.root)
        if self.recursive:
            self.enter([self.root], False)
        self.starting = False

    def open(self) -> None:
        fd = _functions().init()
        if fd < 0:
            raise self.error(-fd, self.path) if _can_open() else WatchLimitError(-fd, "RLIMIT_NOFILE", self.path)
        self.file = io.FileIO(fd, "r")
        self.sock = file_sock(self.file)

    def end(self, forked: bool = False) -> None:
        # The parent keeps the instance: closing our descriptor is all that is done, here as there.
        file, sock = self.file, self.sock
        self.file = self.sock = None
        self.watches.clear()
        if forked and file is not None:
            file.close()
        elif sock is not None:
            sock.close()
        elif file is not None:
            file.close()

    # -- the tree

    def watch(self, folder: _Watched) -> bool:
        """Watch what is at its path now; whether that is what was watched already. Raises an OSError when it cannot."""
        assert self.file is not None
        path = self.place(folder)
        wd = _functions().add(self.file.fileno(), path, _WANTED if folder is self.root else _WANTED | IN_DONT_FOLLOW)
        if wd < 0:
            raise self.error(-wd, path)
        if wd == folder.wd and self.watches.get(wd) is folder:
            return True
        if self.watches.get(folder.wd) is folder:
            del self.watches[folder.wd]  # it belongs to another folder, which will ask for it
        folder.wd = wd
        folder.listed = False
        self.watches[wd] = folder
        return False

    def drop(self, folder: Folder) -> None:
        """A folder is no longer in the tree, and nothing of what is inside."""
        if folder.parent is not None and folder.parent.folders.get(folder.name) is folder:
            del folder.parent.folders[folder.name]
        for inside in folder.all():
            assert isinstance(inside, _Watched)
            if self.watches.get(inside.wd) is inside:
                del self.watches[inside.wd]
                if self.file is not None:
                    _functions().remove(self.file.fileno(), inside.wd)  # fails if the folder is gone
            inside.wd = -1

    def enter(self, level: list[_Watched], tell: bool) -> None:
        """List folders that are watched already, watch what is inside of them, and so on. tell: as created."""
        while level:
            following = []
            paths = [self.place(folder) for folder in level]
            for folder, entries in zip(level, in_thread(list_folders, paths, False), strict=True):
                if isinstance(entries, OSError):
                    self.fail(folder, entries)
                    continue
                if not self.still_there(folder):
                    continue
                folder.listed = True
                for entry in entries:
                    if tell:
                        folder.seen.add(entry.name)
                        self.say("created", folder, entry.name, entry.is_directory)
                    if entry.is_directory:
                        new = self.add(folder, entry.name)
                        if new is not None:
                            following.append(new)
            level = following

    def still_there(self, folder: _Watched) -> bool:
        """Is what is at the path of a folder the one that is watched? If not, what is there is watched from now on."""
        try:
            return self.watch(folder)
        except OSError as e:
            self.fail(folder, e)
            return False

    def look_again(self, top: _Watched) -> None:
        """After a move: whatever was not at its path when it should have been watched and listed is there now."""
        waiting: list[Any] = [top]
        unread: list[_Watched] = []
        while waiting:
            folder = waiting.pop()
            if self.still_there(folder) and folder.listed:
                waiting += folder.folders.values()
            else:
                unread.append(folder)
        self.enter(unread, True)

    def add(self, parent: Folder, name: str) -> _Watched | None:
        """One more folder; None when it cannot be watched: that was told, or it is gone and will be told."""
        old = parent.folders.get(name)
        if old is not None:
            self.drop(old)
        folder = _Watched(None, "")
        folder.attach(parent, name)
        try:
            self.watch(folder)
        except OSError as e:
            self.fail(folder, e)
            return None
        return folder

    # -- events

    def take(self) -> None:
        if not self.raw:
            assert self.sock is not None
            self.parse(self.sock.recv(_BLOCK))
        while self.raw and not self.ended:
            raw = self.raw[0]
            if raw.mask & IN_MOVED_FROM and not raw.used and raw.wd in self.watches:
                self.wait_for_other_half(raw)
            self.raw.popleft()
            self.digest(raw)

    def parse(self, data: bytes) -> None:
        at, time = 0, get_now()
        while at < len(data):
            wd, mask, cookie, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
            at += length
            raw = _Raw(wd, mask, cookie, name, time)
            self.raw.append(raw)
            if mask & IN_MOVED_TO:
                self.arrivals[cookie] = raw

    def wait_for_other_half(self, raw: _Raw) -> None:
        assert self.sock is not None
        while raw.cookie not in self.arrivals:
            left = PAIR_SECONDS - (get_now() - raw.time) / ticks_per_sec
            if left <= 0:
                return
            try:
                self.parse(with_timeout(left, self.sock.recv, _BLOCK))
            except TimeoutError:
                return

    def digest(self, raw: _Raw) -> None:
        mask, name = raw.mask, raw.name
        if mask & IN_MOVED_TO:
            self.arrivals.pop(raw.cookie, None)
        if raw.used:
            return
        if mask & IN_Q_OVERFLOW:
            self.overflow()
            return
        folder = self.watches.get(raw.wd)
        if folder is None:
            return
        if mask & IN_IGNORED:
            del self.watches[raw.wd]
            folder.wd = -1
        if not name:
            if folder is self.root:
                if mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED):
                    self.finish()
                elif mask & IN_ATTRIB:
                    self.say("attributes", folder, "", True)
            return
        is_directory = bool(mask & IN_ISDIR)
        if mask & IN_CREATE:
            if name in folder.seen:
                folder.seen.discard(name)
            else:
                self.arrived(folder, name, is_directory)
        elif mask & IN_MOVED_TO:
            self.arrived(folder, name, is_directory)
        elif mask & IN_MOVED_FROM:
            arrival = self.arrivals.get(raw.cookie)
            target = None if arrival is None else self.watches.get(arrival.wd)
            if arrival is None or target is None:
                self.gone(folder, name, is_directory)
            else:
                arrival.used = True
                self.moved(folder, name, target, arrival.name, is_directory)
        elif mask & IN_DELETE:
            self.gone(folder, name, is_directory)
        elif mask & IN_MODIFY:
            self.say("modified", folder, name, is_directory)
        elif mask & IN_ATTRIB:
            self.say("attributes", folder, name, is_directory)

    def arrived(self, folder: _Watched, name: str, is_directory: bool) -> None:
        self.say("created", folder, name, is_directory)
        old = folder.folders.get(name)
        if old is not None:
            self.drop(old)
        if is_directory and self.recursive:
            new = self.add(folder, name)
            if new is not None:
                self.enter([new], True)

    def gone(self, folder: _Watched, name: str, is_directory: bool) -> None:
        folder.seen.discard(name)
        self.say("deleted", folder, name, is_directory)
        old = folder.folders.get(name)
        if old is not None:
            self.drop(old)

    def moved(self, folder: _Watched, name: str, target: _Watched, new_name: str, is_directory: bool) -> None:
        folder.seen.discard(name)
        self.say("moved", target, new_name, is_directory, (folder, name))
        replaced = target.folders.get(new_name)
        inside = folder.folders.get(name)
        if replaced is not None and replaced is not inside:
            self.drop(replaced)
        if inside is not None:
            inside.attach(target, new_name)
            if self.recursive:
                assert isinstance(inside, _Watched)
                self.look_again(inside)
        elif is_directory and self.recursive:
            new = self.add(target, new_name)  # it moved before it could be watched
            if new is not None:
                self.enter([new], True)

    def overflow(self) -> None:
        self.overflows += 1
        self.end()
        self.raw.clear()
        self.arrivals.clear()
        self.root = _Watched(None, "")
        try:
            self.open()
            self.watch(self.root)
        except (FileNotFoundError, NotADirectoryError):
            self.finish()
            return
        if self.recursive:
            self.enter([self.root], False)
        self.out.append(FileEvent("overflow", self.given, None, self.only is None))
