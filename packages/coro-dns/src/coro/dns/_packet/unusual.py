"""Texts of the types whose data is not just one field after the other: LOC (RFC 1876), WKS (RFC 1035, section 3.4.2),
NXT (RFC 2535, section 5.2), IPSECKEY (RFC 4025), HIP (RFC 8005), NID and L64 (RFC 6742), EUI48 and EUI64 (RFC 7043),
AMTRELAY (RFC 8777).

A function each way for each type. Data that its text could not give back exactly (a size of LOC that is written in an
unusual way, an unknown kind of gateway) is left to the caller, who writes it as ``\\# LENGTH HEX``.
"""

from __future__ import annotations

import base64
import ipaddress
import re
import socket
from collections.abc import Callable

from coro.dns._packet import codec
from coro.dns._packet.codec import PackError, UnpackError
from coro.dns._packet.numbers import type_number, type_text
from coro.dns._packet.words import Words, absolute, from_base64, from_hex, number

__all__ = ["UNUSUAL", "check"]

_DNAME = 39  # whose data is a name that is not compressed, and keeps its letters
_PROTOCOLS = {"ICMP": 1, "TCP": 6, "UDP": 17}


def _name_text(data: bytes) -> str:
    return str((codec.fields_of(_DNAME, data) or [""])[0]) + "."


def _name_data(text: str, origin: str) -> bytes:
    return codec.data_of(_DNAME, [absolute(text, origin)])


def _up_to(words: Words, bits: int) -> int:
    n = number(words)
    if n >> bits:
        raise PackError(f"expected a number below {1 << bits}, not {n}")
    return n


# -- LOC: a place on earth

_EQUATOR = 1 << 31  # and the meridian of Greenwich, in thousandths of seconds of arc
_SEA = 100_000_00  # the reference of heights, in centimetres


def _angle_text(raw: int, positive: str, negative: str) -> str:
    angle = abs(raw - _EQUATOR)
    degrees, rest = divmod(angle, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    return f"{degrees} {minutes} {rest // 1000}.{rest % 1000:03d} {positive if raw >= _EQUATOR else negative}"


def _metres(centimetres: int) -> str:
    sign = "-" if centimetres < 0 else ""
    return f"{sign}{abs(centimetres) // 100}.{abs(centimetres) % 100:02d}m"


def _loc_text(data: bytes) -> str:
    fields = codec.fields_of(29, data) or []
    version, *sizes, latitude, longitude, altitude = fields
    check(29, data)
    if version or any(size >> 4 > 9 or size & 15 > 9 for size in sizes):
        raise UnpackError("a place in a form that has no text")
    extents = " ".join(_metres((size >> 4) * 10 ** (size & 15)) for size in sizes)
    where = f"{_angle_text(latitude, 'N', 'S')} {_angle_text(longitude, 'E', 'W')}"
    return f"{where} {_metres(altitude - _SEA)} {extents}"


def _angle(words: Words, positive: str, negative: str, most: int) -> int:
    parts: list[str] = []
    while (word := words.next()).upper() not in (positive, negative):
        parts.append(word)
    text = " ".join(parts)
    found = re.fullmatch(r"(\d{1,3})(?: (\d{1,2})(?: (\d{1,2})(?:\.(\d{1,3}))?)?)?", text, re.ASCII)
    if found is None or int(found[2] or 0) > 59 or int(found[3] or 0) > 59:
        raise PackError(f"expected degrees, minutes and seconds before {positive} or {negative}, not {text!r}")
    angle = int(found[1]) * 3_600_000 + int(found[2] or 0) * 60_000 + int(found[3] or 0) * 1000
    angle += int((found[4] or "").ljust(3, "0"))
    if angle > most * 3_600_000:
        raise PackError(f"an angle of more than {most} degrees: {text!r}")
    return _EQUATOR + (angle if word.upper() == positive else -angle)


def _centimetres(word: str) -> int:
    found = re.fullmatch(r"(-?)(\d{1,9})(?:\.(\d{0,2}))?m?", word, re.ASCII | re.I)
    if found is None:
        raise PackError(f"expected metres, with two digits behind the point at most, not {word!r}")
    length = int(found[2]) * 100 + int((found[3] or "").ljust(2, "0"))
    return -length if found[1] else length


def _extent(word: str) -> int:
    length = _centimetres(word)
    if not 0 <= length <= 9_000_000_000:
        raise PackError(f"expected from 0 to 90000000 metres, not {word!r}")
    digits = str(length)
    return int(digits[0]) << 4 | len(digits) - 1  # one digit and zeros: there is no room for more


def _loc_data(words: Words) -> bytes:
    latitude = _angle(words, "N", "S", 90)
    longitude = _angle(words, "E", "W", 180)
    altitude = _centimetres(words.next()) + _SEA
    if not 0 <= altitude < 1 << 32:
        raise PackError(f"expected a height from -100000 to 42849672.95 metres, not {(altitude - _SEA) / 100}")
    given = [_extent(word) for word in words.rest(3)]
    sizes = [*given, *(0x12, 0x16, 0x13)[len(given) :]]  # 1 m, 10 km, 10 m
    return codec.data_of(29, [0, *sizes, latitude, longitude, altitude])


# -- WKS: services of an address


def _bits(data: bytes) -> list[int]:
    return [i for i in range(8 * len(data)) if data[i // 8] & 128 >> i % 8]


def _bitmap(numbers: list[int]) -> bytes:
    out = bytearray(max(numbers) // 8 + 1 if numbers else 0)
    for i in numbers:
        out[i // 8] |= 128 >> i % 8
    return bytes(out)


def _wks_text(data: bytes) -> str:
    address, protocol, bitmap = codec.fields_of(11, data) or []
    return " ".join([str(address), *map(str, (protocol, *_bits(bitmap)))])


def _service(text: str, protocol: int) -> int:
    if text.isascii() and text.isdigit():
        if int(text[:6]) > 65535:
            raise PackError(f"expected a port up to 65535, not {text}")
        return int(text)
    try:
        return socket.getservbyname(text.lower(), "udp" if protocol == 17 else "tcp")
    except (OSError, ValueError):  # ValueError: NULs and letters that are not ASCII
        raise PackError(f"expected a service that this system knows, or its port, not {text!r}") from None


def _wks_data(words: Words) -> bytes:
    address = words.next()
    protocol = _PROTOCOLS.get(words.peek().upper())
    if protocol is None:
        protocol = _up_to(words, 8)
    else:
        words.next()
    return codec.data_of(11, [address, protocol, _bitmap([_service(word, protocol) for word in words.rest()])])


# -- NXT: what NSEC was before


def _nxt_text(data: bytes) -> str:
    name, bitmap = codec.fields_of(30, data) or []
    return " ".join([f"{name}.", *map(type_text, _bits(bitmap))])


def _nxt_data(words: Words) -> bytes:
    name = absolute(words.next(), words.origin)
    try:
        numbers = [type_number(word) for word in words.rest()]
    except ValueError as e:
        raise PackError(str(e)) from None
    if any(one > 127 for one in numbers):
        raise PackError("the types of an NXT record are below 128")
    return codec.data_of(30, [name, _bitmap(numbers)])


# -- IPSECKEY, HIP: keys, and where to go with them


def _gateway_text(kind: int, data: bytes) -> tuple[str, bytes]:
    """Where to go: nowhere, an address or a name; and the bytes behind it."""
    size = {0: 0, 1: 4, 2: 16, 3: _name_size(data, 0) if kind == 3 else 0}.get(kind)
    if size is None or len(data) < size:
        raise UnpackError("a gateway of an unknown kind, or cut off")
    raw = data[:size]
    return "." if not kind else _name_text(raw) if kind == 3 else str(ipaddress.ip_address(raw)), data[size:]


def _gateway_data(kind: int, gateway: str, origin: str) -> bytes:
    if kind > 3 or not kind and gateway != ".":
        raise PackError(f"expected a gateway of the kinds 1 to 3, or 0 and a dot, not {kind} and {gateway!r}")
    if kind == 3:
        return _name_data(gateway, origin)
    if not kind:
        return b""
    try:
        return (ipaddress.IPv4Address if kind == 1 else ipaddress.IPv6Address)(gateway).packed
    except ValueError as e:
        raise PackError(str(e)) from None


def _ipseckey_text(data: bytes) -> str:
    if len(data) < 3:
        raise UnpackError("the data of an IPSECKEY record is too short")
    precedence, kind, algorithm = data[:3]
    gateway, key = _gateway_text(kind, data[3:])
    return f"{precedence} {kind} {algorithm} {gateway} {base64.b64encode(key).decode()}".rstrip()


def _ipseckey_data(words: Words) -> bytes:
    precedence, kind, algorithm = (_up_to(words, 8) for _ in range(3))
    gateway = words.next()
    raw = _gateway_data(kind, gateway, words.origin)
    return bytes((precedence, kind, algorithm)) + raw + from_base64("".join(words.rest()))


def _name_size(data: bytes, at: int) -> int:
    begin = at
    while at < len(data) and data[at]:
        at += data[at] + 1
    if at >= len(data):
        raise UnpackError("a name that is cut off")
    return at + 1 - begin


def _hip_text(data: bytes) -> str:
    if len(data) < 4 or len(data) < 4 + data[0] + int.from_bytes(data[2:4], "big"):
        raise UnpackError("the data of a HIP record is too short")
    tag_end = 4 + data[0]
    at = tag_end + int.from_bytes(data[2:4], "big")
    if not data[0] or at == tag_end:
        raise UnpackError("a HIP record without a tag or a key has no text")
    words = [str(data[1]), data[4:tag_end].hex().upper(), base64.b64encode(data[tag_end:at]).decode()]
    while at < len(data):
        size = _name_size(data, at)
        words.append(_name_text(data[at : at + size]))
        at += size
    return " ".join(words)


def _hip_data(words: Words) -> bytes:
    algorithm = _up_to(words, 8)
    tag, key = from_hex(words.next()), from_base64(words.next())
    if not 0 < len(tag) < 256 or not 0 < len(key) < 65536:
        raise PackError(f"expected a tag of 1 to 255 bytes and a key of 1 to 65535, not {len(tag)} and {len(key)}")
    servers = b"".join(_name_data(word, words.origin) for word in words.rest())
    return bytes((len(tag), algorithm)) + len(key).to_bytes(2, "big") + tag + key + servers


# -- AMTRELAY: where multicast comes through


def _amtrelay_text(data: bytes) -> str:
    if len(data) < 2:
        raise UnpackError("the data of an AMTRELAY record is too short")
    relay, rest = _gateway_text(data[1] & 127, data[2:])
    if rest:
        raise UnpackError("bytes behind the relay")
    return f"{data[0]} {data[1] >> 7} {data[1] & 127} {relay}"


def _amtrelay_data(words: Words) -> bytes:
    precedence, discovery, kind = (_up_to(words, bits) for bits in (8, 1, 7))
    return bytes((precedence, discovery << 7 | kind)) + _gateway_data(kind, words.next(), words.origin)


# -- NID, L64: halves of IPv6 addresses


def _half_text(data: bytes) -> str:
    if len(data) != 10:
        raise UnpackError(f"expected 10 bytes, not {len(data)}")
    return f"{int.from_bytes(data[:2], 'big')} {data[2:].hex(':', 2)}"


def _half_data(words: Words) -> bytes:
    preference, text = _up_to(words, 16), words.next()
    if re.fullmatch(r"[0-9A-Fa-f]{1,4}(:[0-9A-Fa-f]{1,4}){3}", text, re.ASCII) is None:
        raise PackError(f"expected four groups of hexadecimal digits with : between them, not {text!r}")
    return codec.pack16bit(preference) + b"".join(codec.pack16bit(int(one, 16)) for one in text.split(":"))


# -- EUI48, EUI64: addresses of network cards


def _eui_text(data: bytes, size: int) -> str:
    if len(data) != size:
        raise UnpackError(f"expected {size} bytes, not {len(data)}")
    return data.hex("-")


def _eui_data(words: Words, size: int) -> bytes:
    text = words.next()
    if re.fullmatch(rf"[0-9A-Fa-f]{{2}}(-[0-9A-Fa-f]{{2}}){{{size - 1}}}", text, re.ASCII) is None:
        raise PackError(f"expected {size} pairs of hexadecimal digits with - between them, not {text!r}")
    return bytes.fromhex(text.replace("-", ""))


# -- what the fields one by one cannot show

_SIZES = {108: 6, 109: 8}  # EUI48, EUI64
_URI, _LOC = 256, 29


def check(rtype: int, data: bytes) -> None:
    """Is this data of a record what its type means? Raises UnpackError for a place of LOC that is not on earth (other
    versions than 0 mean something else), an EUI48 or EUI64 of another length, and a URI that is empty."""
    size = _SIZES.get(rtype)
    if size is not None and len(data) != size:
        raise UnpackError(f"expected {size} bytes, not {len(data)}")
    if rtype == _URI and len(data) == 4:
        raise UnpackError("expected a URI behind its priority and weight (RFC 7553, section 4.4)")
    if rtype == _LOC and len(data) == 16 and not data[0]:
        latitude, longitude = (int.from_bytes(data[at : at + 4], "big") for at in (4, 8))
        if abs(latitude - _EQUATOR) > 90 * 3_600_000 or abs(longitude - _EQUATOR) > 180 * 3_600_000:
            raise UnpackError("a place that is not on earth (RFC 1876)")


#: Type -> data to text (UnpackError: it has none), and the words of a text to data (PackError).
UNUSUAL: dict[int, tuple[Callable[[bytes], str], Callable[[Words], bytes]]] = {
    11: (_wks_text, _wks_data),
    29: (_loc_text, _loc_data),
    30: (_nxt_text, _nxt_data),
    45: (_ipseckey_text, _ipseckey_data),
    55: (_hip_text, _hip_data),
    104: (_half_text, _half_data),
    106: (_half_text, _half_data),
    108: (lambda data: _eui_text(data, 6), lambda words: _eui_data(words, 6)),
    109: (lambda data: _eui_text(data, 8), lambda words: _eui_data(words, 8)),
    260: (_amtrelay_text, _amtrelay_data),
}
