"""What users give as certificates, keys and the like: a path, PEM as bytes or text, or an object; and PEM bytes of it.

A path is read again by each reload; what was given as bytes stays as it is. Secrets do not touch the disk: where
OpenSSL reads files only, it gets one in memory (memfd_create(2)); where there is no such thing, one that only this user
can read, for the moment of reading.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Chain", "Material", "chain_of", "der_of", "in_file", "material"]

#: A path (str or PathLike), PEM (bytes or str), or an object with ``as_pem()`` or ``get_private()``.
Material = Any

_BEGIN = b"-----BEGIN "


class Chain(NamedTuple):
    """A certificate, those that lead from it to the root, and its key; in PEM."""

    certificates: bytes
    key: bytes


def material(value: Material, what: str) -> bytes:
    """PEM of what was given as ``what``. OSError when a file cannot be read, ValueError when there is no PEM in it,
    TypeError for another kind of object."""
    if isinstance(value, str) and _BEGIN.decode() in value:
        data = value.encode("ascii", "replace")
    elif isinstance(value, (bytes, bytearray, memoryview)) and _BEGIN in bytes(value):
        data = bytes(value)
    elif isinstance(value, (str, bytes, os.PathLike)):
        with open(value, "rb") as file:
            data = file.read()
    elif callable(getattr(value, "get_private", None)):
        data = _bytes(value.get_private())
    elif callable(getattr(value, "as_pem", None)):
        data = _bytes(value.as_pem())
    else:
        raise TypeError(f"expected {what} as a path, PEM, or an object of coro.ssl, not {type(value).__name__}")
    if _BEGIN not in data:
        raise ValueError(f"expected {what} in PEM, with a line -----BEGIN ..., and found none")
    return data


def _bytes(value: Any) -> bytes:
    return value.encode("ascii") if isinstance(value, str) else bytes(value)


def chain_of(cert: Material, key: Material | None, chain: Any = ()) -> Chain:
    """``cert`` with the certificates of ``chain`` behind it, and ``key``, which is in the file of the certificate if it
    is None."""
    first = material(cert, "the certificate")
    rest = (chain,) if isinstance(chain, (str, bytes, os.PathLike)) else chain
    parts = [first, *(material(one, "a certificate of the chain") for one in rest)]
    secret = first if key is None else material(key, "the key")
    if b"PRIVATE KEY-----" not in secret:
        raise ValueError("expected a private key beside the certificate: pass key=")
    return Chain(b"\n".join(parts), secret)


def der_of(pem: bytes) -> bytes:
    """The first certificate of PEM in DER."""
    import base64

    begin = pem.find(b"-----BEGIN CERTIFICATE-----")
    end = pem.find(b"-----END CERTIFICATE-----", begin)
    if begin < 0 or end < 0:
        raise ValueError("expected a certificate in PEM, and found none")
    return base64.b64decode(pem[begin + 27 : end])


@contextlib.contextmanager
def in_file(data: bytes) -> Iterator[str]:
    """The path of a file with these bytes, which goes away at the end of the block."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        fd = os.memfd_create("coro-ssl", os.MFD_CLOEXEC)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(data)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    fd, path = tempfile.mkstemp(prefix="coro-ssl-")  # mode 0600
    try:
        with open(fd, "wb") as file:
            file.write(data)
        yield path
    finally:
        os.unlink(path)
