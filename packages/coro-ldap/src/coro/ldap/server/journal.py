"""Keeps a directory in a folder, so that an acknowledged change survives whatever happens to the process or the
machine.

    store = Store(directory, "/var/lib/directory")
    directory.add(...)
    store.commit()                 # returns when the change is on disk

Two files.  `data.ldif` has all entries as they were at some moment; `journal` has the changes since, in frames:

    frame = "CLJ1" size:u32 crc:u32 number:u64 payload      (little endian; crc over number and payload)

The payload is LDIF: whole entries as they are after the change, names to delete, renamings.  `number` counts changes;
the first line of data.ldif tells the number of the last one in it, so reading one twice is seen.

Group commit.  What threads change while a frame is on its way to the disk goes together into the next one: one write
and one fsync(2) for all of them, in another OS thread.  A frame is begun only after the one before is on disk.  So
after a crash only the last frame can be damaged, and nobody was told that it is there: it is cut off.  A damaged
frame with a good one behind it is no crash but a broken disk: the store then refuses to start, and says where.

When the journal has grown, the entries are written to a new file, synced, and renamed over data.ldif; then the journal
is emptied.  Changes wait meanwhile, searches do not.  It has grown when it is four times as long as data.ldif, so that
a start takes the time of the entries and not of all that ever happened to them.

After a failed write or fsync nobody knows what of the last frame is on disk (the kernel may have dropped the pages,
fsync(2)). The store refuses changes. The next one that is asked for tries to mend that: the journal is opened again,
cut off behind the last frame that is on disk, and the frame that failed is written again. It has to be there, because
later changes may build on it. So a full disk stops changes until there is room. An interruption is not mended that way,
because another OS thread may still be writing then.

When writing all entries fails, the new file is removed, because the journal may need its room, and it is tried again
when the journal has grown by another quarter.

Cost: one fsync for each group; 30 µs of CPU for a change; start: 0.2 ms for each entry.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import coro
from coro.ldap import ldif
from coro.ldap.exceptions import LDAPError
from coro.ldap.server._refusal import Refused
from coro.ldap.server.tree import Directory, Record

__all__ = ["Files", "Store", "StoreError"]

_SAVING = Refused(51, "the entries are being saved; try again in a moment")
_MAGIC = b"CLJ1"
_HEAD = struct.Struct("<4sIIQ")
_NUMBER = struct.Struct("<Q")
_FIRST_LINE = "# coro-ldap entries up to change "

#: Bytes of the journal after which the entries are written anew.
COMPACT_AT = 16 * 1024 * 1024
#: The same for the smallest directory, and how many times as long as its entries the journal of a larger one may be.
COMPACT_FROM = 1024 * 1024
COMPACT_RATIO = 4
#: Entries that are written before other threads run.
_SLICE = 50


class StoreError(LDAPError):
    """The files of a directory cannot be used: they are damaged, or another process has them."""


class Files:
    """The system calls that a store makes.  Tests put failures in between."""

    def write(self, fd: int, data: bytes) -> None:
        """write(2), all of it."""
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def fsync(self, fd: int) -> None:
        """fsync(2)."""
        os.fsync(fd)

    def rename(self, old: str, new: str) -> None:
        """rename(2)."""
        os.rename(old, new)

    def truncate(self, fd: int, size: int) -> None:
        """ftruncate(2)."""
        os.ftruncate(fd, size)


class Store:
    """Store(directory, folder): read the entries of a folder into a directory, and keep its changes there.

    directory: an empty one.  folder: made if it is missing; one process at a time may use it.  initial: the path of an
    LDIF file with the first entries, used only when the folder has none.  compact_at: bytes of the journal after which
    the entries are written anew, at the latest; for those of less than 4 MiB it is sooner.  files: for tests.

    Raises StoreError for damaged files and a folder that is in use, LDIFError and Refused for entries that do not fit,
    OSError.
    """

    def __init__(
        self,
        directory: Directory,
        folder: str | os.PathLike[str],
        *,
        initial: str | os.PathLike[str] | None = None,
        compact_at: int = COMPACT_AT,
        files: Files | None = None,
    ) -> None:
        self.directory = directory
        self.folder = Path(folder)
        self.compact_at = compact_at
        self._files = files if files is not None else Files()
        self._told = self._kept = self._framed = 0
        self._length = 0  # of data.ldif
        self._end = 0  # of what is on disk of the journal
        self._failed: bytes | None = None  # the frame behind that
        self._mending = False
        self._next = 0  # bytes of the journal after which a compaction that failed is tried again
        self._pending: list[bytes] = []
        self._error: BaseException | None = None
        self._writer: Any = None
        self._changed = coro.condition_variable()
        self._fds: list[int] = []
        #: Frames and changes written, and how often all entries were.
        self.frames = self.changes = self.compactions = 0
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock = self._open("lock", os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(f"another process uses the directory in {self.folder}; end it first") from None
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.folder / "data.ldif.new")
            self._journal = self._open("journal", os.O_RDWR | os.O_CREAT)
            fresh = not (self.folder / "data.ldif").exists() and os.fstat(self._journal).st_size == 0
            if not fresh:
                self._read_entries()
                self._read_journal()
            elif initial is not None:
                with open(initial, "rb") as f:
                    directory.load(f)
            self._end = os.lseek(self._journal, 0, os.SEEK_END)
            if (fresh and len(directory)) or self._has_grown():
                self._write_entries(self._text())
        except BaseException:
            self._close_files()
            raise
        directory._record = self._tell

    def __repr__(self) -> str:
        return f"<Store {str(self.folder)!r}: {self._kept} changes, {self.size} bytes of journal>"

    def _open(self, name: str, flags: int) -> int:
        fd = os.open(self.folder / name, flags | os.O_CLOEXEC, 0o600)
        self._fds.append(fd)
        return fd

    @property
    def size(self) -> int:
        """Bytes of the journal."""
        return os.fstat(self._journal).st_size if self._fds else 0

    @property
    def error(self) -> BaseException | None:
        """Why changes are refused; None if they are not."""
        return self._error

    def _has_grown(self) -> bool:
        return self.size > max(self._next, min(self.compact_at, max(COMPACT_FROM, COMPACT_RATIO * self._length)))

    # -- reading

    def _read_entries(self) -> None:
        try:
            f = open(self.folder / "data.ldif", "rb")
        except FileNotFoundError:
            return
        with f:
            self._length = os.fstat(f.fileno()).st_size
            first = f.readline().decode("utf-8", "replace")
            if first.startswith(_FIRST_LINE):
                self._told = self._kept = int(first[len(_FIRST_LINE) :])
            else:
                f.seek(0)
            for record in ldif.read(f):
                self.directory.replay(record)

    def _read_journal(self) -> None:
        with open(self.folder / "journal", "rb") as f:
            data = f.read()
        at = 0
        for end, number, payload in _frames(data):
            if number > self._told:
                for record in ldif.read(io.BytesIO(payload)):
                    self.directory.replay(record)
                self._told = self._kept = number
            at = end
        if at == len(data):
            return
        # Not whole: the last one, which nobody was told of, or damage.
        later = data.find(_MAGIC, at + 1)
        while later >= 0:
            for _ in _frames(data[later:]):
                raise StoreError(
                    f"{self.folder / 'journal'} is damaged at byte {at}, and there are good changes from byte "
                    f"{later} on: no crash does that. Restore a copy, or cut the file to {at} bytes to lose "
                    "what is behind"
                )
            later = data.find(_MAGIC, later + 1)
        os.ftruncate(self._journal, at)
        os.fsync(self._journal)

    # -- changes

    def _tell(self, records: Sequence[Record]) -> None:
        self._told += 1
        self._pending.append("".join([ldif.format_record(record) + "\n" for record in records]).encode())

    def check(self) -> None:
        """See that changes can be saved, and wait while the entries are being written.  Raises Refused.

        After a failure of the disk it is tried to save what could not be saved then.
        """
        while self._mending or self.directory.refusal is _SAVING:
            self._changed.wait()
        if self._failed is not None and self._fds:
            self._mending = True
            try:
                coro.in_thread(self._mend) if coro.coro_is_running() else self._mend()
            except OSError as exc:
                self._fail(exc)
            except BaseException as exc:
                # What the other OS thread still does is not known.
                self._failed = None
                self._fail(exc)
                raise
            else:
                self._failed = self._error = self.directory.refusal = None
                self._kept = self._framed
            finally:
                self._mending = False
                self._changed.wake_all()
        self.directory._ready()

    def commit(self) -> None:
        """Wait until all changes so far are on disk.  Raises Refused if they could not be saved."""
        mine = self._told
        if not coro.coro_is_running():
            if self._pending and self._error is None:
                try:
                    self._append(self._frame())
                    self._kept = self._told
                except BaseException as exc:
                    self._fail(exc)
                    raise
        while self._kept < mine:
            if self._error is not None:
                raise Refused(52, f"the change could not be saved: {self._error}")
            if self._writer is None:
                self._writer = coro.spawn(self._write, thread_name=f"journal in {self.folder}")
            self._changed.wait()

    def _fail(self, exc: BaseException) -> None:
        self._error = exc
        self.directory.refusal = Refused(52, f"changes cannot be saved: {exc or type(exc).__name__}")

    def _frame(self) -> bytes:
        payload = b"".join(self._pending)
        self.changes += len(self._pending)
        self.frames += 1
        self._pending.clear()
        self._framed = self._told
        number = _NUMBER.pack(self._told)
        return _HEAD.pack(_MAGIC, len(payload), zlib.crc32(payload, zlib.crc32(number)), self._told) + payload

    def _append(self, frame: bytes) -> None:
        try:
            self._files.write(self._journal, frame)
            self._files.fsync(self._journal)
        except OSError:
            self._failed = frame
            raise
        self._end += len(frame)

    def _mend(self) -> None:
        """Write the frame that failed again, behind those that are on disk.  Raises OSError."""
        frame = self._failed
        assert frame is not None
        # Another description of the file: what fsync reports is of this one's writes.
        fd = os.open(self.folder / "journal", os.O_RDWR | os.O_CLOEXEC)
        try:
            os.dup2(fd, self._journal, inheritable=False)
        finally:
            os.close(fd)
        self._files.truncate(self._journal, self._end)
        os.lseek(self._journal, self._end, os.SEEK_SET)
        self._append(frame)

    def _write(self) -> None:
        try:
            while self._pending:
                last = self._told
                coro.in_thread(self._append, self._frame())
                self._kept = last
                self._changed.wake_all()
            if self._has_grown():
                with contextlib.suppress(OSError):  # the journal stays in use, and it is tried again
                    self.compact(_writer=True)
        except BaseException as exc:
            # An interruption counts, too: what the other OS thread does is not known then.
            self._fail(exc)
            if not isinstance(exc, OSError):
                raise
        finally:
            self._writer = None
            self._changed.wake_all()

    # -- all entries

    def compact(self, _writer: bool = False) -> None:
        """Write all entries to a new file, and empty the journal.  Changes wait meanwhile.

        Raises OSError when that fails; then the old files stay in use.  Does nothing while it is going on.
        """
        if self.directory.refusal is not None:
            return
        self.directory.refusal = _SAVING
        try:
            if not _writer:
                self.commit()
            elif self._pending:
                last = self._told
                try:
                    coro.in_thread(self._append, self._frame())
                except BaseException as exc:
                    self._fail(exc)
                    raise
                self._kept = last
            text = self._text()
            if coro.coro_is_running():
                coro.in_thread(self._write_entries, text)
            else:
                self._write_entries(text)
        finally:
            if self.directory.refusal is _SAVING:
                self.directory.refusal = None
            self._changed.wake_all()

    def _text(self) -> bytes:
        out = io.StringIO()
        out.write(f"{_FIRST_LINE}{self._told}\nversion: 1\n\n")
        polite = coro.coro_is_running()
        for number, entry in enumerate(self.directory.dump()):
            out.write(ldif.format_record(entry) + "\n")
            if polite and number % _SLICE == _SLICE - 1:
                coro.yield_slice()
        return out.getvalue().encode()

    def _write_entries(self, text: bytes) -> None:
        new, old = str(self.folder / "data.ldif.new"), str(self.folder / "data.ldif")
        try:
            self._write_new(new, text)
            self._files.rename(new, old)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(new)
            self._next = self._end + self._end // 4
            raise
        self._length = len(text)
        folder = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._files.fsync(folder)
        finally:
            os.close(folder)
        # From here on the journal is not needed; its changes are passed over by their number if this does not happen.
        self._files.truncate(self._journal, 0)
        self._end = os.lseek(self._journal, 0, os.SEEK_SET)
        self._next = 0
        self.compactions += 1

    def _write_new(self, new: str, text: bytes) -> None:
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self._files.write(fd, text)
            self._files.fsync(fd)
        finally:
            os.close(fd)

    # -- the end

    def close(self) -> None:
        """Save what is not saved, and give the files back.  Raises Refused if saving fails."""
        if not self._fds:
            return
        try:
            if self._error is None:
                self.commit()
        finally:
            self.directory._record = None
            self._close_files()

    def _close_files(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _frames(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The frames up to the first that is not whole: where each ends, its number, its payload."""
    at = 0
    while at + _HEAD.size <= len(data):
        magic, size, crc, number = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + size
        if magic != _MAGIC or end > len(data):
            return
        payload = data[at + _HEAD.size : end]
        if zlib.crc32(payload, zlib.crc32(_NUMBER.pack(number))) != crc:
            return
        yield end, number, payload
        at = end
