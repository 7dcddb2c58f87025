"""The part of ``sock``'s interface that every stream of the test kit has, on top of two operations of its own.

A subclass says how to receive some bytes and how to send all of them; peeking, exact reading, giving back what an
interrupted call had read, and the variants of the calls are here, with the results and errors of ``coro.sock``. Every
call costs some microseconds, since all of it is Python.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from types import TracebackType
from typing import Any, TypeVar

from coro import oserrors
from coro._net.constants import MSG
from coro.exceptions import end_of_stream

__all__: list[str] = []

_Buffer = bytes | bytearray | memoryview
_S = TypeVar("_S", bound="Stream")


class Stream:
    """The common base of the streams of the test kit. Users do not make it."""

    def __init__(self) -> None:
        self._back = b""  # read and given back, or peeked at: read before everything else

    # -- for subclasses

    def _receive(self, size: int, block: bool) -> bytes:
        """At least one byte, at most ``size``; b"" at the end. EAGAIN instead of waiting unless ``block``."""
        raise NotImplementedError

    def _transmit(self, pieces: list[memoryview], block: bool) -> int:
        """Send all; the number of bytes. An exception on the way has ``bytes_sent``."""
        raise NotImplementedError

    def _wait_readable(self) -> int:
        raise NotImplementedError

    def _check(self) -> None:
        """ClosedError on a closed stream."""
        raise NotImplementedError

    def close(self) -> None:
        """Close this side."""
        raise NotImplementedError

    # -- receiving

    def recv(self, buffer_size: int, flags: int = 0) -> bytes:
        """Receive at most ``buffer_size`` bytes; ``b""`` at the end of the stream.

        Of the flags MSG_PEEK and MSG_DONTWAIT are known, ``oserrors.EOPNOTSUPP`` for others. Errors are those of
        ``coro.sock``.
        """
        if buffer_size < 0:
            raise ValueError(f"the number of bytes to receive must not be negative, not {buffer_size}")
        if flags & ~(MSG.PEEK | MSG.DONTWAIT):
            raise oserrors.EOPNOTSUPP(
                "streams of the test kit know the flags MSG_PEEK and MSG_DONTWAIT only; "
                "use coro.socketpair() for others"
            )
        self._check()
        if buffer_size == 0:
            return b""
        data = self._back[:buffer_size]
        if data:
            if not flags & MSG.PEEK:
                self._back = self._back[len(data) :]
            return data
        data = self._receive(buffer_size, not flags & MSG.DONTWAIT)
        if flags & MSG.PEEK:
            self._give_back(data)
        return data

    def _give_back(self, data: bytes) -> None:
        self._back = data + self._back

    def read(self, buffer_size: int) -> bytes:
        """The same as recv() without flags."""
        return self.recv(buffer_size)

    def recv_into(self, buffer: bytearray | memoryview, nbytes: int = 0, flags: int = 0) -> int:
        """Receive into a writable buffer, at most ``nbytes`` (0: what it holds); returns the number of bytes."""
        with memoryview(buffer) as whole, whole.cast("B") as view:
            if view.readonly:
                raise BufferError(f"expected a writable buffer to receive into, not read-only {type(buffer).__name__}")
            if not 0 <= nbytes <= len(view):
                raise ValueError(
                    f"expected a number of bytes from 0 to {len(view)}, what the buffer holds, not {nbytes}"
                )
            data = self.recv(nbytes or len(view), flags)
            view[: len(data)] = data
            return len(data)

    def _gather(self, size: int) -> bytes:
        """Exactly ``size`` bytes, fewer at the end. What was read when it is interrupted is given back."""
        self._check()
        gathered = bytearray()
        try:
            while len(gathered) < size:
                data = self.recv(size - len(gathered))
                if not data:
                    break
                gathered += data
        except BaseException:
            self._give_back(bytes(gathered))
            raise
        return bytes(gathered)

    def recv_exact(self, nbytes: int) -> bytes:
        """Receive exactly ``nbytes`` bytes. ``EOFError(partial)`` when the stream ends before; an interrupted call
        loses nothing."""
        if nbytes < 0:
            raise ValueError(f"the number of bytes to receive must not be negative, not {nbytes}")
        data = self._gather(nbytes)
        if len(data) < nbytes:
            raise end_of_stream(data, nbytes)
        return data

    def readv(self, size_list: Iterable[int]) -> tuple[bytes, ...]:
        """Fill buffers of the given sizes. At the end of the stream only those that are complete or have a part."""
        sizes = [operator.index(size) for size in size_list]
        if any(size < 0 for size in sizes):
            raise ValueError(f"a size must not be negative, not {min(sizes)}")
        total = sum(sizes)
        data = self._gather(total)
        out, at = [], 0
        for size in sizes:
            if at >= len(data) < total:
                break
            out.append(data[at : at + size])
            at += size
        return tuple(out)

    def wait_for_read(self) -> int:
        """Wait until there is something to receive, or the stream has ended. Returns the number of bytes that are
        there, 0 at the end or when the amount is unknown."""
        self._check()
        return len(self._back) or self._wait_readable()

    # -- sending

    def send(self, data: _Buffer, flags: int = 0) -> int:
        """Send all of ``data``; returns its length. An exception that ends the call has ``bytes_sent``. With
        MSG_DONTWAIT ``oserrors.EAGAIN`` instead of waiting; ``oserrors.EOPNOTSUPP`` for other flags."""
        if flags & ~(MSG.DONTWAIT | MSG.NOSIGNAL):
            raise oserrors.EOPNOTSUPP(
                "streams of the test kit know the flag MSG_DONTWAIT only; "
                "use a pair of socks (coro.socketpair) for others"
            )
        return self._transmit(_views([data]), not flags & MSG.DONTWAIT)

    def sendall(self, data: _Buffer, flags: int = 0) -> int:
        """The same as send()."""
        return self.send(data, flags)

    def write(self, data: _Buffer) -> int:
        """The same as send() without flags."""
        return self.send(data)

    def writev(self, data_list: Iterable[_Buffer]) -> int:
        """Send all pieces as if they were one; returns their total size."""
        if isinstance(data_list, (bytes, bytearray, memoryview, str)):
            raise TypeError(
                f"a sequence of bytes-like objects is wanted, not one {type(data_list).__name__}: "
                "put it in a list"
            )
        return self._transmit(_views(data_list), True)

    # -- the rest

    def __enter__(self: _S) -> _S:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _views(pieces: Iterable[Any]) -> list[memoryview]:
    views = []
    for piece in pieces:
        if isinstance(piece, str):
            raise TypeError(f"the pieces must be bytes-like objects, not str: encode {piece[:40]!r} first")
        views.append(memoryview(piece).cast("B"))
    return views
