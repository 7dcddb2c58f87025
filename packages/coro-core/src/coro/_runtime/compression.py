"""Back ends for compressed stacks: the fastest level of the best library at hand.

zlib is always there; Zstandard (standard library from Python 3.14 on, else the ``zstandard`` package) and LZ4 (the
``lz4`` package) are several times faster and taken when installed. Stacks are a few hundred bytes to a few KiB.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

__all__ = ["NAME", "pack", "unpack"]


def _choose() -> tuple[str, Callable[[bytes], bytes], Callable[[bytes, int], bytes]]:
    try:
        import lz4.block
    except ImportError:
        pass
    else:
        return (
            "lz4",
            lambda data: bytes(lz4.block.compress(data, store_size=False)),
            lambda data, size: bytes(lz4.block.decompress(data, uncompressed_size=size)),
        )
    try:
        from compression import zstd
    except ImportError:
        pass
    else:
        return "zstd", lambda data: zstd.compress(data, level=1), lambda data, size: zstd.decompress(data)
    return "zlib", lambda data: zlib.compress(data, 1), lambda data, size: zlib.decompress(data)


NAME, pack, unpack = _choose()
