"""Content codings for answers (RFC 9110 8.4): which one a client takes, and compressing with gzip, deflate, br or zstd.

gzip and deflate are zlib's. br needs the package brotli. zstd is in the standard library from Python 3.14 on
(PEP 784), and in the package zstandard before. A coding whose library is missing is not offered. Unpacking is in
`_decompress`, where it has to be bounded.

Cost: that of the libraries. Rejected: compressing in a worker OS thread (a page of 50 KiB takes a millisecond; the
hand-over takes a tenth of it, and the order of what is sent would need a lock).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any

__all__ = ["Compressor", "available", "choose", "parse_qualities"]

#: Bits of the window of zstd: 1 MiB, of the 8 that RFC 9659 allows, for the client has to keep it.
ZSTD_WINDOW_LOG = 20
#: Characters of an Accept-Encoding that is looked at, and remembered.
MOST_TEXT = 512


def _library(*names: str) -> Any:
    for name in names:
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


@lru_cache(maxsize=1)
def available() -> tuple[str, ...]:
    """The codings that this Python has libraries for, the preferred one first."""
    found = []
    if _library("compression.zstd", "zstandard"):
        found.append("zstd")
    if _library("brotli", "brotlicffi"):
        found.append("br")
    return (*found, "gzip", "deflate")


@lru_cache(maxsize=1024)
def parse_qualities(text: str) -> dict[str, float]:
    """``"gzip, br;q=0.5"`` as a dict of lower-case names to qualities (RFC 9110 12.4.2); what is not understood counts
    as not acceptable."""
    found: dict[str, float] = {}
    for part in text[:4096].split(",")[:64]:
        name, *parameters = part.split(";")
        quality = 1.0
        for parameter in parameters:
            key, _, value = parameter.strip().partition("=")
            if key.strip().lower() == "q":
                value = value.strip()
                plain = value.replace(".", "", 1)
                quality = float(value) if plain.isascii() and plain.isdigit() and len(value) <= 5 else 0.0
        if name.strip():
            found.setdefault(name.strip().lower(), min(quality, 1.0))
    return found


@lru_cache(maxsize=1024)
def _chosen(accept_encoding: str, offered: tuple[str, ...]) -> str | None:
    qualities = parse_qualities(accept_encoding)
    rest = qualities.get("*", 0.0)
    best, best_quality = None, 0.0
    for coding in offered:
        quality = qualities.get(coding, rest)
        if quality > best_quality:
            best, best_quality = coding, quality
    # RFC 9110 12.5.3: what is not coded is acceptable unless told otherwise.
    identity = qualities.get("identity", 0.0)
    return best if best_quality >= identity else None


def choose(accept_encoding: str | None, offered: Iterable[str] | None = None) -> str | None:
    """The coding to answer with: the one of ``offered`` (None: all that are available) with the greatest quality in the
    client's Accept-Encoding, the first of equals. None: as it is."""
    if not accept_encoding or len(accept_encoding) > MOST_TEXT:
        return None
    return _chosen(accept_encoding, available() if offered is None else tuple(offered))


class Compressor:
    """Compresses a stream of bytes. ``coding``: one of ``available()``; ``level``: the library's, None for one that is
    quick enough for answers made on the spot. ValueError for another coding."""

    def __init__(self, coding: str, level: int | None = None) -> None:
        self.coding = coding
        self._sync: Callable[[], bytes]
        if coding in ("gzip", "deflate"):
            z = zlib.compressobj(5 if level is None else level, zlib.DEFLATED, 31 if coding == "gzip" else 15)
            self.compress: Callable[[bytes], bytes] = z.compress
            self._sync = lambda: z.flush(zlib.Z_SYNC_FLUSH)
            self.finish: Callable[[], bytes] = z.flush
        elif coding == "br" and "br" in available():
            b = _library("brotli", "brotlicffi").Compressor(quality=4 if level is None else level)
            self.compress = b.process
            self._sync = b.flush
            self.finish = b.finish
        elif coding == "zstd" and "zstd" in available():
            self._zstd(3 if level is None else level)
        else:
            raise ValueError(f"expected one of {', '.join(available())} as content coding, not {coding!r}")

    def _zstd(self, level: int) -> None:
        library = _library("compression.zstd", "zstandard")
        c: Any
        if hasattr(library, "CompressionParameter"):
            options = {
                library.CompressionParameter.compression_level: level,
                library.CompressionParameter.window_log: ZSTD_WINDOW_LOG,
            }
            c = library.ZstdCompressor(options=options)
            self._sync = lambda: c.flush(c.FLUSH_BLOCK)
            self.finish = lambda: c.flush(c.FLUSH_FRAME)
        else:
            c = library.ZstdCompressor(level=level).compressobj()
            self._sync = lambda: c.flush(library.COMPRESSOBJ_FLUSH_BLOCK)
            self.finish = c.flush
        self.compress = c.compress

    def flush(self) -> bytes:
        """What is needed for the other side to see all that was compressed so far."""
        return self._sync()
