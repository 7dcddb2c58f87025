"""Symmetric ciphers and digests by their OpenSSL names: `cipher`, `digest`.

For new code the modules `hashlib` and `cryptography` are the better choice. These two are here for programs that use
them. Names that are weak are known for `digest` (to check what others made), but are not used to sign.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from coro.ssl._certs.errors import Error, UnknownCipherType, UnknownDigestType, installed, told

with installed():
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import padding as _padding
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

__all__ = ["cipher", "digest", "hash_named"]

_HASHES: dict[str, Callable[[], hashes.HashAlgorithm]] = {
    "MD5": hashes.MD5,
    "SHA1": hashes.SHA1,
    "SHA224": hashes.SHA224,
    "SHA256": hashes.SHA256,
    "SHA384": hashes.SHA384,
    "SHA512": hashes.SHA512,
    "SHA3256": hashes.SHA3_256,
    "SHA3384": hashes.SHA3_384,
    "SHA3512": hashes.SHA3_512,
}

# Name -> bytes of the key, and the mode. This class has ciphers without authentication only; TLS does not use it.
_CIPHERS: dict[str, tuple[int, str]] = {
    f"AES-{bits}-{mode}": (bits // 8, mode) for bits in (128, 192, 256) for mode in ("CBC", "CTR", "ECB", "CFB", "OFB")
} | {"CHACHA20": (32, "CHACHA20")}


def hash_named(name: str) -> hashes.HashAlgorithm:
    """The hash with this name, however it is spelt: SHA256, sha-256, SHA2-256."""
    plain = name.upper().replace("-", "").replace("_", "").replace("SHA2256", "SHA256").replace("SHA2384", "SHA384")
    plain = plain.replace("SHA2512", "SHA512")
    if plain not in _HASHES:
        raise UnknownDigestType(0, f"no digest is called {name!r}; there are {', '.join(_HASHES)}")
    return _HASHES[plain]()


class digest:
    """A digest of bytes that come in pieces: ``digest("SHA256")``. Raises UnknownDigestType for a name that is not
    known."""

    def __init__(self, kind: str) -> None:
        self._algorithm = hash_named(kind)
        self._hash = hashes.Hash(self._algorithm)
        self._value: bytes | None = None

    def update(self, data: bytes) -> None:
        """Add bytes. Raises Error after the digest was taken."""
        if self._value is not None:
            raise Error(0, "the digest was taken; make another one for other data")
        self._hash.update(data)

    def final(self) -> bytes:
        """The digest of all that was added. It can be asked for again."""
        if self._value is None:
            self._value = self._hash.finalize()
        return self._value

    def sign(self, key: Any) -> bytes:
        """The signature of a ``pkey``: PKCS #1 v1.5 with RSA, DER with elliptic curves, as ``openssl dgst -sign``
        makes it. Raises Error for a public key, and for MD5 and SHA-1, which must not be signed with any more."""
        if isinstance(self._algorithm, (hashes.MD5, hashes.SHA1)):
            raise Error(0, f"{self._algorithm.name} is too weak for a signature; use SHA256")
        secret = key._secret
        value, prehashed = self.final(), utils.Prehashed(self._algorithm)
        with told("cannot sign"):
            if isinstance(secret, rsa.RSAPrivateKey):
                return bytes(secret.sign(value, padding.PKCS1v15(), prehashed))
            if isinstance(secret, ec.EllipticCurvePrivateKey):
                return bytes(secret.sign(value, ec.ECDSA(prehashed)))
        raise Error(0, f"{key!r} signs whole messages, not digests")

    def verify(self, key: Any, sig: bytes) -> bool:
        """Whether ``sig`` is the signature of this digest by the owner of ``key``, a ``pkey``."""
        public = key._shown
        value, prehashed = self.final(), utils.Prehashed(self._algorithm)
        try:
            if isinstance(public, rsa.RSAPublicKey):
                public.verify(sig, value, padding.PKCS1v15(), prehashed)
                return True
            if isinstance(public, ec.EllipticCurvePublicKey):
                public.verify(sig, value, ec.ECDSA(prehashed))
                return True
        except InvalidSignature:
            return False
        raise Error(0, f"{key!r} signs whole messages, not digests")

    def __repr__(self) -> str:
        return f"<digest {self._algorithm.name}>"


class cipher:
    """A symmetric cipher by its OpenSSL name, such as ``AES-256-CBC``. Nothing tells whether the text was changed on
    its way: for new code take `cryptography`'s AEAD ciphers.

    ``encrypt`` is 1 to encrypt, 0 to decrypt. The block modes pad as PKCS #7 says. Raises UnknownCipherType for a name
    that is not known.
    """

    def __init__(self, kind: str, key: bytes | None = None, iv: bytes | None = None, encrypt: int = 0) -> None:
        name = kind.upper().replace("AES128", "AES-128").replace("AES192", "AES-192").replace("AES256", "AES-256")
        if name not in _CIPHERS:
            raise UnknownCipherType(0, f"no cipher is called {kind!r}; there are {', '.join(_CIPHERS)}")
        self._name = name
        self._key_length, self._mode = _CIPHERS[name]
        self._encrypt = bool(encrypt)
        self._key = self._iv = b""
        self._context: Any = None
        self._padder: Any = None
        self._ended = False
        if key is not None:
            self.set_key(key)
        if iv is not None:
            self.set_iv(iv)

    def get_key_length(self) -> int:
        """Bytes of the key."""
        return self._key_length

    def get_iv_length(self) -> int:
        """Bytes of the initial vector; 0 if the cipher has none."""
        return 0 if self._mode == "ECB" else 16

    def block_size(self) -> int:
        """Bytes of a block; 1 for a cipher that has none."""
        return 16 if self._mode in ("CBC", "ECB") else 1

    def set_key(self, key: bytes) -> None:
        """Set the key. ValueError if it has not ``get_key_length()`` bytes; Error when the work has begun."""
        self._refuse_late()
        if len(key) != self._key_length:
            raise ValueError(f"the key of {self._name} has {self._key_length} bytes, not {len(key)}")
        self._key = bytes(key)

    def set_iv(self, iv: bytes) -> None:
        """Set the initial vector, which must be another one for each text with the same key. ValueError if it has not
        ``get_iv_length()`` bytes; Error when the work has begun."""
        self._refuse_late()
        if len(iv) != self.get_iv_length():
            raise ValueError(f"the initial vector of {self._name} has {self.get_iv_length()} bytes, not {len(iv)}")
        self._iv = bytes(iv)

    def _refuse_late(self) -> None:
        if self._context is not None or self._ended:
            raise Error(0, "the cipher is at work; make another one for another key or text")

    def _start(self) -> None:
        if self._ended:
            raise Error(0, "the text has ended; make another cipher for the next one")
        if self._context is not None:
            return
        if not self._key or len(self._iv) != self.get_iv_length():
            raise Error(0, f"{self._name} needs a key and an initial vector first: set_key(), set_iv()")
        if self._mode == "CHACHA20":
            made = Cipher(algorithms.ChaCha20(self._key, self._iv), None)
        else:
            mode = {"ECB": modes.ECB}.get(self._mode, None)
            chosen: Any = mode() if mode is not None else getattr(modes, self._mode)(self._iv)
            made = Cipher(algorithms.AES(self._key), chosen)
        self._context = made.encryptor() if self._encrypt else made.decryptor()
        if self.block_size() > 1:
            pkcs7 = _padding.PKCS7(128)
            self._padder = pkcs7.padder() if self._encrypt else pkcs7.unpadder()

    def update(self, data: bytes) -> bytes:
        """What comes out for ``data``; the last block may stay inside until ``final``."""
        self._start()
        with told("cannot encrypt or decrypt"):
            if self._padder is None:
                return bytes(self._context.update(data))
            if self._encrypt:
                return bytes(self._context.update(self._padder.update(data)))
            return bytes(self._padder.update(self._context.update(data)))

    def final(self) -> bytes:
        """The rest. Raises Error if the text to decrypt is no whole number of blocks, or badly padded."""
        self._start()
        context, padder = self._context, self._padder
        self._context, self._ended = None, True
        with told("the end of the text is wrong: another key, or damaged"):
            if padder is None:
                return bytes(context.finalize())
            if self._encrypt:
                return bytes(context.update(padder.finalize()) + context.finalize())
            return bytes(padder.update(context.finalize()) + padder.finalize())

    def __repr__(self) -> str:
        return f"<cipher {self._name}, {'encrypts' if self._encrypt else 'decrypts'}>"


def random_bytes(n: int) -> bytes:
    """``n`` bytes that nobody can guess. ValueError for a negative number."""
    if n < 0:
        raise ValueError(f"a number of bytes is not negative, but {n} is")
    return secrets.token_bytes(n)


def random_status() -> int:
    """1: the system's generator of random numbers is always ready."""
    return 1


__all__ += ["random_bytes", "random_status"]
