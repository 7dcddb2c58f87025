"""Types of the compiled module ber.pyx."""

from collections.abc import Iterable
from typing import Any, Final, Literal, overload

from _typeshed import ReadableBuffer

from coro.asn1.exceptions import DecodeError as DecodeError
from coro.asn1.exceptions import EncodeError as EncodeError
from coro.asn1.exceptions import IndefiniteLength as IndefiniteLength
from coro.asn1.exceptions import InsufficientData as InsufficientData
from coro.asn1.exceptions import LengthTooLong as LengthTooLong
from coro.asn1.exceptions import MultiByteTag as MultiByteTag

FLAGS_UNIVERSAL: Final = 0x00
FLAGS_STRUCTURED: Final = 0x20
FLAGS_APPLICATION: Final = 0x40
FLAGS_CONTEXT: Final = 0x80
FLAGS_PRIVATE: Final = 0xC0
TAGS_BOOLEAN: Final = 1
TAGS_INTEGER: Final = 2
TAGS_BITSTRING: Final = 3
TAGS_OCTET_STRING: Final = 4
TAGS_NULL: Final = 5
TAGS_OBJID: Final = 6
TAGS_OBJDESCRIPTOR: Final = 7
TAGS_EXTERNAL: Final = 8
TAGS_REAL: Final = 9
TAGS_ENUMERATED: Final = 10
TAGS_EMBEDDED_PDV: Final = 11
TAGS_UTF8STRING: Final = 12
TAGS_SEQUENCE: Final = 16
TAGS_SET: Final = 17
TAG_TABLE: Final[dict[int, str]]
MAX_DEPTH: Final[int]
MAX_ELEMENT: Final[int]

def TLV(tag: int, flags: int, /, *data: ReadableBuffer) -> bytes: ...
def INTEGER(n: int, /) -> bytes: ...
def ENUMERATED(n: int, /) -> bytes: ...
def BOOLEAN(x: object, /) -> bytes: ...
def NULL() -> bytes: ...
def OCTET_STRING(b: ReadableBuffer, /) -> bytes: ...
def UTF8_STRING(s: str | ReadableBuffer, /) -> bytes: ...
def BITSTRING(unused_bits: int, b: ReadableBuffer, /) -> bytes: ...
def SEQUENCE(*elems: ReadableBuffer) -> bytes: ...
def SET(*elems: ReadableBuffer) -> bytes: ...
def OBJID(arcs: Iterable[int], /) -> bytes: ...
def APPLICATION(n: int, structured: object, data: ReadableBuffer, /) -> bytes: ...
def CONTEXT(n: int, structured: object, data: ReadableBuffer, /) -> bytes: ...
def CHOICE(n: int, structured: object, /) -> int: ...
def encode_double(f: float, /) -> bytes: ...
def encode_long_integer(n: int, /) -> bytes: ...
def encode(value: object, /) -> bytes: ...
@overload
def decode(
    data: ReadableBuffer,
    pos: int = 0,
    just_tlv: Literal[False] = False,
    *,
    strict: bool = False,
    indefinite: bool = False,
    text: bool = False,
    times: bool = False,
    max_depth: int | None = None,
    max_element: int | None = None,
) -> tuple[Any, int]: ...
@overload
def decode(
    data: ReadableBuffer,
    pos: int = 0,
    *,
    just_tlv: Literal[True],
    strict: bool = False,
    indefinite: bool = False,
    text: bool = False,
    times: bool = False,
    max_depth: int | None = None,
    max_element: int | None = None,
) -> tuple[tuple[int, int, int], int]: ...
@overload
def decode(
    data: ReadableBuffer,
    pos: int,
    just_tlv: Literal[True],
    *,
    strict: bool = False,
    indefinite: bool = False,
    text: bool = False,
    times: bool = False,
    max_depth: int | None = None,
    max_element: int | None = None,
) -> tuple[tuple[int, int, int], int]: ...
