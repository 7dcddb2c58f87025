"""Reading and writing files at an offset while other threads run: ``coro.aio_read``, ``coro.aio_write`` and lists.

No system can poll a regular file: poll(2) and epoll call it always ready, and read(2) then waits for the disk with the
whole process. So the work goes to the worker OS threads of ``coro.in_thread``, as pread(2) and pwrite(2): one request
is one job, requests know nothing of each other, and any number may be under way on one descriptor. Small reads are
first tried with RWF_NOWAIT (preadv2(2), Linux), which takes from the page cache what is there and never waits.

Cost: 30 to 60 us for what goes to a worker, 3 us for a small read from the page cache. A write of something other than
``bytes`` copies it first, so that its owner may do with it what he likes as soon as he is interrupted.

Interruption: the caller leaves at once. A request that no worker has begun is dropped; one that has begun ends
unobserved after the system call it is in, whatever it brings is discarded, and the job owns its memory. Whether an
interrupted write took place is unknown. A descriptor with an abandoned request should not be closed at once: until that
system call has begun, a new file that gets the same number would be meant.

Rejected: POSIX AIO (OS threads in the C library, too) and Linux's io_submit(2) (blocks without O_DIRECT). Open
question: io_uring behind the same names.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from coro import oserrors
from coro._runtime import scheduler
from coro._runtime.arguments import whole
from coro.offload import in_thread

__all__ = [
    "MAX_AIO_SIZE",
    "MAX_LIO",
    "aio_read",
    "aio_stats",
    "aio_write",
    "lio_listio_error",
    "many_lio_reads",
    "many_lio_writes",
    "pack_blocks_for_write",
]

#: The largest block of ``many_lio_reads`` in bytes: 64 KiB less one sector of 512.
MAX_AIO_SIZE = 65024
#: How many blocks one batch of a list has, and so how many a worker does before another request gets its turn.
MAX_LIO = 16

#: One pread(2) or pwrite(2) moves at most this much; between two of them a worker looks whether anybody still waits.
_STEP = 8 << 20
#: Reads up to this size are tried without waiting: copying more would hold up the other threads.
_SMALL = 64 << 10
#: After so many reads without a suspension the caller gives the others a turn.
_IN_A_ROW = 32
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0) if hasattr(os, "preadv") else 0
_REFUSALS = frozenset({errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
_MAX_OFFSET = (1 << 63) - 1

_Buffer = bytes | bytearray | memoryview
_T = TypeVar("_T")


class _HasFileno(Protocol):
    def fileno(self) -> int: ...


class lio_listio_error(Exception):
    """A request of ``many_lio_reads`` or ``many_lio_writes`` failed.

    ``args[0]`` is a tuple with the outcome of each block that was tried, in order: the bytes read, the number of bytes
    written, or the OSError of a failure. The rest of the batch that failed was tried too; later batches were not.
    """

    def __str__(self) -> str:
        results = self.args[0]
        failed = [(i, r) for i, r in enumerate(results) if isinstance(r, OSError)]
        return f"{len(failed)} of {len(results)} requests failed, first number {failed[0][0]}: {failed[0][1]}"


class _Counters:
    """Of this process. Only threads of the loop change them, never workers."""

    def __init__(self) -> None:
        self.reads_at_once = self.reads_waited = self.writes_at_once = self.writes_waited = 0
        self.reads_pending = self.writes_pending = 0
        self.in_a_row = 0


_counters = _Counters()


def _after_fork_in_child() -> None:
    _counters.reads_pending = _counters.writes_pending = 0  # those who wait are dead in a forked child


class _Job:
    """What caller and worker share: set by the caller when it leaves."""

    __slots__ = ("abandoned",)

    def __init__(self) -> None:
        self.abandoned = False


# -- in a worker


def _read_fully(job: _Job, fd: int, nbytes: int, offset: int) -> bytes:
    """pread(2) until all is there or the file ends."""
    parts = []
    while nbytes > 0 and not job.abandoned:
        part = os.pread(fd, min(nbytes, _STEP), offset)
        if not part:
            break
        parts.append(part)
        nbytes -= len(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _write_fully(job: _Job, fd: int, data: bytes, offset: int) -> int:
    """pwrite(2) until all is written."""
    with memoryview(data) as view:
        done = 0
        while not job.abandoned:
            n = os.pwrite(fd, view[done : done + _STEP], offset + done)
            done += n
            if done == len(data):
                break
            if n == 0:
                raise OSError(errno.EIO, f"the system took {done} of {len(data)} bytes and gives no reason")
    return done


def _read_batch(job: _Job, fd: int, sizes: Sequence[int], offset: int) -> list[bytes | OSError]:
    results: list[bytes | OSError] = []
    for size in sizes:
        if job.abandoned:
            break
        try:
            results.append(_read_fully(job, fd, size, offset))
        except OSError as e:
            results.append(_plain(e))
        offset += size
    return results


def _write_batch(job: _Job, fd: int, blocks: Sequence[bytes], offset: int) -> list[int | OSError]:
    results: list[int | OSError] = []
    for block in blocks:
        if job.abandoned:
            break
        try:
            results.append(_write_fully(job, fd, block, offset))
        except OSError as e:
            results.append(_plain(e))
        offset += len(block)
    return results


def _plain(e: OSError) -> OSError:
    """The error for a list of results: our class, and no traceback that keeps a worker's frames."""
    new = oserrors.convert(e)
    assert isinstance(new, OSError)
    return new.with_traceback(None)


# -- in the caller


def _hand_over(function: Callable[..., _T], fd: int, what: object, offset: int) -> _T:
    job = _Job()
    try:
        return in_thread(function, job, fd, what, offset)
    except OSError as e:
        new = oserrors.convert(e)
        raise new from None
    except BaseException:
        job.abandoned = True
        raise


def _fileno(fd: int | _HasFileno) -> int:
    if not isinstance(fd, int) and not hasattr(fd, "fileno"):
        raise TypeError(f"expected a descriptor or an object with fileno(), not {type(fd).__name__}: {fd!r}")
    number = fd if isinstance(fd, int) else fd.fileno()
    if number < 0:
        raise oserrors.make(errno.EBADF)
    return number


def _check(number: int, what: str) -> None:
    whole(number, f"the {what}", 0, _MAX_OFFSET)


def _read_cached(fd: int, nbytes: int, offset: int) -> tuple[bytes, bool]:
    """What the page cache has, and whether that is all there is to be had."""
    buffer = bytearray(nbytes)
    try:
        n = os.preadv(fd, [buffer], offset, _NOWAIT)
    except OSError as e:
        if e.errno in _REFUSALS:
            return b"", False
        raise oserrors.convert(e) from None
    if n == nbytes:
        return bytes(buffer), True
    del buffer[n:]
    return bytes(buffer), n == 0  # 0: the end of the file; else the rest is perhaps on the disk


def aio_read(fd: int | _HasFileno, nbytes: int, offset: int) -> bytes:
    """Read from a file at an offset. Only the calling thread is suspended.

    fd: the descriptor of a file, or an object with ``fileno()``; its own position is neither used nor moved. nbytes:
    how many bytes to read; any number and alignment will do. offset: in bytes from the start of the file.

    Returns the bytes: fewer than asked for only if the file ends there, and ``b""`` behind its end. Raises an oserrors
    class when the system refuses (EBADF, EISDIR; ESPIPE for what has no offsets; EINVAL for a file opened with
    O_DIRECT: open it without); ValueError for a number that is negative or more than 2**63 - 1; YieldFromMain outside a
    thread. An interrupted call leaves at once.
    """
    scheduler._running_thread()
    fd = _fileno(fd)
    _check(nbytes, "number of bytes")
    _check(offset, "offset")
    c = _counters
    got = b""
    if nbytes <= _SMALL and (_NOWAIT or not nbytes):
        if c.in_a_row >= _IN_A_ROW:
            c.in_a_row = 0
            scheduler.yield_slice()
        got, complete = _read_cached(fd, nbytes, offset)
        if complete:
            c.in_a_row += 1
            c.reads_at_once += 1
            return got
    c.in_a_row = 0
    c.reads_pending += 1
    try:
        rest = _hand_over(_read_fully, fd, nbytes - len(got), offset + len(got))
    finally:
        c.reads_pending -= 1
        c.reads_waited += 1
    return got + rest if got else rest


def aio_write(fd: int | _HasFileno, buffer: _Buffer, offset: int) -> int:
    """Write to a file at an offset. Only the calling thread is suspended.

    fd: as for ``aio_read``. buffer: bytes-like, of any length and alignment; the caller may change it again as soon as
    the call ends, by an interruption too. offset: in bytes from the start; beyond the end of the file it leaves a hole.

    Returns how many bytes were written, which is all of them. Raises what ``aio_read`` raises; ENOSPC, EDQUOT or EFBIG
    if the file system has no room for all of it, when a part may be written; and TypeError for a buffer that is not
    bytes-like. It is not known whether an interrupted write took place. The data is with the
    kernel then, and not yet on the disk: call fsync(2) yourself, by ``in_thread``.
    """
    scheduler._running_thread()
    fd = _fileno(fd)
    data = _as_bytes(buffer)
    _check(offset, "offset")
    c = _counters
    c.in_a_row = 0
    c.writes_pending += 1
    try:
        return _hand_over(_write_fully, fd, data, offset)
    finally:
        c.writes_pending -= 1
        c.writes_waited += 1


def _as_bytes(buffer: _Buffer) -> bytes:
    if isinstance(buffer, bytes):
        return buffer
    try:
        with memoryview(buffer) as view:
            return view.tobytes()
    except TypeError:
        raise TypeError(
            f"expected bytes, or an object with their interface, not {type(buffer).__name__}: {buffer!r}"
        ) from None


def aio_stats() -> tuple[int, int, int, int, int, int]:
    """Six figures of ``aio_read`` and ``aio_write`` since the start of the process.

    They are: reads done without waiting, reads that went to a worker, the same two for writes, reads under way, and
    writes under way. Interrupted and failed requests count as ended.
    """
    c = _counters
    return (
        c.reads_at_once,
        c.reads_waited,
        c.writes_at_once,
        c.writes_waited,
        c.reads_pending,
        c.writes_pending,
    )


def many_lio_reads(fd: int | _HasFileno, pos: int, nbytes: int) -> list[bytes]:
    """Read a long piece of a file as a list of blocks.

    fd, pos: descriptor and offset as for ``aio_read``. nbytes: how many bytes to read. They come in blocks of
    MAX_AIO_SIZE, of which the last may be smaller. At most MAX_LIO blocks are asked for at a time.

    Returns the blocks, none of them empty. They have fewer bytes than asked for only if the file ends. Raises
    lio_listio_error when a request failed, and otherwise what ``aio_read`` raises.
    """
    scheduler._running_thread()
    fd = _fileno(fd)
    _check(nbytes, "number of bytes")
    _check(pos, "offset")
    blocks: list[bytes] = []
    while nbytes > 0:
        batch = min(nbytes, MAX_LIO * MAX_AIO_SIZE)
        sizes = [min(MAX_AIO_SIZE, batch - start) for start in range(0, batch, MAX_AIO_SIZE)]
        results = _hand_over(_read_batch, fd, sizes, pos)
        got = [r for r in results if not isinstance(r, OSError)]
        if len(got) < len(results):
            raise lio_listio_error((*blocks, *results))
        blocks += [r for r in got if r]
        if sum(map(len, got)) < batch:
            break  # the end of the file
        pos += batch
        nbytes -= batch
    return blocks


def many_lio_writes(fd: int | _HasFileno, pos: int, blocks: Iterable[_Buffer]) -> int:
    """Write blocks one behind the other.

    fd, pos: descriptor and offset as for ``aio_write``. blocks: bytes-like objects of any size, see
    ``pack_blocks_for_write``. At most MAX_LIO of them are handed over at a time.

    Returns how many bytes were written, which is all of them. Raises lio_listio_error when a request failed, and
    otherwise what ``aio_write`` raises.
    """
    scheduler._running_thread()
    fd = _fileno(fd)
    _check(pos, "offset")
    everything = [_as_bytes(block) for block in blocks]
    done: list[int] = []
    for start in range(0, len(everything), MAX_LIO):
        batch = everything[start : start + MAX_LIO]
        results = _hand_over(_write_batch, fd, batch, pos)
        written = [r for r in results if not isinstance(r, OSError)]
        if len(written) < len(results):
            raise lio_listio_error((*done, *results))
        done += written
        pos += sum(map(len, batch))
    return sum(done)


def pack_blocks_for_write(strings: Iterable[_Buffer], block_size: int) -> list[bytes]:
    """Regroup ``strings``, pieces of data, into blocks of exactly ``block_size`` bytes; the last one may be smaller.
    Returns a list of them, ``[]`` for no data.

    Takes time proportional to the data, however small or large the pieces. ValueError for a block size below 1,
    TypeError for one that is no int and for pieces that are not bytes-like.
    """
    whole(block_size, "the block size in bytes", 1)
    blocks: list[bytes] = []
    pending = bytearray()
    for piece in strings:
        data = _as_bytes(piece)
        start = 0
        if pending:
            start = block_size - len(pending)
            pending += memoryview(data)[:start]
            if len(pending) < block_size:
                continue
            blocks.append(bytes(pending))
            pending.clear()
        end = start + (len(data) - start) // block_size * block_size
        blocks += [data[i : i + block_size] for i in range(start, end, block_size)]
        pending += memoryview(data)[end:]
    if pending:
        blocks.append(bytes(pending))
    return blocks
