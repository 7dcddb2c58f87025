"""`ecdsa`: signatures of digests with keys on elliptic curves, in the forms that OpenSSL's `EC_KEY` reads and writes.

A private key is in the form of RFC 5915 (`ECPrivateKey`, DER), a public one a point (SEC 1, 2.3.3), compressed or not,
a signature DER (RFC 3279, 2.2.3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from coro.ssl._certs.errors import Error, installed, told

with installed():
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, utils

__all__ = ["ecdsa"]


class _Curve(NamedTuple):
    nid: int
    names: tuple[str, ...]
    make: Callable[[], ec.EllipticCurve]


_CURVES = [
    _Curve(713, ("secp224r1", "P-224"), ec.SECP224R1),
    _Curve(714, ("secp256k1",), ec.SECP256K1),
    _Curve(415, ("prime256v1", "secp256r1", "P-256"), ec.SECP256R1),
    _Curve(715, ("secp384r1", "P-384"), ec.SECP384R1),
    _Curve(716, ("secp521r1", "P-521"), ec.SECP521R1),
    _Curve(927, ("brainpoolP256r1",), ec.BrainpoolP256R1),
    _Curve(931, ("brainpoolP384r1",), ec.BrainpoolP384R1),
    _Curve(933, ("brainpoolP512r1",), ec.BrainpoolP512R1),
]

# A digest is signed as the number that it is, so leading zeros may be added up to one of these lengths.
_SIZES: list[tuple[int, hashes.HashAlgorithm]] = [
    (28, hashes.SHA224()),
    (32, hashes.SHA256()),
    (48, hashes.SHA384()),
    (64, hashes.SHA512()),
]


def _curve(named: str | int) -> ec.EllipticCurve:
    for curve in _CURVES:
        if named == curve.nid or named in curve.names:
            return curve.make()
    known = ", ".join(f"{curve.names[0]} ({curve.nid})" for curve in _CURVES)
    raise Error(0, f"no curve is called {named!r}; there are {known}")


class ecdsa:
    """A key on an elliptic curve, to sign digests and check signatures.

    ``curve`` is its short name, such as ``prime256v1``, OpenSSL's number for it (714 is secp256k1), or None if it comes
    with the private key that ``set_privkey`` is given. Raises Error for a curve that is not known.
    """

    def __init__(self, curve: str | int | None) -> None:
        self._curve = None if curve is None else _curve(curve)
        self._private: ec.EllipticCurvePrivateKey | None = None
        self._public: ec.EllipticCurvePublicKey | None = None
        self._compressed = False

    def _known(self) -> ec.EllipticCurve:
        if self._curve is None:
            raise Error(0, "the curve is not known yet: name it, or call set_privkey() with a key that names it")
        return self._curve

    def generate(self) -> None:
        """Make a new key."""
        self._private = ec.generate_private_key(self._known())
        self._public = self._private.public_key()

    def set_privkey(self, der: bytes) -> None:
        """Take a private key in DER: that of RFC 5915, or PKCS #8. Raises Error if it cannot be read, or is on another
        curve."""
        with told("cannot read the private key"):
            key: Any = serialization.load_der_private_key(bytes(der), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise Error(0, "the key is not on an elliptic curve")
        if self._curve is not None and key.curve.name != self._curve.name:
            raise Error(0, f"the key is on the curve {key.curve.name}, not on {self._curve.name}")
        self._curve = key.curve
        self._private, self._public = key, key.public_key()

    def get_privkey(self) -> bytes:
        """The private key in DER (RFC 5915). Raises Error if there is none."""
        if self._private is None:
            raise Error(0, "there is no private key: call generate() or set_privkey() first")
        data: bytes = self._private.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        return data

    def set_pubkey(self, point: bytes) -> None:
        """Take a public key, a point whose first byte is 02, 03 or 04. The private key, if there was one, is
        forgotten. Raises Error if it is not on the curve."""
        with told("cannot read the public key"):
            self._public = ec.EllipticCurvePublicKey.from_encoded_point(self._known(), bytes(point))
        self._private = None
        self._compressed = point[0] in (2, 3)

    def get_pubkey(self) -> bytes:
        """The public key as a point, compressed (first byte 02 or 03) if so set, else in full (04). Raises Error if
        there is none."""
        form = serialization.PublicFormat
        data: bytes = self._shown().public_bytes(
            serialization.Encoding.X962, form.CompressedPoint if self._compressed else form.UncompressedPoint
        )
        return data

    def set_compressed(self, compressed: bool) -> None:
        """Whether ``get_pubkey`` gives the short form."""
        self._compressed = bool(compressed)

    def _shown(self) -> ec.EllipticCurvePublicKey:
        if self._public is None:
            raise Error(0, "there is no key: call generate(), set_privkey() or set_pubkey() first")
        return self._public

    def _number(self, digest: bytes) -> tuple[bytes, ec.ECDSA]:
        """The digest in a length that can be signed as it is: cut to the order of the curve (SEC 1, 4.1.3), then led
        by zeros."""
        value = bytes(digest)
        if not value:
            raise ValueError("a digest has at least one byte")
        bits = self._known().key_size
        if bits % 8 == 0:
            value = value[: bits // 8]
        for size, algorithm in _SIZES:
            if len(value) <= size and (bits % 8 or size * 8 <= bits):
                return value.rjust(size, b"\0"), ec.ECDSA(utils.Prehashed(algorithm))
        raise Error(0, f"a digest of {len(digest)} bytes is too long for {self._known().name}; SHA512 has 64")

    def sign(self, digest: bytes) -> bytes:
        """The signature of a digest, in DER. Raises Error without a private key."""
        if self._private is None:
            raise Error(0, "signing needs a private key: call generate() or set_privkey() first")
        value, how = self._number(digest)
        with told("cannot sign"):
            return bytes(self._private.sign(value, how))

    def verify(self, digest: bytes, sig: bytes) -> int:
        """1 if ``sig`` is this key's signature of the digest, else 0."""
        value, how = self._number(digest)
        try:
            self._shown().verify(bytes(sig), value, how)
        except InvalidSignature:
            return 0
        return 1

    def __repr__(self) -> str:
        curve = self._curve.name if self._curve is not None else "curve not known"
        return f"<ecdsa {curve}, {'private' if self._private is not None else 'public' if self._public else 'no'} key>"
