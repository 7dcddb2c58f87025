"""`ssl_ctx` and `ssl`: OpenSSL's context and connection under their classic names, over the standard library's `ssl`.

A connection works on a descriptor that does not block. What would have to wait raises WantRead or WantWrite, and is
repeated when the descriptor is ready; whoever wants that done for him takes `coro.ssl.sock` or a context's `wrap`.
"""

from __future__ import annotations

import contextlib
import os
import ssl as _ssl
import warnings
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from coro.ssl._certs.certificates import check_pair, x509
from coro.ssl._certs.errors import Error, WantRead, WantWrite, told
from coro.ssl._certs.keys import dh_param, pkey
from coro.ssl._material import in_file
from coro.tls._openssl import OpenSSL

__all__ = ["ssl", "ssl_ctx"]

_T = TypeVar("_T")
#: What is read from the descriptor at once.
_BLOCK = 65536
_PEER, _FAIL_IF_NO_PEER_CERT = 1, 2


class ssl_ctx:
    """What many connections have in common. Only TLS 1.2 and newer; a client checks the server's certificate unless
    ``set_verify`` says otherwise. ``cert``, ``key`` and ``dh`` are what was set, or None."""

    def __init__(self) -> None:
        self._cert: x509 | None = None
        self._chain: list[x509] = []
        self._key: pkey | None = None
        self._dh: dh_param | None = None
        self._ciphers: str | None = None
        self._verify: int | None = None
        self._places: list[tuple[str | None, str | None]] = []
        self._options = 0
        self._protocols: list[str] = []
        self._made: dict[bool, _ssl.SSLContext] = {}

    cert = property(lambda self: self._cert, doc="The certificate, None without one.")
    key = property(lambda self: self._key, doc="The private key, None without one.")
    dh = property(lambda self: self._dh, doc="The Diffie-Hellman parameters, None without them.")

    def use_cert(self, cert: x509, chain: Iterable[x509] = ()) -> None:
        """Show this certificate, and those that lead from it to the root."""
        cert.as_pem()
        self._cert, self._chain = cert, list(chain)
        self._made.clear()

    def use_key(self, key: pkey) -> None:
        """The private key of the certificate. Raises Error for a public one."""
        key.get_private()
        self._key = key
        self._made.clear()

    def check_key(self) -> None:
        """Raises Error unless the key is that of the certificate."""
        if self._cert is None or self._key is None:
            raise Error(0, "there is no certificate and key to check: call use_cert() and use_key() first")
        if not check_pair(self._cert, self._key):
            raise Error(0, "the key is not that of the certificate")

    def set_ciphers(self, ciphers: str) -> None:
        """The ciphers for TLS 1.2, in OpenSSL's notation. Raises Error if none is known."""
        with told("cannot use the ciphers"):
            _ssl.SSLContext(_ssl.PROTOCOL_TLS_CLIENT).set_ciphers(ciphers)
        self._ciphers = ciphers
        self._made.clear()

    def set_tmp_dh(self, dh: dh_param) -> None:
        """Parameters for the classic Diffie-Hellman exchange."""
        self._dh = dh
        self._made.clear()

    def set_ecdh_auto(self, on: int) -> None:
        """Only 1 is possible: key exchange over curves is always on. ValueError otherwise."""
        if not on:
            raise ValueError("key exchange over curves cannot be turned off: without it there is no forward secrecy")

    def set_verify(self, mode: int) -> None:
        """``SSL_VERIFY.NONE``: accept any peer. ``PEER``: the peer's certificate must be trusted, and a server asks for
        one; with ``FAIL_IF_NO_PEER_CERT`` it insists."""
        self._verify = int(mode)
        self._made.clear()

    def load_verify_locations(self, file: str | None = None, dir: str | None = None) -> None:
        """Trust the certificates in a file or folder. ValueError without either; Error if they cannot be read."""
        if file is None and dir is None:
            raise ValueError("pass the file or the folder of the certificates to trust")
        with told("cannot load the certificates to trust"):
            _ssl.SSLContext(_ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file, dir)
        self._places.append((file, dir))
        self._made.clear()

    def verify_cert(self, cert: x509) -> bool:
        """Whether a certificate is signed by one of those to trust, directly, and valid now."""
        if cert.get_notBefore().cmp_current_time() > 0 or cert.get_notAfter().cmp_current_time() < 0:
            return False
        context = self._context(False)
        for der in context.get_ca_certs(binary_form=True):
            try:
                # Systems have old ones that break today's rules, which `cryptography` warns of, or refuses.
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    trusted = x509.from_der(der)
            except Error:
                continue
            if cert == trusted or cert.is_signed_by(trusted):
                return True
        return False

    def get_options(self) -> int:
        """The options set by ``set_options``."""
        return self._options

    def set_options(self, options: int) -> int:
        """Add options of ``SSL_OP``; returns all that are set."""
        self._options |= int(options)
        self._made.clear()
        return self._options

    def set_next_protos(self, protocols: Iterable[bytes | str]) -> None:
        """The protocols to agree on, best first: by ALPN (RFC 7301), which has taken the place of NPN."""
        self._protocols = [p.decode("ascii") if isinstance(p, bytes) else p for p in protocols]
        self._made.clear()

    def ssl(self) -> ssl:
        """A new connection."""
        return ssl(self)

    def _copy(self) -> ssl_ctx:
        made = ssl_ctx()
        vars(made).update(vars(self))
        made._places = list(self._places)
        made._made = {}
        return made

    def _context(self, server_side: bool) -> _ssl.SSLContext:
        if server_side not in self._made:
            self._made[server_side] = self._make(server_side)
        return self._made[server_side]

    def _make(self, server_side: bool) -> _ssl.SSLContext:
        context = _ssl.SSLContext(_ssl.PROTOCOL_TLS_SERVER if server_side else _ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = _ssl.TLSVersion.TLSv1_2
        context.check_hostname = False  # the classic interface has no place for a name
        with told("cannot make the context"):
            with warnings.catch_warnings():  # of options that forbid versions, which the classic interface has
                warnings.simplefilter("ignore", DeprecationWarning)
                context.options |= self._options | _ssl.OP_NO_COMPRESSION | getattr(_ssl, "OP_NO_RENEGOTIATION", 0)
            if self._ciphers:
                context.set_ciphers(self._ciphers)
            if self._protocols:
                context.set_alpn_protocols(self._protocols)
            if self._cert is not None and self._key is not None:
                pem = b"".join(c.as_pem() for c in [self._cert, *self._chain]) + self._key.get_private()
                with in_file(pem) as path:
                    context.load_cert_chain(path)
            if self._dh is not None:
                with in_file(self._dh.as_pem()) as path:
                    context.load_dh_params(path)
            for file, folder in self._places:
                context.load_verify_locations(file, folder)
        mode = self._verify if self._verify is not None else 0 if server_side else _PEER
        if not mode & _PEER:
            context.verify_mode = _ssl.CERT_NONE
        elif server_side and not mode & _FAIL_IF_NO_PEER_CERT:
            context.verify_mode = _ssl.CERT_OPTIONAL
        else:
            context.verify_mode = _ssl.CERT_REQUIRED
        if mode & _PEER and not self._places:
            context.load_default_certs(_ssl.Purpose.CLIENT_AUTH if server_side else _ssl.Purpose.SERVER_AUTH)
        return context


class ssl:
    """A connection. ``set_fd`` gives it a connected descriptor, which must not block; then ``accept`` or ``connect``.

    What would have to wait raises WantRead or WantWrite, and is repeated when the descriptor is ready.
    """

    def __init__(self, ctx: ssl_ctx) -> None:
        self._ctx = ctx
        self._alone = False  # `_ctx` is a copy that belongs to this connection
        self._fd = -1
        self._server_side: bool | None = None
        self._engine: OpenSSL | None = None
        self._unsent = b""
        self._ended = False  # our close_notify is made
        self._verified: tuple[int, str] = (0, "ok")

    def _own(self) -> ssl_ctx:
        """The settings of this connection, which from now on are no longer those of its context."""
        if self._engine is not None:
            raise Error(0, "the handshake has begun: set this before")
        if not self._alone:
            self._ctx, self._alone = self._ctx._copy(), True
        return self._ctx

    cert = property(lambda self: self._ctx.cert, doc="The certificate that this connection shows, None without one.")
    key = property(lambda self: self._ctx.key, doc="Its private key, None without one.")
    dh = property(lambda self: self._ctx.dh, doc="The Diffie-Hellman parameters, None without them.")

    def use_cert(self, cert: x509, chain: Iterable[x509] = ()) -> None:
        """Show this certificate, and those of ``chain``, on this connection. This and the settings below are those of
        ``ssl_ctx`` for one connection, and raise what they raise there; Error when the handshake has begun."""
        self._own().use_cert(cert, chain)

    def use_key(self, key: pkey) -> None:
        """The private ``key`` of the certificate."""
        self._own().use_key(key)

    def check_key(self) -> None:
        """Raises Error unless the key is that of the certificate."""
        self._ctx.check_key()

    def set_ciphers(self, ciphers: str) -> None:
        """The ``ciphers`` for TLS 1.2, in OpenSSL's notation."""
        self._own().set_ciphers(ciphers)

    def set_tmp_dh(self, dh: dh_param) -> None:
        """Parameters ``dh`` for the classic Diffie-Hellman exchange."""
        self._own().set_tmp_dh(dh)

    def set_ecdh_auto(self, on: int) -> None:
        """Only ``on`` = 1 is possible: key exchange over curves is always on. ValueError otherwise."""
        self._ctx.set_ecdh_auto(on)

    def set_verify(self, mode: int) -> None:
        """How the peer is verified: ``mode`` of ``SSL_VERIFY``."""
        self._own().set_verify(mode)

    def load_verify_locations(self, file: str | None = None, dir: str | None = None) -> None:
        """Trust the certificates in ``file`` or the folder ``dir``, too. ValueError without either; Error if they
        cannot be read."""
        self._own().load_verify_locations(file, dir)

    def verify_cert(self, cert: x509) -> bool:
        """Whether ``cert`` is signed by one that this connection trusts, directly, and valid now."""
        return self._ctx.verify_cert(cert)

    def set_next_protos(self, protocols: Iterable[bytes | str]) -> None:
        """The ``protocols`` to agree on, best first, by ALPN."""
        self._own().set_next_protos(protocols)

    def get_options(self) -> int:
        """The options of this connection."""
        return self._ctx.get_options()

    def set_options(self, options: int) -> int:
        """Add ``options`` of ``SSL_OP``; returns all that are set."""
        return self._own().set_options(options)

    def set_fd(self, fd: int) -> None:
        """The descriptor to work on."""
        self._fd = fd

    def set_accept_state(self) -> None:
        """Be the server."""
        self._server_side = True

    def set_connect_state(self) -> None:
        """Be the client."""
        self._server_side = False

    def accept(self) -> None:
        """The handshake as the server. Raises WantRead, WantWrite; Error when it fails."""
        self._server_side = True
        self._handshake()

    def connect(self) -> None:
        """The handshake as the client. Raises WantRead, WantWrite; Error when it fails."""
        self._server_side = False
        self._handshake()

    def _handshake(self) -> None:
        if self._server_side is None:
            raise Error(0, "say which side it is: accept() or connect()")
        if self._engine is None:
            try:
                self._engine = OpenSSL(self._ctx._context(self._server_side), self._server_side, None)
            except ValueError as e:
                raise Error(0, str(e)) from e
        self._do(self._engine.tls.do_handshake)

    def _open(self) -> OpenSSL:
        if self._engine is None:
            self._handshake()
        assert self._engine is not None
        return self._engine

    def _do(self, method: Callable[..., _T], *args: Any) -> _T:
        engine = self._engine
        assert engine is not None
        while True:
            self._flush()
            try:
                result = method(*args)
            except _ssl.SSLWantReadError:
                self._flush()
                self._fill()
                continue
            except _ssl.SSLError as e:
                raise self._failed(e) from e
            self._flush()
            return result

    def _failed(self, e: _ssl.SSLError) -> Error:
        """What to raise for an error of OpenSSL's; the peer is told, if that is possible at once."""
        text = str(e.args[-1])
        if isinstance(e, _ssl.SSLCertVerificationError):
            text = str(e.verify_message)
            self._verified = (e.verify_code, text)
        with contextlib.suppress(Error):
            self._flush()
        return Error(e.errno or 0, text)

    def _fill(self) -> None:
        assert self._engine is not None
        try:
            data = os.read(self._fd, _BLOCK)
        except BlockingIOError:
            raise WantRead(0, "wait until the descriptor is readable, and call again") from None
        except OSError as e:
            raise Error(e.errno or 0, f"cannot read from the descriptor: {e.strerror}") from e
        if data:
            self._engine.incoming.write(data)
        else:
            self._engine.incoming.write_eof()

    def _flush(self) -> None:
        assert self._engine is not None
        if self._engine.outgoing.pending:
            self._unsent += self._engine.outgoing.read()
        while self._unsent:
            try:
                sent = os.write(self._fd, self._unsent)
            except BlockingIOError:
                raise WantWrite(0, "wait until the descriptor is writable, and call again") from None
            except OSError as e:
                raise Error(e.errno or 0, f"cannot write to the descriptor: {e.strerror}") from e
            self._unsent = self._unsent[sent:]

    def read(self, n: int) -> bytes:
        """At most ``n`` bytes; ``b""`` behind the peer's close_notify. Raises WantRead, WantWrite; Error for a stream
        that ends without it."""
        engine = self._open()
        try:
            return bytes(self._do(engine.tls.read, n))
        except Error as e:
            if isinstance(e.__cause__, _ssl.SSLZeroReturnError):
                return b""
            raise

    def write(self, data: bytes) -> int:
        """Send all of ``data``; returns its length. After WantWrite the bytes are kept, and the next call, of any
        kind, sends them first: do not write them again. Raises Error when the connection is of no more use, or this
        side has ended it with ``shutdown``."""
        engine = self._open()
        self._flush()
        try:
            n = int(engine.tls.write(data))
        except _ssl.SSLError as e:
            raise self._failed(e) from e
        self._flush()
        return n

    def shutdown(self) -> int:
        """Send close_notify; 1 if the peer's has come, too, else 0: call it again to wait for it, which raises WantRead
        until it is there. Raises Error when the peer sends data instead, or ends without it."""
        engine = self._open()
        if self._ended:
            self._do(engine.tls.shutdown)
            return 1
        self._flush()
        try:
            engine.tls.shutdown()
            found = 1
        except _ssl.SSLWantReadError:
            found = 0
        except _ssl.SSLError as e:
            raise self._failed(e) from e
        self._ended = True
        self._flush()
        return found

    def get_cipher(self) -> str | None:
        """The name of the cipher in use, None before the handshake."""
        found = self._engine.cipher() if self._engine is not None else None
        return found[0] if found else None

    def get_ciphers(self) -> list[str]:
        """The names of the ciphers that may be used."""
        return [one["name"] for one in self._ctx._context(bool(self._server_side)).get_ciphers()]

    def get_peer_cert(self) -> x509 | None:
        """The peer's certificate."""
        der = self._engine.getpeercert(True) if self._engine is not None else None
        return x509.from_der(der) if der else None

    def get_peer_cert_chain(self) -> list[x509]:
        """The certificates that the peer sent, its own first."""
        return [x509.from_der(der) for der in self._engine.peer_chain()] if self._engine is not None else []

    def get_verify_result(self) -> tuple[int, str]:
        """OpenSSL's number for what is wrong with the peer's certificate, and words; ``(0, "ok")`` if nothing is."""
        return self._verified

    def get_next_protos_negotiated(self) -> bytes | None:
        """The protocol agreed on by ALPN."""
        name = self._engine.selected_alpn_protocol() if self._engine is not None else None
        return name.encode("ascii") if name else None

    def __repr__(self) -> str:
        state = self._engine.version() if self._engine is not None else "new"
        return f"<ssl on descriptor {self._fd}: {state}>"
