"""Buffered reading by delimiter or by size: lines, headers, blocks, from anything that hands out blocks of bytes.

    stream = coro.read_stream.sock_stream(conn)
    line = stream.read_line(limit=8192)     # with its \\r\\n; b"" at the end of the stream
    body = stream.read_exact(length)

The stream keeps one block and an offset into it, so a line inside a block costs one ``find`` and one slice, 0.5 us;
nothing is moved or copied twice. What spans blocks is gathered in a bytearray, and each byte is searched once, but for
the ``len(delim) - 1`` bytes before a block boundary, where a delimiter may have begun: linear for every size of block.

A call that is interrupted, or whose producer fails, or that meets its limit, leaves what it had read in the stream: the
next call sees the same bytes again. Rejected: a bytearray as the only buffer (copies each line twice), a state machine
per delimiter (a Python loop per byte).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, Protocol, overload

__all__ = ["LimitError", "buffered_stream", "sock_stream", "socket_producer"]

_Buffer = bytes | bytearray | memoryview

#: What socket_producer asks of the socket at a time, in bytes, unless told otherwise.
BLOCK_SIZE = 8000


class LimitError(Exception):
    """No delimiter came within the number of bytes that the caller allowed.

    ``limit`` is that number. The bytes are still in the stream; a server usually answers with an error and closes.
    """

    def __init__(self, limit: int, delim: bytes) -> None:
        super().__init__(limit, delim)
        self.limit = limit
        self.delim = delim

    def __str__(self) -> str:
        return (
            f"expected {self.delim!r} within {self.limit} bytes and it did not come; "
            f"give a larger limit, or refuse the peer and close"
        )


class _Source(Protocol):
    def recv(self, size: int, /) -> bytes: ...


class _DFA(Protocol):
    def consume(self, byte: int, /) -> object: ...


class socket_producer:
    """Produces blocks from a socket, or from anything with ``recv(size)``: each call returns the next block, or ``b""``
    at the end.

    conn: the socket; it stays the caller's. buffer_size: how many bytes it asks for at a time; ValueError below 1.
    """

    __slots__ = ("buffer_size", "conn")

    def __init__(self, conn: _Source, buffer_size: int = BLOCK_SIZE) -> None:
        if buffer_size < 1:
            raise ValueError(f"expected a block size of at least 1 byte, not {buffer_size}")
        self.conn = conn
        self.buffer_size = buffer_size

    def __call__(self) -> bytes:
        """The next block; raises what ``recv`` raises."""
        return self.conn.recv(self.buffer_size)

    def next(self) -> bytes:
        """The same as calling the object."""
        return self.conn.recv(self.buffer_size)


class buffered_stream:
    """Reads by delimiter or by size from a producer of blocks.

    producer: called without arguments for the next block (bytes, bytearray or memoryview). An empty block, or
    StopIteration, is the end of the stream. Any other exception goes to the reader, and no byte is lost by that.
    limit: how many bytes ``read_until`` and ``read_line`` return at most if a call gives no limit of its own. None
    means any number, which lets a peer fill the memory.

    One thread reads at a time. At the end of the stream the reading methods return what is left, and after that always
    ``b""``. The delimiter at the end of a line shows that the line was complete.
    """

    __slots__ = ("_block", "_pos", "limit", "producer")

    def __init__(self, producer: Callable[[], _Buffer], limit: int | None = None) -> None:
        if not callable(producer):
            raise TypeError(
                f"expected a function that returns the next block, not {type(producer).__name__}: {producer!r}"
            )
        self.producer = producer
        self.limit = _check_limit(limit)
        self._block = b""  # unread is what stands from _pos on
        self._pos = 0

    # -- by delimiter

    @overload
    def read_until(self, delim: _Buffer, join: Literal[True] = True, limit: int | None = None) -> bytes: ...
    @overload
    def read_until(self, delim: _Buffer, join: Literal[False], limit: int | None = None) -> Iterator[bytes]: ...
    def read_until(self, delim: _Buffer, join: bool = True, limit: int | None = None) -> bytes | Iterator[bytes]:
        """Read up to and including a delimiter, which may span blocks.

        delim: at least one byte. join: False returns a lazy generator of pieces instead, which needs no limit; see
        ``gen_read_until``. limit: in bytes, the delimiter included; None means the stream's own limit.

        Returns bytes that end with the delimiter. At the end of the stream it returns what is left, without a
        delimiter, and then ``b""``. Raises LimitError when that many bytes came and there was no delimiter among them;
        ValueError for an empty delimiter or a limit below 1; TypeError for a delimiter that is not bytes-like; and what
        the producer raises.
        """
        if not join:
            return self.gen_read_until(delim)
        return self._until(delim, limit)

    def read_line(self, delim: _Buffer = b"\r\n", limit: int | None = None) -> bytes:
        """``read_until(delim, limit=limit)``: by default with the line end of most network protocols, which stays on
        the line."""
        return self._until(delim, limit)

    def gen_read_until(self, delim: _Buffer) -> Iterator[bytes]:
        """Yield pieces up to and including the delimiter ``delim``, as they come; for what may be too large to keep.

        At the end of the stream the last piece is empty. A piece never ends inside the delimiter, so you may pass on
        all pieces before the last. What the generator has not yielded stays in the stream. Errors are those of
        ``read_until``, and are raised at the first step.
        """
        delim = _as_delimiter(delim)
        while True:
            # The consumer may have used the stream between two pieces: nothing is remembered over a yield.
            block, pos = self._block, self._pos
            found = block.find(delim, pos)
            if found >= 0:
                self._pos = found + len(delim)
                yield block[pos : self._pos]
                return
            end = len(block) - _begun(block, pos, delim)
            if end > pos:
                self._pos = end
                yield block[pos:end]
                continue
            more = self._more()
            if not more:
                rest = self.flush()
                if rest:
                    yield rest
                yield b""
                return
            self._block = self._block[self._pos :] + more
            self._pos = 0

    def gen_read_until_dfa(self, dfa: _DFA) -> Iterator[bytes]:
        """Yield pieces up to and including the byte at which ``dfa.consume(byte)`` returns something true.

        ``consume`` gets each byte as an int from 0 to 255, one call per byte. At the end of the stream the last piece
        is empty.
        """
        consume = dfa.consume
        while True:
            block, pos = self._block, self._pos
            for index in range(pos, len(block)):
                if consume(block[index]):
                    self._pos = index + 1
                    yield block[pos : index + 1]
                    return
            if pos < len(block):
                self._pos = len(block)
                yield block[pos:] if pos else block
                continue
            more = self._more()
            if not more:
                yield b""
                return
            self._put(more)

    # -- by size

    @overload
    def read_exact(self, size: int, join: Literal[True] = True) -> bytes: ...
    @overload
    def read_exact(self, size: int, join: Literal[False]) -> Iterator[bytes]: ...
    def read_exact(self, size: int, join: bool = True) -> bytes | Iterator[bytes]:
        """Read ``size`` bytes, fewer only at the end of the stream. A size of 0 gives ``b""``.

        join: False returns a lazy generator of pieces instead. Raises ValueError for a negative size, TypeError for one
        that is no int, and what the producer raises. What was read until then stays in the stream.
        """
        if type(size) is not int or size < 0:
            _check_size(size)
        if not join:
            return self.gen_read_exact(size)
        block, pos = self._block, self._pos
        end = pos + size
        if end <= len(block):
            self._pos = end
            return block[pos:end]
        gathered = bytearray(memoryview(block)[pos:])
        self._clear()
        while len(gathered) < size:
            more = self._more(gathered)
            if not more:
                break
            missing = size - len(gathered)
            if len(more) > missing:
                gathered += memoryview(more)[:missing]
                self._put(more, missing)
            else:
                gathered += more
        return bytes(gathered)

    def gen_read_exact(self, size: int) -> Iterator[bytes]:
        """Yield pieces as they come, ``size`` bytes in all; fewer at the end of the stream. Raises ValueError and
        TypeError as ``read_exact`` does, at the first step."""
        if type(size) is not int or size < 0:
            _check_size(size)
        while size > 0:
            block, pos = self._block, self._pos
            if pos < len(block):
                end = min(pos + size, len(block))
                size -= end - pos
                self._pos = end
                yield block[pos:end]
                continue
            more = self._more()
            if not more:
                return
            self._put(more)

    def read_all(self) -> Iterator[bytes]:
        """Yield pieces up to the end of the stream: first what is buffered, then block after block as they come."""
        while True:
            rest = self.flush()
            if not rest:
                rest = self._more()
                if not rest:
                    return
            yield rest

    def flush(self) -> bytes:
        """Take what is buffered and not yet read out of the stream and return it. Never blocks."""
        rest = self._block[self._pos :] if self._pos else self._block
        self._clear()
        return rest

    # -- inside

    def _until(self, delim: _Buffer, limit: int | None) -> bytes:
        if type(delim) is not bytes or not delim:
            delim = _as_delimiter(delim)
        limit = self.limit if limit is None else _check_limit(limit)
        block, pos = self._block, self._pos
        found = block.find(delim, pos)
        if found >= 0:
            end = found + len(delim)
            if limit is not None and end - pos > limit:
                raise LimitError(limit, delim)
            self._pos = end
            return block[pos:end]
        if limit is not None and len(block) - pos >= limit:
            raise LimitError(limit, delim)
        gathered = bytearray(memoryview(block)[pos:])
        self._clear()
        while True:
            more = self._more(gathered)
            if not more:
                return bytes(gathered)
            before = len(gathered)
            gathered += more
            found = gathered.find(delim, max(0, before - len(delim) + 1))
            end = found + len(delim) if found >= 0 else len(gathered) + 1  # not found: beyond all that is here
            if limit is not None and end > limit:
                self._push_back(gathered)
                raise LimitError(limit, delim)
            if found >= 0:
                self._put(more, end - before)  # the delimiter ends in the newest block
                with memoryview(gathered) as view:
                    return bytes(view[:end])

    def _more(self, gathered: bytearray | None = None) -> bytes:
        """The next block. When the producer fails or is interrupted, what a call has gathered goes back."""
        try:
            block = self.producer()
            return block if type(block) is bytes else _as_bytes(block, "the producer's block")
        except StopIteration:
            return b""
        except BaseException:
            if gathered:
                self._push_back(gathered)
            raise

    def _push_back(self, gathered: bytearray) -> None:
        gathered += self._block[self._pos :]
        self._put(bytes(gathered))

    def _put(self, block: bytes, pos: int = 0) -> None:
        self._block = block
        self._pos = pos

    def _clear(self) -> None:
        self._block = b""
        self._pos = 0


class sock_stream(buffered_stream):
    """A ``buffered_stream`` over a socket, or over anything with ``recv(size)``.

    conn: the socket; the stream never closes it. buffer_size: bytes asked for at a time. limit: as for
    ``buffered_stream``.
    """

    __slots__ = ("sock",)

    def __init__(self, conn: _Source, buffer_size: int = BLOCK_SIZE, limit: int | None = None) -> None:
        super().__init__(socket_producer(conn, buffer_size), limit)
        self.sock = conn


def _begun(block: bytes, pos: int, delim: bytes) -> int:
    """How many bytes at the end of block[pos:] are the longest beginning of the delimiter there."""
    for n in range(min(len(delim) - 1, len(block) - pos), 0, -1):
        if block.endswith(delim[:n]):
            return n
    return 0


def _as_bytes(data: object, what: str) -> bytes:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"expected bytes, a bytearray or a memoryview as {what}, not {type(data).__name__}: {data!r}")


def _as_delimiter(delim: _Buffer) -> bytes:
    data = _as_bytes(delim, "the delimiter")
    if not data:
        raise ValueError("expected a delimiter of at least one byte; use read_all() to read to the end")
    return data


def _check_size(size: int) -> None:
    if not isinstance(size, int):
        raise TypeError(f"expected a number of bytes as an int, not {type(size).__name__}: {size!r}")
    if size < 0:
        raise ValueError(f"expected a number of bytes of at least 0, not {size}")


def _check_limit(limit: int | None) -> int | None:
    if limit is not None and limit < 1:
        raise ValueError(f"expected a limit of at least 1 byte, or None for no limit, not {limit!r}")
    return limit
