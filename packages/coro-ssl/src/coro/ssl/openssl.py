"""Certificates, keys, digests and signatures under the names of the original Shrapnel's `coro.ssl.openssl`.

    from coro.ssl import openssl

    key = openssl.pkey(openssl.rsa(2048))
    cert = openssl.x509()
    cert.get_subject_name().add_entry_by_txt("CN", "example.org")
    cert.set_hosts(["example.org"])
    cert.get_notAfter().gmtime_adj(90 * 86400)
    cert.set_pubkey(key)
    cert.sign(key)

It works over the distribution `cryptography` (`pip install "coro-ssl[certificates]"`).  Defaults are those of today:
SHA-256, RSA keys of 2048 bits and more, OAEP, certificates that pass strict checks.  What is known to be broken is
refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coro.ssl._certs.certificates import pkcs12, read_pem_cert, read_pem_certs, x509, x509_req
from coro.ssl._certs.ciphers import cipher, digest, random_bytes, random_status
from coro.ssl._certs.elliptic import ecdsa
from coro.ssl._certs.errors import Error, UnknownCipherType, UnknownDigestType, WantRead, WantWrite
from coro.ssl._certs.keys import dh_param, pkey, read_pem_key, rsa
from coro.ssl._certs.views import (
    asn1_integer,
    asn1_object,
    asn1_string,
    asn1_time,
    bignum,
    x509_name,
    x509_name_entry,
)

if TYPE_CHECKING:
    from coro.ssl._certs.connections import ssl as ssl
    from coro.ssl._certs.connections import ssl_ctx as ssl_ctx

    openssl_version: str

__all__ = [
    "SSL_OP",
    "SSL_VERIFY",
    "Error",
    "UnknownCipherType",
    "UnknownDigestType",
    "WantRead",
    "WantWrite",
    "asn1_integer",
    "asn1_object",
    "asn1_string",
    "asn1_time",
    "bignum",
    "cipher",
    "dh_param",
    "digest",
    "ecdsa",
    "get_all_ciphers",
    "pkcs12",
    "pkey",
    "random_bytes",
    "random_status",
    "read_pem_cert",
    "read_pem_certs",
    "read_pem_key",
    "rsa",
    "ssl",
    "ssl_ctx",
    "x509",
    "x509_name",
    "x509_name_entry",
    "x509_req",
]


class SSL_OP:
    """Options for ``ssl_ctx.set_options``, with OpenSSL's numbers. Versions before TLS 1.2 are off anyway."""

    ALL = 0x80000050
    NO_SSLv2 = 0
    NO_SSLv3 = 0x02000000
    NO_TLSv1 = 0x04000000
    NO_TLSv1_1 = 0x10000000
    NO_TLSv1_2 = 0x08000000
    NO_TLSv1_3 = 0x20000000
    SINGLE_DH_USE = 0


class SSL_VERIFY:
    """Modes for ``ssl_ctx.set_verify``, with OpenSSL's numbers: whether the peer must show a certificate that is
    trusted."""

    NONE = 0
    PEER = 1
    FAIL_IF_NO_PEER_CERT = 2
    CLIENT_ONCE = 4


def get_all_ciphers() -> list[str]:
    """The names of the ciphers that OpenSSL can use for TLS 1.2 and 1.3, with encryption and authentication."""
    from ssl import PROTOCOL_TLS_CLIENT, SSLContext

    context = SSLContext(PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:!aNULL:!eNULL")
    return [one["name"] for one in context.get_ciphers()]


def __getattr__(name: str) -> object:
    if name in ("ssl", "ssl_ctx"):
        from coro.ssl._certs import connections

        return getattr(connections, name)
    if name == "openssl_version":
        from ssl import OPENSSL_VERSION

        return OPENSSL_VERSION
    raise AttributeError(f"module 'coro.ssl.openssl' has no attribute {name!r}")
