"""Errors of the classic names, and the import of `cryptography` with advice where it is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Error", "UnknownCipherType", "UnknownDigestType", "WantRead", "WantWrite", "installed", "told"]


class Error(Exception):
    """Something is wrong with a certificate, a key or an operation on them. ``code`` is a number, 0 where the library
    below has none; ``text`` says what was expected."""

    def __init__(self, code: int = 0, text: str = "") -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"{self.text} (error {self.code})" if self.code else self.text


class WantRead(Error):
    """A handshake or a read on a non-blocking connection needs more bytes from the other side."""


class WantWrite(Error):
    """A handshake or a write on a non-blocking connection has bytes that the socket does not take now."""


class UnknownCipherType(Error):
    """No cipher has this name."""


class UnknownDigestType(Error):
    """No digest has this name."""


@contextmanager
def installed() -> Iterator[None]:
    """Around imports of `cryptography`: says what to install."""
    try:
        yield
    except ImportError as e:
        if (e.name or "").partition(".")[0] not in ("cryptography", "_cffi_backend", "cffi"):
            raise
        raise ImportError(
            "certificates and keys need the distribution cryptography, version 42 or newer: "
            'pip install "coro-ssl[certificates]"',
            name=e.name,
        ) from e


@contextmanager
def told(what: str) -> Iterator[None]:
    """Around calls of `cryptography`: what it cannot read or do becomes an Error that begins with ``what``."""
    try:
        yield
    except Error:
        raise
    except Exception as e:
        text = str(e) or type(e).__name__
        raise Error(0, f"{what}: {text}") from e
