"""Binary logs: records that keep their types, can be found again after damage, and never mix.

A record is

    magic     4 bytes   25 F1 BF 42
    length    4 bytes   of what follows, most significant byte first
    value     BER       of the tuple (microseconds since 1970, (items...))

A reader can begin anywhere: it looks for the next magic. Reading keeps one record and one block of the file in memory.
"""

# The types are those of ``_ber``. What follows a magic may be damaged, or the magic may be an accident inside other
# data. Then the search goes on one byte behind it, not behind the length that it claims, so that no whole record is
# ever skipped. A length is believed only as far as bytes are there.

from __future__ import annotations

import os
import stat
import struct
import time
from collections.abc import Iterator
from typing import Any, BinaryIO

from coro import optional
from coro.log import _ber, _loggers

__all__ = ["MAGIC", "DecodeError", "Logger", "Sync", "gen_log", "records"]

MAGIC = b"\x25\xf1\xbf\x42"
#: Seconds between two looks at the end of a file that is followed.
FOLLOW_SECONDS = 1.0
_HEADER = struct.Struct(">4sI")
_BLOCK = 64 * 1024

DecodeError = _ber.DecodeError


def pack(when_usec: int, items: tuple[Any, ...]) -> bytes:
    """A whole record. ValueError when it is too long or nested too deep."""
    value = _ber.encode((when_usec, items))
    return _HEADER.pack(MAGIC, len(value)) + value


class Logger:
    """A binary record for each call, written and flushed at once.

    file: opened for writing bytes, or a path, which is opened for appending. Raises OSError when that fails; what
    ``log`` raises is what the file's ``write`` does. A record that cannot be encoded is logged as text.
    """

    def __init__(self, file: Any) -> None:
        if isinstance(file, (str, os.PathLike)):
            file = open(file, "ab")
        if not callable(getattr(file, "write", None)):
            raise TypeError(f"expected a binary file or a path, not {type(file).__name__}: {file!r}")
        self.file = file

    def log(self, *data: Any) -> None:
        """Write a record."""
        now = time.time_ns() // 1000
        try:
            record = pack(now, data)
        except (ValueError, RecursionError):
            record = pack(now, (_loggers.text_of(data),))
        self.file.write(record)
        self.file.flush()

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class Sync:
    """Finds the next magic in a stream, byte by byte."""

    # It works because the first byte of the magic does not occur in the rest of it: after a mismatch only the byte at
    # hand can begin another one.

    def __init__(self) -> None:
        self._matched = 0

    def feed(self, byte: int | bytes) -> bool:
        """Look at one byte (an int, or bytes of length 1); True when it completes the magic."""
        if not isinstance(byte, int):
            (byte,) = byte
        if byte == MAGIC[self._matched]:
            self._matched += 1
        else:
            self._matched = 1 if byte == MAGIC[0] else 0
        if self._matched == len(MAGIC):
            self._matched = 0
            return True
        return False

    def resync(self, f: BinaryIO, limit: int = 10000) -> int:
        """Read up to and including the next magic; returns how many bytes that were. EOFError when the file ends
        before; ValueError when there is none within ``limit`` bytes (0: no limit)."""
        consumed = 0
        while True:
            byte = f.read(1)
            if not byte:
                raise EOFError(f"no further record in the last {consumed} bytes")
            consumed += 1
            if self.feed(byte):
                return consumed
            if limit and consumed >= limit:
                raise ValueError(f"no record begins within {limit} bytes; is this a binary log?")


class _Input:
    """The bytes of a file from where it stands, with the next ones in ``data``."""

    def __init__(self, f: BinaryIO, follow: bool) -> None:
        self.f = f
        self.data = bytearray()
        self.offset = 0  # of data[0], relative to where reading began
        self.follow = follow and self._is_regular()

    def _is_regular(self) -> bool:
        try:
            return stat.S_ISREG(os.fstat(self.f.fileno()).st_mode)
        except (OSError, AttributeError, ValueError):
            return bool(getattr(self.f, "seekable", bool)())

    def more(self) -> bool:
        """Read another block; False at the end of the file."""
        block = self.f.read(_BLOCK)
        if not block:
            return False
        self.data += block
        return True

    def skip(self, count: int) -> None:
        del self.data[:count]
        self.offset += count

    def wait(self) -> None:
        """At the end of a file that is followed: wait a while, and begin anew if it has been cut."""
        optional.sleep_relative(FOLLOW_SECONDS)
        position = self.f.tell()
        end = self.f.seek(0, os.SEEK_END)
        if end < position:
            self.data.clear()
            self.offset = position = 0
        self.f.seek(position)


def records(f: BinaryIO, limit: int = 10000, follow: bool = False) -> Iterator[tuple[int, int, int, Any]]:
    """Like ``gen_log``, but yields (offset, size, microseconds, items), the offset counted from where ``f`` stood."""
    if not callable(getattr(f, "read", None)):
        raise TypeError(f"expected a file opened for reading bytes, not {type(f).__name__}: {f!r}")
    source = _Input(f, follow)
    skipped = 0
    while True:
        found = source.data.find(MAGIC)
        if found < 0:
            # The last bytes may be the beginning of a magic.
            count = max(len(source.data) - len(MAGIC) + 1, 0)
        else:
            count = found
        skipped += count
        source.skip(count)
        if limit and skipped >= limit:
            raise ValueError(f"no record within {skipped} bytes; is this a binary log? limit=0 goes on searching")
        if found < 0:
            if not source.more():
                if not source.follow:
                    return
                source.wait()
            continue
        state, size, value = _try(source)
        if state == _GOOD:
            skipped = 0
            when, items = value
            yield source.offset, size, when, items
            source.skip(_HEADER.size + size)
        elif state == _BAD:
            skipped += 1
            source.skip(1)
        elif source.follow:
            source.wait()
            source.more()
        else:  # cut at the end, or a damaged length
            source.skip(1)


_GOOD, _BAD, _SHORT = range(3)


def _try(source: _Input) -> tuple[int, int, Any]:
    """Read the record that ``source.data`` begins with, as far as there is one."""
    while len(source.data) < _HEADER.size:
        if not source.more():
            return _SHORT, 0, None
    size = _HEADER.unpack_from(source.data)[1]
    if size > _ber.MAX_SIZE:
        return _BAD, size, None
    while len(source.data) < _HEADER.size + size:
        if not source.more():
            return (_BAD if _whole_record_inside(source.data) else _SHORT), size, None
    value = _value(source.data, 0, size)
    return (_BAD, size, None) if value is None else (_GOOD, size, value)


def _value(data: bytearray, at: int, size: int) -> tuple[int, Any] | None:
    try:
        value = _ber.decode(bytes(data[at + _HEADER.size : at + _HEADER.size + size]))
    except DecodeError:
        return None
    if type(value) is tuple and len(value) == 2 and type(value[0]) is int and type(value[1]) is tuple:
        return value
    return None


def _whole_record_inside(data: bytearray) -> bool:
    """Is there a whole record behind the first magic? Then the length before it is wrong, and not merely early."""
    at = data.find(MAGIC, 1)
    while at >= 0:
        if len(data) - at >= _HEADER.size:
            size = _HEADER.unpack_from(data, at)[1]
            if len(data) - at >= _HEADER.size + size and _value(data, at, size) is not None:
                return True
        at = data.find(MAGIC, at + 1)
    return False


def gen_log(f: BinaryIO, limit: int = 10000, follow: bool = False) -> Iterator[tuple[int, float, Any]]:
    """The records of a binary log, as (size in bytes, seconds since 1970, items).

    f: a file opened for reading bytes. Reading begins at its present position, and damaged records are skipped. limit:
    how many other bytes there may be between two records before ValueError is raised, 0 for any number. follow: at the
    end of a regular file wait for more, for ever; only the calling thread waits. A record that is cut off at the end of
    the file is left out.
    """
    for _, size, when, items in records(f, limit, follow):
        yield size, when / 1e6, items
