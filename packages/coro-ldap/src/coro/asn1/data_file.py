"""Files of values: the encodings of `coro.asn1.python`, one after the other.

    with open("jobs", "ab") as f:
        DataFileWriter(f).write_object({"id": 7, "args": ["a", "b"]})

    with open("jobs", "rb") as f:
        for job in DataFileReader(f):
            ...

A reader takes the length of a record from its header and decodes it once, however often it had to read.  It keeps a
block and the current record in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from coro.asn1 import ber, python
from coro.asn1.exceptions import DecodeError, InsufficientData
from coro.asn1.streams import IncrementalDecoder

__all__ = ["DataFileReader", "DataFileWriter"]


class DataFileWriter:
    """Writes values to a binary file.

    f: what has `write(bytes)`.  registry: classes besides the built-in ones, a `python.Registry`.
    """

    def __init__(self, f: BinaryIO, *, registry: python.Registry | None = None) -> None:
        self._write = f.write
        self._registry = registry

    def write_object(self, ob: object) -> None:
        """Write one value, with one call of the file's write.

        Raises EncodingError for what `python.encode` does not take, and what the file raises.  OSError if a raw file
        took only a part, which then stands at its end.
        """
        data = python.encode(ob, registry=self._registry)
        written = self._write(data)
        # A buffered file takes all; a raw one may take less and says so.
        while written is not None and 0 < written < len(data):
            data = data[written:]
            written = self._write(data)
        if written is None or written == len(data):
            return
        raise OSError(f"the file took no more of a record, {len(data)} bytes of it are missing")


class DataFileReader:
    """Reads values from a binary file; iterating gives all of them.

    f: what has `read(size)`.  buffer_size: bytes that are asked for at a time.  registry: classes besides the built-in
    ones.  max_size: bytes of a value at most.
    """

    def __init__(
        self,
        f: BinaryIO,
        buffer_size: int = 1024 * 1024,
        *,
        registry: python.Registry | None = None,
        max_size: int = ber.MAX_ELEMENT,
    ) -> None:
        if buffer_size < 1:
            raise ValueError(f"expected a buffer of one byte at least, got {buffer_size}")
        self._read = f.read
        self._size = buffer_size
        self._registry = registry
        self._elements = IncrementalDecoder(max_element=max_size)

    def read_object(self) -> Any:
        """The next value.

        Raises EOFError at the end of the file, InsufficientData if it ends within a value, another DecodeError for what
        `python.encode` does not write, and what the file raises.
        """
        while not isinstance(data := self._elements.next_element(), bytes):
            more = self._read(self._size)
            if not more:
                if self._elements.buffered:
                    raise InsufficientData(
                        f"the file ends within a value, of which {self._elements.buffered} bytes are there"
                    )
                raise EOFError("expected another value, but the file ends here")
            self._elements.feed(more)
        value, end = python.decode(data, registry=self._registry, exact=True, max_size=len(data))
        if end != len(data):
            raise DecodeError(f"{len(data) - end} bytes follow the value")
        return value

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                value = self.read_object()
            except EOFError:
                return
            yield value
