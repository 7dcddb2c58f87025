"""Two connected streams in memory, for testing protocol code without the kernel: ``stream_pair()``.

Each direction is a bytearray with a bound, the thread that waits to read and the one that waits to write. A sender
whose bytes do not fit waits; it is let go on as soon as there is room, so both sides meet in the middle whatever the
bound. Bounds of a few bytes are a good test by themselves. Nothing is shared with other processes or OS threads, there
is no descriptor, and with a virtual clock and a seeded order every run is the same.

Cost: 3 to 10 us a call, a copy of each byte in and one out.
"""

from __future__ import annotations

from typing import Any

from coro import oserrors
from coro._net.constants import SHUT
from coro._poll.descriptors import kevent_key
from coro._poll.filters import EVFILT
from coro._runtime import scheduler
from coro._sync.conditions import event
from coro._sync.locks import mutex
from coro.exceptions import ClosedError, NoSwitchError, SimultaneousError, YieldFromMain
from coro.testing._stream import Stream

__all__ = ["memory_stream", "stream_pair"]

#: Bytes that wait in one direction before its sender does: what pipe(7) holds.
CAPACITY = 65536


class _Pipe:
    """One direction."""

    def __init__(self, capacity: int) -> None:
        self.data = bytearray()
        self.capacity = capacity
        self.ended = False  # the writing side is shut
        self.refused = False  # the reading side is gone: who writes gets EPIPE
        self.reader: Any = None
        self.writer: Any = None
        self.readable: event | None = None  # made when asked for
        self.writable: event | None = None

    def changed(self) -> None:
        """Tell everybody who is interested."""
        for thread in (self.reader, self.writer):
            if thread is not None:
                scheduler._wake(thread)
        gone = self.ended or self.refused
        _show(self.readable, bool(self.data) or gone)
        _show(self.writable, len(self.data) < self.capacity or gone)


def _show(what: event | None, state: bool) -> None:
    if what is not None and what.is_set() != state:
        if state:
            what.set()
        else:
            what.clear()


class memory_stream(Stream):
    """One end of a ``stream_pair()``. It has the methods of a connected stream ``sock`` that need no descriptor.

    Results and errors are those of ``coro.sock``: ClosedError on a closed stream, and in threads that wait when it is
    closed; SimultaneousError for a second reader; senders one after the other; ``bytes_sent`` on an exception that ends
    a send; ``oserrors.EPIPE`` when the other side is closed; ``oserrors.ECONNRESET`` (once) after its ``reset()``.
    """

    def __init__(self, incoming: _Pipe, outgoing: _Pipe, name: str, peer: str) -> None:
        super().__init__()
        self._in = incoming
        self._out = outgoing
        self._name = name
        self._peer_name = peer
        self._closed = False
        self._closer: tuple[Any, ...] = ()
        self._reset = False  # ECONNRESET is to be reported
        self._other: memory_stream | None = None
        self._senders = mutex()
        self._options: dict[tuple[int, int], Any] = {}

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._in.data)} bytes to read, {len(self._out.data)} sent, unread"
        return f"<memory_stream {self._name!r}: {state}>"

    @property
    def closed(self) -> bool:
        """True once this side is closed."""
        return self._closed

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(what=f"this memory_stream {self._name!r}")

    def _trouble(self) -> None:
        """Raise what the other side's reset() left, once."""
        if self._reset:
            self._reset = False
            raise oserrors.ECONNRESET

    def _block(self, reading: bool) -> None:
        """Suspend until the pipe has changed; ClosedError when this side was closed meanwhile."""
        me = scheduler._running_thread()
        pipe = self._in if reading else self._out
        if reading:
            if pipe.reader is not None and not pipe.reader.dead:
                raise SimultaneousError(me, pipe.reader, kevent_key(EVFILT.READ, -1))
            pipe.reader = me
        else:
            pipe.writer = me
        try:
            scheduler._suspend(self)
        finally:
            if reading:
                pipe.reader = None
            else:
                pipe.writer = None
        if self._closed:
            raise ClosedError(*self._closer, what=f"this memory_stream {self._name!r}")

    def _give_back(self, data: bytes) -> None:
        if data and not self._closed:
            self._in.data[:0] = data
            self._in.changed()

    def _receive(self, size: int, block: bool) -> bytes:
        self._wait_readable(block)
        pipe = self._in
        data = bytes(memoryview(pipe.data)[:size])
        if data:
            del pipe.data[: len(data)]
            pipe.changed()
        return data

    def _wait_readable(self, block: bool = True) -> int:
        pipe = self._in
        while not (pipe.data or pipe.ended or self._reset):
            if not block:
                raise oserrors.EAGAIN
            self._block(True)
        self._trouble()
        return len(pipe.data)

    def _transmit(self, pieces: list[memoryview], block: bool) -> int:
        self._check()
        sent = 0
        try:
            if not block and self._senders.locked():
                raise oserrors.EAGAIN
            with self._senders:
                for piece in pieces:
                    while len(piece):
                        self._wait_room(block)
                        part = piece[: self._out.capacity - len(self._out.data)]
                        self._out.data += part
                        sent += len(part)
                        piece = piece[len(part) :]
                        self._out.changed()
        except BaseException as e:
            e.bytes_sent = sent  # type: ignore[attr-defined]
            raise
        return sent

    def _wait_room(self, block: bool = True) -> None:
        pipe = self._out
        if self._closed:
            raise ClosedError(*self._closer, what=f"this memory_stream {self._name!r}")
        self._trouble()
        while not pipe.ended and not pipe.refused and len(pipe.data) >= pipe.capacity:
            if not block:
                raise oserrors.EAGAIN
            self._block(False)
            self._trouble()
        if pipe.ended or pipe.refused:
            raise oserrors.EPIPE

    def wait_for_write(self) -> int:
        """Wait, behind other senders, until a byte could be sent or the other side has gone. Returns 0."""
        self._check()
        with self._senders:
            if self._closed:
                raise ClosedError(*self._closer, what=f"this memory_stream {self._name!r}")
            pipe = self._out
            while not (pipe.ended or pipe.refused or self._reset) and len(pipe.data) >= pipe.capacity:
                self._block(False)
        return 0

    def shutdown(self, how: int) -> None:
        """End receiving (``how`` is SHUT.RD), sending (SHUT.WR) or both (SHUT.RDWR). ValueError for anything else."""
        self._check()
        if how not in (SHUT.RD, SHUT.WR, SHUT.RDWR):
            raise ValueError(f"expected SHUT.RD, SHUT.WR or SHUT.RDWR, not {how!r}")
        if how != SHUT.WR:
            self._in.ended = self._in.refused = True
            self._in.changed()
        if how != SHUT.RD:
            self._out.ended = True
            self._out.changed()

    def close(self) -> None:
        """Close this side. The other one reads what was sent, then the end; what it sends is refused. Threads that wait
        in this side get ClosedError."""
        if self._closed:
            return
        self._closed = True
        try:
            self._closer = (scheduler._running_thread(),)
        except (YieldFromMain, NoSwitchError):
            self._closer = ()
        self._in.refused = True
        self._in.data.clear()
        self._out.ended = True
        self._in.changed()
        self._out.changed()

    def reset(self) -> None:
        """Close this side as a connection breaks: what was not read yet is lost, and the other side gets ECONNRESET."""
        other = self._other
        if self._closed or other is None:
            return
        other._reset = not other._closed
        self._out.data.clear()
        self.close()

    def getpeername(self) -> str:
        """The name of the other side. ``oserrors.EBADF`` when closed."""
        return self._named(self._peer_name)

    def getsockname(self) -> str:
        """The name of this side. ``oserrors.EBADF`` when closed."""
        return self._named(self._name)

    def _named(self, name: str) -> str:
        if self._closed:
            raise oserrors.EBADF
        return name

    def setsockopt(self, level: int, optname: int, value: Any) -> None:
        """Note the ``value`` of the option ``optname`` of ``level`` for getsockopt(). It has no effect."""
        self._check()
        self._options[level, optname] = value

    def getsockopt(self, level: int, optname: int, buflen: int = 0) -> Any:
        """What setsockopt() has noted for the option ``optname`` of ``level``, else 0; ``buflen`` is ignored."""
        self._check()
        return self._options.get((level, optname), 0)

    # -- for coro.select

    @property
    def readable(self) -> event:
        """An event that is set while receiving would not wait, for ``coro.select``."""
        pipe = self._in
        if pipe.readable is None:
            pipe.readable = event()
            pipe.changed()
        return pipe.readable

    @property
    def writable(self) -> event:
        """An event that is set while sending a byte would not wait for room, for ``coro.select``."""
        pipe = self._out
        if pipe.writable is None:
            pipe.writable = event()
            pipe.changed()
        return pipe.writable


def stream_pair(
    capacity: int = CAPACITY, *, names: tuple[str, str] = ("left", "right")
) -> tuple[memory_stream, memory_stream]:
    """Two connected streams in memory; what is sent into one is received from the other.

    capacity: bytes that may wait in each direction before a sender waits, at least 1 (ValueError otherwise). names:
    what getsockname() and getpeername() of the two return.
    """
    if capacity < 1:
        raise ValueError(f"expected a capacity of at least 1 byte, not {capacity}")
    there, back = _Pipe(capacity), _Pipe(capacity)
    left = memory_stream(back, there, names[0], names[1])
    right = memory_stream(there, back, names[1], names[0])
    left._other, right._other = right, left
    return left, right
