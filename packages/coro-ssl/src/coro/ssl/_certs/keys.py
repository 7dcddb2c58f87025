"""Keys: `pkey`, `rsa`, `dh_param`, and reading them from PEM.

Keys that are made here are RSA of 2 048 bits and more with the exponent 65 537 (NIST SP 800-56B asks for an odd one
above 65 536; smaller ones made padding mistakes exploitable). Keys that are read may be older.

Encryption is OAEP with SHA-256 (RFC 8017, 7.1). PKCS #1 v1.5 encryption is not offered: it invites Bleichenbacher's
attack. No key is in a repr.
"""

from __future__ import annotations

from typing import Any

from coro.ssl._certs.errors import Error, installed, told

with installed():
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import dh, dsa, ec, ed448, ed25519, padding
    from cryptography.hazmat.primitives.asymmetric import rsa as _rsa

__all__ = ["dh_param", "pkey", "read_pem_key", "rsa"]

_PRIVATE = (
    _rsa.RSAPrivateKey,
    ec.EllipticCurvePrivateKey,
    ed25519.Ed25519PrivateKey,
    ed448.Ed448PrivateKey,
    dsa.DSAPrivateKey,
)
_PUBLIC = (
    _rsa.RSAPublicKey,
    ec.EllipticCurvePublicKey,
    ed25519.Ed25519PublicKey,
    ed448.Ed448PublicKey,
    dsa.DSAPublicKey,
)
#: The least number of bits of an RSA key made here (NIST SP 800-131A).
SMALLEST_RSA = 2048
_OAEP = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)


def as_bytes(value: str | bytes, what: str) -> bytes:
    """Text or bytes as bytes; TypeError otherwise."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{what} is str or bytes, not {type(value).__name__}")


def load_private(pem: bytes, password: str | bytes | None) -> Any:
    """A private key of `cryptography` from PEM. A password for a key that has none is no mistake."""
    secret = as_bytes(password, "a password") if password else None
    with told("cannot read the private key"):
        try:
            return serialization.load_pem_private_key(pem, secret)
        except TypeError:
            if secret is None:
                raise Error(0, "the private key is encrypted; pass its password") from None
            return serialization.load_pem_private_key(pem, None)


class rsa:
    """An RSA key: ``rsa(2048)`` makes one of that many bits, ``rsa(pem)`` reads one.

    ``e`` is the exponent of a key that is made; only 65537 is possible. ``password`` is that of an encrypted key.
    Raises ValueError for another exponent and for fewer than 2048 bits, Error for PEM that is not an RSA private key.
    """

    def __init__(self, bits: int | str | bytes, e: int = 65537, password: str | bytes = "") -> None:
        if isinstance(bits, int):
            if e != 65537:
                what = "even" if e % 2 == 0 else "too small" if e < 65537 else "not supported"
                raise ValueError(f"the exponent {e} is {what}; use 65537")
            if bits < SMALLEST_RSA:
                raise ValueError(f"an RSA key of {bits} bits is too weak; use {SMALLEST_RSA} or more")
            self._key = _rsa.generate_private_key(65537, bits)
        else:
            key = load_private(as_bytes(bits, "an RSA key in PEM"), password)
            if not isinstance(key, _rsa.RSAPrivateKey):
                raise Error(0, f"the key is no RSA key but {kind(key)}; use pkey() for it")
            self._key = key

    def check(self) -> bool:
        """Whether the numbers of the key belong together."""
        numbers = self._key.private_numbers()
        try:
            numbers.private_key()
        except ValueError:
            return False
        p, q, n = numbers.p, numbers.q, numbers.public_numbers.n
        e = numbers.public_numbers.e
        return bool(p * q == n and numbers.d * e % (p - 1) == 1 and numbers.d * e % (q - 1) == 1)

    def as_pem(self) -> bytes:
        """The private key in PEM (PKCS #8), not encrypted."""
        return private_pem(self._key)

    def __repr__(self) -> str:
        return f"<rsa {self._key.key_size} bits>"


class pkey:
    """A private or public key of any kind that certificates have: RSA, elliptic curves, Ed25519, Ed448.

    ``pem_or_rsa`` is PEM or an ``rsa`` object. PEM may be a private key, then ``private`` must be true or left out, or
    a public key. ``password`` is that of an encrypted private key. Raises Error if it cannot be read.
    """

    def __init__(
        self, pem_or_rsa: str | bytes | rsa | None = None, password: str | bytes = "", private: bool = False
    ) -> None:
        self._private: Any = None
        self._public: Any = None
        if pem_or_rsa is None:
            return
        if isinstance(pem_or_rsa, rsa):
            self._set(pem_or_rsa._key)
            return
        pem = as_bytes(pem_or_rsa, "a key in PEM")
        if private or b"PRIVATE KEY-----" in pem:
            self._set(load_private(pem, password))
        else:
            with told("cannot read the public key"):
                self._set(serialization.load_pem_public_key(pem))

    @classmethod
    def _of(cls, key: Any) -> pkey:
        self = cls()
        self._set(key)
        return self

    def _set(self, key: Any) -> None:
        if isinstance(key, _PRIVATE):
            self._private, self._public = key, key.public_key()
        elif isinstance(key, _PUBLIC):
            self._private, self._public = None, key
        else:
            raise Error(0, f"a key for certificates was expected, not {kind(key)}")

    @property
    def _secret(self) -> Any:
        if self._private is None:
            raise Error(
                0,
                "this needs a private key, and "
                + ("the key is empty" if self._public is None else "the key is a public one"),
            )
        return self._private

    @property
    def _shown(self) -> Any:
        if self._public is None:
            raise Error(0, "the key is empty; read one with pkey(pem)")
        return self._public

    @property
    def is_private(self) -> bool:
        """Whether the private half is there."""
        return self._private is not None

    def get_private(self) -> bytes:
        """The private key in PEM (PKCS #8), not encrypted. Raises Error for a public key."""
        return private_pem(self._secret)

    def get_public(self) -> bytes:
        """The public key in PEM."""
        data: bytes = self._shown.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return data

    def bits(self) -> int:
        """The size of the key in bits."""
        key = self._shown
        size = getattr(key, "key_size", None)
        if size is not None:
            return int(size)
        return 456 if isinstance(key, ed448.Ed448PublicKey) else 256

    def size(self) -> int:
        """The length of what it signs or encrypts, in bytes: the modulus for RSA, the longest signature for others."""
        key = self._shown
        if isinstance(key, _rsa.RSAPublicKey):
            return int((key.key_size + 7) // 8)
        if isinstance(key, ec.EllipticCurvePublicKey):
            # SEQUENCE of two INTEGERs, each with a leading zero in the worst case
            number = 2 + (key.key_size + 7) // 8 + 1
            return int(2 * number + (3 if 2 * number > 127 else 2))
        return 114 if isinstance(key, ed448.Ed448PublicKey) else 64

    def encrypt(self, data: bytes) -> bytes:
        """Encrypt a short text, up to ``size() - 66`` bytes, for the owner of the private key: RSA with OAEP and
        SHA-256. Raises Error for other keys."""
        key = self._shown
        if not isinstance(key, _rsa.RSAPublicKey):
            raise Error(0, f"only RSA keys encrypt, not {kind(key)}")
        with told("cannot encrypt"):
            return bytes(key.encrypt(data, _OAEP))

    def decrypt(self, data: bytes) -> bytes:
        """The text that ``encrypt`` has encrypted. Raises Error if it was not for this key, or was changed."""
        key = self._secret
        if not isinstance(key, _rsa.RSAPrivateKey):
            raise Error(0, f"only RSA keys decrypt, not {kind(key)}")
        try:
            return bytes(key.decrypt(data, _OAEP))
        except ValueError:
            # One text for every cause: which of them it was must not be told (RFC 8017, 7.1.2).
            raise Error(0, "cannot decrypt: it is not for this key, or damaged") from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, pkey):
            return NotImplemented
        if self._public is None or other._public is None:
            return self._public is other._public
        return self.is_private == other.is_private and bool(self.get_public() == other.get_public())

    def __hash__(self) -> int:
        return hash(self.get_public()) if self._public is not None else 0

    def __repr__(self) -> str:
        if self._public is None:
            return "<pkey, empty>"
        return f"<pkey {'private' if self.is_private else 'public'}, {kind(self._public)}>"


class dh_param:
    """Parameters of a Diffie-Hellman exchange, read from PEM. Raises Error for PEM that has none, or a prime of fewer
    than 2048 bits (RFC 9325, 4.4)."""

    def __init__(self, pem: str | bytes) -> None:
        with told("cannot read the Diffie-Hellman parameters"):
            parameters = serialization.load_pem_parameters(as_bytes(pem, "parameters in PEM"))
        if not isinstance(parameters, dh.DHParameters):
            raise Error(0, f"these are no Diffie-Hellman parameters but {type(parameters).__name__}")
        self._parameters = parameters
        bits = parameters.parameter_numbers().p.bit_length()
        if bits < SMALLEST_RSA:
            raise Error(0, f"a Diffie-Hellman prime of {bits} bits is too weak; use {SMALLEST_RSA} or more")

    def as_pem(self) -> bytes:
        """The parameters in PEM."""
        return bytes(self._parameters.parameter_bytes(serialization.Encoding.PEM, serialization.ParameterFormat.PKCS3))

    def __repr__(self) -> str:
        return f"<dh_param {self._parameters.parameter_numbers().p.bit_length()} bits>"


def kind(key: Any) -> str:
    """What kind of key it is, for texts."""
    if isinstance(key, (_rsa.RSAPrivateKey, _rsa.RSAPublicKey)):
        return f"RSA of {key.key_size} bits"
    if isinstance(key, (ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey)):
        return f"elliptic curve {key.curve.name}"
    name = type(key).__name__.strip("_")
    return name.replace("PrivateKey", "").replace("PublicKey", "")


def private_pem(key: Any) -> bytes:
    data: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return data


def read_pem_key(pem: str | bytes, password: str | bytes = "") -> pkey:
    """The private key in ``pem``; ``password`` is that of an encrypted one. Raises Error if there is none."""
    return pkey(pem, password, private=True)
