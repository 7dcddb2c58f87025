"""Which compressions a client asks for, and what unpacks a response.

The work is done by `coro.http._decompress`, for clients and servers alike; here are the client's limits.
"""

from __future__ import annotations

from coro.http._client.limits import Limits
from coro.http._decompress import Decompressor, available

__all__ = ["accepted", "decoder"]


def accepted() -> str:
    """The value of Accept-Encoding: all codings that this Python can unpack."""
    return ", ".join(available())


def decoder(coding: str, limits: Limits) -> Decompressor | None:
    """What unpacks a body with this Content-Encoding; None for "identity" and for codings that nobody asked for, whose
    bytes are handed on as they are."""
    known = {*available(), "x-gzip", "identity"}
    names = [name.strip().lower() for name in coding.split(",") if name.strip()]
    if all(name == "identity" for name in names) or not all(name in known for name in names):
        return None
    return Decompressor(coding, max_ratio=limits.ratio, floor=limits.ratio_floor)
