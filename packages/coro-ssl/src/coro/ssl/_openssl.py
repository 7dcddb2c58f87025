"""The back end over the standard library's `ssl`: one ``ssl.SSLContext`` for clients, one for servers, made once.

Which certificate a server shows is decided by the name that the client asks for (RFC 6066 section 3): exact names come
before ``*.example.org``, and who asks for none, or for an unknown one, gets the first. Each certificate has a context
of its own, because that is how OpenSSL exchanges them in the middle of a handshake.

Cost: what OpenSSL takes; a dictionary look-up for each name asked for.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from coro.ssl._binding import end_point
from coro.ssl._material import Chain, der_of, in_file
from coro.tls import UnsupportedError
from coro.tls._openssl import OpenSSL, never_waits

if TYPE_CHECKING:
    from coro.ssl._context import Settings

__all__ = ["Backend"]

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
#: What TLS 1.2 may use unless told otherwise: forward secrecy and authenticated encryption (RFC 9325 section 4.2).
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


class Engine(OpenSSL):
    """A connection, with the channel bindings that `ssl` has not."""

    __slots__ = ("_backend",)

    def __init__(
        self, backend: Backend, context: ssl.SSLContext, server_side: bool, server_hostname: str | None, session: Any
    ) -> None:
        super().__init__(context, server_side, server_hostname, session)
        self._backend = backend

    def get_channel_binding(self, kind: str) -> bytes | None:
        """ "tls-server-end-point"; "tls-unique" for TLS 1.2; "tls-exporter" where this Python's `ssl` exports keys."""
        if kind == "tls-server-end-point":
            return end_point(self._server_certificate())
        if kind == "tls-unique" and self.version() == "TLSv1.3":
            raise UnsupportedError("tls-unique is not defined for TLS 1.3: use tls-server-end-point (RFC 9266)")
        if kind == "tls-exporter":
            export = getattr(self.object, "export_keying_material", None)
            if export is None:
                raise UnsupportedError(
                    "this Python's ssl module exports no keys, which tls-exporter needs: use tls-server-end-point, or "
                    'backend="tlslite"'
                )
            return bytes(export(b"EXPORTER-Channel-Binding", 32, b""))  # RFC 9266 section 2
        return super().get_channel_binding(kind)

    def _server_certificate(self) -> bytes:
        if self.object.server_side:
            shown = self._backend.shown.get(self.object.context)
            if shown is None:  # an sni_callback of the program's has exchanged the context
                raise UnsupportedError(
                    "the certificate that this server has shown is of a context that new_ctx() did not make: pass it "
                    "to new_ctx() as sni"
                )
            return shown
        found = self.object.getpeercert(True)
        if found is None:
            raise UnsupportedError("the server has shown no certificate, as in a connection without one")
        return found


class Backend:
    """The contexts of OpenSSL that a context of coro-ssl uses until it is told to reload."""

    def __init__(self, settings: Settings) -> None:
        """Raises ssl.SSLError (an OSError) for what OpenSSL does not accept, as ValueError; OSError for files that
        cannot be read."""
        self.settings = settings
        #: The certificate that each server's context shows, in DER.
        self.shown: dict[ssl.SSLContext, bytes] = {}
        try:
            self.client = self._client()
            self.server: ssl.SSLContext | None = self._server()
        except ssl.SSLError as e:
            raise ValueError(f"OpenSSL does not accept this: {_words(e)}") from e

    # -- making them

    def _new(self, kind: int) -> ssl.SSLContext:
        s = self.settings
        made = ssl.SSLContext(kind)
        made.minimum_version = _VERSIONS[s.minimum_version]
        if s.maximum_version is not None:
            made.maximum_version = _VERSIONS[s.maximum_version]
        made.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_SINGLE_ECDH_USE | ssl.OP_SINGLE_DH_USE
        made.set_ciphers(s.ciphers or CIPHERS)
        if s.groups is not None:
            if hasattr(made, "set_groups"):
                made.set_groups(s.groups)
            elif ":" in s.groups:
                raise UnsupportedError(
                    f"expected one group, as this Python's ssl module takes only one, not {s.groups!r}: pass the "
                    "first, or take Python 3.15 or backend='tlslite'"
                )
            else:
                made.set_ecdh_curve(s.groups)
        if s.alpn:
            made.set_alpn_protocols(s.alpn)
        if s.keylog is not None:
            made.keylog_filename = s.keylog
        return made

    def _client(self) -> ssl.SSLContext:
        s = self.settings
        made = self._new(ssl.PROTOCOL_TLS_CLIENT)
        made.hostname_checks_common_name = False  # a name belongs into subjectAltName (RFC 9525 section 6.3)
        made.check_hostname = s.verify and s.check_hostname
        made.verify_mode = ssl.CERT_REQUIRED if s.verify else ssl.CERT_NONE
        if s.chain is not None:
            self._load(made, s.chain)
        if s.verify:
            made.verify_flags |= getattr(ssl, "VERIFY_X509_PARTIAL_CHAIN", 0) | getattr(ssl, "VERIFY_X509_STRICT", 0)
            if s.trust is None:
                made.load_default_certs(ssl.Purpose.SERVER_AUTH)
            else:
                made.load_verify_locations(cadata=_certificates(s.trust))
            self._revoked(made)
        return made

    def _server(self) -> ssl.SSLContext | None:
        s = self.settings
        if s.chain is None:
            return None
        first = self._one_server(s.chain)
        if s.names:
            others = {host.lower(): self._one_server(chain) for host, chain in s.names.items()}

            @never_waits
            def choose(connection: Any, name: str | None, _first: ssl.SSLContext) -> None:
                asked = (name or "").lower().rstrip(".")
                found = others.get(asked) or others.get(f"*.{asked.partition('.')[2]}")
                if found is not None:
                    connection.context = found

            first.sni_callback = choose
        return first

    def _one_server(self, chain: Chain) -> ssl.SSLContext:
        s = self.settings
        made = self._new(ssl.PROTOCOL_TLS_SERVER)
        made.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
        self._load(made, chain)
        self.shown[made] = der_of(chain.certificates)
        if s.dh is not None:
            with in_file(s.dh) as path:
                made.load_dh_params(path)
        made.num_tickets = s.tickets
        if not s.tickets:
            made.options |= ssl.OP_NO_TICKET
        if s.client_auth != "none":
            made.verify_mode = ssl.CERT_REQUIRED if s.client_auth == "required" else ssl.CERT_OPTIONAL
            trust = s.client_trust if s.client_trust is not None else s.trust
            if trust is None:
                raise ValueError("pass client_ca, the authorities whose certificates clients may show")
            made.load_verify_locations(cadata=_certificates(trust))
            self._revoked(made)
        return made

    def _load(self, made: ssl.SSLContext, chain: Chain) -> None:
        password = self.settings.password
        with in_file(chain.certificates) as certificates, in_file(chain.key) as key:
            # Without a password OpenSSL would ask for one at the terminal, and everything would wait.
            made.load_cert_chain(certificates, key, password=password if password is not None else lambda: b"")

    def _revoked(self, made: ssl.SSLContext) -> None:
        if self.settings.crl is not None:
            with in_file(self.settings.crl) as path:
                made.load_verify_locations(path)
            made.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF

    # -- using them

    def engine(self, server_side: bool, server_hostname: str | None, session: Any, context: Any) -> Engine:
        """The engine of a new connection of ``context``. ValueError when the settings do not fit this side."""
        if server_side:
            if self.server is None:
                raise ValueError("a server needs a certificate: pass cert and key to new_ctx()")
            return Engine(self, self.server, True, None, None)
        return Engine(self, self.client, False, server_hostname, session)


def _certificates(pem: bytes) -> str:
    return pem.decode("ascii", "ignore")


def _words(exc: BaseException) -> str:
    return str(exc.args[1] if len(exc.args) > 1 else exc).partition(" (_ssl.c")[0]
