"""The client's side of SCRAM (RFC 5802, RFC 7677), without a connection: the messages of one login.

    exchange = Scram("SCRAM-SHA-256", "fred", "secret")
    first = exchange.start()
    proof = exchange.step(challenge)
    exchange.step(final)                # raises SASLError unless the server knows the password, too

The password never leaves the process, and at the end the server has proved that it knows what belongs to it.  With
-PLUS the proof also covers the TLS connection, so nobody can pass the messages on (RFC 5802, 6).  A client that could
bind the channel but was not offered to says so in what is signed; a server that did offer notices the difference.

The server says how many rounds of hashing to do.  Few rounds would help somebody who pretends to be the server to try
passwords, many would keep the processor busy, so both are limited.

Cost: PBKDF2, about a millisecond for 4096 rounds.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import stringprep
import unicodedata

from coro.ldap.exceptions import LocalError, SASLError

__all__ = ["MAX_ROUNDS", "MIN_ROUNDS", "Scram", "saslprep"]

#: RFC 5802, 5.1 and RFC 7677, 4: a server should ask for at least so many rounds.
MIN_ROUNDS = 4096
MAX_ROUNDS = 1_000_000
#: Bytes of a message of the server, which has no reason for more than a few hundred.
MAX_SIZE = 16384

_HASHES = {"SCRAM-SHA-1": "sha1", "SCRAM-SHA-256": "sha256"}
_FIRST = re.compile(r"r=([!-+\--~]+),s=([A-Za-z0-9+/]+={0,2}),i=([1-9][0-9]{0,9})(?:,[A-Za-z]=[^,\0]+)*", re.DOTALL)
_FINAL = re.compile(r"(?:v=([A-Za-z0-9+/]+={0,2})|e=([^,\0]*))(?:,[A-Za-z]=[^,\0]+)*", re.DOTALL)

_PROHIBITED = (
    stringprep.in_table_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3, stringprep.in_table_c4,
    stringprep.in_table_c5, stringprep.in_table_c6, stringprep.in_table_c7, stringprep.in_table_c8,
    stringprep.in_table_c9,
)  # fmt: skip


def saslprep(text: str, *, stored: bool = True) -> str:
    """A name or password in the form in which it is compared (RFC 4013).

    stored: characters that Unicode 3.2 did not have are refused.  Raises LocalError for those and for prohibited ones.
    """
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(" " if stringprep.in_table_c12(one) else one for one in text if not stringprep.in_table_b1(one))
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    for place, one in enumerate(prepared):
        if any(table(one) for table in _PROHIBITED):
            raise LocalError(f"expected a name or password of printable characters, one at position {place} is not")
        if stored and stringprep.in_table_a1(one):
            raise LocalError(
                f"expected characters of Unicode 3.2 in a name or password (RFC 4013), one at position {place} is newer"
            )
    if any(map(stringprep.in_table_d1, prepared)):
        # RFC 3454, 6.
        ends = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
        if not ends or any(map(stringprep.in_table_d2, prepared)):
            raise LocalError("expected a name or password that is written in one direction (RFC 3454, section 6)")
    return prepared


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


class Scram:
    """One login.  mechanism: SCRAM-SHA-1 or SCRAM-SHA-256, with -PLUS if `binding` is given and the server offers it.

    binding: the kind and the bytes of a channel binding (RFC 5929, RFC 9266), None for none.  supported: without -PLUS,
    whether this client could have bound the channel, had the server offered it.  authorization: for whom to act, if
    not for `user`.  min_rounds, max_rounds: of hashing.  Raises LocalError for a name or password that cannot be sent.
    """

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        *,
        authorization: str = "",
        binding: tuple[str, bytes] | None = None,
        supported: bool = False,
        min_rounds: int = MIN_ROUNDS,
        max_rounds: int = MAX_ROUNDS,
    ) -> None:
        base = mechanism.removesuffix("-PLUS")
        if base not in _HASHES:
            raise LocalError(f"expected one of the mechanisms {', '.join(_HASHES)}, got {mechanism!r:.60}")
        if (base != mechanism) != (binding is not None):
            raise LocalError(f"expected a channel binding with -PLUS and none without, got {mechanism}")
        self.name = mechanism
        self.done = False
        self._hash = _HASHES[base]
        self._password = saslprep(password).encode()
        prepared = saslprep(user)
        if not prepared:
            raise LocalError("expected the name of a user")
        self._limits = min_rounds, max_rounds
        flag = f"p={binding[0]}" if binding else "y" if supported else "n"
        authzid = f"a={_escaped(saslprep(authorization))}" if authorization else ""
        header = f"{flag},{authzid},"
        self._header = header
        self._binding = base64.b64encode(header.encode() + (binding[1] if binding else b"")).decode()
        self._nonce = secrets.token_urlsafe(24)
        self._user = _escaped(prepared)
        self._signature = b""
        self._state = 0

    def __repr__(self) -> str:
        return f"<Scram {self.name}{' done' if self.done else ''}>"

    def start(self) -> bytes:
        """The first message."""
        self._bare = f"n={self._user},r={self._nonce}"
        self._state = 1
        return (self._header + self._bare).encode()

    def step(self, challenge: bytes) -> bytes | None:
        """The answer to a message of the server, None if that was the last.  Raises SASLError."""
        if len(challenge) > MAX_SIZE:
            raise self._wrong(f"at most {MAX_SIZE} bytes", f"{len(challenge)}")
        try:
            text = challenge.decode("utf-8")
        except UnicodeDecodeError:
            raise self._wrong("UTF-8", "other bytes") from None
        if self._state == 1:
            return self._prove(text)
        if self._state == 2:
            self._state = 3
            self._verify(text)
            return None
        raise self._wrong("no more messages of the server", "one")

    def _wrong(self, expected: str, got: str) -> SASLError:
        self._state = 3
        return SASLError(f"{self.name}: expected {expected}, got {got}; the login is not to be trusted")

    def _prove(self, text: str) -> bytes:
        match = _FIRST.fullmatch(text)
        if match is None:
            # An extension "m=" comes first and has to be refused (RFC 5802, 5.1); it does not match either.
            raise self._wrong("the server's challenge (RFC 5802, 5.1)", f"{text:.100}")
        nonce, salt_text, rounds = match[1], match[2], int(match[3])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise self._wrong("a nonce that goes on from this client's", "another")
        least, most = self._limits
        if not least <= rounds <= most:
            raise self._wrong(f"{least} to {most} rounds of hashing", f"{rounds}")
        try:
            salt = base64.b64decode(salt_text, validate=True)
        except binascii.Error:
            raise self._wrong("a salt in base64", f"{salt_text:.60}") from None
        without_proof = f"c={self._binding},r={nonce}"
        signed = f"{self._bare},{text},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, rounds)
        self._password = b""
        key = hmac.digest(salted, b"Client Key", self._hash)
        signature = hmac.digest(hashlib.new(self._hash, key).digest(), signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), signed, self._hash)
        self._state = 2
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, text: str) -> None:
        match = _FINAL.fullmatch(text)
        if match is None:
            raise self._wrong("the server's signature (RFC 5802, 7)", f"{text:.100}")
        if match[1] is None:
            raise SASLError(f"{self.name}: the server refused the login: {match[2]:.100}")
        try:
            signature = base64.b64decode(match[1], validate=True)
        except binascii.Error:
            signature = b""
        if not hmac.compare_digest(signature, self._signature):
            raise self._wrong("the signature of a server that knows the password", "another")
        self.done = True
