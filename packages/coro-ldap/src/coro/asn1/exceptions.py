"""The errors of `coro.asn1`, in two families: what came in is wrong (`DecodeError`), or what should go out
(`EncodeError`).

All are ValueErrors, so a program that only wants to know "bad data" need not import this module.
"""

from __future__ import annotations

__all__ = [
    "DecodeError",
    "DecodingError",
    "EncodeError",
    "EncodingError",
    "IndefiniteLength",
    "InsufficientData",
    "LengthTooLong",
    "MultiByteTag",
]


class EncodeError(ValueError):
    """A value cannot be encoded: out of the range that its type has in ASN.1, nested too deep, or 2 GiB and more."""


class EncodingError(EncodeError, TypeError):
    """`coro.asn1.python.encode` got an object of a type that it does not write, or one nested too deep."""


class DecodeError(ValueError):
    """The bytes are no valid encoding, or break a limit.  Its subclasses say more."""


class InsufficientData(DecodeError):
    """The bytes end within an element."""


class LengthTooLong(DecodeError):
    """An element says that it is longer than the limit, or has more than four bytes of length."""


class IndefiniteLength(DecodeError):
    """An element of indefinite length (X.690, 8.1.3.6), and the caller did not allow that."""


class MultiByteTag(DecodeError):
    """A tag number of more than five bytes, or one that is not encoded as X.690, 8.1.2.4, wants it."""


class DecodingError(DecodeError):
    """The bytes are valid BER, but nothing that `coro.asn1.python.encode` writes."""
