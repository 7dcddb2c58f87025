"""What EDNS options say, between bytes and values."""

from __future__ import annotations

import ipaddress
from typing import Any

from coro.dns._packet.codec import PackError, UnpackError
from coro.dns._packet.numbers import EDNS

__all__ = ["option_data", "option_value"]


def option_value(code: int, data: bytes) -> Any:
    """What the option of the number ``code`` says.

    A client subnet (RFC 7871) is ``(address, source_prefix, scope_prefix)``, the address as text; a cookie (RFC 7873)
    is the pair ``(client, server)``, the latter empty if there is none; an extended error (RFC 8914) is ``(number,
    text)``; padding (RFC 7830) is its length; a keepalive time (RFC 7828) is in seconds, None if there is
    none; an expire time (RFC 7314) is in seconds, None if there is none; all else, NSID (RFC 5001) too, is bytes.

    Raises UnpackError if ``data`` does not fit.
    """
    if code == EDNS.ECS:
        return _subnet(data)
    if code == EDNS.COOKIE:
        if len(data) != 8 and not 16 <= len(data) <= 40:
            raise UnpackError(f"a cookie has 8 or 16 to 40 bytes, not {len(data)}")
        return data[:8], data[8:]
    if code == EDNS.EDE:
        if len(data) < 2:
            raise UnpackError("an extended error without a number")
        return int.from_bytes(data[:2], "big"), data[2:].decode("utf-8", "replace").rstrip("\0")
    if code == EDNS.PADDING:
        return len(data)
    if code in (EDNS.KEEPALIVE, EDNS.EXPIRE):
        size = 2 if code == EDNS.KEEPALIVE else 4
        if len(data) not in (0, size):
            raise UnpackError(f"a time of {size} bytes or none, not {len(data)}")
        number = int.from_bytes(data, "big")
        return None if not data else number / 10 if size == 2 else number
    return data


def _subnet(data: bytes) -> tuple[str, int, int]:
    if len(data) < 4:
        raise UnpackError("a client subnet without a family")
    family, source, scope, rest = int.from_bytes(data[:2], "big"), data[2], data[3], data[4:]
    size = {1: 4, 2: 16}.get(family)
    if size is None or source > 8 * size or scope > 8 * size or len(rest) != (source + 7) // 8:
        raise UnpackError("a client subnet whose family, prefixes and address do not fit each other")
    if source % 8 and rest[-1] & 255 >> source % 8:
        raise UnpackError("a client subnet with bits beyond its prefix")
    return str(ipaddress.ip_address(rest.ljust(size, b"\0"))), source, scope


def option_data(code: int, value: Any) -> bytes:
    """The bytes of an option, from what ``option_value`` gives; bytes are taken as they are. Raises PackError if the
    value does not fit."""
    if isinstance(value, bytes):
        return value
    try:
        if code == EDNS.ECS:
            address, source, scope = value
            raw = ipaddress.ip_address(address)
            if not 0 <= source <= raw.max_prefixlen or not 0 <= scope <= raw.max_prefixlen:
                raise ValueError("a prefix that is too long")
            network = ipaddress.ip_network((raw, source), strict=False).network_address.packed
            return bytes((0, 1 if raw.version == 4 else 2, source, scope)) + network[: (source + 7) // 8]
        if code == EDNS.COOKIE:
            client, server = value
            if len(client) != 8 or len(server) and not 8 <= len(server) <= 32:
                raise ValueError("8 bytes of the client and 8 to 32 of the server, or none")
            return bytes(client + server)
        if code == EDNS.EDE:
            number, text = value
            return int(number).to_bytes(2, "big") + bytes(text.encode())
        if code == EDNS.PADDING:
            return bytes(value)
        if code in (EDNS.KEEPALIVE, EDNS.EXPIRE):
            size = 2 if code == EDNS.KEEPALIVE else 4
            return b"" if value is None else round(value * 10 if size == 2 else value).to_bytes(size, "big")
    except (ValueError, TypeError, OverflowError) as e:
        raise PackError(f"a value that does not fit the option {code}: {e}") from None
    raise PackError(f"expected bytes for the option {code}, not {type(value).__name__}")
