"""Elements out of streams and files, however they are cut."""

from __future__ import annotations

import io

import pytest

from coro.asn1 import NEED_DATA, DecodeError, IncrementalDecoder, InsufficientData, LengthTooLong, ber, python
from coro.asn1.data_file import DataFileReader, DataFileWriter

VALUES = [1, b"x" * 300, [1, [2, "three"]], ("context", 200, b""), None]
DATA = b"".join(ber.encode(value) for value in VALUES)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100, 1000])
def test_any_pieces(step: int) -> None:
    decoder = IncrementalDecoder()
    found = []
    for at in range(0, len(DATA), step):
        decoder.feed(DATA[at : at + step])
        while (value := decoder.next_value()) is not NEED_DATA:
            found.append(value)
        assert decoder.needed > 0
    assert found == VALUES
    assert decoder.buffered == 0
    decoder.close()


def test_cut_at_each_byte() -> None:
    for size in range(len(DATA)):
        decoder = IncrementalDecoder()
        decoder.feed(DATA[:size])
        while decoder.next_value() is not NEED_DATA:
            pass
        if decoder.buffered:
            with pytest.raises(InsufficientData):
                decoder.close()
        decoder.feed(DATA[size:])
        while decoder.next_value() is not NEED_DATA:
            pass
        decoder.close()


def test_needed() -> None:
    decoder = IncrementalDecoder()
    assert decoder.needed == 2
    decoder.feed(b"\x04\x82\x01")
    assert decoder.next_element() is NEED_DATA
    decoder.feed(b"\x00")
    assert decoder.next_element() is NEED_DATA
    assert decoder.needed == 256
    assert repr(decoder) == "<IncrementalDecoder with 4 bytes, needs 256>"


def test_a_long_stream_keeps_little() -> None:
    decoder = IncrementalDecoder()
    piece = ber.OCTET_STRING(bytes(1000)) * 100
    for _ in range(50):
        decoder.feed(piece)
        while decoder.next_value() is not NEED_DATA:
            pass
        assert len(decoder._buffer) < 4 * len(piece)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\x04\x83\x10\x00\x00", LengthTooLong),
        (b"\x30\x80", DecodeError),
        (b"\x1f\x80\x01\x00", DecodeError),
        (b"\x05\x01a", DecodeError),
    ],
)
def test_after_an_error_nothing_is_read(data: bytes, error: type[DecodeError]) -> None:
    decoder = IncrementalDecoder(max_element=1 << 20)
    decoder.feed(data)
    for _ in range(2):
        with pytest.raises(error):
            decoder.next_value()
    with pytest.raises(error):
        decoder.feed(b"more")
    with pytest.raises(error):
        decoder.close()


OBJECTS = [{"id": 1}, ["x" * 5000], (1, 2.5), None, b""]


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
def test_data_file(size: int) -> None:
    f = io.BytesIO()
    writer = DataFileWriter(f)
    for item in OBJECTS:
        writer.write_object(item)
    f.seek(0)
    assert list(DataFileReader(f, size)) == OBJECTS
    reader = DataFileReader(f, size)
    with pytest.raises(EOFError):
        reader.read_object()


def test_data_file_that_is_cut_off() -> None:
    data = b"".join(map(python.encode, OBJECTS))
    ends = [len(b"".join(map(python.encode, OBJECTS[:n]))) for n in range(len(OBJECTS) + 1)]
    for size in (*range(12), ends[1], ends[1] + 1, len(data) - 1):
        reader = DataFileReader(io.BytesIO(data[:size]))
        error = EOFError if size in ends else InsufficientData
        with pytest.raises((EOFError, InsufficientData)) as caught:
            while True:
                reader.read_object()
        assert type(caught.value) is error


def test_data_file_of_something_else() -> None:
    with pytest.raises(DecodeError):
        DataFileReader(io.BytesIO(b"\x09\x00")).read_object()
    with pytest.raises(LengthTooLong):
        DataFileReader(io.BytesIO(python.encode(b"x" * 100)), max_size=50).read_object()
    with pytest.raises(ValueError, match="one byte"):
        DataFileReader(io.BytesIO(), 0)


def test_a_file_that_takes_a_part() -> None:
    class Slow(io.RawIOBase):
        def __init__(self, most: int) -> None:
            self.taken, self.most = b"", most

        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:  # type: ignore[override]
            part = bytes(data)[:3] if len(self.taken) < self.most else b""  # type: ignore[call-overload]
            self.taken += part
            return len(part)

    slow = Slow(1000)
    DataFileWriter(slow).write_object("a long text")  # type: ignore[arg-type]
    assert slow.taken == python.encode("a long text")
    with pytest.raises(OSError, match="took no more"):
        DataFileWriter(Slow(4)).write_object("a long text")  # type: ignore[arg-type]
