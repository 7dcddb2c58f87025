"""Signatures, keys and digests of DNSSEC (RFC 4034; algorithms: RFC 3110, RFC 5702, RFC 6605, RFC 8080).

The arithmetic is that of the distribution `cryptography`, which is wanted only when a signature is to be checked.

A forger can make a zone in which every check of a signature fails, and takes time: hundreds of keys with the same tag,
and as many signatures (KeyTrap, CVE-2023-50387). So one set of records gets SIGNATURES_MOST checks, with at most
KEYS_MOST keys for each signature, and one question as many as its `Budget` has, few of which may fail. Others have
their turn between two checks.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import coro
from coro.dns import _wire
from coro.dns.exceptions import DNS_Validation_Unavailable
from coro.dns.packet import UnpackError, canonical

__all__ = ["Budget", "Key", "RRset", "Signature", "Spent", "check", "digest_matches", "is_supported", "named_keys"]

SIGNATURES_MOST = 8  # of one set of records
KEYS_MOST = 4  # with one tag
BITS_MOST = 4096  # of an RSA key
_DIGESTS: dict[int, Callable[..., Any]] = {1: hashlib.sha1, 2: hashlib.sha256, 4: hashlib.sha384}
_ALGORITHMS = frozenset((5, 7, 8, 10, 13, 14, 15, 16))
_CURVES = {13: 32, 14: 48}


class Spent(Exception):
    """Checking would take more work than one question may cause."""


class Budget:
    """What one question may still cost: checks of signatures, those of them that fail, and hashes of names."""

    __slots__ = ("failures", "hashes", "most", "signatures")

    def __init__(self, signatures: int = 100, failures: int = 16, hashes: int = 200) -> None:
        self.signatures = self.most = signatures
        self.failures = failures
        self.hashes = hashes

    def used(self) -> int:
        """How many signatures have been checked."""
        return self.most - self.signatures

    def signature(self) -> None:
        """One more check. Raises Spent."""
        self.signatures -= 1
        if self.signatures < 0:
            raise Spent("too many signatures had to be checked")
        coro.yield_slice()

    def failed(self) -> None:
        """It was wrong. Raises Spent."""
        self.failures -= 1
        if self.failures < 0:
            raise Spent("too many signatures were wrong")

    def hash(self) -> None:
        """One more hash of a name. Raises Spent."""
        self.hashes -= 1
        if self.hashes < 0:
            raise Spent("too many names had to be hashed")
        if self.hashes % 8 == 0:
            coro.yield_slice()


class Signature(NamedTuple):
    """An RRSIG record."""

    covered: int
    algorithm: int
    labels: int
    ttl: int
    until: int
    since: int
    tag: int
    signer: bytes
    signature: bytes
    head: bytes

    @classmethod
    def read(cls, data: bytes) -> Signature | None:
        """None if it is none."""
        at = 18
        while at < len(data) and data[at]:
            if data[at] > 63:
                return None
            at += data[at] + 1
        if at >= len(data) or at - 17 > 255:
            return None
        ttl, until, since = (int.from_bytes(data[i : i + 4], "big") for i in (4, 8, 12))
        signer = _wire.lower(data[18 : at + 1])
        return cls(
            int.from_bytes(data[:2], "big"), data[2], data[3], ttl, until, since,
            int.from_bytes(data[16:18], "big"), signer, data[at + 1 :], data[:18] + signer,
        )  # fmt: skip


class RRset(NamedTuple):
    """Records of one name and type, with their signatures."""

    owner: bytes
    rtype: int
    ttl: int
    data: tuple[bytes, ...]
    signatures: tuple[bytes, ...] = ()


class Key(NamedTuple):
    """A DNSKEY record."""

    flags: int
    algorithm: int
    tag: int
    data: bytes

    @classmethod
    def read(cls, data: bytes) -> Key | None:
        """None if it is no key that signs zones (RFC 4034, section 2.1; RFC 5011: nor a revoked one)."""
        flags = int.from_bytes(data[:2], "big")
        if len(data) < 5 or data[2] != 3 or not flags & 0x0100 or flags & 0x0080:
            return None
        total = sum(data[0::2]) * 256 + sum(data[1::2])  # RFC 4034, appendix B
        return cls(flags, data[3], (total + (total >> 16)) & 0xFFFF, data)


def is_supported(algorithm: int, digest: int = 2) -> bool:
    """Can we tell anything from such a DS record? If not of any of a zone, the zone counts as not signed (RFC 4035,
    section 5.2)."""
    return algorithm in _ALGORITHMS and digest in _DIGESTS


def digest_matches(zone: bytes, key: Key, ds: bytes) -> bool:
    """Does a DS record name this key of the zone? RFC 4034, section 5.1.4."""
    if len(ds) < 5 or int.from_bytes(ds[:2], "big") != key.tag or ds[2] != key.algorithm or ds[3] not in _DIGESTS:
        return False
    return bool(_DIGESTS[ds[3]](zone + key.data).digest() == ds[4:])


def named_keys(zone: bytes, keys: Sequence[Key], all_ds: Iterable[bytes]) -> list[Key] | None:
    """The keys that DS records name; None if too many have the tag of one, as each costs a digest."""
    out = []
    for ds in all_ds:
        tag = int.from_bytes(ds[:2], "big")
        same = [key for key in keys if key.tag == tag and key.algorithm == ds[2]]
        if len(same) > KEYS_MOST:
            return None
        out += [key for key in same if key not in out and digest_matches(zone, key, ds)]
    return out


@functools.lru_cache(1000)
def _verifier(algorithm: int, raw: bytes) -> Callable[[bytes, bytes], object] | None:
    """A function of a signature and what was signed, which raises InvalidSignature; None for what is no key."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa, utils
    except ImportError as e:
        raise DNS_Validation_Unavailable(
            "DNSSEC validation needs the distribution cryptography: pip install 'coro-dns[dnssec]'"
        ) from e
    try:
        if algorithm == 15:
            verify: Callable[[bytes, bytes], object] = ed25519.Ed25519PublicKey.from_public_bytes(raw).verify
            return verify
        if algorithm == 16:
            verify = ed448.Ed448PublicKey.from_public_bytes(raw).verify
            return verify
        if algorithm in _CURVES:
            size = _CURVES[algorithm]
            curve: Any = ec.SECP256R1() if size == 32 else ec.SECP384R1()
            point = ec.EllipticCurvePublicKey.from_encoded_point(curve, b"\4" + raw)
            scheme = ec.ECDSA(hashes.SHA256() if size == 32 else hashes.SHA384())

            def verify_point(signature: bytes, data: bytes) -> None:
                if len(signature) != 2 * size:
                    raise ValueError
                r, s = (int.from_bytes(signature[i : i + size], "big") for i in (0, size))
                point.verify(utils.encode_dss_signature(r, s), data, scheme)

            return verify_point
        size, at = (raw[0], 1) if raw[0] else (int.from_bytes(raw[1:3], "big"), 3)
        exponent, modulus = raw[at : at + size], raw[at + size :]
        if 8 * len(modulus) > BITS_MOST or len(exponent) > 8:
            return None
        numbers = rsa.RSAPublicNumbers(int.from_bytes(exponent, "big"), int.from_bytes(modulus, "big"))
        key = numbers.public_key()
        digests: dict[int, Any] = {5: hashes.SHA1, 7: hashes.SHA1, 8: hashes.SHA256, 10: hashes.SHA512}
        digest = digests[algorithm]()
        return lambda signature, data: key.verify(signature, data, padding.PKCS1v15(), digest)
    except (ValueError, IndexError, UnsupportedAlgorithm):
        return None


def _is_valid(signature: Signature, key: Key, data: bytes) -> bool:
    verify = _verifier(key.algorithm, key.data[4:])
    if verify is None:
        return False
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        verify(signature.signature, data)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return False
    return True


def signed_data(signature: Signature, rrset: RRset) -> bytes:
    """What was signed (RFC 4034, section 3.1.8.1; section 6 for the order)."""
    owner = rrset.owner
    extra = _wire.labels(owner) - signature.labels
    if extra > 0:
        for _ in range(extra):
            owner = _wire.parent(owner)
        owner = b"\1*" + owner
    head = owner + rrset.rtype.to_bytes(2, "big") + b"\0\1" + signature.ttl.to_bytes(4, "big")
    all_data = sorted({canonical(rrset.rtype, one) for one in rrset.data})
    return signature.head + b"".join(head + len(one).to_bytes(2, "big") + one for one in all_data)


def check(rrset: RRset, zone: bytes, keys: Iterable[Key], now: int, budget: Budget) -> tuple[Signature | None, str]:
    """A signature of the records by a key of their zone that is valid, or None and why there is none. Raises Spent."""
    by_tag: dict[tuple[int, int], list[Key]] = {}
    for key in keys:
        by_tag.setdefault((key.tag, key.algorithm), []).append(key)
    why = "no signature"
    checks = 0
    count = _wire.labels(rrset.owner) - (rrset.owner[:2] == b"\1*")
    for data in rrset.signatures:
        signature = Signature.read(data)
        if signature is None or signature.covered != rrset.rtype or signature.signer != zone:
            why = "a signature of another zone or type"
            continue
        if signature.labels > count:
            why = "a signature with more labels than the name"
            continue
        # RFC 4034, section 3.1.5: times are compared as serial numbers
        if (now - signature.since) & 0xFFFFFFFF >= 1 << 31 or (signature.until - now) & 0xFFFFFFFF >= 1 << 31:
            why = "a signature that is no longer valid, or not yet"
            continue
        fitting: Sequence[Key] = by_tag.get((signature.tag, signature.algorithm), ())
        why = "no key for the signature" if not fitting else "a wrong signature"
        if len(fitting) > KEYS_MOST:
            return None, "too many keys with one tag"
        if not fitting:
            continue
        try:
            signed = signed_data(signature, rrset)
        except UnpackError:
            return None, "data that does not fit its type"
        for key in fitting:
            checks += 1
            if checks > SIGNATURES_MOST:
                return None, "too many signatures that are wrong"
            budget.signature()
            if _is_valid(signature, key, signed):
                return signature, ""
            budget.failed()
    return None, why
