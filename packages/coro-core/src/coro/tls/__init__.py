"""TLS over any stream: ``coro.tls.context(obj)`` for libraries that take a context, ``TLSStream`` for what it wraps.

    context = coro.tls.context(ssl.create_default_context())
    with context.wrap(coro.connect(("example.org", 443)), server_hostname="example.org") as conn:
        conn.sendall(b"...")

A protocol library takes a *context* from its user: an object with ``wrap(sock, server_side=False,
server_hostname=None)`` that returns a stream after the handshake. It calls ``context`` once on what it got, so that an
``ssl.SSLContext`` works as well as the contexts of coro-ssl.

The input and output are in _stream.py, what OpenSSL says in _net/tls.py.
"""

from coro._net.tls import (
    CertificateError,
    HandshakeError,
    HandshakeTimeout,
    ProtocolError,
    TLSError,
    TruncatedError,
    UnsupportedError,
)
from coro.tls._context import Context, context, wrapped
from coro.tls._engine import Engine
from coro.tls._stream import TLSStatistics, TLSStream

__all__ = [
    "CertificateError",
    "Context",
    "Engine",
    "HandshakeError",
    "HandshakeTimeout",
    "ProtocolError",
    "TLSError",
    "TLSStatistics",
    "TLSStream",
    "TruncatedError",
    "UnsupportedError",
    "context",
    "wrapped",
]
