"""The server's side of SASL: SCRAM-SHA-1 and SCRAM-SHA-256 (RFC 5802, RFC 7677), PLAIN (RFC 4616), EXTERNAL (RFC 4422).

    exchange = Scram("SCRAM-SHA-256", keys_of)
    challenge = exchange.step(b"n,,n=fred,r=...")       # the first answer
    proof = exchange.step(b"c=biws,r=...,p=...")        # the second one; then exchange.user is who logged in

A user who does not exist gets a challenge, too, always with the same salt, so the exchange does not tell who exists.
Channel bindings are not offered.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from coro.ldap.server._refusal import Refused
from coro.ldap.server.passwords import MAX_ROUNDS, SALT, scram_keys

__all__ = ["MECHANISMS", "Keys", "Scram", "keys_of_password", "parse_keys", "plain"]

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-1")
ROUNDS = 4096
_HASHES = {"SCRAM-SHA-1": "sha1", "SCRAM-SHA-256": "sha256"}
_FIRST = re.compile(r"([ny]|p=[A-Za-z0-9.-]+),(?:a=([^,]*))?,(n=([^,]*),r=([!-+\--~]{1,1000})(?:,.*)?)", re.DOTALL)
_LAST = re.compile(r"(c=([A-Za-z0-9+/=]+),r=([!-+\--~]{1,2000})(?:,[^,]*)*?),p=([A-Za-z0-9+/=]+)", re.DOTALL)

# With it, the salts of users who do not exist, and of those whose password is there in clear text, are always the same.
_SECRET = os.urandom(32)


@dataclass(slots=True)
class Keys:
    """What a server needs of a password."""

    salt: bytes
    rounds: int
    stored: bytes
    server: bytes


def salt_of(user: str) -> bytes:
    """A salt for one without a salt of his own."""
    return hmac.digest(_SECRET, user.encode("utf-8", "surrogatepass"), "sha256")[:SALT]


def keys_of_password(mechanism: str, user: str, password: bytes) -> Keys:
    """The keys of a password in clear text."""
    salt = salt_of(user)
    return Keys(salt, ROUNDS, *scram_keys(password, mechanism, salt, ROUNDS))


def parse_keys(mechanism: str, value: bytes) -> Keys | None:
    """The keys that a value of authPassword has (RFC 5803); None if it is of another scheme, or malformed."""
    parts = value.split(b"$")
    if len(parts) != 3 or parts[0].strip().upper() != mechanism.encode():
        return None
    try:
        rounds, _, salt = parts[1].partition(b":")
        stored, _, server = parts[2].partition(b":")
        decode = base64.b64decode
        keys = Keys(
            decode(salt, validate=True), int(rounds), decode(stored, validate=True), decode(server, validate=True)
        )
    except (ValueError, binascii.Error):
        return None
    size = hashlib.new(_HASHES[mechanism]).digest_size
    if len(keys.stored) != size or len(keys.server) != size or not 1 <= keys.rounds <= MAX_ROUNDS:
        return None
    return keys


def _wrong(what: str) -> Refused:
    return Refused(49, f"SCRAM: {what}")


class Scram:
    """One exchange.  keys: called with the name of a user, gives the keys, or None if there are none."""

    def __init__(self, mechanism: str, keys: Callable[[str], Keys | None]) -> None:
        self.mechanism = mechanism
        self._hash = _HASHES[mechanism]
        self._lookup = keys
        self.user = ""
        self.authorization = ""
        self.done = False
        self._text = ""

    def step(self, data: bytes) -> bytes:
        """The answer to what the client sent.  `done` tells whether that was the last one.  Raises Refused."""
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise _wrong("expected UTF-8") from None
        return self._first(text) if not self._text else self._last(text)

    def _first(self, text: str) -> bytes:
        match = _FIRST.fullmatch(text)
        if match is None:
            raise _wrong("expected the client's first message")
        if match[1].startswith("p"):
            raise _wrong("no channel binding was offered")
        self._header = text[: match.start(3)]
        self.authorization = _name(match[2] or "")
        self.user = _name(match[4])
        found = self._lookup(self.user)
        self._known = found is not None
        if found is None:
            found = Keys(salt_of(self.user), ROUNDS, os.urandom(32), os.urandom(32))
        self._keys = found
        self._nonce = match[5] + base64.b64encode(os.urandom(18)).decode()
        challenge = f"r={self._nonce},s={base64.b64encode(found.salt).decode()},i={found.rounds}"
        self._text = f"{match[3]},{challenge}"
        return challenge.encode()

    def _last(self, text: str) -> bytes:
        match = _LAST.fullmatch(text)
        if match is None:
            raise _wrong("expected the client's last message")
        try:
            header = base64.b64decode(match[2], validate=True)
            proof = base64.b64decode(match[4], validate=True)
        except binascii.Error:
            raise _wrong("expected base64") from None
        if header != self._header.encode() or not hmac.compare_digest(match[3], self._nonce):
            raise _wrong("the client's last message does not fit its first one")
        signed = f"{self._text},{match[1]}".encode()
        signature = hmac.digest(self._keys.stored, signed, self._hash)
        if len(proof) != len(signature):
            raise _wrong("wrong user or password")
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, key).digest(), self._keys.stored) or not self._known:
            raise _wrong("wrong user or password")
        self.done = True
        return b"v=" + base64.b64encode(hmac.digest(self._keys.server, signed, self._hash))


def _name(text: str) -> str:
    """A name, in which =2C is a comma and =3D the sign itself (RFC 5802, 5.1)."""
    if re.search("=(?!2C|3D)", text):
        raise _wrong("expected =2C or =3D behind a name's '='")
    return text.replace("=2C", ",").replace("=3D", "=")


def plain(data: bytes) -> tuple[str, str, bytes]:
    """The authorization name, the user and the password of PLAIN.  Raises Refused."""
    try:
        authorization, user, password = data.split(b"\0")
        return authorization.decode("utf-8"), user.decode("utf-8"), password
    except ValueError:
        raise Refused(49, "PLAIN: expected two names and a password with NUL between them") from None
