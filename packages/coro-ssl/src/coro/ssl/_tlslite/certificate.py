"""One certificate as path validation needs it (RFC 5280, 4.1), and revocation lists (5.1); read once, not trusted.

Pure Python: this back end runs where no OpenSSL is. Reading a certificate takes about 60 us, and checking a signature
0.3 ms (RSA) to 10 ms (P-521).
"""

from __future__ import annotations

import ipaddress
from typing import Any, NamedTuple

from tlslite.x509 import X509

from coro.ssl._tlslite import der
from coro.ssl._tlslite.der import Malformed

__all__ = ["Certificate", "Names", "RevocationList", "pem_blocks"]

# Extensions (RFC 5280, 4.2.1).
SUBJECT_KEY_ID, KEY_USAGE, ALT_NAME, BASIC_CONSTRAINTS = "2.5.29.14", "2.5.29.15", "2.5.29.17", "2.5.29.19"
NAME_CONSTRAINTS, AUTHORITY_KEY_ID, EXTENDED_KEY_USAGE = "2.5.29.30", "2.5.29.35", "2.5.29.37"

# Signature algorithms that count as safe: (kind, hash). SHA-1 and MD5 are not here, so certificates with them fail.
ALGORITHMS = {
    "1.2.840.113549.1.1.11": ("rsa", "sha256"),
    "1.2.840.113549.1.1.12": ("rsa", "sha384"),
    "1.2.840.113549.1.1.13": ("rsa", "sha512"),
    "1.2.840.10045.4.3.2": ("ecdsa", "sha256"),
    "1.2.840.10045.4.3.3": ("ecdsa", "sha384"),
    "1.2.840.10045.4.3.4": ("ecdsa", "sha512"),
    "1.3.101.112": ("Ed25519", ""),
    "1.3.101.113": ("Ed448", ""),
    "1.2.840.113549.1.1.10": ("pss", ""),
}
_HASHES = {"2.16.840.1.101.3.4.2.1": "sha256", "2.16.840.1.101.3.4.2.2": "sha384", "2.16.840.1.101.3.4.2.3": "sha512"}
_SALT = {"sha256": 32, "sha384": 48, "sha512": 64}
_MGF1 = "1.2.840.113549.1.1.8"

# Attributes of names, called as ssl.SSLSocket.getpeercert calls them.
_ATTRIBUTES = {
    "2.5.4.3": "commonName",
    "2.5.4.4": "surname",
    "2.5.4.5": "serialNumber",
    "2.5.4.6": "countryName",
    "2.5.4.7": "localityName",
    "2.5.4.8": "stateOrProvinceName",
    "2.5.4.9": "streetAddress",
    "2.5.4.10": "organizationName",
    "2.5.4.11": "organizationalUnitName",
    "2.5.4.12": "title",
    "2.5.4.17": "postalCode",
    "2.5.4.42": "givenName",
    "0.9.2342.19200300.100.1.1": "userId",
    "0.9.2342.19200300.100.1.25": "domainComponent",
    "1.2.840.113549.1.9.1": "emailAddress",
}


class Names(NamedTuple):
    """The names of a certificate, or of one side of name constraints. ``other`` are kinds that are not looked into."""

    dns: list[str]
    addresses: list[bytes]
    mail: list[str]
    directory: list[bytes]
    other: set[int]


def general_names(content: bytes, *, subtrees: bool = False) -> Names:
    """GeneralNames, or with ``subtrees`` GeneralSubtrees (RFC 5280, 4.2.1.6 and 4.2.1.10)."""
    names = Names([], [], [], [], set())
    for part in der.parts(content):
        if subtrees:
            inner = list(der.parts(der.expect(part, der.SEQUENCE, "a subtree")))
            if len(inner) != 1:
                raise Malformed("a subtree with a minimum or maximum, which RFC 5280 does not allow")
            part = inner[0]
        if part.tag in (0x81, 0x82):
            try:
                name = part.content.decode("ascii")
            except UnicodeDecodeError:
                raise Malformed("a name that is not ASCII") from None
            (names.mail if part.tag == 0x81 else names.dns).append(name)
        elif part.tag == 0x87:
            if len(part.content) not in ((8, 32) if subtrees else (4, 16)):
                raise Malformed("an address of a length that addresses do not have")
            names.addresses.append(part.content)
        elif part.tag == 0xA4:
            names.directory.append(part.content)
        else:
            names.other.add(part.tag)
    return names


class Certificate:
    """A certificate. Raises Malformed if it is none. Its signature is checked by ``is_signed_by`` only."""

    def __init__(self, data: bytes) -> None:
        self.der = bytes(data)
        outer = list(der.parts(der.only(self.der, der.SEQUENCE)))
        if len(outer) != 3:
            raise Malformed("a certificate has three parts")
        der.expect(outer[0], der.SEQUENCE, "the certificate")
        self._signed = outer[0].whole
        self._algorithm = der.expect(outer[1], der.SEQUENCE, "the signature's algorithm")
        self._signature = der.bits(der.expect(outer[2], der.BIT_STRING, "the signature"))
        rest = list(der.parts(outer[0].content))
        self.version = 1
        if rest and rest[0].tag == 0xA0:
            self.version = der.integer(der.only(rest.pop(0).content, der.INTEGER)) + 1
        if len(rest) < 6:
            raise Malformed("the certificate lacks a part")
        self.serial = der.integer(der.expect(rest[0], der.INTEGER, "the serial number"))
        if der.expect(rest[1], der.SEQUENCE, "the algorithm inside") != self._algorithm:
            raise Malformed("the two places that name the signature's algorithm differ")
        der.expect(rest[2], der.SEQUENCE, "the issuer")
        der.expect(rest[4], der.SEQUENCE, "the subject")
        self.issuer, self.subject = rest[2].whole, rest[4].whole
        validity = list(der.parts(der.expect(rest[3], der.SEQUENCE, "the validity")))
        if len(validity) != 2:
            raise Malformed("the validity has two times")
        self.not_before, self.not_after = map(der.moment, validity)
        self.key_info = rest[5].whole
        self.extensions: dict[str, tuple[bool, bytes]] = {}
        for part in rest[6:]:
            if part.tag == 0xA3:
                self._read_extensions(part.content)
        self._x509: X509 | None = None

    def _read_extensions(self, content: bytes) -> None:
        for part in der.parts(der.only(content, der.SEQUENCE)):
            inner = list(der.parts(der.expect(part, der.SEQUENCE, "an extension")))
            if not 2 <= len(inner) <= 3:
                raise Malformed("an extension has two or three parts")
            name = der.oid(der.expect(inner[0], der.OID, "an extension"))
            critical = len(inner) == 3 and der.boolean(der.expect(inner[1], der.BOOLEAN, "whether it is critical"))
            if name in self.extensions:
                raise Malformed(f"the extension {name} comes twice")
            self.extensions[name] = critical, der.expect(inner[-1], der.OCTET_STRING, "an extension's value")

    def _extension(self, name: str) -> bytes | None:
        found = self.extensions.get(name)
        return found[1] if found else None

    # -- what the extensions say

    def basic_constraints(self) -> tuple[bool, int | None]:
        """Whether it is that of a CA, and how many more may follow it."""
        value = self._extension(BASIC_CONSTRAINTS)
        if value is None:
            return False, None
        ca, length = False, None
        for part in der.parts(der.only(value, der.SEQUENCE)):
            if part.tag == der.BOOLEAN:
                ca = der.boolean(part.content)
            elif part.tag == der.INTEGER:
                length = der.integer(part.content)
            else:
                raise Malformed("basic constraints with an unknown part")
        return ca, length

    def key_usage(self) -> set[int] | None:
        """The numbers of what the key may do, None if it does not say: 0 signatures, 5 certificates, 6 revocation
        lists."""
        value = self._extension(KEY_USAGE)
        return None if value is None else der.named_bits(der.only(value, der.BIT_STRING))

    def extended_key_usage(self) -> set[str] | None:
        """What the key is for, None if it does not say."""
        value = self._extension(EXTENDED_KEY_USAGE)
        if value is None:
            return None
        return {der.oid(der.expect(p, der.OID, "a usage")) for p in der.parts(der.only(value, der.SEQUENCE))}

    def names(self) -> Names:
        """The names in subjectAltName."""
        value = self._extension(ALT_NAME)
        return general_names(der.only(value, der.SEQUENCE) if value is not None else b"")

    def name_constraints(self) -> tuple[Names | None, Names | None]:
        """Permitted and excluded subtrees."""
        value = self._extension(NAME_CONSTRAINTS)
        permitted = excluded = None
        if value is not None:
            for part in der.parts(der.only(value, der.SEQUENCE)):
                if part.tag == 0xA0:
                    permitted = general_names(part.content, subtrees=True)
                elif part.tag == 0xA1:
                    excluded = general_names(part.content, subtrees=True)
                else:
                    raise Malformed("name constraints with an unknown part")
        return permitted, excluded

    def key_id(self) -> bytes | None:
        """The identifier of its own key."""
        value = self._extension(SUBJECT_KEY_ID)
        return None if value is None else der.only(value, der.OCTET_STRING)

    def issuer_key_id(self) -> bytes | None:
        """The identifier of its issuer's key."""
        value = self._extension(AUTHORITY_KEY_ID)
        if value is not None:
            for part in der.parts(der.only(value, der.SEQUENCE)):
                if part.tag == 0x80:
                    return part.content
        return None

    # -- the key and signatures

    @property
    def x509(self) -> X509:
        """The certificate as tlslite has it. Raises Malformed for a key of a kind that it does not know."""
        if self._x509 is None:
            try:
                self._x509 = _parsed(self.der)
            except Exception as e:
                raise Malformed(f"the public key cannot be read: {e or type(e).__name__}") from e
        return self._x509

    def key_weakness(self) -> str | None:
        """What is wrong with the key, None if it is strong enough."""
        known = self.x509
        if known.certAlg in ("rsa", "rsa-pss"):
            size = len(known.publicKey)
            return None if 2048 <= size <= 16384 else f"an RSA key of {size} bits, where 2048 to 16384 are accepted"
        if known.certAlg == "ecdsa":
            curve = known.publicKey.curve_name
            return None if curve in ("NIST256p", "NIST384p", "NIST521p") else f"a key on the curve {curve}"
        return None if known.certAlg in ("Ed25519", "Ed448") else f"a key for {known.certAlg}"

    def is_signed_by(self, issuer: Certificate) -> bool:
        """Whether the signature is that of the issuer's key, with an algorithm that is safe."""
        return _verified(self._algorithm, self._signature, self._signed, issuer)

    def signature_hash(self) -> str | None:
        """The hash of its signature, None if it is not known or the algorithm has none."""
        kind, name = _algorithm(self._algorithm)[:2]
        return name or None

    # -- for people and programs

    def as_dict(self) -> dict[str, Any]:
        """As ``ssl.SSLSocket.getpeercert()`` has it."""
        digits = f"{abs(self.serial):X}"
        found: dict[str, Any] = {
            "subject": _name(self.subject),
            "issuer": _name(self.issuer),
            "version": self.version,
            "serialNumber": "-" * (self.serial < 0) + (digits if len(digits) % 2 == 0 else f"0{digits}"),
            "notBefore": _date(self.not_before),
            "notAfter": _date(self.not_after),
        }
        names = self.names()
        alternatives = [("DNS", name) for name in names.dns]
        alternatives += [("IP Address", str(ipaddress.ip_address(raw))) for raw in names.addresses]
        alternatives += [("email", name) for name in names.mail]
        if alternatives:
            found["subjectAltName"] = tuple(alternatives)
        return found

    def __str__(self) -> str:
        try:
            return ", ".join(f"{k}={v}" for rdn in _name(self.subject) for k, v in rdn)
        except Malformed:
            return "a certificate with a subject that cannot be read"


def _parsed(data: bytes) -> X509:
    known = X509()
    known.parseBinary(bytearray(data))
    return known


def _name(whole: bytes) -> tuple[tuple[tuple[str, str], ...], ...]:
    found = []
    for rdn in der.parts(der.only(whole, der.SEQUENCE)):
        pairs = []
        for part in der.parts(der.expect(rdn, der.SET, "a part of a name")):
            inner = list(der.parts(der.expect(part, der.SEQUENCE, "an attribute")))
            if len(inner) != 2:
                raise Malformed("an attribute has a kind and a value")
            kind = der.oid(der.expect(inner[0], der.OID, "an attribute"))
            pairs.append((_ATTRIBUTES.get(kind, kind), der.text(inner[1])))
        found.append(tuple(pairs))
    return tuple(found)


def _date(seconds: int) -> str:
    import time

    t = time.gmtime(seconds)
    month = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")[t.tm_mon - 1]
    return f"{month} {t.tm_mday:2} {t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02} {t.tm_year} GMT"


def _algorithm(content: bytes) -> tuple[str, str, int]:
    """Kind, hash and length of the salt. The kind is empty for one that is not accepted."""
    inner = list(der.parts(content))
    if not 1 <= len(inner) <= 2:
        raise Malformed("an algorithm has a name and parameters")
    kind, hash_name = ALGORITHMS.get(der.oid(der.expect(inner[0], der.OID, "an algorithm")), ("", ""))
    if kind == "pss":
        return _pss(inner[1] if len(inner) > 1 else None)
    if kind == "rsa" and len(inner) == 2 and inner[1].whole != b"\x05\0":
        raise Malformed("an RSA signature has no parameters")
    if kind in ("ecdsa", "Ed25519", "Ed448") and len(inner) > 1:
        raise Malformed("this kind of signature has no parameters")
    return kind, hash_name, 0


def _pss(parameters: der.Part | None) -> tuple[str, str, int]:
    """RSASSA-PSS (RFC 4055): the same hash in both places, a salt as long as it. All else is not accepted."""
    hash_name = inner_hash = ""
    salt = 20
    for part in der.parts(der.expect(parameters, der.SEQUENCE, "the parameters of a signature")):
        if part.tag == 0xA0:
            hash_name = _hash_in(der.only(part.content, der.SEQUENCE))
        elif part.tag == 0xA1:
            mask = list(der.parts(der.only(part.content, der.SEQUENCE)))
            if len(mask) == 2 and der.oid(der.expect(mask[0], der.OID, "a mask function")) == _MGF1:
                inner_hash = _hash_in(der.expect(mask[1], der.SEQUENCE, "a hash"))
        elif part.tag == 0xA2:
            salt = der.integer(der.only(part.content, der.INTEGER))
    if not hash_name or hash_name != inner_hash or salt != _SALT[hash_name]:
        return "", "", 0
    return "pss", hash_name, salt


def _hash_in(content: bytes) -> str:
    part, _ = der.one(content)
    return _HASHES.get(der.oid(der.expect(part, der.OID, "a hash")), "")


def _verified(algorithm: bytes, signature: bytes, signed: bytes, issuer: Certificate) -> bool:
    kind, hash_name, salt = _algorithm(algorithm)
    known = issuer.x509
    fits = {"rsa": ("rsa",), "pss": ("rsa", "rsa-pss")}.get(kind, (kind,))
    if not kind or known.certAlg not in fits:
        return False
    key = known.publicKey
    try:
        if kind == "rsa":
            return bool(key.hashAndVerify(bytearray(signature), bytearray(signed), "PKCS1", hash_name))
        if kind == "pss":
            return bool(key.hashAndVerify(bytearray(signature), bytearray(signed), "PSS", hash_name, salt))
        if kind == "ecdsa":
            return bool(key.hashAndVerify(bytearray(signature), bytearray(signed), None, hash_name))
        return bool(key.hashAndVerify(bytearray(signature), bytearray(signed)))
    except Exception:
        return False  # tlslite has many exceptions for a signature that cannot be one


class RevocationList:
    """A list of revoked certificates (RFC 5280, 5). Raises Malformed if it is none, or has critical extensions."""

    def __init__(self, data: bytes) -> None:
        outer = list(der.parts(der.only(bytes(data), der.SEQUENCE)))
        if len(outer) != 3:
            raise Malformed("a revocation list has three parts")
        self._signed = outer[0].whole
        self._algorithm = der.expect(outer[1], der.SEQUENCE, "the signature's algorithm")
        self._signature = der.bits(der.expect(outer[2], der.BIT_STRING, "the signature"))
        rest = list(der.parts(outer[0].content))
        if rest and rest[0].tag == der.INTEGER:
            rest.pop(0)
        if len(rest) < 3:
            raise Malformed("the revocation list lacks a part")
        self.issuer = rest[1].whole
        self.this_update = der.moment(rest[2])
        self.next_update: int | None = None
        self.revoked: set[int] = set()
        for part in rest[3:]:
            if part.tag in (der.UTC_TIME, der.GENERALIZED_TIME):
                self.next_update = der.moment(part)
            elif part.tag == der.SEQUENCE:
                for entry in der.parts(part.content):
                    first, _ = der.one(der.expect(entry, der.SEQUENCE, "a revoked certificate"))
                    self.revoked.add(der.integer(der.expect(first, der.INTEGER, "a serial number")))
            elif part.tag == 0xA0:
                self._refuse_critical(part.content)

    @staticmethod
    def _refuse_critical(content: bytes) -> None:
        for part in der.parts(der.only(content, der.SEQUENCE)):
            inner = list(der.parts(der.expect(part, der.SEQUENCE, "an extension")))
            if len(inner) == 3 and der.boolean(der.expect(inner[1], der.BOOLEAN, "whether it is critical")):
                raise Malformed("a revocation list for some certificates only, which is not supported")

    def is_signed_by(self, issuer: Certificate) -> bool:
        """Whether the issuer has signed it, and may."""
        usage = issuer.key_usage()
        if usage is not None and 6 not in usage:
            return False
        return _verified(self._algorithm, self._signature, self._signed, issuer)


def pem_blocks(pem: bytes, label: str) -> list[bytes]:
    """The contents of all blocks with this label. Raises Malformed for one that is not base64."""
    import base64
    import binascii

    begin, end = f"-----BEGIN {label}-----".encode(), f"-----END {label}-----".encode()
    found = []
    at = pem.find(begin)
    while at >= 0:
        until = pem.find(end, at)
        if until < 0:
            raise Malformed(f"a block {label} without end")
        try:
            found.append(base64.b64decode(b"".join(pem[at + len(begin) : until].split()), validate=True))
        except binascii.Error as e:
            raise Malformed(f"a block {label} that is not base64: {e}") from e
        at = pem.find(begin, until)
    return found
