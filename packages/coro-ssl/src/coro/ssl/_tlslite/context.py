"""The context of the tlslite-ng back end: certificates, trust, tickets, and how a handshake is begun.

Only TLS 1.2 and 1.3, only ciphers with authentication (AEAD) and forward secrecy, only SHA-2 signatures. Tickets are
encrypted with keys that live in this process and are replaced every twelve hours (tlslite-ng does not look at the age
of a TLS 1.3 ticket); so a ticket is good for a day at most.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, SupportsFloat

from tlslite.handshakesettings import HandshakeSettings
from tlslite.utils.cryptomath import getRandomBytes
from tlslite.utils.keyfactory import parsePEMKey
from tlslite.x509certchain import X509CertChain

from coro.ssl._tlslite.certificate import Certificate, pem_blocks
from coro.ssl._tlslite.connection import Connection, HostName
from coro.ssl._tlslite.der import Malformed
from coro.ssl._tlslite.engine import Engine, Session
from coro.ssl._tlslite.paths import Trust, matches, system_bundle, validate
from coro.tls import TLSStream, UnsupportedError, wrapped

__all__ = ["Backend", "Pair"]

#: Seconds after which tickets are encrypted with a new key; those of the last one are taken as long again.
TICKET_KEY_LIFE = 12 * 3600
_VERSIONS = {"TLSv1.2": (3, 3), "TLSv1.3": (3, 4)}
# Ciphers by tlslite-ng's names, fastest in pure Python first; and what they are called elsewhere.
CIPHERS = ("chacha20-poly1305", "aes128gcm", "aes256gcm")
_CIPHER_NAMES = {
    "CHACHA20-POLY1305": "chacha20-poly1305",
    "AES128-GCM-SHA256": "aes128gcm",
    "AES256-GCM-SHA384": "aes256gcm",
    "TLS_CHACHA20_POLY1305_SHA256": "chacha20-poly1305",
    "TLS_AES_128_GCM_SHA256": "aes128gcm",
    "TLS_AES_256_GCM_SHA384": "aes256gcm",
    "AES128GCM": "aes128gcm",
    "AES256GCM": "aes256gcm",
}
# Groups by tlslite-ng's names, and what they are called elsewhere.
_GROUP_NAMES = {
    "x25519": "x25519",
    "p-256": "secp256r1",
    "prime256v1": "secp256r1",
    "secp256r1": "secp256r1",
    "p-384": "secp384r1",
    "secp384r1": "secp384r1",
    "p-521": "secp521r1",
    "secp521r1": "secp521r1",
}
CURVES = ["x25519", "secp256r1", "secp384r1", "secp521r1"]


class Pair:
    """A chain of certificates and the private key of the first; in PEM."""

    def __init__(self, chain_pem: bytes, key_pem: bytes, password: bytes | str | None = None) -> None:
        try:
            blocks = pem_blocks(chain_pem, "CERTIFICATE")
            self.certificates = [Certificate(block) for block in blocks]
        except Malformed as e:
            raise ValueError(f"the certificate cannot be read: {e}") from e
        if not self.certificates:
            raise ValueError("the file of the certificate has no certificate in PEM")
        try:
            self.chain = X509CertChain([cert.x509 for cert in self.certificates])
        except Malformed as e:
            raise UnsupportedError(f"tlslite-ng cannot use this certificate: {e}") from e
        self.key = _private_key(key_pem, password)
        if not self._fits():
            raise ValueError("the private key is not that of the certificate")
        names = self.certificates[0].names()
        self.dns = names.dns
        self.addresses = {str(ipaddress.ip_address(raw)) for raw in names.addresses}

    def _fits(self) -> bool:
        """Whether a signature of the key is one of the certificate's key."""
        kind = self.certificates[0].x509.certAlg
        public = self.certificates[0].x509.publicKey
        data = bytearray(b"do these two belong together?")
        try:
            if kind in ("Ed25519", "Ed448"):
                return bool(public.hashAndVerify(self.key.hashAndSign(data), data))
            signature = self.key.hashAndSign(data, "PKCS1", "sha256")
            return bool(public.hashAndVerify(signature, data, "PKCS1", "sha256"))
        except Exception:
            return False

    def is_for(self, host: str) -> bool:
        """Whether it is for this host name."""
        return any(matches(name, host) for name in self.dns)


def _private_key(pem: bytes, password: bytes | str | None) -> Any:
    if b"ENCRYPTED" in pem:
        try:
            from coro.ssl._certs.keys import pkey
        except ImportError as e:
            raise UnsupportedError(
                'tlslite-ng cannot read encrypted keys; pip install "coro-ssl[certificates]", or decrypt the file'
            ) from e
        pem = pkey(pem, password or "", True).get_private()
    begin = pem.find(b"-----BEGIN")
    while begin >= 0 and b"PRIVATE KEY" not in pem[begin : pem.find(b"\n", begin)]:
        begin = pem.find(b"-----BEGIN", begin + 1)
    if begin < 0:
        raise ValueError("the file of the key has no private key in PEM")
    end = pem.find(b"-----END", begin)
    end = pem.find(b"-----", end + 8) + 5
    try:
        return parsePEMKey(pem[begin:end].decode("ascii") + "\n", private=True, implementations=["python"])
    except Exception as e:
        raise ValueError(f"the private key cannot be read: {e or type(e).__name__}") from e


class Backend:
    """What a context of this back end is made of.

    ``pairs`` are certificates with their keys, the first one for clients that ask for no name, or one that is none of
    theirs. ``names`` are host names that shall get a pair whatever its certificate says. ``trust_pem`` are certificates
    in PEM that peers' are checked with, None for those of the system; ``verify`` whether they are. ``client_auth`` is
    "none", "optional" or "required".
    """

    def __init__(
        self,
        *,
        pairs: Iterable[Pair] = (),
        names: Mapping[str, Pair] | None = None,
        trust_pem: bytes | None = None,
        crl_pem: bytes = b"",
        verify: bool = True,
        check_hostname: bool = True,
        client_auth: str = "none",
        client_ca_pem: bytes | None = None,
        alpn: Iterable[str] = (),
        ciphers: str | None = None,
        groups: str | None = None,
        minimum_version: str = "TLSv1.2",
        maximum_version: str | None = None,
        tickets: int = 2,
    ) -> None:
        self.pairs = list(pairs)
        self.names = dict(names or {})
        self.verify, self.check_hostname = verify, check_hostname
        if client_auth not in ("none", "optional", "required"):
            raise ValueError(f"client_auth is none, optional or required, not {client_auth!r}")
        self.client_auth = client_auth
        self._trust_pem, self._client_ca_pem, self._crl_pem = trust_pem, client_ca_pem, crl_pem
        self._trust: Trust | None = None
        self._client_trust: Trust | None = None
        self.alpn = [bytearray(_protocol(name)) for name in alpn]
        self.settings = self._make_settings(ciphers, minimum_version, maximum_version, tickets)
        if groups is not None:
            self.settings.eccCurves = _group_names(groups)
            self.settings.keyShares = self.settings.eccCurves[:2]
            self.settings.defaultCurve = self.settings.eccCurves[0]
        self._ticket_keys: list[bytearray] = []
        self._ticket_key_made = 0.0
        self._tickets = tickets

    @staticmethod
    def _make_settings(ciphers: str | None, lowest: str, highest: str | None, tickets: int) -> HandshakeSettings:
        for version in (lowest, highest or "TLSv1.3"):
            if version not in _VERSIONS:
                raise UnsupportedError(f"this back end speaks {' and '.join(_VERSIONS)}, not {version}")
        settings = HandshakeSettings()
        settings.minVersion, settings.maxVersion = _VERSIONS[lowest], _VERSIONS[highest or "TLSv1.3"]
        if settings.minVersion > settings.maxVersion:
            raise ValueError(f"the lowest version, {lowest}, is above the highest, {highest}")
        settings.versions = [v for v in ((3, 4), (3, 3)) if settings.minVersion <= v <= settings.maxVersion]
        settings.minKeySize, settings.maxKeySize = 2048, 16384
        settings.cipherNames = _cipher_names(ciphers)
        settings.macNames = ["aead"]
        settings.keyExchangeNames = ["ecdhe_ecdsa", "ecdhe_rsa"]
        settings.cipherImplementations = ["python"]
        settings.rsaSigHashes = ["sha256", "sha384", "sha512"]
        settings.ecdsaSigHashes = ["sha256", "sha384", "sha512"]
        settings.dsaSigHashes = []
        settings.more_sig_schemes = ["Ed25519", "Ed448"]
        settings.eccCurves = list(CURVES)
        settings.keyShares = ["x25519", "secp256r1"]
        settings.dhGroups = []
        settings.psk_modes = ["psk_dhe_ke"]  # forward secrecy for resumed sessions, too
        settings.use_heartbeat_extension = False
        settings.useEncryptThenMAC = False  # for ciphers that are not offered
        settings.usePaddingExtension = False
        settings.certificate_compression_send = []
        settings.certificate_compression_receive = []
        settings.max_early_data = 2**14 + 16  # what is skipped of a client that sends early data, which is refused
        settings.ticket_count = tickets
        settings.ticketLifetime = 2 * TICKET_KEY_LIFE
        return settings

    # -- trust

    def trust(self) -> Trust:
        """What servers' certificates are checked with; read when it is first needed, once."""
        if self._trust is None:
            pem = system_bundle() if self._trust_pem is None else self._trust_pem
            self._trust = _trust(pem, self._crl_pem)
        return self._trust

    def client_trust(self) -> Trust:
        """What clients' certificates are checked with."""
        if self._client_trust is None:
            pem = self._client_ca_pem if self._client_ca_pem is not None else self._trust_pem
            self._client_trust = _trust(pem or b"", self._crl_pem)
        return self._client_trust

    # -- tickets

    def _with_tickets(self) -> HandshakeSettings:
        if not self._tickets:
            return self.settings
        now = time.monotonic()
        if not self._ticket_keys or now - self._ticket_key_made > TICKET_KEY_LIFE:
            keep = self._ticket_keys[:1] if now - self._ticket_key_made < 2 * TICKET_KEY_LIFE else []
            self._ticket_keys = [getRandomBytes(32), *keep]
            self._ticket_key_made = now
            self.settings.ticketKeys = self._ticket_keys
        return self.settings

    # -- certificates

    def certificates_for(self, name: str | None) -> list[Pair]:
        """The pairs to try for a name, best first: those that it was given to, those whose certificate has it, and the
        first one of all."""
        found: list[Pair] = []
        if name is not None:
            plain = name.lower().rstrip(".")
            found = [pair for host, pair in self.names.items() if matches(host, plain)]
            found += [pair for pair in self.pairs if pair.is_for(plain)]
        if not found:
            found = self.pairs
        unique: list[Pair] = []
        for pair in found:
            if pair not in unique:
                unique.append(pair)
        return unique

    # -- engines

    def wrap(
        self,
        sock: Any,
        server_side: bool = False,
        server_hostname: str | None = None,
        *,
        session: Any = None,
        handshake_timeout: SupportsFloat | None = 10.0,
    ) -> TLSStream:
        """The stream over ``sock`` after the handshake; see ``coro.tls.context``."""
        return wrapped(
            sock,
            lambda: self.engine(server_side, server_hostname, session, context=self),
            self,
            handshake_timeout,
        )

    def engine(
        self, server_side: bool, server_hostname: str | None, session: Any = None, done: Any = None, context: Any = None
    ) -> Engine:
        """The engine of a new connection. ValueError when the context is not made for this side."""
        if server_side:
            return self._server(done, context)
        return self._client(server_hostname, session, done, context)

    def _server(self, done: Any, context: Any) -> Engine:
        if not self.pairs:
            raise ValueError("a server needs a certificate and its key")
        settings = self._with_tickets()
        first = self.pairs[0]
        check = None
        if self.client_auth != "none":
            trust = self.client_trust()

            def check(chain: list[bytes]) -> Iterator[int]:
                return validate(chain, trust, "client", None, time.time())

        def shake(connection: Connection) -> Iterator[Any]:
            connection.choose = lambda name, _: [(p.chain, p.key) for p in self.certificates_for(name)]
            connection.protocols = self.alpn
            connection.cert_required = self.client_auth == "required"
            yield from connection.handshakeServerAsync(
                certChain=first.chain,
                privateKey=first.key,
                reqCert=self.client_auth != "none",
                settings=settings,
                alpn=self.alpn or None,
                reqCAs=[bytearray(s) for s in self.client_trust().subjects()] if self.client_auth != "none" else None,
            )
            yield from self._after_resumption(connection)

        return Engine(shake, check, server_side=True, server_hostname=None, context=context, done=done)

    def _after_resumption(self, connection: Connection) -> Iterator[Any]:
        """The ticket of a resumed session has the client's certificate, which may have expired meanwhile."""
        if self.client_auth == "none" or connection.peer_certificates:
            return
        chain = connection.session.clientCertChain if connection.session is not None else None
        connection.peer_certificates = [bytes(one.bytes) for one in chain.x509List] if chain else []
        if connection.peer_certificates:
            yield from connection.check_peer()
        elif self.client_auth == "required":
            yield from connection._sendError(116, "the client sent no certificate")

    def _client(self, hostname: str | None, session: Any, done: Any, context: Any) -> Engine:
        if self.verify and self.check_hostname and not hostname:
            raise ValueError("the server's certificate is compared with a host name: pass server_hostname")
        check = None
        if self.verify:
            trust = self.trust()
            compared = hostname if self.check_hostname else None

            def check(chain: list[bytes]) -> Iterator[int]:
                return validate(chain, trust, "server", _ascii(compared), time.time())

        library = self._offered(session, hostname, context)
        pair = self.pairs[0] if self.pairs else None

        def shake(connection: Connection) -> Iterator[Any]:
            yield from connection.handshakeClientCert(
                certChain=pair.chain if pair else None,
                privateKey=pair.key if pair else None,
                session=library,
                settings=self.settings,
                serverName=_sni(hostname),
                alpn=self.alpn or None,
                async_=True,
            )

        return Engine(
            shake, check, server_side=False, server_hostname=hostname, context=context, offered=session, done=done
        )

    def _offered(self, session: Any, hostname: str | None, context: Any) -> Any:
        if session is None:
            return None
        if not isinstance(session, Session):
            raise TypeError(f"expected the session of an earlier stream of this back end, not {type(session).__name__}")
        if session.context is not context:
            raise ValueError("the session came from another context, which may trust others: use the same context")
        if session.hostname != hostname:
            return None  # of another server: a full handshake
        library = session.library._clone()
        if session.version > (3, 3):
            library.tls_1_0_tickets = None
            # A ticket is used once, so that nobody can tell which connections belong together (RFC 8446, C.4).
            library.tickets = list(library.tickets[-1:])
            del session.library.tickets[-1:]
        else:
            library.tickets = None
            library.tls_1_0_tickets = list(library.tls_1_0_tickets)
            library.sessionID = getRandomBytes(32)  # the server repeats it if it takes the ticket (RFC 5077, 3.4)
        library.serverName = _sni(hostname)
        return library if library.valid() else None


def _trust(pem: bytes, crl: bytes) -> Trust:
    try:
        return Trust(pem, crl)
    except Malformed as e:
        raise ValueError(f"the trusted certificates cannot be read: {e}") from e


def _ascii(host: str | None) -> str | None:
    if host is None or host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError as e:
        raise ValueError(f"{host!r} is no host name: {e}") from e


def _sni(host: str | None) -> HostName | None:
    """What is sent as the server's name: no addresses (RFC 6066, 3)."""
    if not host:
        return None
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        name = _ascii(host)
        return HostName(name.rstrip(".")) if name else None
    return None


def _protocol(name: str | bytes) -> bytes:
    raw = name.encode("ascii") if isinstance(name, str) else bytes(name)
    if not 1 <= len(raw) <= 255:
        raise ValueError(f"the name of a protocol has 1 to 255 bytes, not {len(raw)}: {name!r}")
    return raw


def _group_names(groups: str) -> list[str]:
    chosen: list[str] = []
    for name in groups.split(":"):
        found = _GROUP_NAMES.get(name.strip().lower())
        if found is None:
            raise UnsupportedError(f"this back end has the groups {', '.join(CURVES)}, not {name!r}")
        if found not in chosen:
            chosen.append(found)
    return chosen


def _cipher_names(ciphers: str | None) -> list[str]:
    if ciphers is None:
        return list(CIPHERS)
    chosen: list[str] = []
    for name in ciphers.replace(",", ":").split(":"):
        plain = name.strip().upper()
        for prefix in ("ECDHE-RSA-", "ECDHE-ECDSA-"):
            plain = plain.removeprefix(prefix)
        found = _CIPHER_NAMES.get(plain)
        if found is None:
            raise UnsupportedError(f"tlslite-ng's ciphers are {', '.join(CIPHERS)}, not {name!r}")
        if found not in chosen:
            chosen.append(found)
    return chosen
