"""Messages signed with a secret that both sides have (TSIG, RFC 8945): for zone transfers, updates and notifications.

    key = Key.read("transfer.key")                 # or Key("transfer.example.org", secret)

A `Key` goes into the settings of a zone, or to a function that asks a server; the rest is done there. `sign` and
`verify` are for messages of your own.

Signatures are HMACs; their comparison takes the same time whatever differs. A secret is in no repr and no error. MD5 is
refused (RFC 6151), and so are signatures that were cut, unless the key's algorithm says to cut them.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from coro.dns import _wire
from coro.dns._packet.codec import UnpackError, fields_of
from coro.dns._packet.numbers import RCODE_MAP
from coro.dns.exceptions import DNS_Signature_Error

__all__ = ["ALGORITHMS", "Key", "Signature", "sign", "verify"]

FORMERR, NOTAUTH, BADSIG, BADKEY, BADTIME, BADTRUNC = 1, 9, 16, 17, 18, 22
#: Seconds by which clocks may differ (RFC 8945, section 10).
FUDGE = 300
#: Messages without a signature that may stand between signed ones (RFC 8945, section 5.3.1).
UNSIGNED = 99

#: The name of an algorithm -> its hash, and how many bytes of it are sent.
ALGORITHMS: dict[str, tuple[str, int]] = {
    "hmac-sha1": ("sha1", 20),
    "hmac-sha224": ("sha224", 28),
    "hmac-sha256": ("sha256", 32),
    "hmac-sha256-128": ("sha256", 16),
    "hmac-sha384": ("sha384", 48),
    "hmac-sha384-192": ("sha384", 24),
    "hmac-sha512": ("sha512", 64),
    "hmac-sha512-256": ("sha512", 32),
}
_COMMENT = re.compile(r'("[^"]*")|(?:#|//).*|(?s:/\*.*?\*/)')
_LINE = re.compile(r"\b(algorithm|secret)\s+(\"[^\"]*\"|[^\s;]+)\s*;", re.IGNORECASE)
_HEAD = re.compile(r"\bkey\s+(\"[^\"]+\"|[^\s{]+)\s*\{", re.IGNORECASE)


class Key:
    """A secret that has a name. ``secret`` is bytes, or text in base64 as configurations have it; ``algorithm`` one of
    ``ALGORITHMS``.

    Raises ValueError for an unknown algorithm, text that is not base64, and an empty secret.
    """

    __slots__ = ("_secret", "algorithm", "name", "wire")

    def __init__(self, name: str, secret: bytes | str, algorithm: str = "hmac-sha256") -> None:
        algorithm = algorithm.lower().rstrip(".")
        if algorithm not in ALGORITHMS:
            raise ValueError(f"expected an algorithm for a key, one of {', '.join(ALGORITHMS)}, not {algorithm!r}")
        if isinstance(secret, str):
            try:
                secret = base64.b64decode(secret, validate=True)
            except ValueError:
                raise ValueError(f"the secret of the key {name} is not base64") from None
        if not secret:
            raise ValueError(f"the secret of the key {name} is empty")
        #: Its name in wire form.
        self.wire = _wire.from_text(name)
        self.name = _wire.to_text(self.wire)
        self.algorithm = algorithm
        self._secret = secret

    @classmethod
    def generate(cls, name: str, algorithm: str = "hmac-sha256") -> Key:
        """A new key by chance."""
        return cls(name, secrets.token_bytes(ALGORITHMS.get(algorithm, ("", 32))[1]), algorithm)

    @classmethod
    def read(cls, path: str | Path) -> Key:
        """The key in a file ``key NAME { algorithm ...; secret ...; };``, as tsig-keygen(8) writes them. Raises OSError
        if it cannot be read, and ValueError if it is not like that."""
        text = _COMMENT.sub(lambda found: found[1] or "", Path(path).read_text())
        heads = _HEAD.findall(text)
        found = {name.lower(): value.strip('"') for name, value in _LINE.findall(text)}
        if len(heads) != 1 or "secret" not in found:
            raise ValueError(f"expected a file with key NAME {{ algorithm ...; secret ...; }}; in {path}")
        return cls(heads[0].strip('"'), found["secret"], found.get("algorithm", "hmac-sha256"))

    def text(self) -> str:
        """The contents of such a file, secret included."""
        secret = base64.b64encode(self._secret).decode()
        return f'key "{self.name}" {{\n\talgorithm {self.algorithm};\n\tsecret "{secret}";\n}};\n'

    def code(self, *parts: bytes) -> bytes:
        """The code of these bytes, as long as it is sent."""
        digest, size = ALGORITHMS[self.algorithm]
        return hmac.digest(self._secret, b"".join(parts), digest)[:size]

    @property
    def room(self) -> int:
        """How many bytes a signature makes a message longer, at most."""
        return len(self.wire) + 10 + len(self.algorithm) + 2 + 16 + ALGORITHMS[self.algorithm][1] + 6

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Key):
            return NotImplemented
        same = self.wire == other.wire and self.algorithm == other.algorithm
        return hmac.compare_digest(self._secret, other._secret) and same

    def __hash__(self) -> int:
        return hash((self.wire, self.algorithm))

    def __repr__(self) -> str:
        return f"<coro.dns.tsig.Key {self.name} {self.algorithm}>"


class Signature(NamedTuple):
    """A signature that was found good: whose it is, its code, when it was made (seconds since 1970)."""

    key: Key
    code: bytes
    time: int


class _Fields(NamedTuple):
    """What a TSIG record says."""

    place: int
    owner: bytes
    algorithm: str
    time: int
    fudge: int
    code: bytes
    ident: int
    error: int
    other: bytes


class Refused(DNS_Signature_Error):
    """A signature that is not good: `rcode` and `code` of the reply to it."""

    def __init__(self, text: str, rcode: int, code: int, fields: _Fields | None = None, key: Key | None = None) -> None:
        super().__init__("", "TSIG", "", text)
        self.rcode = rcode
        self.code = code
        self.fields = fields
        self.key = key


def _fields(message: bytes) -> _Fields | None:
    try:
        found = _wire.signature(message)
        if found is None:
            return None
        place, owner, klass, ttl, data = found
        algorithm, *rest = fields_of(250, data) or [""]
    except (ValueError, UnpackError) as e:
        raise Refused(f"a message that is wrong: {e}", FORMERR, 0) from None
    if klass != 255 or ttl:
        raise Refused("a TSIG record of another class than ANY, or with a TTL", FORMERR, 0)
    return _Fields(place, owner, algorithm.lower(), *rest)


def _variables(owner: bytes, algorithm: str, when: int, fudge: int, error: int, other: bytes) -> bytes:
    # RFC 8945, section 4.3.3
    return (
        owner + b"\0\xff\0\0\0\0" + _wire.from_text(algorithm) + when.to_bytes(6, "big") + fudge.to_bytes(2, "big")
        + error.to_bytes(2, "big") + len(other).to_bytes(2, "big") + other
    )  # fmt: skip


def _with_record(
    message: bytes, owner: bytes, algorithm: str, fields: tuple[int, int, bytes, int, int, bytes]
) -> bytes:
    when, fudge, code, ident, error, other = fields
    data = (
        _wire.from_text(algorithm) + when.to_bytes(6, "big") + fudge.to_bytes(2, "big") + len(code).to_bytes(2, "big")
        + code + ident.to_bytes(2, "big") + error.to_bytes(2, "big") + len(other).to_bytes(2, "big") + other
    )  # fmt: skip
    count = int.from_bytes(message[10:12], "big") + 1
    record = owner + b"\0\xfa\0\xff\0\0\0\0" + len(data).to_bytes(2, "big") + data
    return message[:10] + count.to_bytes(2, "big") + message[12:] + record


def _counted(code: bytes) -> bytes:
    return len(code).to_bytes(2, "big") + code if code else b""


def sign(
    message: bytes, key: Key, request: bytes = b"", now: float | None = None, error: int = 0, other: bytes = b"",
    when: int | None = None,
) -> tuple[bytes, bytes]:  # fmt: skip
    """The message with a signature, and the code in it. ``request`` is the code of the message that this one replies
    to; ``now`` the time in seconds since 1970, None for the present. ``error`` and ``other`` are for replies to bad
    signatures, with the time ``when`` that these had."""
    when = int(time.time() if now is None else now) if when is None else when
    code = key.code(_counted(request), message, _variables(key.wire, key.algorithm, when, FUDGE, error, other))
    ident = int.from_bytes(message[:2], "big")
    return _with_record(message, key.wire, key.algorithm, (when, FUDGE, code, ident, error, other)), code


def _stripped(message: bytes, fields: _Fields) -> bytes:
    count = int.from_bytes(message[10:12], "big") - 1
    return fields.ident.to_bytes(2, "big") + message[2:10] + count.to_bytes(2, "big") + message[12 : fields.place]


def _checked(fields: _Fields, key: Key, code: bytes, now: float) -> None:
    size = ALGORITHMS[key.algorithm][1]
    if len(fields.code) > size or len(fields.code) < max(10, size // 2):
        raise Refused(f"a code of {len(fields.code)} bytes, for {key.algorithm}", FORMERR, 0)
    if not hmac.compare_digest(code[: len(fields.code)], fields.code):
        raise Refused(f"the code of the key {key.name} is wrong: do both sides have the same secret?", NOTAUTH, BADSIG,
                      fields)  # fmt: skip
    if len(fields.code) < size:
        raise Refused("a code that was cut", NOTAUTH, BADTRUNC, fields, key)
    if abs(now - fields.time) > fields.fudge:
        raise Refused(
            f"signed {now - fields.time:.0f} seconds ago, and {fields.fudge} are allowed: do both clocks go right?",
            NOTAUTH, BADTIME, fields, key,
        )  # fmt: skip


def verify(message: bytes, keys: Iterable[Key], request: bytes = b"", now: float | None = None) -> Signature | None:
    """Check the signature of a message that came; None if it has none. ``request`` and ``now`` are as for ``sign``.

    Raises DNS_Signature_Error if it is of none of ``keys``, wrong, or too old.
    """
    fields = _fields(message)
    if fields is None:
        return None
    key = next((one for one in keys if one.wire == fields.owner and one.algorithm == fields.algorithm), None)
    if key is None:
        raise Refused(f"a key that is not known here: {_wire.to_text(fields.owner)} {fields.algorithm}", NOTAUTH,
                      BADKEY, fields)  # fmt: skip
    variables = _variables(key.wire, key.algorithm, fields.time, fields.fudge, fields.error, fields.other)
    code = key.code(_counted(request), _stripped(message, fields), variables)
    _checked(fields, key, code, time.time() if now is None else now)
    return Signature(key, fields.code, fields.time)


def verify_reply(message: bytes, key: Key, request: bytes, now: float | None = None) -> Signature:
    """The same for the reply to a signed message. Raises DNS_Signature_Error for one without a signature, too."""
    fields = _fields(message)
    if fields is None:
        raise DNS_Signature_Error("", "TSIG", "", "expected a signed reply, got one without a signature")
    if fields.error in (BADSIG, BADKEY):
        raise DNS_Signature_Error(
            "", "TSIG", "", f"the server says {RCODE_MAP.get(fields.error) if fields.error > 16 else 'BADSIG'} about "
            f"the key {key.name}: does it have the same name, algorithm and secret there?"
        )  # fmt: skip
    found = verify(message, [key], request, now)
    assert found is not None
    if fields.error == BADTIME:
        raise DNS_Signature_Error("", "TSIG", "", "the server says BADTIME: do both clocks go right?")
    return found


def refusal(reply: bytes, error: Refused) -> bytes:
    """A reply that says what is wrong with a signature (RFC 8945, section 5.2)."""
    fields = error.fields
    if fields is None:
        return reply
    if error.code in (BADTIME, BADTRUNC) and error.key is not None:
        other = int(time.time()).to_bytes(6, "big") if error.code == BADTIME else b""
        when = fields.time if error.code == BADTIME else None
        return sign(reply, error.key, fields.code, error=error.code, other=other, when=when)[0]
    ident = int.from_bytes(reply[:2], "big")
    parts = (fields.time, fields.fudge, b"", ident, error.code, b"")
    return _with_record(reply, fields.owner, fields.algorithm, parts)


class Signer:
    """Signs the messages of one reply (RFC 8945, section 5.3.1)."""

    def __init__(self, key: Key, request: bytes) -> None:
        self.key = key
        self.code = request
        self.first = True

    def sign(self, message: bytes) -> bytes:
        """The next message, signed."""
        if self.first:
            self.first = False
            message, self.code = sign(message, self.key, self.code)
            return message
        when = int(time.time())
        timers = when.to_bytes(6, "big") + FUDGE.to_bytes(2, "big")
        self.code = self.key.code(_counted(self.code), message, timers)
        ident = int.from_bytes(message[:2], "big")
        return _with_record(message, self.key.wire, self.key.algorithm, (when, FUDGE, self.code, ident, 0, b""))


class Checker:
    """Checks the messages of one reply: the first and the last one are signed, and of a hundred at least one."""

    def __init__(self, key: Key, request: bytes) -> None:
        self.key = key
        self.code = request
        self.first = True
        self.unsigned: list[bytes] = []

    def check(self, message: bytes) -> None:
        """The next message. Raises DNS_Signature_Error."""
        if self.first:
            self.first = False
            self.code = verify_reply(message, self.key, self.code).code
            return
        fields = _fields(message)
        if fields is None:
            self.unsigned.append(message)
            if len(self.unsigned) > UNSIGNED:
                raise DNS_Signature_Error("", "TSIG", "", f"more than {UNSIGNED} messages without a signature")
            return
        if fields.owner != self.key.wire or fields.algorithm != self.key.algorithm or fields.error:
            raise DNS_Signature_Error("", "TSIG", "", "a reply that is signed with another key, or says an error")
        timers = fields.time.to_bytes(6, "big") + fields.fudge.to_bytes(2, "big")
        code = self.key.code(_counted(self.code), *self.unsigned, _stripped(message, fields), timers)
        _checked(fields, self.key, code, time.time())
        self.code = fields.code
        self.unsigned.clear()

    def finish(self) -> None:
        """That was the last one. Raises DNS_Signature_Error if it was not signed."""
        if self.first or self.unsigned:
            raise DNS_Signature_Error("", "TSIG", "", "the end of the reply is not signed")
