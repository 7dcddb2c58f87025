"""TLS for coro: contexts and streams over OpenSSL or tlslite-ng, certificates and keys.

    from coro.ssl import new_ctx

    context = new_ctx("cert.pem", key="key.pem", alpn=["http/1.1"])
    coro.serve(handler, ("", 443), wrap=context.accept)

This file holds names only. The names of certificates and keys (``openssl``, ``x509``, ``pkey``, ``dh_param``) are
imported when they are first used, because they need cryptography; tlslite-ng is imported by who asks for that back end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coro.ssl._core import explained as _explained

with _explained():
    from coro.ssl._context import Context, ContextStatistics, new_ctx
    from coro.ssl._sock import sock
    from coro.tls import (
        CertificateError,
        HandshakeError,
        HandshakeTimeout,
        ProtocolError,
        TLSError,
        TLSStream,
        TruncatedError,
        UnsupportedError,
    )

__version__ = "0.1.0"

if TYPE_CHECKING:
    from coro.ssl import openssl as openssl
    from coro.ssl import testing as testing
    from coro.ssl.openssl import dh_param as dh_param
    from coro.ssl.openssl import pkey as pkey
    from coro.ssl.openssl import x509 as x509
else:

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in ("openssl", "testing"):
            return import_module(f"coro.ssl.{name}")
        if name in ("dh_param", "pkey", "x509"):
            return getattr(import_module("coro.ssl.openssl"), name)
        raise AttributeError(f"module 'coro.ssl' has no attribute {name!r}")


__all__ = [
    "CertificateError",
    "Context",
    "ContextStatistics",
    "HandshakeError",
    "HandshakeTimeout",
    "ProtocolError",
    "TLSError",
    "TLSStream",
    "TruncatedError",
    "UnsupportedError",
    "new_ctx",
    "sock",
]
