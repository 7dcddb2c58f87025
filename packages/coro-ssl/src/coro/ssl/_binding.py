"""The channel binding tls-server-end-point: a hash of the server's certificate (RFC 5929 section 4.1).

The hash function is that of the certificate's signature, but SHA-256 where that is MD5 or SHA-1. For that, the second
field of the certificate is looked at: ``Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm, signature }``
(RFC 5280 section 4.1).
"""

from __future__ import annotations

import hashlib

from coro.tls import UnsupportedError

__all__ = ["end_point"]

# The last arcs of the algorithms' object identifiers, as bytes of DER: RFC 3279, RFC 4055, RFC 5758.
_RSA = bytes.fromhex("2a864886f70d0101")
_HASHES = {
    _RSA + b"\x04": "sha256",  # MD5
    _RSA + b"\x05": "sha256",  # SHA-1
    _RSA + b"\x0e": "sha224",
    _RSA + b"\x0b": "sha256",
    _RSA + b"\x0c": "sha384",
    _RSA + b"\x0d": "sha512",
    bytes.fromhex("2a8648ce3d0401"): "sha256",  # ECDSA with SHA-1
    bytes.fromhex("2a8648ce3d040301"): "sha224",
    bytes.fromhex("2a8648ce3d040302"): "sha256",
    bytes.fromhex("2a8648ce3d040303"): "sha384",
    bytes.fromhex("2a8648ce3d040304"): "sha512",
}
_PSS = _RSA + b"\x0a"
# The object identifiers of hash functions inside of the parameters of RSASSA-PSS (RFC 8017 appendix A.2.3).
_PSS_HASHES = {
    bytes.fromhex("608648016503040201"): "sha256",
    bytes.fromhex("608648016503040202"): "sha384",
    bytes.fromhex("608648016503040203"): "sha512",
}


def _field(data: bytes, at: int) -> tuple[int, int]:
    """Where the contents of the field at ``at`` begin and end."""
    length = data[at + 1]
    begin = at + 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(data[begin : begin + count], "big")
        begin += count
    if begin + length > len(data):
        raise ValueError("the certificate ends inside of a field")
    return begin, begin + length


def end_point(certificate: bytes) -> bytes:
    """The binding for a server's certificate in DER. UnsupportedError for a signature without a hash function of its
    own, Ed25519 for example, for which none is defined."""
    inside, _ = _field(certificate, 0)
    _, after = _field(certificate, inside)
    algorithm, end = _field(certificate, after)
    first, last = _field(certificate, algorithm)
    kind = certificate[first:last]
    name = _HASHES.get(kind)
    if kind == _PSS:
        found = [hash for oid, hash in _PSS_HASHES.items() if oid in certificate[last:end]]
        name = found[0] if found else "sha256"  # the default there is SHA-1
    if name is None:
        raise UnsupportedError(
            "tls-server-end-point is not defined for this certificate: its signature has no hash function of its own"
        )
    return hashlib.new(name, certificate).digest()
