"""File objects over socks: ``sock.makefile()``.

A raw stream of the standard ``io`` classes whose reads and writes are the sock's, so that they block the
calling thread only; the buffered and text layers are the standard ones.  One buffered object belongs to one
thread at a time: its lock is per OS thread, and a second thread gets RuntimeError from it.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from coro._net.sock import sock

__all__ = ["SockIO", "makefile"]


class SockIO(io.RawIOBase):
    """A sock as a raw binary stream.  It owns the sock: closing the stream closes it."""

    def __init__(self, sock: sock, mode: str) -> None:
        """``mode``: letters of "rwb"."""
        self._sock = sock
        self._reading = "r" in mode
        self._writing = "w" in mode
        self.mode = "rb+" if self._reading and self._writing else "rb" if self._reading else "wb"

    def readable(self) -> bool:
        """Was it opened for reading?"""
        if self.closed:
            raise ValueError("I/O operation on closed socket file")
        return self._reading

    def writable(self) -> bool:
        """Was it opened for writing?"""
        if self.closed:
            raise ValueError("I/O operation on closed socket file")
        return self._writing

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Receive into a buffer; 0 at the end of the stream."""
        self._checkClosed()
        if not self._reading:
            raise io.UnsupportedOperation("this socket file was opened for writing only")
        if not len(memoryview(buffer)):
            return 0
        return self._sock.recv_into(buffer)

    def write(self, data: ReadableBuffer) -> int:
        """Send all of the data; returns its length in bytes."""
        self._checkClosed()
        if not self._writing:
            raise io.UnsupportedOperation("this socket file was opened for reading only")
        return self._sock.send(data)

    def fileno(self) -> int:
        """The number of the descriptor, which is a duplicate of the sock's."""
        self._checkClosed()
        return self._sock.fileno()

    @property
    def name(self) -> int:
        """The descriptor's number, -1 when closed."""
        return -1 if self.closed else self._sock.fileno()

    def close(self) -> None:
        """Close the stream and its duplicate of the descriptor."""
        if not self.closed:
            try:
                super().close()
            finally:
                self._sock.close()


def makefile(
    sock: sock,
    mode: str = "r",
    buffering: int | None = None,
    *,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> Any:
    """A file object over a duplicate of the sock's descriptor; the parameters of ``socket.makefile``.

    Raises ValueError for an unknown mode, for text without buffering, and for a size below -1.
    """
    if not set(mode) <= {"r", "w", "b"} or not {"r", "w"} & set(mode) or len(set(mode)) != len(mode):
        raise ValueError(f"a mode is made of 'r', 'w' and 'b' (at least one of r and w), not {mode!r}")
    if buffering is None:
        buffering = -1
    if buffering < -1:
        raise ValueError(f"buffering is a size in bytes, 0 for none, or -1 for the default, not {buffering}")
    if buffering == 0 and "b" not in mode:
        raise ValueError("text cannot be unbuffered: use a binary mode, or leave buffering out")
    raw = SockIO(sock.dup(), mode)
    file = _layers(raw, mode, buffering, encoding, errors, newline)
    if "r" in mode:
        sock._give_kept(raw._sock)  # as the last step: what goes wrong before loses no bytes
    return file


def _layers(
    raw: SockIO, mode: str, buffering: int, encoding: str | None, errors: str | None, newline: str | None
) -> Any:
    """The buffered and text layers over a raw stream."""
    if buffering == 0:
        return raw
    size = io.DEFAULT_BUFFER_SIZE if buffering < 0 else buffering
    buffered: Any
    if "r" in mode and "w" in mode:
        buffered = io.BufferedRWPair(raw, raw, size)
    elif "r" in mode:
        buffered = io.BufferedReader(raw, size)
    else:
        buffered = io.BufferedWriter(raw, size)
    if "b" in mode:
        return buffered
    text = io.TextIOWrapper(buffered, encoding, errors, newline)
    text.mode = mode  # type: ignore[misc]
    return text
