"""The numbers of DNS messages that IANA keeps ("Domain Name System (DNS) Parameters"), as attributes of classes, and
maps back from a number to its name."""

from __future__ import annotations

__all__ = ["CLASS", "CLASS_MAP", "EDNS", "OPCODE", "OPCODE_MAP", "QCLASS", "RCODE", "RCODE_MAP", "TYPE", "TYPE_MAP",
           "class_number", "class_text", "type_number", "type_text"]  # fmt: skip


class TYPE:
    """Types of records."""

    A, NS, MD, MF, CNAME, SOA, MB, MG, MR, _NULL = range(1, 11)
    WKS, PTR, HINFO, MINFO, MX, TXT, RP, AFSDB, X25, ISDN = range(11, 21)
    RT, NSAP, NSAPPTR, SIG, KEY, PX, GPOS, AAAA, LOC, NXT = range(21, 31)
    EID, NIMLOC, SRV, ATMA, NAPTR, KX, CERT, A6, DNAME, SINK = range(31, 41)
    OPT, APL, DS, SSHFP, IPSECKEY, RRSIG, NSEC, DNSKEY, DHCID, NSEC3 = range(41, 51)
    NSEC3PARAM, TLSA, SMIMEA = range(51, 54)
    HIP, NINFO, RKEY, TALINK, CDS, CDNSKEY, OPENPGPKEY, CSYNC, ZONEMD, SVCB, HTTPS, DSYNC, HHIT, BRID = range(55, 69)
    SPF, UINFO, UID, GID, UNSPEC = range(99, 104)
    UNAME, MP, TKEY, TSIG, IXFR, AXFR, MAILB, MAILA, ANY = 110, 240, 249, 250, 251, 252, 253, 254, 255
    NID, L32, L64, LP, EUI48, EUI64, NXNAME = 104, 105, 106, 107, 108, 109, 128
    URI, CAA, AVC, DOA, AMTRELAY, RESINFO, WALLET, CLA, IPN = range(256, 265)
    TA, DLV = 32768, 32769


class CLASS:
    """Classes of records. NONE is one of UPDATE messages (RFC 2136)."""

    IN, CS, CH, HS, NONE = 1, 2, 3, 4, 254


class QCLASS:
    """The class that only questions have."""

    ANY = 255


class OPCODE:
    """What a message is about."""

    QUERY, IQUERY, STATUS, NOTIFY, UPDATE, DSO = 0, 1, 2, 4, 5, 6


class RCODE:
    """How it went. Those above 15 need EDNS, or are of TSIG and TKEY."""

    NoError, FormErr, ServFail, NXDomain, NotImp, Refused, YXDomain, YXRRSet, NXRRSet, NotAuth, NotZone = range(11)
    BADVERS = BADSIG = 16
    BADKEY, BADTIME, BADMODE, BADNAME, BADALG, BADTRUNC, BADCOOKIE = range(17, 24)


class EDNS:
    """EDNS options."""

    LLQ, UL, NSID, DAU, DHU, N3U, ECS, EXPIRE, COOKIE = 1, 2, 3, 5, 6, 7, 8, 9, 10
    KEEPALIVE, PADDING, CHAIN, KEY_TAG, EDE, REPORT_CHANNEL = 11, 12, 13, 14, 15, 18


def _map(holder: type) -> dict[int, str]:
    return {value: name.lstrip("_") for name, value in vars(holder).items() if isinstance(value, int)}


#: A number -> its name.
TYPE_MAP = _map(TYPE)
CLASS_MAP = _map(CLASS)
OPCODE_MAP = _map(OPCODE)
RCODE_MAP = {**_map(RCODE), 16: "BADVERS"}
_TYPES = {name: number for number, name in TYPE_MAP.items()}
_CLASSES = {**{name: number for number, name in CLASS_MAP.items()}, "ANY": 255}


def _number(text: str, known: dict[str, int], prefix: str, what: str) -> int:
    text = text.upper()
    number = known.get(text)
    if number is None:
        digits = text[len(prefix) :]
        if not (text.startswith(prefix) and digits.isascii() and digits.isdigit() and len(digits) < 6):
            raise ValueError(f"expected {what} or {prefix} and a number, not {text!r}")
        number = int(digits)
        if number > 65535:
            raise ValueError(f"expected a number up to 65535 behind {prefix}, not {digits}")
    return number


def type_number(name: str) -> int:
    """The number of a type: ``"MX"``, or ``"TYPE15"`` (RFC 3597). Raises ValueError for an unknown one."""
    return _number(name, _TYPES, "TYPE", "the name of a record type")


def type_text(number: int) -> str:
    """The name of a type; ``"TYPE65280"`` if it has none."""
    return TYPE_MAP.get(number) or f"TYPE{number}"


def class_number(name: str) -> int:
    """The number of a class: ``"IN"``, or ``"CLASS1"`` (RFC 3597). Raises ValueError for an unknown one."""
    return _number(name, _CLASSES, "CLASS", "a class")


def class_text(number: int) -> str:
    """The name of a class; ``"CLASS32"`` if it has none."""
    return "ANY" if number == 255 else CLASS_MAP.get(number) or f"CLASS{number}"
