"""The data of records as the text of zone files, both ways (RFC 1035, section 5.1; RFC 3597, section 5; the RFC of each
type). It follows the table in `fields.py`, and data that its type's text cannot say is written as ``\\# LENGTH HEX``.

Costs about a microsecond for each field: zone files are read once. What is wrong in a text is a PackError.
"""

from __future__ import annotations

import base64
import calendar
import ipaddress
import math
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from coro.dns._packet import codec
from coro.dns._packet.codec import PackError, UnpackError
from coro.dns._packet.fields import ONLY_IN
from coro.dns._packet.numbers import type_number, type_text
from coro.dns._packet.unusual import UNUSUAL
from coro.dns._packet.words import Words, absolute, from_base64, from_hex, number

__all__ = ["Quoted", "bytes_of_token", "quoted", "rdata_from_text", "rdata_to_text", "tokens"]

_TOKEN = re.compile(
    r'\s+|;[^\n]*|([()])|((?:="(?:[^"\\]|\\.)*"|[^\s;()"\\]|\\\d{3}|\\[^\d])+)|"((?:[^"\\]|\\.)*)"', re.S
)
_PLAIN = frozenset(range(32, 127)) - set(b'"\\')
#: Of services, by their numbers (IANA, "DNS Service Bindings (SVCB)").
_PARAMETERS = ("mandatory", "alpn", "no-default-alpn", "port", "ipv4hint", "ech", "ipv6hint", "dohpath", "ohttp",
               "tls-supported-groups", "docpath")  # fmt: skip
_MANDATORY, _ALPN, _NO_DEFAULT_ALPN, _GROUPS, _DOCPATH = 0, 1, 2, 9, 10

#: Numbers that may be words: of algorithms (RFC 4034, appendix A.1, and IANA) and of certificates (RFC 4398).
_ALGORITHMS = {
    "RSAMD5": 1, "DH": 2, "DSA": 3, "ECC": 4, "RSASHA1": 5, "DSA-NSEC3-SHA1": 6, "DSANSEC3SHA1": 6,
    "RSASHA1-NSEC3-SHA1": 7, "RSASHA1NSEC3SHA1": 7, "RSASHA256": 8, "RSASHA512": 10, "ECC-GOST": 12, "ECCGOST": 12,
    "ECDSAP256SHA256": 13, "ECDSAP384SHA384": 14, "ED25519": 15, "ED448": 16, "MLDSA44": 18, "INDIRECT": 252,
    "PRIVATEDNS": 253, "PRIVATEOID": 254,
}  # fmt: skip
_CERTIFICATES = {"PKIX": 1, "SPKI": 2, "PGP": 3, "IPKIX": 4, "ISPKI": 5, "IPGP": 6, "ACPKIX": 7, "IACPKIX": 8,
                 "URI": 253, "OID": 254}  # fmt: skip
#: Digests of keys (IANA, "DNSSEC Delegation Signer (DS) Resource Record (RR) Type Digest Algorithms"), and their sizes.
_DIGESTS = {"SHA-1": 1, "SHA1": 1, "SHA-256": 2, "SHA256": 2, "GOST": 3, "SHA-384": 4, "SHA384": 4, "GOST12": 5,
            "SM3": 6}  # fmt: skip
_DIGEST_SIZES = {1: 20, 2: 32, 3: 32, 4: 48, 5: 32, 6: 32}
_DS = frozenset((43, 59, 32768, 32769))
#: Flags and protocols of KEY records (RFC 2535, sections 7.1 and 3.1.3); several flags are joined by "|".
_KEY_FLAGS = {
    "NOCONF": 0x4000, "NOAUTH": 0x8000, "NOKEY": 0xC000, "FLAG2": 0x2000, "EXTEND": 0x1000, "FLAG4": 0x0800,
    "FLAG5": 0x0400, "USER": 0, "ZONE": 0x0100, "HOST": 0x0200, "NTYP3": 0x0300, "FLAG8": 0x0080, "FLAG9": 0x0040,
    "FLAG10": 0x0020, "FLAG11": 0x0010, **{f"SIG{i}": i for i in range(16)},
}  # fmt: skip
_KEY_PROTOCOLS = {"NONE": 0, "TLS": 1, "EMAIL": 2, "DNSSEC": 3, "IPSEC": 4, "ALL": 255}
#: Type -> which of its words may be such a word.
_WORDS = {
    66: {1: {"NOTIFY": 1}},  # schemes of DSYNC (RFC 9859)
    **{rtype: {1: _ALGORITHMS} for rtype in (24, 46)},
    **{rtype: {1: _ALGORITHMS, 2: _DIGESTS} for rtype in _DS},
    **{rtype: {2: _ALGORITHMS} for rtype in (48, 60)},
    25: {1: _KEY_PROTOCOLS, 2: _ALGORITHMS},
    37: {0: _CERTIFICATES, 2: _ALGORITHMS},
}


#: Kinds of fields whose bytes may differ although they mean the same.
_MANY_WAYS = frozenset("wp")


class Quoted(str):
    """A token that stood in quotes."""

    __slots__ = ()


def tokens(text: str) -> list[str]:
    """The words of the text, escapes still in them; those in quotes are ``Quoted``. Comments are left out, parentheses
    too. Raises PackError for a quote or a backslash without what belongs to it."""
    out: list[str] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise PackError(f"a quote or a backslash without its other part: {text[at : at + 40]!r}")
        at = found.end()
        if found[2] is not None:
            out.append(found[2])
        elif found[3] is not None:
            out.append(Quoted(found[3]))
    return out


def bytes_of_token(text: str) -> bytes:
    """The bytes that a token means: ``\\DDD`` is the byte of that number, ``\\X`` is X."""
    if "\\" not in text:
        return _encoded(text)
    out = bytearray()
    raw = _encoded(text)
    i = 0
    while i < len(raw):
        c = raw[i]
        i += 1
        if c == 92:
            digits = raw[i : i + 3]
            if len(digits) == 3 and digits.isdigit() and int(digits) < 256:
                c = int(digits)
                i += 3
            elif i < len(raw) and not digits[:1].isdigit():
                c = raw[i]
                i += 1
            else:
                raise PackError(f"a backslash is followed by a character or by three digits up to 255: {text!r}")
        out.append(c)
    return bytes(out)


def _encoded(text: str) -> bytes:
    if not text.isascii():
        raise PackError(f"expected ASCII characters (others as \\DDD), not {text!r}")
    return text.encode()


def _escaped(data: bytes) -> str:
    return "".join(chr(c) if c in _PLAIN else "\\" + chr(c) if c in b'"\\' else f"\\{c:03d}" for c in data)


def quoted(data: bytes) -> str:
    """Bytes as a string in quotes."""
    return f'"{_escaped(data)}"'


def _name(text: str) -> str:
    return text + "."


def _set_of_types(numbers: Sequence[int]) -> str:
    return " ".join(map(type_text, numbers))


def _time(seconds: int) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(seconds))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _prefix(item: tuple[int, int, bool, bytes]) -> str:
    family, prefix, negated, data = item
    if family not in (1, 2):
        raise UnpackError("an address family without a text")
    address = ipaddress.ip_address(data.ljust(4 if family == 1 else 16, b"\0"))
    return f"{'!' if negated else ''}{family}:{address}/{prefix}"


def _even(data: bytes) -> bytes:
    if len(data) % 2 or not data:
        raise UnpackError("a list of numbers of an odd length")
    return data


def _keys(data: bytes) -> list[str]:
    return [_key_text(int.from_bytes(data[i : i + 2], "big")) for i in range(0, len(_even(data)), 2)]


def _key_text(number: int) -> str:
    return _PARAMETERS[number] if number < len(_PARAMETERS) else f"key{number}"


def _key_number(text: str) -> int:
    if text in _PARAMETERS:
        return _PARAMETERS.index(text)
    digits = text[3:]
    if (
        text[:3] != "key"
        or not digits.isascii()
        or not digits.isdigit()
        or int(digits) > 65534
        or digits != str(int(digits))
    ):
        raise PackError(f"expected a parameter of a service, or key and its number, not {text!r}")
    return int(digits)


def _parameter(key: int, data: bytes) -> str:
    name = _key_text(key)
    if key == 0:
        return f"{name}={','.join(_keys(data))}"
    if key == _GROUPS:
        return f"{name}={','.join(str(int.from_bytes(data[i : i + 2], 'big')) for i in range(0, len(_even(data)), 2))}"
    if key == _ALPN or key == _DOCPATH and data:
        parts = codec.strings_of(data)
        listed = b",".join(part.replace(b"\\", b"\\\\").replace(b",", b"\\,") for part in parts)
        return f"{name}={quoted(listed)}"
    if key in (2, 8):
        if data:
            raise UnpackError(f"a value of {name}, which has none")
        return name
    if key == 3:
        if len(data) != 2:
            raise UnpackError("a port that has not two bytes")
        return f"{name}={int.from_bytes(data, 'big')}"
    if key in (4, 6):
        size = 4 if key == 4 else 16
        if not data or len(data) % size:
            raise UnpackError("addresses that are cut off")
        return f"{name}=" + ",".join(str(ipaddress.ip_address(data[i : i + size])) for i in range(0, len(data), size))
    if key == 5:
        return f"{name}={_base64(data)}"
    return f"{name}={quoted(data)}" if data else name


_TO_TEXT: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys("bhlt46", str),
    **dict.fromkeys("nNM", _name),
    **dict.fromkeys("sr", quoted),
    "u": lambda value: value.decode() if re.fullmatch(rb"[0-9A-Za-z_-]+", value) else quoted(value),
    "S": lambda value: " ".join(map(quoted, value)),
    "e": lambda value: value.hex().upper(),
    "m": _base64,
    "c": lambda value: value.hex().upper() or "-",
    "H": lambda value: base64.b32hexencode(value).decode().rstrip("="),
    "q": lambda value: _base64(value) or "-",
    "w": _set_of_types,
    "p": lambda value: " ".join(_parameter(*pair) for pair in value),
    "g": lambda value: " ".join(map(_prefix, value)),
    "y": type_text,
    "i": _time,
}


def rdata_to_text(rtype: int, data: bytes, klass: int = 1) -> str:
    """Data in wire form as the text of zone files; names are absolute, in their own letters.

    What has no text of its own is ``\\# LENGTH HEX`` (RFC 3597). Raises UnpackError if the data does not fit the type.
    """
    unusual = UNUSUAL.get(rtype) if klass == 1 or rtype not in ONLY_IN else None
    if unusual is not None:
        codec.value_of(rtype, data, klass)
        try:
            text = unusual[0](data)
            if unusual[1](Words(tokens(text), "")) == data:
                return text
        except (PackError, UnpackError):
            pass
        return generic(data)
    kinds = codec.kinds_of(rtype, klass)
    fields = codec.fields_of(rtype, data, klass) or []
    if fields and "o" not in kinds:
        try:
            if rtype == 22:
                return "0x" + data.hex().upper()
            if not any(kind in "emH" and value == b"" for kind, value in zip(kinds, fields, strict=True)):
                words = (_TO_TEXT[kind](value) for kind, value in zip(kinds, fields, strict=True))
                text = " ".join(filter(None, words))
                _check_values(rtype, data)
                # these can be written in more ways than the text has, and signatures are about the bytes
                if not _MANY_WAYS & set(kinds) or rdata_from_text(rtype, text, "", klass) == data:
                    return text
        except (PackError, UnpackError):
            pass
    return generic(data)


def generic(data: bytes) -> str:
    """Data as the text that every type may have."""
    return f"\\# {len(data)} {data.hex().upper()}".rstrip()


# -- from text


def _from_base32(text: str) -> bytes:
    try:
        return base64.b32hexdecode(text.upper() + "=" * (-len(text) % 8))
    except ValueError:
        raise PackError(f"expected base32 with the digits 0-9 and A-V, not {text[:40]!r}") from None


def _from_time(words: Words) -> int:
    text = words.next()
    if len(text) != 14:
        words.at -= 1
        return number(words)
    try:
        return calendar.timegm(time.strptime(text, "%Y%m%d%H%M%S")) & 0xFFFFFFFF
    except ValueError:
        raise PackError(f"expected a time as YYYYMMDDHHMMSS or in seconds, not {text!r}") from None


def _from_type(words: Words) -> int:
    text = words.next()
    if text.isascii() and text.isdigit() and len(text) < 6:
        return int(text)
    return _known_type(text)


def _known_type(text: str) -> int:
    try:
        return type_number(text)
    except ValueError as e:
        raise PackError(str(e)) from None


def _from_prefix(text: str) -> tuple[int, int, bool, bytes]:
    found = re.fullmatch(r"(!?)([12]):([^/]+)/(\d{1,3})", text, re.ASCII)
    try:
        if found is None:
            raise ValueError
        address = ipaddress.ip_address(found[3])
        if address.version != (4 if found[2] == "1" else 6) or int(found[4]) > address.max_prefixlen:
            raise ValueError
        return int(found[2]), int(found[4]), bool(found[1]), address.packed.rstrip(b"\0")
    except ValueError:
        raise PackError(f"expected an address prefix like !1:192.0.2.0/24, not {text!r}") from None


def _listed(data: bytes) -> list[bytes]:
    """The items of a list with commas, in which \\, and \\\\ are escapes (RFC 9460, appendix A.1)."""
    return [re.sub(rb"\\(.)", rb"\1", one, flags=re.S) for one in re.findall(rb"(?:[^,\\]|\\.)+", data, re.S)]


def _from_parameter(text: str) -> tuple[int, bytes]:
    name, equals, value = text.partition("=")
    key = _key_number(name.lower())
    if value[:1] == '"' and value[-1:] == '"' and len(value) > 1:
        value = value[1:-1]
    data = bytes_of_token(value)
    if name[:3].lower() == "key":  # RFC 9460, section 2.1: the bytes, whether the number has a name or not
        return key, data
    if key in (2, 8):
        if data:
            raise PackError(f"{name} has no value")
        return key, b""
    if key < 7 and not data:
        raise PackError(f"{name} needs a value")
    plain = data.decode("latin-1")
    if key == _MANDATORY:
        return key, b"".join(codec.pack16bit(n) for n in sorted(_key_number(one) for one in plain.split(",")))
    if key == _GROUPS:
        groups = plain.split(",")
        if not all(one.isdigit() and one.isascii() and int(one[:6]) < 65536 for one in groups) or (
            len(set(groups)) < len(groups)
        ):
            raise PackError(f"expected numbers of groups, with commas and each once, not {plain!r}")
        return key, b"".join(codec.pack16bit(int(one)) for one in groups)
    if key == _DOCPATH and not data:
        return key, b""
    if key in (_ALPN, _DOCPATH):
        items = _listed(data)
        if not items or any(len(item) > 255 for item in items):
            raise PackError(f"expected words of up to 255 bytes, with commas, not {text!r}")
        return key, b"".join(bytes([len(item)]) + item for item in items)
    if key == 3:
        if not plain.isdigit() or not plain.isascii() or int(plain) > 65535:
            raise PackError(f"expected a port, not {plain!r}")
        return key, codec.pack16bit(int(plain))
    if key in (4, 6):
        try:
            kind = ipaddress.IPv4Address if key == 4 else ipaddress.IPv6Address
            return key, b"".join(kind(one).packed for one in plain.split(","))
        except ValueError as e:
            raise PackError(str(e)) from None
    return key, from_base64(plain) if key == 5 else data


def _from_parameters(words: Words) -> list[tuple[int, bytes]]:
    """Parameters that belong together (RFC 9460, sections 7.1 and 8). Raises PackError."""
    pairs = [_from_parameter(word) for word in words.rest()]
    keys = {key for key, _ in pairs}
    for key, data in pairs:
        if key == _MANDATORY:
            if len(data) % 2 or not data:
                raise PackError("expected keys of two bytes each as mandatory")
            wanted = [int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2)]
            if _MANDATORY in wanted or sorted(set(wanted)) != wanted:
                raise PackError("mandatory has each key once, in ascending order, and not itself")
            missing = [_key_text(one) for one in wanted if one not in keys]
            if missing:
                raise PackError(f"mandatory keys that are not there: {', '.join(missing)}")
        elif key == _NO_DEFAULT_ALPN and _ALPN not in keys:
            raise PackError("no-default-alpn needs alpn beside it")
        if key < len(_PARAMETERS):
            try:
                _parameter(key, data)
            except UnpackError as e:
                raise PackError(f"{_key_text(key)}: {e}") from None
    return pairs


def _from_key_flags(word: str) -> str:
    """The flags of a KEY record as a number, if they are words."""
    flags = 0
    for one in word.upper().split("|"):
        if one not in _KEY_FLAGS:
            return word
        flags |= _KEY_FLAGS[one]
    return str(flags)


_FROM_TEXT: dict[str, Callable[[Words], Any]] = {
    **dict.fromkeys("bhlt", number),
    **dict.fromkeys("46", Words.next),
    **dict.fromkeys("nNM", lambda words: absolute(words.next(), words.origin)),
    **dict.fromkeys("sru", lambda words: bytes_of_token(words.next())),
    "S": lambda words: [bytes_of_token(word) for word in words.rest()],
    "e": lambda words: from_hex("".join(words.rest())),
    "m": lambda words: from_base64("".join(words.rest())),
    "c": lambda words: b"" if (word := words.next()) == "-" else from_hex(word),
    "H": lambda words: _from_base32(words.next()),
    "q": lambda words: b"" if (word := words.next()) == "-" else from_base64(word),
    "w": lambda words: [_known_type(word) for word in words.rest()],
    "p": _from_parameters,
    "g": lambda words: [_from_prefix(word) for word in words.rest()],
    "y": _from_type,
    "i": _from_time,
}


def rdata_from_text(rtype: int, text: str | Sequence[str], origin: str = "", klass: int = 1) -> bytes:
    """The data of a record in wire form, from the text of zone files or the words of it (as ``tokens`` gives them).

    Names without a dot at their end are below ``origin``. ``\\# LENGTH HEX`` is understood for every type (RFC 3597).
    Raises PackError for what does not fit the type.
    """
    words = Words(tokens(text) if isinstance(text, str) else text, origin)
    if words.words and words.words[0] == "\\#" and not isinstance(words.words[0], Quoted):
        words.at = 1
        size = number(words)
        data = from_hex("".join(words.rest()))
        if len(data) != size:
            raise PackError(f"expected {size} bytes behind \\#, not {len(data)}")
        try:
            codec.value_of(rtype, data, klass)
        except UnpackError as e:
            raise PackError(f"data that does not fit the type {type_text(rtype)}: {e}") from None
        return data
    unusual = UNUSUAL.get(rtype) if klass == 1 or rtype not in ONLY_IN else None
    if unusual is not None:
        data = unusual[1](words)
        if words.at != len(words.words):
            raise PackError(f"more than belongs to the type {type_text(rtype)}: {words.words[words.at]!r}")
        return data
    kinds = codec.kinds_of(rtype, klass)
    if not kinds or "o" in kinds:
        raise PackError(f"data of the type {type_text(rtype)} is written as \\# LENGTH HEX")
    if rtype == 22:
        word = words.next()
        if word[:2].lower() != "0x":
            raise PackError(f"expected 0x and hexadecimal digits, not {word!r}")
        return from_hex(word[2:].replace(".", ""))
    for at, known in _WORDS.get(rtype, {}).items():
        if at < len(words.words) and words.words[at].upper() in known:
            words.words = [*words.words[:at], str(known[words.words[at].upper()]), *words.words[at + 1 :]]
    if rtype == 25 and words.words:
        words.words = [_from_key_flags(words.words[0]), *words.words[1:]]
    data = codec.data_of(rtype, [_FROM_TEXT[kind](words) for kind in kinds], klass)
    if words.at != len(words.words):
        raise PackError(f"more than belongs to the type {type_text(rtype)}: {words.words[words.at]!r}")
    _check_values(rtype, data)
    return data


def _check_values(rtype: int, data: bytes) -> None:
    """What fields one by one cannot show: digests have the length of their kind, places are on earth, URIs not empty.
    Raises PackError."""
    if rtype in _DS and len(data) >= 4:
        size = _DIGEST_SIZES.get(data[3])
        if size is not None and len(data) - 4 != size:
            raise PackError(f"expected a digest of {size} bytes for the kind {data[3]}, not {len(data) - 4}")
        if rtype == 43 and data[3] == 0:
            raise PackError("expected a kind of digest that is not 0, which only CDS records have (RFC 8078)")
    elif rtype == 27:
        texts = [one.decode("latin-1") for one in codec.strings_of(data)]
        for text, most in zip(texts, (90.0, 180.0, math.inf), strict=True):
            if re.fullmatch(r"[-+]?(\d+(\.\d*)?|\.\d+)", text, re.ASCII) is None or abs(float(text)) > most:
                raise PackError(f"expected degrees up to 90, up to 180, and metres, not {text!r}")
    elif rtype == 256 and len(data) == 4:
        raise PackError("expected a URI behind its priority and weight (RFC 7553, section 4.4)")
