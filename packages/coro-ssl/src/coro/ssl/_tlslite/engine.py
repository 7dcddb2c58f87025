"""The engine that `coro.tls.TLSStream` drives: tlslite-ng between two buffers in memory.

The handshake and the reading of records are generators of tlslite-ng's. They are kept here and resumed, so that a call
that ended with `Want` or `Again` goes on where it was. A piece of plain text is at most one record.

Cost: 25 KiB for a connection. In pure Python about 300 KB/s and 10 to 40 ms for a handshake, on the processor on which
OpenSSL does 1 GB/s and 0.4 ms.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from tlslite.constants import AlertDescription, CipherSuite
from tlslite.errors import BaseTLSException, TLSAbruptCloseError, TLSLocalAlert, TLSRemoteAlert
from tlslite.mathtls import PRF_1_2, PRF_1_2_SHA384
from tlslite.session import Session as _LibrarySession
from tlslite.utils.cryptomath import HKDF_expand_label, derive_secret, secureHash

from coro.ssl._tlslite.certificate import Certificate
from coro.ssl._tlslite.connection import Connection, PeerClosed, Wire
from coro.ssl._tlslite.der import Malformed
from coro.ssl._tlslite.paths import Refused
from coro.tls import CertificateError, HandshakeError, ProtocolError, TLSError, TruncatedError, UnsupportedError

__all__ = ["Again", "Engine", "Session", "Want"]

#: The most that one record carries (RFC 8446, 5.1).
RECORD = 16384
_VERSIONS = {(3, 3): "TLSv1.2", (3, 4): "TLSv1.3"}


class Want(Exception):
    """More ciphertext is needed."""


class Again(Exception):
    """Others may run now; nothing is needed."""


class Session:
    """What a client keeps to shorten its next handshake with the same server. It belongs to the context and the host
    that it came from."""

    def __init__(
        self,
        context: object,
        hostname: str | None,
        library: _LibrarySession,
        version: tuple[int, int],
        chain: list[bytes],
    ) -> None:
        self.chain = chain  # the server's certificates, which were checked when the session began
        self.context = context
        self.hostname = hostname
        self.library = library
        self.version = version

    def __repr__(self) -> str:
        return f"<Session with {self.hostname}, {_VERSIONS.get(self.version)}>"


class _Incoming:
    __slots__ = ("_wire",)

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    @property
    def pending(self) -> int:
        return len(self._wire.incoming)

    def write(self, data: bytes) -> int:
        self._wire.incoming += data
        return len(data)

    def write_eof(self) -> None:
        self._wire.eof = True


class _Outgoing:
    __slots__ = ("_wire",)

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    @property
    def pending(self) -> int:
        return len(self._wire.outgoing)

    def read(self) -> bytes:
        data = bytes(self._wire.outgoing)
        self._wire.outgoing.clear()
        return data


class Engine:
    """One connection. ``shake`` makes the generator of the handshake for a ``Connection``."""

    want: type[Exception] = Want
    again: type[Exception] = Again
    ended: type[Exception] = PeerClosed

    def __init__(
        self,
        shake: Callable[[Connection], Iterator[Any]],
        check: Callable[[list[bytes]], Iterator[int]] | None,
        *,
        server_side: bool,
        server_hostname: str | None,
        context: object,
        offered: Session | None = None,
        done: Callable[[Engine, BaseException | None], object] | None = None,
    ) -> None:
        wire = Wire()
        self._connection = Connection(wire, check)
        self._wire = wire
        self.incoming = _Incoming(wire)
        self.outgoing = _Outgoing(wire)
        self.tls = self
        self._server_side = server_side
        self._hostname = server_hostname
        self._context = context
        self._offered = offered
        self._done = done
        self._shaking: Iterator[Any] | None = shake(self._connection)
        self._reading: Iterator[Any] | None = None
        self._plain = b""
        self._failure: Exception | None = None
        self._version: tuple[int, int] = (0, 0)
        self._resumed = False

    # -- what TLSStream calls

    def do_handshake(self) -> None:
        """Go on with the handshake, to its end if Want and Again allow."""
        if self._failure is not None:
            raise self._failure
        if self._shaking is None:
            return
        connection = self._connection
        try:
            for result in self._shaking:
                if result == 0:
                    raise Want
                if result == 1:
                    raise Again
            self._version = connection.version
            self._resumed = self._was_resumed()
        except (Want, Again):
            raise
        except Exception as e:
            self._say_internal(e)
            self._fail(e)
            raise
        connection.established = True
        self._shaking = None
        self._reading = connection.incoming_data()
        if self._done is not None:
            self._done(self, None)

    def _was_resumed(self) -> bool:
        connection = self._connection
        if not self._server_side or connection.version <= (3, 3):
            return bool(connection.resumed)
        # On the server's side tlslite-ng does not tell; a handshake without certificate was by ticket.
        return connection.serverSigAlg is None

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._shaking = self._reading = None
        if self._done is not None and self._version == (0, 0):
            self._done(self, error)

    def _say_internal(self, error: Exception) -> None:
        """An error that is none of TLS's, or that tlslite-ng has not told the peer of."""
        if isinstance(error, (TLSLocalAlert, TLSRemoteAlert, Refused, TLSAbruptCloseError)):
            return
        text = type(error).__name__
        description = {
            "TLSIllegalParameterException": AlertDescription.illegal_parameter,
            "TLSDecodeError": AlertDescription.decode_error,
            "TLSDecryptionFailed": AlertDescription.decrypt_error,
            "TLSUnexpectedMessage": AlertDescription.unexpected_message,
            "TLSInsufficientSecurity": AlertDescription.insufficient_security,
            "TLSHandshakeFailure": AlertDescription.handshake_failure,
            "TLSUnknownPSKIdentity": AlertDescription.unknown_psk_identity,
        }.get(text, AlertDescription.internal_error)
        try:
            self._connection.wire_alert(description)
        except Exception:
            self._wire.outgoing.clear()  # its record layer is broken, too: nothing can be said

    def read(self, size: int, buffer: memoryview | None = None) -> Any:
        """Plain text, at most ``size`` bytes; with ``buffer`` into it, and how many."""
        if not self._plain:
            self._plain = self._next()
        data = self._plain[:size]
        self._plain = self._plain[size:]
        if buffer is None:
            return data
        buffer[: len(data)] = data
        return len(data)

    def _next(self) -> bytes:
        if self._failure is not None:
            raise self._failure
        if self._reading is None:
            raise ValueError("the handshake is not done yet")
        try:
            for result in self._reading:
                if result == 0:
                    raise Want
                if result == 1:
                    raise Again
                return bytes(result)
            raise PeerClosed
        except (Want, Again):
            raise
        except Exception as e:
            if not isinstance(e, PeerClosed):
                self._say_internal(e)
            self._fail(e)
            raise

    def write(self, data: Any) -> int:
        """Make one record of the first 16 KiB."""
        if isinstance(self._failure, Exception) and not isinstance(self._failure, PeerClosed):
            raise self._failure
        with memoryview(data) as view:
            piece = bytes(view[: min(RECORD, self._connection.recordSize)])
        self._connection.send_data(piece)
        return len(piece)

    def shutdown(self) -> None:
        """Say close_notify."""
        self._connection.say_goodbye()

    def pending(self) -> int:
        """Plain bytes at hand."""
        return len(self._plain)

    # -- errors

    def error(self, exc: Exception, doing: str) -> Exception:
        """The error of ``coro.tls`` for what came out of tlslite-ng."""
        known = isinstance(exc, (BaseTLSException, Refused)) or exc is self._failure
        if isinstance(exc, TLSError) or not known:
            return exc  # of the stream below, or sent to the thread
        if isinstance(exc, Refused):
            text = str(exc)
            return CertificateError(
                f"the peer's certificate is not accepted: {text}", verify_code=exc.reason.code, verify_message=text
            )
        if isinstance(exc, TLSAbruptCloseError):
            if doing == "handshake":
                return HandshakeError("the peer ended the stream during the TLS handshake")
            return TruncatedError("the stream ended without close_notify: what came before may be incomplete")
        alert: int | None = None
        if isinstance(exc, TLSRemoteAlert):
            alert = exc.description
            words = f"the peer sent the alert {AlertDescription.toStr(alert)}"
        elif isinstance(exc, TLSLocalAlert):
            words = f"{AlertDescription.toStr(exc.description)}: {exc.message}" if exc.message else str(exc)
            words = f"the peer made a mistake, {words}"
        else:
            words = f"{type(exc).__name__}: {exc}"
        if doing == "handshake":
            return HandshakeError(f"the TLS handshake failed: {words}", alert=alert)
        return ProtocolError(f"TLS failed in {doing}: {words}", alert=alert)

    # -- what is known

    def version(self) -> str | None:
        """``"TLSv1.2"`` or ``"TLSv1.3"``, None before the handshake."""
        return _VERSIONS.get(self._version)

    def cipher(self) -> tuple[str, str, int] | None:
        """The cipher's name as IANA has it, the version, and its secret bits."""
        suite = self._suite()
        if suite is None:
            return None
        name = CipherSuite.ietfNames.get(suite, hex(suite))
        bits = 128 if "AES_128" in name else 256
        return name, self.version() or "", bits

    def _suite(self) -> int | None:
        session = self._connection.session
        return session.cipherSuite if session is not None and self._version != (0, 0) else None

    def selected_alpn_protocol(self) -> str | None:
        """The protocol agreed on by ALPN."""
        session = self._connection.session
        name = session.appProto if session is not None else None
        return bytes(name).decode("ascii", "backslashreplace") if name else None

    def peer_chain(self) -> list[bytes]:
        """The peer's certificates, as it sent them in this handshake or the one that began the session."""
        if self._connection.peer_certificates:
            return list(self._connection.peer_certificates)
        session = self._connection.session
        if session is None:
            return []
        if self._resumed and self._offered is not None:
            return list(self._offered.chain)
        chain = session.clientCertChain if self._server_side else session.serverCertChain
        return [bytes(one.bytes) for one in chain.x509List] if chain else []

    def getpeercert(self, binary_form: bool = False) -> Any:
        """As ``ssl.SSLSocket.getpeercert``."""
        chain = self.peer_chain()
        if not chain:
            return None
        if binary_form:
            return chain[0]
        return Certificate(chain[0]).as_dict() if self._connection.check is not None else {}

    def get_channel_binding(self, kind: str) -> bytes | None:
        """ "tls-unique" (TLS 1.2), "tls-server-end-point" (RFC 5929) and "tls-exporter" (RFC 9266)."""
        if self._version == (0, 0):
            return None
        if kind == "tls-unique":
            if self._version > (3, 3):
                raise UnsupportedError("tls-unique is not defined for TLS 1.3: use tls-exporter (RFC 9266)")
            return self._connection.first_finished
        if kind == "tls-exporter":
            return self._export(b"EXPORTER-Channel-Binding", 32)
        if kind == "tls-server-end-point":
            return self._end_point()
        raise UnsupportedError(
            f"tlslite-ng has no channel binding {kind!r}, only tls-unique, tls-server-end-point and tls-exporter"
        )

    def _export(self, label: bytes, length: int) -> bytes:
        """Keying material with an empty context (RFC 5705, 4; RFC 8446, 7.5)."""
        connection, session = self._connection, self._connection.session
        long = session.cipherSuite in CipherSuite.sha384PrfSuites
        if self._version > (3, 3):
            prf = "sha384" if long else "sha256"
            secret = derive_secret(session.exporterMasterSecret, bytearray(label), None, prf)
            return bytes(HKDF_expand_label(secret, b"exporter", secureHash(bytearray(), prf), length, prf))
        if not (connection.extendedMasterSecret or session.extendedMasterSecret):
            raise UnsupportedError("the peer has no extended master secret, without which tls-exporter is not unique")
        seed = bytearray(connection._clientRandom + connection._serverRandom) + b"\0\0"
        return bytes((PRF_1_2_SHA384 if long else PRF_1_2)(session.masterSecret, label, seed, length))

    def _end_point(self) -> bytes:
        if self._server_side:
            session = self._connection.session
            chain = session.serverCertChain if session is not None else None
            if not chain and self._connection.choose is not None:
                # A resumed session. Which certificate it began with is known if there is one for this name only.
                candidates = self._connection.choose(self._connection.asked_name, [])
                chain = candidates[0][0] if len(candidates) == 1 else None
            data = bytes(chain.x509List[0].bytes) if chain else b""
        else:
            found = self.peer_chain()
            data = found[0] if found else b""
        if not data:
            raise UnsupportedError("the server's certificate is not known: this session was resumed")
        try:
            name = Certificate(data).signature_hash()
        except Malformed:
            name = None
        if name is None:
            raise UnsupportedError("the server's certificate has a signature without one hash (RFC 5929, 4.1)")
        return hashlib.new(name, data).digest()

    @property
    def server_hostname(self) -> str | None:
        """What the client asked for, or compares with."""
        return self._connection.asked_name if self._server_side else self._hostname

    @property
    def session(self) -> Session | None:
        """A client's session, once the server has given a ticket."""
        library = self._connection.session
        if self._server_side or library is None:
            return None
        if not (library.tickets or library.tls_1_0_tickets):
            return None
        return Session(self._context, self._hostname, library, self._version, self.peer_chain())

    @property
    def session_reused(self) -> bool:
        """Whether an earlier session shortened the handshake."""
        return self._resumed

    def __repr__(self) -> str:
        return f"<tlslite engine, {'server' if self._server_side else 'client'}, {self.version() or 'new'}>"
