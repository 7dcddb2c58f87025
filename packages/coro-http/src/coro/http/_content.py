"""Content codings (RFC 9110 8.4): gzip, deflate, br and zstd, for the server's answers and the client's.

One room for both sides, because both have the same danger: a kilobyte that becomes a gigabyte. A `Decompressor` hands
out at most as much as is asked for and keeps the rest as input; it refuses to go on when the output is more than
``max_ratio`` times the input, once there are more than ``floor`` bytes of it, or when it passes ``max_output``.

gzip and deflate are zlib's. br needs the package brotli. zstd is in the standard library from Python 3.14 on
(PEP 784), and in the package zstandard before. A coding whose library is missing is neither offered nor asked for.

Cost: that of the libraries. Rejected: compressing in a worker OS thread (a page of 50 KiB takes a millisecond; the
hand-over takes a tenth of it, and the order of what is sent would need a lock).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any

from coro.http.exceptions import BombError, DecodeError

__all__ = ["Compressor", "Decompressor", "available", "choose", "parse_qualities"]

#: Output/input beyond which a body is taken for a bomb; zlib itself ends at 1032.
MAX_RATIO = 1000
#: Bytes of output that are allowed at any ratio.
FLOOR = 100 * 1024 * 1024
#: Bytes of output asked of a library at a time.
BLOCK = 65536
#: Input given at a time to libraries that cannot bound their output.
SLICE = 64
#: Bits of the window of zstd that are taken: 8 MiB (RFC 9659).
ZSTD_WINDOW_LOG = 23


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
    if not accept_encoding:
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
                library.CompressionParameter.window_log: min(ZSTD_WINDOW_LOG, 20),
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


class _Zlib:
    """gzip or deflate; for deflate, with and without the header of zlib, which some senders leave out."""

    def __init__(self, coding: str) -> None:
        self._guess = coding == "deflate"
        self._bits = 15 if coding == "deflate" else 31
        self._made = zlib.decompressobj(self._bits)
        self._rest = b""

    def feed(self, data: bytes, limit: int) -> bytes:
        data = self._rest + data
        try:
            out = self._made.decompress(data, limit)
        except zlib.error:
            if not self._guess:
                raise
            self._made = zlib.decompressobj(-15)
            out = self._made.decompress(data, limit)
        self._guess = self._guess and not out
        self._rest = self._made.unconsumed_tail
        if self._made.eof and self._made.unused_data and self._bits == 31:
            # another member (RFC 1952 2.2)
            self._rest = self._made.unused_data
            self._made = zlib.decompressobj(31)
        return out

    @property
    def pending(self) -> bool:
        return bool(self._rest)

    @property
    def eof(self) -> bool:
        return self._made.eof


class _Brotli:
    def __init__(self) -> None:
        self._made = _library("brotli", "brotlicffi").Decompressor()
        self._bounded = hasattr(self._made, "can_accept_more_data")
        self._rest = b""

    def feed(self, data: bytes, limit: int) -> bytes:
        self._rest += data
        if self._bounded:
            if not self._made.can_accept_more_data():
                return self._made.process(b"", output_buffer_limit=limit)  # type: ignore[no-any-return]
            piece, self._rest = self._rest, b""
            return self._made.process(piece, output_buffer_limit=limit)  # type: ignore[no-any-return]
        piece, self._rest = self._rest[:SLICE], self._rest[SLICE:]
        return self._made.process(piece)  # type: ignore[no-any-return]

    @property
    def pending(self) -> bool:
        return bool(self._rest) or (self._bounded and not self._made.can_accept_more_data())

    @property
    def eof(self) -> bool:
        return bool(self._made.is_finished())


class _Zstd:
    def __init__(self) -> None:
        library = _library("compression.zstd", "zstandard")
        self._bounded = hasattr(library, "DecompressionParameter")
        if self._bounded:
            self._made = library.ZstdDecompressor(
                options={library.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG}
            )
        else:
            self._made = library.ZstdDecompressor(max_window_size=1 << ZSTD_WINDOW_LOG).decompressobj()
        self._rest = b""

    def feed(self, data: bytes, limit: int) -> bytes:
        self._rest += data
        if self._made.eof:
            return b""
        if self._bounded:
            piece, self._rest = self._rest, b""
            return self._made.decompress(piece, limit)  # type: ignore[no-any-return]
        piece, self._rest = self._rest[:SLICE], self._rest[SLICE:]
        return self._made.decompress(piece) if piece else b""

    @property
    def pending(self) -> bool:
        return not self._made.eof and (bool(self._rest) or (self._bounded and not self._made.needs_input))

    @property
    def eof(self) -> bool:
        return bool(self._made.eof)


def _stage(coding: str) -> Any:
    if coding in ("gzip", "x-gzip", "deflate"):
        return _Zlib(coding.removeprefix("x-"))
    if coding == "br" and "br" in available():
        return _Brotli()
    if coding == "zstd" and "zstd" in available():
        return _Zstd()
    raise DecodeError(f"expected a content coding out of {', '.join(available())}, not {coding!r}", 415)


class Decompressor:
    """Unpacks a body with this Content-Encoding, which may name several codings.

    ``max_ratio``: output bytes per input byte, allowed once there are more than ``floor`` bytes of output.
    ``max_output``: bytes of output, None for no limit. `DecodeError` for a coding that is not available, or for more
    than three of them.
    """

    def __init__(
        self, coding: str, *, max_ratio: float = MAX_RATIO, floor: int = FLOOR, max_output: int | None = None
    ) -> None:
        names = [name.strip().lower() for name in coding.split(",")]
        names = [name for name in names if name and name != "identity"]
        if len(names) > 3:
            raise DecodeError(f"expected at most three content codings, not {len(names)}", 415)
        self._coding = coding
        self._stages = [_stage(name) for name in reversed(names)]
        self._max_ratio, self._floor, self._max_output = max_ratio, floor, max_output
        self._in = self._out = 0

    def feed(self, data: bytes, limit: int = BLOCK) -> bytes:
        """Take in ``data`` and return about ``limit`` bytes of output at most, perhaps none. Call it with ``b""`` as
        long as ``pending``. `DecodeError` if the data are damaged, `BombError` if the output passes the limits."""
        self._in += len(data)
        if not self._stages:
            self._out += len(data)
            self._check()
            return data
        try:
            for stage in self._stages:
                data = stage.feed(data, limit)
        except (BombError, MemoryError):
            raise
        except Exception as e:  # each library has errors of its own
            raise DecodeError(f"the body is not valid {self._coding}: {e}") from e
        self._out += len(data)
        self._check()
        return data

    def _check(self) -> None:
        if self._max_output is not None and self._out > self._max_output:
            raise BombError(f"the decompressed body is longer than {self._max_output} bytes", 413, self._max_output)
        if self._out > self._floor and self._out > self._in * self._max_ratio:
            raise BombError(
                f"{self._in} bytes of {self._coding} have become {self._out}, more than {self._max_ratio:g} times as "
                f"much; raise the limit if that can be right",
                413,
                int(self._max_ratio),
            )

    @property
    def pending(self) -> bool:
        """Whether there is more output without more input."""
        return any(stage.pending for stage in self._stages)

    def finish(self) -> None:
        """To be called at the end of the body: `DecodeError` if it ended too early."""
        if self._in and not all(stage.eof for stage in self._stages):
            raise DecodeError(f"the body ended within its {self._coding} data")
