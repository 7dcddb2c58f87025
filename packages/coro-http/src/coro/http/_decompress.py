"""Unpacking of content codings (RFC 9110 section 8.4) with bounds: gzip, deflate, br and zstd, for both roles.

A few KiB can unpack to gigabytes, so nothing is ever unpacked whole: each call gives at most as many bytes as asked
for, and the whole may not grow beyond ``max_ratio`` times what came in, once it is larger than ``floor``. What a peer
can have this side do is thereby bounded by what it sends. Several codings in one header are a chain; more than
``MOST_CODINGS`` are refused, since each multiplies (CVE-2025-66418 in urllib3). What is between two of them is
compressed still, so it cannot have grown much: more than ``BETWEEN`` times as much is a bomb, even if nothing comes out
at the end, as of a million empty members of gzip.

gzip and deflate are zlib's, "deflate" with its header and, because some servers leave it out, without. br needs the
module brotli or brotlicffi, zstd Python 3.14 (compression.zstd), backports.zstd or zstandard; they are imported when
first asked for, and a coding without a module is not offered. Cost: a copy of each byte for each coding.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from coro.http.exceptions import BombError, DecodeError

__all__ = ["Decompressor", "available"]

MIB = 1024 * 1024
MOST_CODINGS = 3
#: What is between two codings may be so many times what came in, or so many bytes.
BETWEEN, BETWEEN_FLOOR = 20, MIB
#: Bytes that one member of a chain takes at a time.
STEP = 65_536
#: RFC 9659 section 3: HTTP allows windows of 8 MiB at most for zstd.
ZSTD_WINDOW_LOG = 23


class _Coding(Protocol):
    """One coding. ``feed`` returns at most about ``most`` bytes, and holds what it did not take in."""

    def feed(self, data: bytes, most: int) -> bytes: ...
    @property
    def pending(self) -> bool: ...
    @property
    def whole(self) -> bool: ...


class _Zlib:
    """gzip and deflate."""

    _errors: Any = zlib.error

    def __init__(self, gzip: bool) -> None:
        self._gzip = gzip
        self._engine: Any = None
        self._held = b""
        self._full = False
        self._short = False  # what is held is too little to begin with
        self.whole = False  # at the end of a member

    @property
    def pending(self) -> bool:
        return self._full or (bool(self._held) and not self._short)

    def feed(self, data: bytes, most: int) -> bytes:
        if not data and not self.pending:
            return b""
        data = self._held + data if self._held else data
        self._held = b""
        if self._engine is None and not self._choose(data):
            return b""
        out = bytes(self._engine.decompress(data, most))
        self._held = self._engine.unconsumed_tail
        # Without input zlib may still have output, if it stopped because the output was full.
        self._full = len(out) >= most and not self._engine.eof
        if self._engine.eof:
            self.whole, rest = True, self._engine.unused_data
            self._engine = None
            # RFC 1952 section 2.2: members may follow. What else follows is padding, and browsers ignore it.
            self._held = rest if self._gzip and rest[:1] == b"\x1f" else b""
            if rest and not self._held:
                self._gzip = False
                self._engine = _Ignored()
        return out

    def _choose(self, data: bytes) -> bool:
        """Make an engine for what begins here; False if there is too little to tell."""
        if self._gzip:
            self._engine = zlib.decompressobj(31)
        elif self.whole:
            self._engine = _Ignored()
        elif len(data) < 2:
            self._held = data
            self._short = True
            return False
        else:
            # RFC 1950 section 2.2: the first two bytes are a multiple of 31, and the method is 8.
            header = data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0
            self._engine = zlib.decompressobj(15 if header else -15)
        self._short = False
        self.whole = isinstance(self._engine, _Ignored)
        return True


class _Ignored:
    """Takes what follows the end of the data."""

    unconsumed_tail = unused_data = b""
    eof = False

    def decompress(self, data: bytes, most: int = 0) -> bytes:
        return b""


class _Brotli:
    def __init__(self, module: Any) -> None:
        self._engine = module.Decompressor()
        self._held = b""
        self._out = b""  # more than was asked for: the engine gives whole blocks of its own
        self._more = False  # it stopped because of the limit
        self._finished = False

    @property
    def whole(self) -> bool:
        return self._finished and not self._out

    @property
    def pending(self) -> bool:
        return bool(self._out) or (not self._finished and (self._more or bool(self._held)))

    def feed(self, data: bytes, most: int) -> bytes:
        out = self._out
        if len(out) < most and not self._finished:
            # While there is output left the engine takes no input.
            if not self._engine.can_accept_more_data():
                self._held += data
                data = b""
            elif self._held:
                data, self._held = self._held + data, b""
            made = bytes(self._engine.process(data, output_buffer_limit=most))
            self._finished = self._engine.is_finished()
            self._more = bool(made) and not self._finished
            out = out + made if out else made
        elif not self._finished:
            self._held += data
        self._out = out[most:]
        return out[:most]


class _Zstd:
    """Over the interface of compression.zstd; frames may follow each other (RFC 8878 section 3.1)."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._engine = self._made()
        self._held = b""
        self.whole = False

    def _made(self) -> Any:
        parameter = self._module.DecompressionParameter.window_log_max
        return self._module.ZstdDecompressor(options={parameter: ZSTD_WINDOW_LOG})

    @property
    def pending(self) -> bool:
        return bool(self._held) or (not self.whole and not self._engine.eof and not self._engine.needs_input)

    def feed(self, data: bytes, most: int) -> bytes:
        if self._held:
            data, self._held = self._held + data, b""
        if not data and self._engine.needs_input:
            return b""
        self.whole = False
        out = bytes(self._engine.decompress(data, most))
        if self._engine.eof:
            self.whole, self._held = True, self._engine.unused_data
            self._engine = self._made()
        return out


class _Zstandard:
    """The module zstandard has no limit for its output; small steps of input bound it by the window."""

    #: Input at a time: a block of zstd, at most 128 KiB large, takes 3 bytes at least (RFC 8878 section 3.1.1.2).
    INPUT = 128

    def __init__(self, module: Any) -> None:
        self._module = module
        self._engine = self._made()
        self._held = b""
        self._out = b""
        self.whole = False

    def _made(self) -> Any:
        return self._module.ZstdDecompressor(max_window_size=1 << ZSTD_WINDOW_LOG).decompressobj()

    @property
    def pending(self) -> bool:
        return bool(self._held or self._out)

    def feed(self, data: bytes, most: int) -> bytes:
        if data:
            self._held = self._held + data if self._held else data
        position = 0
        gathered = [self._out]
        size = len(self._out)
        while size < most and position < len(self._held):
            piece = self._held[position : position + self.INPUT]
            position += len(piece)
            self.whole = False
            gathered.append(self._engine.decompress(piece))
            size += len(gathered[-1])
            if self._engine.eof:
                self.whole = True
                position -= len(self._engine.unused_data)
                self._engine = self._made()
        self._held = self._held[position:]
        out = b"".join(gathered)
        self._out = out[most:]
        return out[:most]


@cache
def _module(*names: str) -> Any:
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


@cache
def _maker(coding: str) -> tuple[Callable[[], _Coding], tuple[type[Exception], ...]] | None:
    """What makes a decompressor of a coding, and what it raises for damaged data; None if there is no module."""
    if coding in ("gzip", "x-gzip", "deflate"):
        return lambda: _Zlib(coding != "deflate"), (zlib.error,)
    if coding == "br":
        found = _module("brotli", "brotlicffi")
        if found is not None and hasattr(found.Decompressor, "can_accept_more_data"):
            return lambda: _Brotli(found), (found.error,)
    if coding == "zstd":
        found = _module("compression.zstd", "backports.zstd")
        if found is not None:
            return lambda: _Zstd(found), (found.ZstdError, EOFError)
        found = _module("zstandard")
        if found is not None:
            return lambda: _Zstandard(found), (found.ZstdError,)
    return None


def available() -> tuple[str, ...]:
    """The codings that can be unpacked here, the best first."""
    return tuple(coding for coding in ("zstd", "br", "gzip", "deflate") if _maker(coding) is not None)


class Decompressor:
    """Unpacks a body.

    content_encoding: the header's value; with several codings the last was applied last. max_ratio, floor: once more
    than ``floor`` bytes came out, they may be ``max_ratio`` times what went in. max_output: bytes in all, None for no
    limit. DecodeError for a coding that is not known here, or more than three.
    """

    def __init__(
        self, content_encoding: str, *, max_ratio: int = 1000, floor: int = 100 * MIB, max_output: int | None = None
    ) -> None:
        names = [name.strip().lower() for name in content_encoding.split(",") if name.strip()]
        names = [name for name in names if name != "identity"]
        if len(names) > MOST_CODINGS:
            raise DecodeError(f"expected at most {MOST_CODINGS} codings of one body, not {len(names)}")
        self._name = content_encoding
        self._chain: list[_Coding] = []
        errors: list[type[Exception]] = []
        for name in reversed(names):
            made = _maker(name)
            if made is None:
                raise DecodeError(f"the coding {name!r} cannot be unpacked here; known are {', '.join(available())}")
            self._chain.append(made[0]())
            errors += made[1]
        self._errors = tuple(errors)
        self._ratio, self._floor, self._most = max_ratio, floor, max_output
        self._came = self._gone = self._between = 0

    def __repr__(self) -> str:
        return f"<Decompressor of {self._name}: {self._came} bytes in, {self._gone} out>"

    @property
    def pending(self) -> bool:
        """Whether ``feed(b"")`` may give more."""
        return any(coding.pending for coding in self._chain)

    def feed(self, data: bytes, limit: int = STEP) -> bytes:
        """Take in ``data`` and return at most ``limit`` bytes; what is left comes while ``pending``. An empty result
        says nothing about the end. DecodeError for damaged data, BombError beyond the limits."""
        self._came += len(data)
        try:
            out = self._through(bytes(data), limit)
        except self._errors as e:
            raise DecodeError(f"the body is not what its Content-Encoding ({self._name}) says, or damaged: {e}") from e
        self._gone += len(out)
        allowed = max(self._floor, self._ratio * self._came)
        if self._most is not None:
            allowed = min(allowed, self._most)
        if self._gone > allowed:
            raise BombError(
                f"the body of {self._came} bytes has unpacked to more than the {allowed} bytes allowed", 413, allowed
            )
        return out

    def _through(self, data: bytes, limit: int) -> bytes:
        """Push through the chain: what a later coding still holds goes first, so that no stage gathers much."""
        if not self._chain:
            return data
        last = len(self._chain) - 1
        stage = last
        if data:
            stage = 0
        else:
            while stage > 0 and not self._chain[stage].pending:
                stage -= 1
        while True:
            data = self._chain[stage].feed(data, limit if stage == last else STEP)
            if stage == last or not data:
                return data
            self._between += len(data)
            allowed = max(BETWEEN_FLOOR, BETWEEN * self._came) * last
            if self._between > allowed:
                raise BombError(
                    f"the body of {self._came} bytes has more than {allowed} between its codings ({self._name})", 413,
                    allowed,
                )  # fmt: skip
            stage += 1

    def finish(self) -> None:
        """The body has ended: DecodeError if its codings have not. An empty body is taken, too."""
        if self._came and not all(coding.whole for coding in self._chain):
            raise DecodeError(f"the body ended inside its Content-Encoding ({self._name}): it was cut short")
