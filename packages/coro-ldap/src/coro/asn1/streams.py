"""Elements out of a stream: bytes go in as they come, values come out when they are whole.

    decoder = IncrementalDecoder(max_element=1 << 20)
    decoder.feed(sock.recv(65536))
    while (value := decoder.next_value()) is not NEED_DATA:
        ...

The header of an element is read once, so a long element that arrives in small pieces costs one comparison for each
piece, not a new attempt to decode.  Memory grows with what has arrived; an announced length is only compared with the
limit.  Lengths have to be definite: the end of an open one cannot be known without reading everything anew.
"""

from __future__ import annotations

from typing import Any, Final

from coro.asn1 import ber
from coro.asn1.exceptions import DecodeError, InsufficientData, LengthTooLong

__all__ = ["NEED_DATA", "IncrementalDecoder"]


class _NeedData:
    """The type of NEED_DATA."""

    def __repr__(self) -> str:
        return "NEED_DATA"


#: What `IncrementalDecoder.next_value` gives while no element is whole.
NEED_DATA: Final = _NeedData()

#: Bytes that are done with are cut off when they are so many and more than half of the buffer.
_CUT = 65536


class IncrementalDecoder:
    """Cuts elements out of a stream and decodes them.

    max_element: the bytes of an element, header included, at most.  strict, text, times, max_depth: as for
    `ber.decode`.  After a DecodeError the place of the next element is unknown: every later call raises it again.
    """

    def __init__(
        self,
        *,
        max_element: int = ber.MAX_ELEMENT,
        strict: bool = False,
        text: bool = False,
        times: bool = False,
        max_depth: int = ber.MAX_DEPTH,
    ) -> None:
        self._buffer = bytearray()
        self._at = 0
        #: Where the element at `_at` ends; 0 as long as its header is not whole.
        self._end = 0
        #: How long the buffer is at least when that header is whole.
        self._least = 2
        self._max_element = max_element
        self._strict, self._text, self._times, self._max_depth = strict, text, times, max_depth
        self._failed: DecodeError | None = None

    def __repr__(self) -> str:
        return f"<IncrementalDecoder with {self.buffered} bytes, needs {self.needed}>"

    @property
    def buffered(self) -> int:
        """The bytes that were fed and belong to no value yet."""
        return len(self._buffer) - self._at

    @property
    def needed(self) -> int:
        """How many bytes are missing, at least; 0 if a value may be whole."""
        return max(0, (self._end or self._least) - len(self._buffer))

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take what has arrived.  Raises the earlier DecodeError if there was one."""
        if self._failed is not None:
            raise self._failed
        if self._at > _CUT and self._at > len(self._buffer) // 2:
            del self._buffer[: self._at]
            self._end = max(0, self._end - self._at)
            self._least -= self._at
            self._at = 0
        self._buffer += data

    def next_element(self) -> bytes | _NeedData:
        """The bytes of the next element, not decoded; NEED_DATA if it is not whole.  Raises DecodeError."""
        if not self._whole():
            return NEED_DATA
        data = bytes(memoryview(self._buffer)[self._at : self._end])
        self._at, self._end = self._end, 0
        self._least = self._at + 2
        return data

    def next_value(self) -> Any:
        """The value of the next element as `ber.decode` gives it; NEED_DATA if it is not whole.  Raises DecodeError."""
        data = self.next_element()
        if isinstance(data, _NeedData):
            return data
        try:
            return ber.decode(
                data,
                strict=self._strict,
                text=self._text,
                times=self._times,
                max_depth=self._max_depth,
                max_element=self._max_element,
            )[0]
        except DecodeError as exc:
            self._failed = exc
            raise

    def close(self) -> None:
        """Say that nothing more comes.  Raises InsufficientData if an element was begun."""
        if self._failed is not None:
            raise self._failed
        if self.buffered:
            raise InsufficientData(f"the stream ended within an element, of which {self.buffered} bytes had come")

    def _whole(self) -> bool:
        if self._failed is not None:
            raise self._failed
        if not self._end:
            if self.buffered < 2:
                return False
            try:
                # Ten bytes hold the longest header.
                head = bytes(memoryview(self._buffer)[self._at : self._at + 10])
                (_, _, length), begin = ber.decode(head, just_tlv=True, strict=self._strict)
                if begin + length > self._max_element:
                    raise LengthTooLong(
                        f"expected an element of at most {self._max_element} bytes, got one of {begin + length}"
                    )
            except InsufficientData as exc:
                if len(head) < 10:
                    self._least = len(self._buffer) + 1
                    return False
                self._failed = exc
                raise
            except DecodeError as exc:
                self._failed = exc
                raise
            self._end = self._at + begin + length
        return len(self._buffer) >= self._end
