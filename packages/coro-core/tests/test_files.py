"""Files: reads and writes at an offset, lists of blocks, and callers that leave before the disk is done."""

import fcntl
import os
import random
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import LIMIT, in_loop

import coro
from coro import files, oserrors
from coro.files import (
    MAX_AIO_SIZE,
    MAX_LIO,
    aio_read,
    aio_stats,
    aio_write,
    lio_listio_error,
    many_lio_reads,
    many_lio_writes,
    pack_blocks_for_write,
)


@pytest.fixture
def fd(tmp_path):
    number = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield number
    os.close(number)


@pytest.fixture(params=["cached", "worker"])
def both_ways(request, monkeypatch):
    """With what the page cache gives at once, and as on a system that cannot ask for it."""
    if request.param == "worker":
        monkeypatch.setattr(files, "_NOWAIT", 0)


class Gate:
    """Stands in for os.pread or os.pwrite: tells that a worker has begun, waits to be let on, records how it ends."""

    def __init__(self, monkeypatch, name):
        self.begun, self.open, self.done = threading.Event(), threading.Event(), threading.Event()
        self.calls = 0
        self.real = getattr(os, name)
        monkeypatch.setattr(files.os, name, self)
        monkeypatch.setattr(files, "_NOWAIT", 0)

    def __call__(self, *args):
        self.calls += 1
        self.begun.set()
        assert self.open.wait(60)
        try:
            return self.real(*args)
        finally:
            self.done.set()

    def interrupt_once_begun(self, function, *args):
        """Call the function in a thread, and shut that down when a worker is in the system call."""
        ended = []

        def body():
            try:
                function(*args)
            except coro.Shutdown:
                ended.append(coro.Shutdown)

        thread = coro.spawn(body)
        coro.in_thread(self.begun.wait, 10)
        thread.shutdown()
        thread.join()
        assert ended == [coro.Shutdown]
        assert not self.done.is_set()  # the caller did not wait for it


# -- aio_read, aio_write


@in_loop
def test_one_byte(fd, both_ways):
    assert aio_write(fd, b"x", 0) == 1
    assert aio_read(fd, 1, 0) == b"x"
    assert aio_read(fd, 1, 1) == b""
    assert aio_read(fd, 0, 0) == b""
    assert aio_write(fd, b"", 5) == 0
    assert os.fstat(fd).st_size == 1


@in_loop
def test_five_megabytes(fd, both_ways, monkeypatch):
    monkeypatch.setattr(files, "_STEP", 1 << 20)
    data = random.Random(5).randbytes(5 << 20)
    assert aio_write(fd, data, 0) == len(data)
    assert aio_read(fd, len(data), 0) == data
    assert aio_read(fd, 1 << 40, 12345) == data[12345:]  # a wish costs no memory


@in_loop
def test_any_alignment(fd, both_ways):
    """Nothing is written beside what was asked for, and the file gets no longer."""
    chance = random.Random(1)
    model = bytearray(random.Random(2).randbytes(20_000))
    assert aio_write(fd, model, 0) == 20_000
    for _ in range(100):
        offset = chance.randrange(20_000)
        data = chance.randbytes(min(chance.choice([1, 100, 511, 512, 513, 3000]), 20_000 - offset))
        assert aio_write(fd, data, offset) == len(data)
        model[offset : offset + len(data)] = data
        offset, size = chance.randrange(21_000), chance.randrange(5000)
        assert aio_read(fd, size, offset) == model[offset : offset + size]
    assert os.fstat(fd).st_size == 20_000
    assert os.pread(fd, 30_000, 0) == model


@in_loop
def test_short_at_the_end_of_the_file(fd, both_ways):
    os.write(fd, b"0123456789")
    assert aio_read(fd, 512, 4) == b"456789"
    assert aio_read(fd, 512, 10) == aio_read(fd, 512, 1 << 40) == b""
    assert os.lseek(fd, 0, os.SEEK_CUR) == 10  # its own position is left alone


@in_loop
def test_offsets_beyond_four_gigabytes(fd, both_ways):
    assert aio_write(fd, b"far", (5 << 30) + 1) == 3
    assert aio_read(fd, 10, 5 << 30) == b"\0far"


@in_loop
def test_many_requests_on_one_descriptor(fd, both_ways):
    """Each gets its own answer, whatever the order in which they are done."""
    results = {}

    def one(i):
        block = bytes([i]) * 1000
        assert aio_write(fd, block, i * 1000) == 1000
        results[i] = aio_read(fd, 1000, i * 1000) == block

    threads = [coro.spawn(one, i) for i in range(100)]
    for t in threads:
        t.join()
    assert results == dict.fromkeys(range(100), True)


@in_loop
def test_other_threads_go_on(fd, monkeypatch):
    gate = Gate(monkeypatch, "pread")
    os.write(fd, b"data")
    result = []
    reader = coro.spawn(lambda: result.append(aio_read(fd, 4, 0)))
    coro.in_thread(gate.begun.wait, 10)
    assert not reader.dead
    gate.open.set()
    reader.join()
    assert result == [b"data"]


@in_loop
def test_errors(tmp_path, both_ways):
    r, w = os.pipe()
    number = fcntl.fcntl(r, fcntl.F_DUPFD_CLOEXEC, 200)  # beyond what anybody else opens meanwhile
    os.close(number)
    for call in (lambda: aio_read(number, 10, 0), lambda: aio_write(number, b"x", 0), lambda: aio_read(-1, 1, 0)):
        with pytest.raises(oserrors.EBADF):
            call()
    folder = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(oserrors.EISDIR):
        aio_read(folder, 10, 0)
    os.close(folder)
    with pytest.raises(oserrors.ESPIPE):
        aio_read(r, 10, 0)
    with pytest.raises(oserrors.ESPIPE):
        aio_write(w, b"x", 0)
    os.close(r)
    os.close(w)
    assert aio_stats()[4:] == (0, 0)


@in_loop
def test_bad_arguments(fd):
    for call in (
        lambda: aio_read(fd, -1, 0),
        lambda: aio_read(fd, 1, -1),
        lambda: aio_write(fd, b"", -1),
        lambda: aio_read(fd, 1, 1 << 63),
        lambda: many_lio_reads(fd, -1, 1),
        lambda: many_lio_writes(fd, -1, []),
        lambda: pack_blocks_for_write([], 0),
    ):
        with pytest.raises(ValueError, match="expected"):
            call()
    for call in (
        lambda: aio_read(fd, 1.0, 0),
        lambda: aio_read(fd, 1, "0"),
        lambda: aio_write(fd, "text", 0),
        lambda: many_lio_writes(fd, 0, ["text"]),
        lambda: pack_blocks_for_write([7], 10),
    ):
        with pytest.raises(TypeError, match="expected"):
            call()


def test_outside_a_thread(fd):
    for call in (
        lambda: aio_read(fd, 1, 0),
        lambda: aio_write(fd, b"x", 0),
        lambda: many_lio_reads(fd, 0, 0),
        lambda: many_lio_writes(fd, 0, []),
    ):
        with pytest.raises(coro.YieldFromMain):
            call()


@in_loop
def test_objects_with_a_descriptor(tmp_path):
    with open(tmp_path / "f", "w+b", buffering=0) as f:
        assert aio_write(f, memoryview(b"abc"), 0) == 3
        assert aio_read(f, 9, 0) == b"abc"


@in_loop
def test_a_write_that_stops_midway(fd, monkeypatch):

    def pwrite(fd, data, offset):
        if offset >= 6:
            raise OSError(28, "No space left on device")
        return real(fd, data[:3], offset)

    real = os.pwrite
    monkeypatch.setattr(files.os, "pwrite", pwrite)
    with pytest.raises(oserrors.ENOSPC):
        aio_write(fd, b"0123456789", 0)
    assert os.pread(fd, 100, 0) == b"012345"
    with pytest.raises(lio_listio_error) as e:
        many_lio_writes(fd, 0, [b"0123", b"4567", b"8"])
    assert e.value.args[0][0] == 4
    assert [type(r) for r in e.value.args[0][1:]] == [oserrors.ENOSPC] * 2
    assert "2 of 3 requests failed, first number 1" in str(e.value)
    monkeypatch.setattr(files.os, "pwrite", lambda fd, data, offset: 0)
    with pytest.raises(oserrors.EIO, match="0 of 2 bytes"):
        aio_write(fd, b"01", 0)


FULL = """
import os, subprocess, sys
import coro
from coro import oserrors
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", sys.argv[1]], check=True)

def main():
    fd = os.open(sys.argv[1] + "/f", os.O_RDWR | os.O_CREAT)
    try:
        print("short", coro.aio_write(fd, b"x" * 100_000, 0))
    except oserrors.ENOSPC:
        print("ENOSPC", os.fstat(fd).st_size)
    try:
        coro.many_lio_writes(fd, 0, [b"y" * 10_000] * 3)
    except coro.lio_listio_error as e:
        print([type(one).__name__ for one in e.args[0]])

coro.run(main)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system in a namespace of its own")
def test_a_full_file_system_says_so(tmp_path):
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode:
        pytest.skip("this system lets no one make a mount namespace")
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=LIMIT
    )
    assert done.stdout.splitlines() == ["ENOSPC 16384", "['int', 'ENOSPC', 'ENOSPC']"], done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@in_loop
def test_the_full_device():
    with open("/dev/full", "r+b", buffering=0) as full, pytest.raises(oserrors.ENOSPC):
        aio_write(full, b"x", 0)


# -- leaving early


@in_loop
def test_an_interrupted_read_leaves_at_once(fd, monkeypatch, leaves_nothing):
    os.write(fd, b"late data")
    gate = Gate(monkeypatch, "pread")
    before = len(coro.event_map)
    gate.interrupt_once_begun(aio_read, fd, 9, 0)
    assert aio_stats()[4:] == (0, 0)
    gate.open.set()
    coro.in_thread(gate.done.wait, 10)
    coro.yield_slice()
    assert aio_read(fd, 4, 0) == b"late"  # the late result reaches nobody, and nothing is broken
    assert len(coro.event_map) == before


@in_loop
def test_an_interrupted_write_gives_the_buffer_back(fd, monkeypatch):
    gate = Gate(monkeypatch, "pwrite")
    buffer = bytearray(b"before")
    gate.interrupt_once_begun(aio_write, fd, buffer, 0)
    buffer[:] = b"something longer"  # not held by the job
    gate.open.set()
    coro.in_thread(gate.done.wait, 10)
    assert os.pread(fd, 100, 0) == b"before"
    assert aio_write(fd, buffer, 0) == 16


@in_loop
def test_an_abandoned_request_takes_no_further_step(fd, monkeypatch):
    monkeypatch.setattr(files, "_STEP", 4)
    gate = Gate(monkeypatch, "pwrite")
    gate.interrupt_once_begun(aio_write, fd, b"0123456789", 0)
    gate.open.set()
    coro.in_thread(gate.done.wait, 10)
    coro.in_thread(lambda: None)
    while coro.offload.statistics()["busy"]:
        coro.yield_slice()
    assert gate.calls == 1
    assert os.pread(fd, 100, 0) == b"0123"


@in_loop
def test_a_time_limit(fd, monkeypatch):
    gate = Gate(monkeypatch, "pread")
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.01, aio_read, fd, 10, 0)
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.01, many_lio_reads, fd, 0, 10)
    gate.open.set()


@in_loop
def test_reads_from_the_page_cache_are_fair(fd):
    """A thread that only reads what is cached lets the others run, and its time limit holds."""
    os.write(fd, b"x")

    def read_for_ever():
        while True:
            aio_read(fd, 1, 0)

    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.01, read_for_ever)


@in_loop
def test_statistics(fd, monkeypatch):
    os.write(fd, b"x" * 10)
    before = aio_stats()
    gate = Gate(monkeypatch, "pread")
    t = coro.spawn(aio_read, fd, 1, 0)
    coro.in_thread(gate.begun.wait, 10)
    assert aio_stats()[4:] == (1, 0)
    gate.open.set()
    t.join()
    aio_write(fd, b"y", 0)
    after = aio_stats()
    assert [b - a for a, b in zip(before, after, strict=True)] == [0, 1, 0, 1, 0, 0]


@pytest.mark.skipif(not files._NOWAIT, reason="no RWF_NOWAIT on this system")
@in_loop
def test_statistics_of_cached_reads(fd):
    aio_write(fd, b"x" * 1000, 0)
    before = aio_stats()
    try:
        os.preadv(fd, [bytearray(10)], 0, files._NOWAIT)
    except OSError:
        pytest.skip("this file system has no reads without waiting")
    for _ in range(10):
        assert aio_read(fd, 10, 0) == b"x" * 10
    after = aio_stats()
    assert sum(after[:2]) - sum(before[:2]) == 10
    assert after[0] > before[0]


@in_loop
def test_a_cached_part_and_the_rest(fd, monkeypatch):
    """The page cache has the beginning only: a worker reads on behind it."""
    os.write(fd, b"0123456789")

    def preadv(fd, buffers, offset, flags):
        if offset >= 4:
            raise BlockingIOError(11, "would block")
        part = os.pread(fd, min(len(buffers[0]), 4 - offset), offset)
        buffers[0][: len(part)] = part
        return len(part)

    monkeypatch.setattr(files, "_NOWAIT", 8)
    monkeypatch.setattr(files.os, "preadv", preadv, raising=False)
    assert aio_read(fd, 100, 0) == b"0123456789"
    assert aio_read(fd, 2, 1) == b"12"
    assert aio_read(fd, 3, 5) == b"567"


# -- lists


@in_loop
def test_batches_round_trip(fd):
    chance = random.Random(3)
    for batches in (1, 2, 4):
        data = chance.randbytes(batches * MAX_LIO * MAX_AIO_SIZE)
        blocks = pack_blocks_for_write([data], MAX_AIO_SIZE)
        assert len(blocks) == batches * MAX_LIO
        assert many_lio_writes(fd, 0, blocks) == len(data)
        assert many_lio_reads(fd, 0, len(data)) == blocks


@in_loop
def test_a_piece_at_an_offset(fd):
    data = random.Random(4).randbytes(200_000)
    assert many_lio_writes(fd, 777, iter([data[:100_000], b"", bytearray(data[100_000:])])) == len(data)
    blocks = many_lio_reads(fd, 1000, 150_000)
    assert [len(b) for b in blocks] == [MAX_AIO_SIZE, MAX_AIO_SIZE, 150_000 - 2 * MAX_AIO_SIZE]
    assert b"".join(blocks) == data[223:150_223]
    assert b"".join(many_lio_reads(fd, 777, 1 << 40)) == data  # short at the end of the file, without empty blocks
    assert many_lio_reads(fd, 0, 0) == many_lio_reads(fd, 1 << 40, 10) == []
    assert many_lio_writes(fd, 0, []) == 0


@in_loop
def test_failed_requests_are_told_by_position(fd, monkeypatch):
    def pread(fd, n, offset):
        if offset == MAX_AIO_SIZE:
            raise OSError(5, "Input/output error")
        return real(fd, n, offset)

    real = os.pread
    data = b"d" * (3 * MAX_AIO_SIZE)
    os.write(fd, data)
    monkeypatch.setattr(files.os, "pread", pread)
    with pytest.raises(lio_listio_error) as e:
        many_lio_reads(fd, 0, len(data))
    first, second, third = e.value.args[0]
    assert first == third == b"d" * MAX_AIO_SIZE
    assert isinstance(second, oserrors.EIO)
    assert second.__traceback__ is None


@settings(deadline=None)
@given(pieces=st.lists(st.binary(max_size=30), max_size=20), size=st.integers(1, 25))
def test_packing(pieces, size):
    blocks = pack_blocks_for_write(pieces, size)
    assert b"".join(blocks) == b"".join(pieces)
    assert all(len(b) == size for b in blocks[:-1])
    assert all(0 < len(b) <= size for b in blocks[-1:])
    assert all(type(b) is bytes for b in blocks)
    assert pack_blocks_for_write(map(bytearray, pieces), size) == blocks
