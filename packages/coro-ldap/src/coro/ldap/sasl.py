"""Logins by SASL (RFC 4422, RFC 4513): mechanisms without a connection, which of them to take, and `bind`.

    from coro.ldap import Client, sasl

    with Client("ldaps://ldap.example.org") as directory:
        sasl.bind(directory, user="fred", password=password)

A mechanism is an object with `start()`, which gives the first message or None, and `step(challenge)` for each message
of the server; `done` says that nothing is open, above all that the server has proved who it is where a mechanism has
that.  SCRAM is this package's own (_scram.py); the others come from pure-sasl, whose DIGEST-MD5 is given good random
numbers, UTF-8, and a check of the order of the messages.

Mechanisms that sign or encrypt what follows do so no more here: TLS does.

Cost: one search of the root DSE if no mechanism is named, and one exchange for each step.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

import coro
from coro.asn1 import ber
from coro.asn1.exceptions import DecodeError
from coro.ldap._scram import MAX_ROUNDS, MIN_ROUNDS, Scram, saslprep
from coro.ldap.exceptions import LDAPError, LocalError, SASLError, TLSRequired

if TYPE_CHECKING:
    import coro.ldap.client

__all__ = [
    "MECHANISMS",
    "Mechanism",
    "Scram",
    "bind",
    "channel_binding",
    "choose",
    "mechanism",
    "saslprep",
    "supported",
]

#: The mechanisms with a password, the best first.
MECHANISMS: Final = (
    "SCRAM-SHA-256-PLUS",
    "SCRAM-SHA-1-PLUS",
    "SCRAM-SHA-256",
    "SCRAM-SHA-1",
    "DIGEST-MD5",
    "CRAM-MD5",
    "PLAIN",
)
#: Steps of a login at most; GSSAPI needs four.
MAX_STEPS: Final = 10

_OTHERS = ("EXTERNAL", "GSSAPI")
#: Hash of the certificate's signature, by its object identifier (RFC 5929, 4.1: MD5 and SHA-1 count as SHA-256).
_SIGNATURES = {
    "1.2.840.113549.1.1.4": "sha256", "1.2.840.113549.1.1.5": "sha256", "1.2.840.10045.4.1": "sha256",
    "1.2.840.113549.1.1.11": "sha256", "1.2.840.113549.1.1.12": "sha384", "1.2.840.113549.1.1.13": "sha512",
    "1.2.840.113549.1.1.14": "sha224", "1.2.840.10045.4.3.1": "sha224", "1.2.840.10045.4.3.2": "sha256",
    "1.2.840.10045.4.3.3": "sha384", "1.2.840.10045.4.3.4": "sha512",
}  # fmt: skip


class Mechanism(Protocol):
    """What `mechanism` returns.  name: as the server calls it.  done: whether all is proved that is to be."""

    name: str
    done: bool

    def start(self) -> bytes | None:
        """The first message; None if the server begins."""

    def step(self, challenge: bytes) -> bytes | None:
        """The answer to a message of the server, None for none.  Raises SASLError."""


class _Pure:
    """A mechanism of pure-sasl."""

    def __init__(self, name: str, service: str, host: str, authorization: str, **options: Any) -> None:
        from puresasl.client import SASLClient

        self.name = name
        self.done = False
        self._service = SASLClient(host, service, authorization_id=authorization or None, qops=[b"auth"])
        self._inner = self._make(options)

    def _make(self, options: dict[str, Any]) -> Any:
        from puresasl import mechanisms

        return mechanisms.mechanisms[self.name](self._service, **options)

    def __repr__(self) -> str:
        return f"<{self.name}{' done' if self.done else ''}>"

    def start(self) -> bytes | None:
        return None

    def step(self, challenge: bytes) -> bytes | None:
        try:
            found: bytes | None = self._inner.process(challenge)
        except LDAPError:
            raise
        except Exception as exc:
            # It lets errors of all kinds through for a message that makes no sense.
            raise SASLError(f"{self.name}: the server's message makes no sense: {exc}") from exc
        self.done = bool(self._inner.complete)
        return found


class _Plain(_Pure):
    """PLAIN (RFC 4616): one message with everything in it."""

    def start(self) -> bytes | None:
        return self.step(b"")


class _External:
    """EXTERNAL (RFC 4422, appendix A): what the server knows from TLS or from the UNIX socket.

    pure-sasl's does not send the name of whom to act for, and never says that it is through.
    """

    name = "EXTERNAL"

    def __init__(self, authorization: str) -> None:
        self.done = False
        self._authorization = authorization.encode()

    def start(self) -> bytes | None:
        self.done = True
        return self._authorization

    def step(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise SASLError("EXTERNAL: expected no challenge, got one")
        return b""


class _Cram(_Pure):
    """CRAM-MD5 (RFC 2195): the server begins, and proves nothing."""

    def step(self, challenge: bytes) -> bytes | None:
        if self.done or not challenge:
            raise SASLError("CRAM-MD5: expected one challenge of the server")
        return super().step(challenge)


class _Digest(_Pure):
    """DIGEST-MD5 (RFC 2831), without the layers that sign or encrypt."""

    _answered = False

    def _make(self, options: dict[str, Any]) -> Any:
        return _digest_class()(self._service, **options)

    def step(self, challenge: bytes) -> bytes | None:
        if self.done or len(challenge) > 8192:
            raise SASLError("DIGEST-MD5: expected one challenge of the server, and its proof, of 8192 bytes at most")
        try:
            fields = self._inner.parse_challenge(challenge)
        except ValueError:
            raise SASLError("DIGEST-MD5: expected the names of fields in ASCII") from None
        # The server proves that it knows the password in its second message, not before and not instead.
        if ("rspauth" in fields) != self._answered:
            wanted = "the server's proof" if self._answered else "a challenge"
            raise SASLError(f"DIGEST-MD5: expected {wanted}, got something else; the login is not to be trusted")
        if not self._answered:
            if not fields.get("nonce") or fields.get("algorithm") != b"md5-sess":
                raise SASLError("DIGEST-MD5: expected a nonce and the algorithm md5-sess (RFC 2831, 2.1.1)")
            if fields.get("charset", b"utf-8").lower() != b"utf-8":
                raise SASLError("DIGEST-MD5: expected the character set UTF-8")
            self._inner.utf8 = "charset" in fields
        found = super().step(challenge)
        self._answered = True
        return found


def _latin(text: str | bytes) -> bytes:
    """RFC 2831, 2.1.2.1: what fits into ISO 8859-1 is hashed in it."""
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


_digest: Any = None


def _digest_class() -> Any:
    """pure-sasl is imported when it is used, so this class is made then."""
    global _digest
    if _digest is not None:
        return _digest
    from puresasl.mechanisms import DigestMD5Mechanism, quote

    class Digest(DigestMD5Mechanism):  # type: ignore[misc]
        """With random numbers that nobody can guess, UTF-8, and the name of whom to act for."""

        realm: Any
        password: Any
        utf8 = False
        fixed_realm: str | None = None
        chosen_cnonce = b""

        def response(self) -> bytes:
            self.cnonce = self.chosen_cnonce or secrets.token_hex(20).encode()
            self.nc = 1
            realm = self.realm if self.fixed_realm is None else self.fixed_realm
            realm = realm if isinstance(realm, bytes) else realm.encode()
            self.realm = realm
            if not self.utf8 and not (self.username + self.password).isascii():
                raise SASLError("DIGEST-MD5: expected the server to offer UTF-8 for a name or password not in ASCII")
            key = b":".join((_latin(self.username), _latin(realm), _latin(self.password)))
            self.key_hash = hashlib.md5(key, usedforsecurity=False).digest()
            self.password = None
            self._digest_uri = f"{self.sasl.service}/{self.sasl.host}".encode()
            fields = [
                (b"username", quote(self.username.encode())), (b"realm", quote(realm)), (b"nonce", quote(self.nonce)),
                (b"cnonce", quote(self.cnonce)), (b"nc", b"00000001"), (b"qop", self.qop),
                (b"digest-uri", quote(self._digest_uri)),
                (b"response", self.gen_hash(b"AUTHENTICATE:" + self._digest_uri)),
            ]  # fmt: skip
            if self.utf8:
                fields.insert(0, (b"charset", b"utf-8"))
            if self.sasl.authorization_id:
                fields.append((b"authzid", quote(self.sasl.authorization_id.encode())))
            return b",".join(name + b"=" + value for name, value in fields)

        def gen_hash(self, a2: bytes) -> bytes:
            def hexed(data: bytes) -> bytes:
                return hashlib.md5(data, usedforsecurity=False).hexdigest().encode()

            a1 = self.key_hash + b":" + self.nonce + b":" + self.cnonce
            if self.sasl.authorization_id:
                a1 += b":" + self.sasl.authorization_id.encode()
            return hexed(b":".join((hexed(a1), self.nonce, b"00000001", self.cnonce, self.qop, hexed(a2))))

        def authenticate_server(self, cmp_hash: bytes) -> None:
            if not hmac.compare_digest(self.gen_hash(b":" + self._digest_uri), cmp_hash):
                raise SASLError("DIGEST-MD5: expected the proof of a server that knows the password, got another")

    _digest = Digest
    return Digest


class _InBytes(str):
    """pure-sasl packs a name into as many bytes as its length is."""

    def __len__(self) -> int:
        return len(self.encode())


class _Gssapi(_Pure):
    """GSSAPI (RFC 4752): a Kerberos ticket, through pure-sasl and the distribution `kerberos`.

    pure-sasl names the user of the ticket as whom to act for, which servers take for a wish to act for another one;
    and a buffer for a layer that is not used, which has to be none (3.1).
    """

    def _make(self, options: dict[str, Any]) -> Any:
        from puresasl import mechanisms

        if not mechanisms.have_kerberos:
            raise LocalError(
                "expected the distribution `kerberos` for GSSAPI, it is not installed: pip install coro-ldap[gssapi]"
            )
        self._service.max_buffer = 0
        if self._service.authorization_id:
            self._service.authorization_id = _InBytes(self._service.authorization_id)
        return super()._make(options)

    def start(self) -> bytes | None:
        return self.step(b"")

    def step(self, challenge: bytes) -> bytes | None:
        over = True
        try:
            found = super().step(challenge)
            if self._inner.user:
                self._inner.user = ""
            over = self.done
            return found
        finally:
            if over:
                self._inner.dispose()


def mechanism(
    name: str,
    *,
    user: str = "",
    password: str = "",
    authorization: str = "",
    realm: str | None = None,
    service: str = "ldap",
    host: str = "",
    binding: tuple[str, bytes] | None = None,
    supported: bool = False,
    min_rounds: int = MIN_ROUNDS,
    max_rounds: int = MAX_ROUNDS,
) -> Mechanism:
    """One login by the mechanism of this name, without a connection.

    name: one of `MECHANISMS`, EXTERNAL or GSSAPI.  authorization: for whom to act.  realm: of DIGEST-MD5, None for the
    server's.  service, host: of the server, for DIGEST-MD5 and GSSAPI.  binding, supported, min_rounds, max_rounds: as
    in `Scram`.  Raises LocalError for another name, or if a name or password is missing or cannot be sent.
    """
    if name == "EXTERNAL":
        return _External(authorization)
    if name == "GSSAPI":
        return _Gssapi(name, service, host, authorization, principal=user or None)
    if name not in MECHANISMS:
        raise LocalError(f"expected one of the mechanisms {', '.join(MECHANISMS + _OTHERS)}, got {name!r:.60}")
    if not user or not password:
        raise LocalError(f"expected a user and a password for {name}")
    if "\0" in user + password + authorization:
        raise LocalError("expected a user and a password without NUL")
    if name.startswith("SCRAM"):
        return Scram(
            name, user, password, authorization=authorization, binding=binding, supported=supported,
            min_rounds=min_rounds, max_rounds=max_rounds,
        )  # fmt: skip
    kind = {"PLAIN": _Plain, "CRAM-MD5": _Cram, "DIGEST-MD5": _Digest}[name]
    made = kind(name, service, host, authorization, username=user, password=password)
    if name == "DIGEST-MD5":
        made._inner.realm = realm if realm is not None else ""
        made._inner.fixed_realm = realm
    return made


def choose(offered: Iterable[str], *, secure: bool, user: str = "", password: str = "", bindable: bool = False) -> str:
    """The best mechanism of those that a server offers.

    secure: whether the connection is encrypted; PLAIN is taken only then.  bindable: whether it has a channel binding.
    Without `user` and `password` it is EXTERNAL, which is taken even if it is not in the list: some servers leave it
    out.  Raises SASLError if none fits, TLSRequired if only PLAIN would.
    """
    names = {one.upper() for one in offered}
    if not user and not password:
        return "EXTERNAL"
    for name in MECHANISMS:
        if name not in names or (name.endswith("-PLUS") and not bindable):
            continue
        if name == "PLAIN" and not secure:
            raise TLSRequired("expected TLS for PLAIN, the only mechanism that fits: use ldaps://, or starttls()")
        return name
    raise SASLError(
        f"expected the server to offer one of {', '.join(MECHANISMS)}, it offers {', '.join(sorted(names)) or 'none'}"
    )


def supported(client: coro.ldap.client.client, timeout: float | None = None) -> list[str]:
    """The mechanisms that a server says it has: supportedSASLMechanisms of its root DSE (RFC 4512, 5.1).

    timeout: seconds, None for the client's.  Raises what a search raises.
    """
    seconds: Any = "default" if timeout is None else timeout
    found = client.search_iter("", 0, attributes=["supportedSASLMechanisms"], page_size=0, timeout=seconds)
    return [name for entry in found for name in entry.texts("supportedSASLMechanisms")]


def channel_binding(stream: Any) -> tuple[str, bytes] | None:
    """The kind and the bytes of the best channel binding of a TLS stream; None if it has none, or for None.

    That is tls-exporter (RFC 9266) where the TLS library exports keys, else tls-server-end-point (RFC 5929).
    """
    if stream is None:
        return None
    for kind in ("tls-exporter", "tls-server-end-point"):
        try:
            found = stream.get_channel_binding(kind)
        except (ValueError, NotImplementedError, coro.tls.UnsupportedError):
            continue
        if found:
            return kind, found
    certificate = stream.getpeercert(True)
    found = end_point(certificate) if certificate else None
    return ("tls-server-end-point", found) if found else None


def end_point(certificate: bytes) -> bytes | None:
    """The hash of a certificate in DER (RFC 5929, 4.1); None if its signature has no single hash, as Ed25519."""
    try:
        [(_, numbers), *_] = ber.decode(certificate)[0][1]
        name = _SIGNATURES.get(".".join(map(str, numbers)))
    except (DecodeError, IndexError, TypeError, ValueError):
        return None
    return None if name is None else hashlib.new(name, certificate).digest()


def bind(
    client: coro.ldap.client.client,
    name: str | None = None,
    *,
    user: str = "",
    password: str = "",
    authorization: str = "",
    realm: str | None = None,
    service: str = "ldap",
    host: str | None = None,
    min_rounds: int = MIN_ROUNDS,
    max_rounds: int = MAX_ROUNDS,
    timeout: float | None = None,
) -> str:
    """Log in by SASL, and return the name of the mechanism.

    client: a connection.  name: the mechanism; None to ask the server and `choose`.  user, password: of the mechanism;
    without them the login is EXTERNAL.  authorization: for whom to act, such as ``dn:cn=x`` or ``u:fred``.  realm: of
    DIGEST-MD5.  service, host: what the server is called, for DIGEST-MD5 and GSSAPI; None for the host of the
    connection.  min_rounds, max_rounds: of hashing with SCRAM.  timeout: seconds for each step, None for the client's.

    Raises InvalidCredentials and other results of the server; SASLError if its messages make no sense or it does not
    know the password itself, with the connection closed; TLSRequired for PLAIN without TLS, unless the client was made
    with ``cleartext_passwords=True``; LocalError.
    """
    seconds: Any = "default" if timeout is None else timeout
    possible = channel_binding(client.tls_object)
    offered: list[str] | None = None
    if name is None:
        if user or password:
            offered = supported(client, timeout)
        name = choose(
            offered or (), secure=client.secure or client.cleartext_passwords, user=user, password=password,
            bindable=possible is not None,
        )  # fmt: skip
    name = name.upper()
    if name == "PLAIN" and not (client.secure or client.cleartext_passwords):
        raise TLSRequired("expected TLS before a password is sent by PLAIN: use ldaps://, or starttls()")
    plus = name.endswith("-PLUS")
    if plus and possible is None:
        raise LocalError(f"expected a TLS connection with a channel binding for {name}")
    login = mechanism(
        name, user=user, password=password, authorization=authorization, realm=realm, service=service,
        host=host or client._hostname or "localhost", binding=possible if plus else None,
        # Said only if the server was asked and did not offer it: otherwise it may well have it.
        supported=possible is not None and offered is not None, min_rounds=min_rounds, max_rounds=max_rounds,
    )  # fmt: skip
    with client.exclusive(seconds):
        _exchange(client, login, seconds)
        client.bound_as = authorization or user or name
    return name


def _exchange(client: coro.ldap.client.client, login: Mechanism, seconds: Any) -> None:
    """The steps, alone on the connection.  After a failure on this side nobody knows who is logged in: it is closed."""
    try:
        # A ticket is fetched over the network, which is nothing for this OS thread.
        message = coro.in_thread(login.start) if login.name == "GSSAPI" else login.start()
        for _ in range(MAX_STEPS):
            answer = client.bind_step(login.name, message, timeout=seconds)
            challenge = answer.credentials
            if answer.code == 14:
                # Hashing may take long, and other threads go on meanwhile.
                message = coro.in_thread(login.step, challenge or b"")
                continue
            if challenge and not login.done:
                login.step(challenge)
            if not login.done:
                raise SASLError(
                    f"{login.name}: expected the server's proof with its success, got none; the login is not to be "
                    "trusted"
                )
            return
        raise SASLError(f"{login.name}: expected at most {MAX_STEPS} steps, the server wants more")
    except (SASLError, LocalError):
        client.close()
        raise
