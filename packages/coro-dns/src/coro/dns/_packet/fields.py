"""What the data of each type of record consists of: a letter for each field. The reader, the writer, the canonical form
and the text of zone files all follow this one table, so they cannot disagree.

    b h l t   numbers of 8, 16 and 32 bits; t: of 48
    n         a name that may be compressed, in small letters in the canonical form
    N         a name that is not compressed when sent, in small letters in the canonical form
    M         a name that is not compressed and keeps its letters
    s u S     a string of up to 255 bytes; one that is a word; strings up to the end, one at least
    4 6       an address, as text
    r e m     bytes up to the end; as text: one string, hexadecimal digits, base64
    c H       up to 255 bytes with their length before; as text: hexadecimal digits or "-", base32
    q         up to 65535 bytes with their length before; as text base64
    w         a set of types (RFC 4034, section 4.1.2)
    p         parameters of a service (RFC 9460): pairs of a number and bytes, in ascending order
    o         EDNS options: pairs of a number and bytes
    g         address prefixes (RFC 3123)
    y         a number of 16 bits that is a type of record; i: a time in seconds since 1970 (RFC 4034, section 3.2)

A type that is not here is bytes; the texts of some of those are in `unusual.py`.
"""

from __future__ import annotations

__all__ = ["FIELDS", "ONLY_IN"]

_NAME = dict.fromkeys((2, 3, 4, 5, 7, 8, 9, 12), "n")  # NS MD MF CNAME MB MG MR PTR

FIELDS: dict[int, str] = {
    **_NAME,
    1: "4",  # A, RFC 1035
    6: "nnlllll",  # SOA
    11: "4br",  # WKS; its text and those of LOC and NXT are in `unusual.py`
    13: "ss",  # HINFO
    14: "nn",  # MINFO
    15: "hn",  # MX
    16: "S",  # TXT
    17: "NN",  # RP, RFC 1183
    18: "hN",  # AFSDB
    19: "S",  # X25
    20: "S",  # ISDN
    21: "hN",  # RT
    22: "e",  # NSAP, RFC 1706
    24: "ybbliihNm",  # SIG, RFC 2535
    25: "hbbm",  # KEY
    26: "hNN",  # PX, RFC 2163
    27: "sss",  # GPOS, RFC 1712
    28: "6",  # AAAA, RFC 3596
    29: "bbbblll",  # LOC, RFC 1876
    30: "Nr",  # NXT, RFC 2535
    33: "hhhN",  # SRV, RFC 2782
    35: "hhsssN",  # NAPTR, RFC 3403
    36: "hN",  # KX, RFC 2230
    37: "hhbm",  # CERT, RFC 4398
    39: "N",  # DNAME, RFC 6672
    41: "o",  # OPT, RFC 6891
    42: "g",  # APL, RFC 3123
    43: "hbbe",  # DS, RFC 4034
    44: "bbe",  # SSHFP, RFC 4255
    46: "ybbliihNm",  # RRSIG, RFC 4034
    47: "Mw",  # NSEC, RFC 4034; its name keeps its letters: RFC 6840, section 5.1
    48: "hbbm",  # DNSKEY
    49: "m",  # DHCID, RFC 4701
    50: "bbhcHw",  # NSEC3, RFC 5155
    51: "bbhc",  # NSEC3PARAM
    52: "bbbe",  # TLSA, RFC 6698
    53: "bbbe",  # SMIMEA, RFC 8162
    59: "hbbe",  # CDS, RFC 7344
    60: "hbbm",  # CDNSKEY
    61: "m",  # OPENPGPKEY, RFC 7929
    62: "lhw",  # CSYNC, RFC 7477
    63: "lbbe",  # ZONEMD, RFC 8976
    64: "hMp",  # SVCB, RFC 9460
    65: "hMp",  # HTTPS
    66: "ybhM",  # DSYNC, RFC 9859
    67: "m",  # HHIT, RFC 9886
    68: "m",  # BRID
    99: "S",  # SPF, RFC 4408
    105: "h4",  # L32, RFC 6742; the texts of NID, L64 and AMTRELAY are in `unusual.py`
    107: "hM",  # LP
    249: "Nllhhqq",  # TKEY, RFC 2930
    250: "Nthqhhq",  # TSIG, RFC 8945
    256: "hhr",  # URI, RFC 7553
    257: "bur",  # CAA, RFC 8659
    258: "S",  # AVC
    261: "S",  # RESINFO, RFC 9606
    262: "S",  # WALLET
    263: "S",  # CLA
    32768: "hbbe",  # TA
    32769: "hbbe",  # DLV, RFC 4431
}

#: Types whose data means something else, or nothing, in another class than IN.
ONLY_IN = frozenset((1, 11, 22, 26, 28, 33, 35, 36, 42, 45, 49, 64, 65))
