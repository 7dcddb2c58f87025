"""Passwords as a directory keeps them: hashed values of userPassword, and keys for SCRAM in authPassword (RFC 5803).

    hash_password("secret")                     # b"{PBKDF2-SHA256}..."
    check_password(b"{SSHA}...", b"secret")     # True or False, compared in constant time

Values without a scheme are clear text, as RFC 4519, 2.41, has it.  PBKDF2 takes its time on purpose; the server calls
it in another OS thread.  {CRYPT} needs the C library's crypt(3), {ARGON2} and the like are refused: they match
nothing.
"""

from __future__ import annotations

import base64
import binascii
import ctypes
import ctypes.util
import hashlib
import hmac
import os
import threading
from functools import cache

from coro.ldap.exceptions import LocalError

__all__ = ["check_password", "hash_password", "is_slow", "scram_keys", "scram_password"]

#: Rounds of PBKDF2 for new passwords, and the most that a stored one may ask for.
ROUNDS = 100_000
MAX_ROUNDS = 10_000_000
SALT = 16

_PLAIN = {"SHA": "sha1", "SHA256": "sha256", "SHA384": "sha384", "SHA512": "sha512", "MD5": "md5"}
_SALTED = {"SSHA": "sha1", "SSHA256": "sha256", "SSHA384": "sha384", "SSHA512": "sha512", "SMD5": "md5"}
_PBKDF2 = {"PBKDF2": "sha1", "PBKDF2-SHA1": "sha1", "PBKDF2-SHA256": "sha256", "PBKDF2-SHA512": "sha512"}


def _scheme(stored: bytes) -> tuple[str, bytes] | None:
    if not stored.startswith(b"{"):
        return None
    name, closed, rest = stored[1:].partition(b"}")
    return (name.decode("ascii", "replace").upper(), rest) if closed else None


def _digest(name: str, data: bytes) -> bytes:
    return hashlib.new(name, data, usedforsecurity=False).digest()


def hash_password(password: str | bytes, scheme: str = "PBKDF2-SHA256", rounds: int = ROUNDS) -> bytes:
    """A value of userPassword for a password.

    scheme: PBKDF2-SHA1, -SHA256 or -SHA512, SSHA, SSHA256, SSHA384 or SSHA512, or CLEARTEXT.  rounds: of PBKDF2.
    Raises LocalError for another scheme.
    """
    secret = password.encode("utf-8") if isinstance(password, str) else bytes(password)
    name = scheme.upper().strip("{}")
    if name == "CLEARTEXT":
        return secret
    salt = os.urandom(SALT)
    if name in _PBKDF2:
        key = hashlib.pbkdf2_hmac(_PBKDF2[name], secret, salt, rounds)
        return b"{%s}%d$%s$%s" % (name.encode(), rounds, _adapted(salt), _adapted(key))
    if name in _SALTED:
        return b"{%s}%s" % (name.encode(), base64.b64encode(_digest(_SALTED[name], secret + salt) + salt))
    known = ", ".join([*_PBKDF2, *_SALTED, "CLEARTEXT"])
    raise LocalError(f"expected one of the schemes {known}, got {scheme!r:.40}")


def _adapted(data: bytes) -> bytes:
    """Base64 with a dot for the plus and without padding, as passlib and OpenLDAP's pw-pbkdf2 write it."""
    return base64.b64encode(data).rstrip(b"=").replace(b"+", b".")


def _unadapted(data: bytes) -> bytes:
    return base64.b64decode(data.replace(b".", b"+") + b"=" * (-len(data) % 4), validate=True)


def is_slow(stored: bytes) -> bool:
    """Whether checking takes so long that other threads should run meanwhile."""
    found = _scheme(stored)
    return found is not None and (found[0] in _PBKDF2 or found[0] == "CRYPT")


def check_password(stored: bytes, password: bytes) -> bool:
    """Whether a password fits a value of userPassword.  Malformed values and unknown schemes fit none."""
    found = _scheme(stored)
    if found is None:
        return hmac.compare_digest(stored, password)
    name, rest = found
    try:
        if name == "CLEARTEXT":
            return hmac.compare_digest(rest, password)
        if name in _PLAIN:
            return hmac.compare_digest(base64.b64decode(rest, validate=True), _digest(_PLAIN[name], password))
        if name in _SALTED:
            raw = base64.b64decode(rest, validate=True)
            size = hashlib.new(_SALTED[name], usedforsecurity=False).digest_size
            return hmac.compare_digest(raw[:size], _digest(_SALTED[name], password + raw[size:]))
        if name in _PBKDF2:
            rounds, salt, key = rest.split(b"$")
            if not 1 <= int(rounds) <= MAX_ROUNDS:
                return False
            expected = _unadapted(key)
            return bool(expected) and hmac.compare_digest(
                expected, hashlib.pbkdf2_hmac(_PBKDF2[name], password, _unadapted(salt), int(rounds), len(expected))
            )
        if name == "CRYPT":
            computed = _crypt(password, rest)
            return computed is not None and hmac.compare_digest(computed, rest)
    except (ValueError, binascii.Error):
        pass
    return False


_crypt_lock = threading.Lock()


@cache
def _libcrypt() -> ctypes.CDLL | None:
    for name in ("libcrypt.so.1", "libcrypt.so.2", ctypes.util.find_library("crypt")):
        if name is None:
            continue
        try:
            library = ctypes.CDLL(name)
            library.crypt.restype = ctypes.c_char_p
            library.crypt.argtypes = (ctypes.c_char_p, ctypes.c_char_p)
        except (OSError, AttributeError):
            continue
        return library
    return None


def _crypt(password: bytes, setting: bytes) -> bytes | None:
    """crypt(3); None where there is none, or it refuses.  Its result lies in one buffer, hence the lock."""
    library = _libcrypt()
    if library is None or b"\0" in password or b"\0" in setting:
        return None
    with _crypt_lock:
        found: bytes | None = library.crypt(password, setting)
    # "*0" and "*1" are how crypt(5) says that it failed.
    return None if found is None or found.startswith(b"*") else bytes(found)


def scram_password(password: str, mechanism: str = "SCRAM-SHA-256", rounds: int = 4096) -> bytes:
    """A value of authPassword with the keys of a password (RFC 5803), with which SCRAM works without the password.

    mechanism: SCRAM-SHA-1 or SCRAM-SHA-256.  rounds: RFC 7677 asks for 4096 at least.
    """
    salt = os.urandom(SALT)
    stored, server = scram_keys(password.encode("utf-8"), mechanism, salt, rounds)
    encode = base64.b64encode
    return b"%s$%d:%s$%s:%s" % (mechanism.encode(), rounds, encode(salt), encode(stored), encode(server))


def scram_keys(password: bytes, mechanism: str, salt: bytes, rounds: int) -> tuple[bytes, bytes]:
    """StoredKey and ServerKey of RFC 5802, 3."""
    name = _hash_of(mechanism)
    salted = hashlib.pbkdf2_hmac(name, password, salt, rounds)
    client = hmac.digest(salted, b"Client Key", name)
    return hashlib.new(name, client).digest(), hmac.digest(salted, b"Server Key", name)


def _hash_of(mechanism: str) -> str:
    return {"SCRAM-SHA-1": "sha1", "SCRAM-SHA-256": "sha256"}[mechanism.removesuffix("-PLUS")]
