"""``new_ctx`` and the context that it makes: what is configured once and wraps many connections.

A context keeps what it was told (`Settings`), and a back end made of it, which it uses for each new connection. A
reload reads the files again, makes a new back end, and exchanges the two when that has succeeded: connections that
exist are not touched, and a mistake in a file changes nothing.

A client's sessions are kept by host name, so that the second connection to a server is shorter. With TLS 1.3 a session
comes with the first bytes from the server, behind the handshake; so it is fetched from the last connection at the time
when it is needed, or when that connection is closed.

Cost: some hundred bytes for each host name that a client remembers, at most SESSIONS of them.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, SupportsFloat

from coro._runtime import arguments
from coro.ssl._material import Chain, Material, chain_of, material
from coro.tls import HandshakeTimeout, TLSStream, UnsupportedError, wrapped

__all__ = ["Context", "ContextStatistics", "Settings", "new_ctx", "protocol"]

#: Seconds that a handshake may take.
HANDSHAKE_TIMEOUT = 10.0
#: Host names whose sessions a client remembers.
SESSIONS = 1000
#: Tickets for resumption that a server sends with TLS 1.3, one for each of a client's next connections.
TICKETS = 2
#: More for one connection only cost both sides time.
TICKETS_MOST = 255

_VERSIONS = ("TLSv1.2", "TLSv1.3")
_LIST = "the list of revoked certificates"
_AUTHORITY = "the authority's certificate"
# The names of versions in the classic interface. Only the last asked for what is still safe.
_PROTO = dict.fromkeys(("sslv2", "sslv3", "tlsv1", "tlsv2", "sslv2sslv3", "sslv3tlsv1", "sslv2sslv3tlsv1"), "TLSv1.2")


@dataclass(frozen=True)
class Settings:
    """What back ends are made of: everything read, in PEM."""

    chain: Chain | None = None
    names: Mapping[str, Chain] = field(default_factory=dict)
    password: str | bytes | None = field(default=None, repr=False)
    verify: bool = True
    check_hostname: bool = True
    trust: bytes | None = None
    client_auth: str = "none"
    client_trust: bytes | None = None
    crl: bytes | None = None
    alpn: tuple[str, ...] = ()
    ciphers: str | None = None
    groups: str | None = None
    minimum_version: str = "TLSv1.2"
    maximum_version: str | None = None
    dh: bytes | None = None
    keylog: str | None = None
    tickets: int = TICKETS


class ContextStatistics(NamedTuple):
    """What a context has done so far."""

    #: Handshakes that succeeded, of both sides.
    handshakes: int
    #: Those among them that an earlier session shortened.
    resumed: int
    #: Handshakes that failed, but for those that took too long.
    failed: int
    #: Handshakes that took too long.
    timeouts: int
    #: How often the files were read again.
    reloads: int
    #: Servers whose sessions a client remembers.
    sessions: int


class _ClientStream(TLSStream):
    """A client's connection, which leaves its session to the next."""

    __slots__ = ("_leave",)
    _leave: Any

    def close(self) -> None:
        """Send close_notify and close the stream below, see TLSStream."""
        leave, self._leave = self._leave, None
        if leave is not None and not self.closed:
            leave(self)
        super().close()


class Context:
    """Configured by ``new_ctx``, and used for any number of connections, of clients and of servers.

    ``wrap`` fits what protocol libraries of coro take as a TLS context, ``accept`` fits ``wrap=`` of ``coro.serve``.
    """

    def __init__(self, read: Any, backend: str, handshake_timeout: SupportsFloat | None) -> None:
        self._read = read  # gives Settings, reading the files
        self._name = backend
        self._timeout = handshake_timeout
        self._backend: Any = _made(backend, read())
        self._sessions: dict[str, Any] = {}
        self._latest: dict[str, weakref.ref[_ClientStream]] = {}
        self._latest_most = SESSIONS  # at which those that are gone are taken out
        self._done = self._resumed = self._failed = self._timeouts = self._reloads = 0

    def __repr__(self) -> str:
        return f"<coro.ssl.Context over {self._name}: {self._done} handshakes, {self._failed} failed>"

    @property
    def backend(self) -> str:
        """``"openssl"`` or ``"tlslite"``."""
        return self._name

    @property
    def ssl_context(self) -> Any:
        """The ``ssl.SSLContext`` of servers if there is a certificate, else that of clients; for what this class has
        no parameter for. UnsupportedError with tlslite-ng."""
        if self._name != "openssl":
            raise UnsupportedError("a context of tlslite-ng has no ssl.SSLContext")
        return self._backend.server or self._backend.client

    def wrap(
        self,
        sock: Any,
        server_side: bool = False,
        server_hostname: str | None = None,
        *,
        session: Any = None,
        handshake_timeout: SupportsFloat | None = -1.0,
    ) -> TLSStream:
        """Do the handshake on ``sock`` and return the stream over it.

        sock: a connected ``coro.sock`` or another ``coro.Stream``; it belongs to the result. To begin TLS in the middle
        of a connection (STARTTLS), pass the sock that is in use; anything received before and not read yet must be
        thrown away. server_side: in the role of the server. server_hostname: what a client asks for, and compares the
        certificate with: a name or an address. session: that of an earlier stream; by default a client resumes the last
        one with this host name. handshake_timeout: seconds, None for any time; negative: what ``new_ctx`` was told.

        Raises CertificateError, HandshakeTimeout and HandshakeError, with ``sock`` closed; ValueError when the context
        has nothing for this side, or a client verifies and ``server_hostname`` is missing.
        """
        backend = self._backend
        if server_hostname is not None:
            server_hostname = _host(server_hostname)
        key = server_hostname.lower() if server_hostname and not server_side else None
        if session is None and key is not None:
            session = self._session(key)
        limit = self._timeout if handshake_timeout is not None and float(handshake_timeout) < 0 else handshake_timeout
        kind = TLSStream if key is None else _ClientStream
        try:
            stream = wrapped(
                sock, lambda: backend.engine(server_side, server_hostname, session, context=backend), self, limit, kind
            )
        except HandshakeTimeout:
            self._timeouts += 1
            raise
        except OSError:
            self._failed += 1
            raise
        self._done += 1
        self._resumed += stream.session_reused
        if isinstance(stream, _ClientStream):
            assert key is not None
            self._latest[key] = weakref.ref(stream)
            stream._leave = lambda one: self._remember(key, one, backend)
            if len(self._latest) > self._latest_most:
                self._latest = {host: ref for host, ref in self._latest.items() if ref() is not None}
                self._latest_most = max(SESSIONS, 2 * len(self._latest))
        return stream

    def accept(self, sock: Any) -> TLSStream:
        """``wrap(sock, server_side=True)``: fits ``wrap=`` of ``coro.serve`` and ``coro.Server``."""
        return self.wrap(sock, server_side=True)

    # -- sessions

    def _session(self, key: str) -> Any:
        ref = self._latest.pop(key, None)
        stream = ref() if ref is not None else None
        if stream is not None and stream._leave is not None:
            self._remember(key, stream, self._backend)
        # Each is used once, so that nobody on the way can tell which connections belong together (RFC 8446, C.4).
        return self._sessions.pop(key, None)

    def _remember(self, key: str, stream: TLSStream, backend: Any) -> None:
        if backend is not self._backend or stream._trouble is not None:
            return
        session = stream.session
        if session is not None:
            self._sessions.pop(key, None)
            self._sessions[key] = session
            if len(self._sessions) > SESSIONS:
                del self._sessions[next(iter(self._sessions))]

    def forget_sessions(self) -> None:
        """Have each following connection of a client do a full handshake first."""
        self._sessions.clear()
        self._latest.clear()

    # -- the rest

    def reload(self) -> None:
        """Read the files again: new certificates, keys and lists hold for each connection from now on.

        Existing connections go on. Where something is wrong, the error says what, and everything stays as it was:
        OSError for a file that cannot be read, ValueError for its contents. Sessions are forgotten.
        """
        self._backend = _made(self._name, self._read())
        self._reloads += 1
        self.forget_sessions()

    def statistics(self) -> ContextStatistics:
        """What the context has done so far."""
        return ContextStatistics(
            handshakes=self._done,
            resumed=self._resumed,
            failed=self._failed,
            timeouts=self._timeouts,
            reloads=self._reloads,
            sessions=len(self._sessions),
        )


def _host(name: str) -> str:
    """A host name without the dot at its end: certificates and TLS have none (RFC 6066 section 3)."""
    if not isinstance(name, str):
        raise TypeError(f"expected server_hostname as text, not {type(name).__name__}: {name!r}")
    if any(c.isspace() or c == "\0" for c in name):
        raise ValueError(f"{name!r} is no host name: pass the name without spaces")
    if name[:1] == "[" and name[-1:] == "]":  # an IPv6 address as in a URL
        return name[1:-1]
    return name.removesuffix(".")


def _asked(host: str) -> str:
    """A host name as clients ask for it: in ASCII (RFC 6066 section 3), without the dot at its end."""
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError as e:
            raise ValueError(f"{host!r}, a key of sni, is no host name: {e}") from e
    return host.lower().removesuffix(".")


def _made(backend: str, settings: Settings) -> Any:
    if backend == "openssl":
        try:
            from coro.ssl import _openssl
        except ImportError as e:
            if e.name not in ("ssl", "_ssl"):
                raise
            raise UnsupportedError(
                'this Python has no ssl module: build it with OpenSSL, or use backend="tlslite"'
            ) from e
        return _openssl.Backend(settings)
    if backend == "tlslite":
        from coro.ssl import _tlslite

        return _tlslite.made(settings)
    raise ValueError(f'expected "openssl" or "tlslite" as the back end, not {backend!r}')


def new_ctx(
    cert: Material | None = None,
    chain: Material | Iterable[Material] = (),
    key: Material | None = None,
    proto: str | None = None,
    ciphers: str | None = None,
    dhparam: Material | None = None,
    next_protos: Iterable[bytes | str] | None = None,
    auto_ecdh: bool = True,
    *,
    backend: Literal["openssl", "tlslite"] = "openssl",
    verify: bool = True,
    check_hostname: bool = True,
    ca: Material | None = None,
    client_ca: Material | None = None,
    client_auth: Literal["none", "optional", "required"] | None = None,
    crl: Material | None = None,
    alpn: Iterable[str | bytes] = (),
    sni: Mapping[str, Any] | None = None,
    password: str | bytes | None = None,
    minimum_version: str = "TLSv1.2",
    maximum_version: str | None = None,
    groups: str | None = None,
    keylog: str | os.PathLike[str] | None = None,
    tickets: int = TICKETS,
    ocsp: bool = False,
    handshake_timeout: SupportsFloat | None = HANDSHAKE_TIMEOUT,
) -> Context:
    """A TLS context for clients, and for servers if there is a certificate.

    Certificates, keys and lists are given as a path, as PEM, or as an object of ``coro.ssl.openssl``. Paths are read
    again by ``reload``.

    cert, key: the certificate of a server, or with which a client shows who it is, and its private key; key may be in
    the same file. chain: certificates between it and the root, if they are not behind it in the same file. password:
    with which the key is encrypted. sni: further certificates of a server by host name: a dictionary of
    ``(cert, key)``, or of a file with both; a name may begin with ``*.``.

    verify: whether a client checks the server's certificate; check_hostname: and the name in it. Off, anybody on the
    way can read and change everything. ca: the authorities to trust; None for those of the system. client_auth: whether
    clients of a server have to show a certificate ("required"), may ("optional"), or are not asked ("none"); "required"
    if client_ca is given. client_ca: authorities of clients' certificates; None means ``ca``. crl: revoked
    certificates, of the authorities that sign peers' certificates: a peer without a valid list for its own is refused.

    alpn: protocols in order of preference (RFC 7301). proto, next_protos: the classic forms; each name of proto means
    "TLS 1.2 or newer", and next_protos is what alpn is. minimum_version, maximum_version: "TLSv1.2" or "TLSv1.3";
    older ones are not offered. ciphers: OpenSSL's notation, for TLS 1.2. groups: key exchange, a name such as "X25519"
    or "prime256v1"; several of them, "X25519:prime256v1", with Python 3.15 or "tlslite". dhparam: parameters for
    classic Diffie-Hellman. auto_ecdh: must be true. tickets: how many sessions a server hands out for each connection,
    255 at most; 0 for none. keylog: a file to which the secrets are written, for programs that decrypt recorded
    traffic. ocsp: ask for, or show, an OCSP staple; no back end can do that yet. handshake_timeout: in seconds, None
    for any time.

    backend: "openssl", the standard library's `ssl`; or "tlslite", pure Python, with more than ten times the CPU for a
    handshake and a thousand times for data. It is never chosen by itself.

    Raises OSError for a file that cannot be read; ValueError for what is no certificate, a key that does not belong to
    it, unknown versions and ciphers; UnsupportedError for what the back end has not; TypeError for other objects.
    """
    _check_types(alpn, next_protos, sni, password, ciphers, groups)
    if proto is not None:
        if proto not in _PROTO:
            raise ValueError(f"expected one of {', '.join(_PROTO)} as proto, not {proto!r}")
        if proto != "tlsv2":
            warnings.warn(
                f"proto={proto!r} means TLS 1.2 or newer: older versions are broken; leave it out",
                DeprecationWarning,
                stacklevel=2,
            )
        minimum_version = _PROTO[proto]
    for version in (minimum_version, maximum_version or _VERSIONS[-1]):
        if version not in _VERSIONS:
            raise ValueError(f"expected a version of {', '.join(_VERSIONS)}, not {version!r}")
    if maximum_version is not None and minimum_version > maximum_version:
        raise ValueError(f"minimum_version {minimum_version} is above maximum_version {maximum_version}")
    if not auto_ecdh:
        raise ValueError("auto_ecdh must be true: without key exchange over curves there is no forward secrecy")
    if ocsp:
        raise UnsupportedError("neither Python's ssl module nor tlslite-ng has OCSP stapling: use crl")
    arguments.whole(tickets, "tickets", 0, TICKETS_MOST)
    if client_auth not in (None, "none", "optional", "required"):
        raise ValueError(f'expected "none", "optional" or "required" as client_auth, not {client_auth!r}')
    if client_auth is None:
        client_auth = "none" if client_ca is None else "required"
    if cert is None and (sni or key is not None):
        raise ValueError("pass cert, the certificate for clients that ask for no name")
    protocols = tuple(protocol(one) for one in (alpn or next_protos or ()))
    if sum(len(one) + 1 for one in protocols) > 65533:  # RFC 7301 section 3.1
        raise ValueError(f"the names of {len(protocols)} protocols do not fit into a hello: pass fewer")
    if handshake_timeout is not None:
        handshake_timeout = arguments.seconds(handshake_timeout, "handshake_timeout")
    others = [(_asked(host), pair) for host, pair in (sni or {}).items()]

    def read() -> Settings:
        return Settings(
            chain=None if cert is None else chain_of(cert, key, chain),
            names={host: _pair(pair) for host, pair in others},
            password=password,
            verify=verify,
            check_hostname=check_hostname,
            trust=None if ca is None else _authorities(ca),
            client_auth=client_auth,
            client_trust=None if client_ca is None else _authorities(client_ca),
            crl=None if crl is None else _with(b" CRL-----", material(crl, _LIST), _LIST),
            alpn=protocols,
            ciphers=ciphers,
            groups=groups,
            minimum_version=minimum_version,
            maximum_version=maximum_version,
            dh=None if dhparam is None else material(dhparam, "the parameters for Diffie-Hellman"),
            keylog=None if keylog is None else os.fspath(keylog),
            tickets=tickets,
        )

    return Context(read, backend, handshake_timeout)


def _check_types(alpn: Any, next_protos: Any, sni: Any, password: Any, ciphers: Any, groups: Any) -> None:
    """What would be taken for something else, or fail in the middle of a handshake."""
    for protocols in (alpn, next_protos):
        if isinstance(protocols, (str, bytes)):
            raise TypeError(f"expected a list of protocols, not one: pass [{protocols!r}]")
    for host in sni or ():
        if not isinstance(host, str):
            raise TypeError(f"expected host names as keys of sni, not {type(host).__name__}: {host!r}")
    if not isinstance(password, (str, bytes, type(None))):
        raise TypeError(f"expected the password as text or bytes, not {type(password).__name__}")
    for value, what in ((ciphers, "ciphers"), (groups, "groups")):
        if not isinstance(value, (str, type(None))):
            raise TypeError(f"expected names with colons between them as {what}, not {type(value).__name__}")


def protocol(name: str | bytes) -> str:
    """The name of a protocol for ALPN as text. ValueError for one that cannot be sent, TypeError for another object."""
    if not isinstance(name, (str, bytes)):
        raise TypeError(f"expected the name of a protocol as text or bytes, not {type(name).__name__}: {name!r}")
    text = name.decode("latin-1") if isinstance(name, bytes) else name
    if not text.isascii() or not 1 <= len(text) <= 255:
        raise ValueError(f"expected the name of a protocol with 1 to 255 bytes of ASCII, not {name!r}")
    return text


def _with(kind: bytes, pem: bytes, what: str) -> bytes:
    """``pem``, which has to have something of this kind."""
    if kind not in pem:
        raise ValueError(f"expected {what} in PEM, and found something else")
    return pem


def _pair(pair: Any) -> Chain:
    return chain_of(*pair) if isinstance(pair, (tuple, list)) else chain_of(pair, None)


def _authorities(ca: Material) -> bytes:
    """PEM of a file, of all files of a folder, or of several such things."""
    if isinstance(ca, (list, tuple)):
        return b"\n".join(_authorities(one) for one in ca)
    if isinstance(ca, (str, os.PathLike)) and "-----BEGIN" not in str(ca) and os.path.isdir(ca):
        folder = os.fspath(ca)
        files = sorted({os.path.realpath(os.path.join(folder, name)) for name in os.listdir(folder)})
        found = [material(path, "a certificate") for path in files if path.endswith((".pem", ".crt", ".cer"))]
        if not found:
            raise ValueError(f"expected certificates, in files named *.pem or *.crt, in the folder {folder!r}")
        return b"\n".join(found)
    return _with(b"CERTIFICATE-----", material(ca, _AUTHORITY), _AUTHORITY)
