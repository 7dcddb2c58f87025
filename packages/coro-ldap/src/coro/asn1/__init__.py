"""ASN.1: BER and DER both ways, and simple Python values in BER.

    ber         functions that write an element each, and a decoder
    nodes       a tree of elements that keeps its bytes
    streams     elements out of a stream
    python      safe serialisation of simple values
    data_file   files of such values

It needs nothing of coro, and works in any program.  This file holds names only.
"""

from __future__ import annotations

from coro.asn1 import ber, data_file, python
from coro.asn1.dumping import dump
from coro.asn1.exceptions import (
    DecodeError,
    DecodingError,
    EncodeError,
    EncodingError,
    IndefiniteLength,
    InsufficientData,
    LengthTooLong,
    MultiByteTag,
)
from coro.asn1.nodes import Node
from coro.asn1.pem import pem_decode, pem_encode
from coro.asn1.streams import NEED_DATA, IncrementalDecoder

__all__ = [
    "NEED_DATA",
    "DecodeError",
    "DecodingError",
    "EncodeError",
    "EncodingError",
    "IncrementalDecoder",
    "IndefiniteLength",
    "InsufficientData",
    "LengthTooLong",
    "MultiByteTag",
    "Node",
    "ber",
    "data_file",
    "dump",
    "pem_decode",
    "pem_encode",
    "python",
]
