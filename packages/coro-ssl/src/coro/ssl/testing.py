"""A private certificate authority for tests: `CA`, which issues certificates for servers and clients.

    from coro.ssl import testing

    ca = testing.CA()
    server = ca.issue("localhost", "127.0.0.1")
    # server.chain_pem and server.key_pem for the server's context, ca.pem for the client's

Everything is made in memory, with keys on the curve P-256 unless another kind is asked for, so that a CA and a
certificate take about a millisecond.  The certificates pass strict checks (RFC 5280; `VERIFY_X509_STRICT`, which
Python 3.13 and newer set by default): key identifiers, key usage, basic constraints.  They are for tests: the keys are
not protected, and nobody should trust such a CA elsewhere.

Needs `cryptography` (`pip install "coro-ssl[certificates]"`).
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from coro.ssl._certs.certificates import check_pair, general_names, pkcs12, x509
from coro.ssl._certs.errors import Error, installed
from coro.ssl._certs.keys import SMALLEST_RSA, pkey, private_pem

with installed():
    from cryptography import x509 as _x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["CA", "Issued"]

_KINDS = ("ec", "ec384", "ec521", "rsa", "rsa3072", "rsa4096", "ed25519", "ed448")
_DAY = datetime.timedelta(days=1)


def _make_key(kind: str) -> Any:
    if kind not in _KINDS:
        raise ValueError(f"a kind of key is one of {', '.join(_KINDS)}, not {kind!r}")
    if kind == "ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    if kind == "ed448":
        return ed448.Ed448PrivateKey.generate()
    if kind.startswith("rsa"):
        return rsa.generate_private_key(65537, int(kind[3:] or SMALLEST_RSA))
    curve = {"ec": ec.SECP256R1(), "ec384": ec.SECP384R1(), "ec521": ec.SECP521R1()}[kind]
    return ec.generate_private_key(curve)


def _hash(key: Any) -> Any:
    return None if isinstance(key, (ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey)) else hashes.SHA256()


def _name(common_name: str) -> _x509.Name:
    return _x509.Name(
        [
            _x509.NameAttribute(NameOID.ORGANIZATION_NAME, "coro tests"),
            _x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _usage(**allowed: bool) -> _x509.KeyUsage:
    names = ["digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"]
    names += ["key_cert_sign", "crl_sign", "encipher_only", "decipher_only"]
    return _x509.KeyUsage(**{name: allowed.get(name, False) for name in names})


class Issued:
    """A certificate that a ``CA`` has issued, with its private key.

    ``cert_pem`` is the certificate alone, ``chain_pem`` with those of intermediate CAs after it, as a server sends
    them, ``key_pem`` the private key, ``pem`` all of these. ``der`` is the certificate in DER. ``cert`` and ``key`` are
    the same as ``x509`` and ``pkey`` objects.
    """

    def __init__(self, cert: _x509.Certificate, key: Any, chain: Iterable[_x509.Certificate] = ()) -> None:
        self.cert = x509._of(cert)
        self.key = pkey._of(key)
        self.cert_pem: bytes = cert.public_bytes(serialization.Encoding.PEM)
        self.chain_pem: bytes = self.cert_pem + b"".join(c.public_bytes(serialization.Encoding.PEM) for c in chain)
        self.key_pem: bytes = private_pem(key)
        self.pem: bytes = self.chain_pem + self.key_pem
        self.der: bytes = cert.public_bytes(serialization.Encoding.DER)
        self._chain = [x509._of(c) for c in chain]

    def write(self, folder: str | os.PathLike[str], name: str = "server") -> tuple[str, str]:
        """Write the chain to ``NAME.pem`` and the key to ``NAME.key`` in ``folder``; returns both paths. The key is
        readable for its owner only."""
        cert, key = Path(folder) / f"{name}.pem", Path(folder) / f"{name}.key"
        cert.write_bytes(self.chain_pem)
        write_private(key, self.key_pem)
        return str(cert), str(key)

    def pkcs12(self, password: str, name: str = "coro") -> bytes:
        """Certificate, chain and key as a PKCS #12 file."""
        return pkcs12().create(password, self.key, self.cert, self._chain, name).as_data()

    def __repr__(self) -> str:
        return f"<Issued {self.cert.get_subject_name()}: {', '.join(self.cert.get_hosts())}>"


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, from the first byte on. One that is there is replaced."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


class CA:
    """A certificate authority. ``pem`` is its certificate, for those who shall trust it.

    ``name`` is its common name. ``key`` is the kind of its key: ec (P-256), ec384, ec521, rsa (2048 bits), rsa3072,
    rsa4096, ed25519 or ed448. ``days`` is how long it is valid. ``permitted`` are DNS names: if given, the CA may only
    issue for these and names below them (name constraints, RFC 5280, 4.2.1.10).
    """

    def __init__(
        self, name: str = "coro test CA", *, key: str = "ec", days: float = 30, permitted: Iterable[str] = ()
    ) -> None:
        self._issuer: CA | None = None
        self._make(name, key, days, list(permitted), None)

    def _make(self, name: str, key: str, days: float, permitted: list[str], path_length: int | None) -> None:
        self._key = _make_key(key)
        self._cert: _x509.Certificate
        self._revoked: list[_x509.RevokedCertificate] = []
        parent = self._issuer
        signer = parent._key if parent is not None else self._key
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            _x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(parent._cert.subject if parent is not None else _name(name))
            .public_key(self._key.public_key())
            .serial_number(_x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(_x509.BasicConstraints(True, path_length), critical=True)
            .add_extension(_usage(key_cert_sign=True, crl_sign=True, digital_signature=True), critical=True)
            .add_extension(_x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(_x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        if permitted:
            names = _x509.NameConstraints([_x509.DNSName(one) for one in permitted], None)
            builder = builder.add_extension(names, critical=True)
        self._cert = builder.sign(signer, _hash(signer))
        self.pem: bytes = self._cert.public_bytes(serialization.Encoding.PEM)
        self.der: bytes = self._cert.public_bytes(serialization.Encoding.DER)
        self.cert = x509._of(self._cert)
        self.key_pem: bytes = private_pem(self._key)

    @classmethod
    def load(cls, pem: bytes, key_pem: bytes) -> CA:
        """A CA that was made before: its certificate and its private key in PEM. ValueError if they are not those of a
        CA, or do not belong together."""
        ca = cls.__new__(cls)
        ca._issuer = None
        ca._revoked = []
        try:
            ca.cert, key = x509(pem), pkey(key_pem, private=True)
        except Error as e:
            raise ValueError(f"this is no CA: {e}") from e
        ca._cert, ca._key = ca.cert._signed, key._secret
        try:
            is_ca = ca._cert.extensions.get_extension_for_class(_x509.BasicConstraints).value.ca
        except _x509.ExtensionNotFound:
            is_ca = False
        if not is_ca or not check_pair(ca.cert, key):
            raise ValueError("this is no CA: the certificate may not issue others, or the key is another one's")
        ca.pem, ca.der, ca.key_pem = ca.cert.as_pem(), ca.cert.as_der(), private_pem(ca._key)
        return ca

    def intermediate(
        self,
        name: str = "coro test intermediate CA",
        *,
        key: str = "ec",
        days: float = 30,
        permitted: Iterable[str] = (),
        path_length: int | None = None,
    ) -> CA:
        """A CA that this one has signed. What it issues has its certificate in ``chain_pem``. ``path_length`` is how
        many further CAs may follow below it; the rest is as for the class."""
        child = CA.__new__(CA)
        child._issuer = self
        child._make(name, key, days, list(permitted), path_length)
        return child

    def _chain(self) -> list[_x509.Certificate]:
        """The certificates up to the root, without it."""
        return [] if self._issuer is None else [self._cert, *self._issuer._chain()]

    def issue(
        self,
        *hosts: str,
        key: str = "ec",
        days: float = 10,
        starts_in: float = -1,
        common_name: str | None = None,
        client: bool = True,
        server: bool = True,
    ) -> Issued:
        """A certificate for host names, IP addresses and mail addresses.

        ``key`` is the kind of key. It becomes valid in ``starts_in`` days and stays so for ``days``: with
        ``starts_in=-10, days=5`` it has expired. ``common_name`` is the subject's name, the first host if None.
        ``client`` and ``server`` are what it may be used for. ValueError for a host that is none.
        """
        names = general_names(hosts)
        secret = _make_key(key)
        now = datetime.datetime.now(datetime.UTC)
        begin = now + _DAY * starts_in
        usages = [ExtendedKeyUsageOID.SERVER_AUTH] * server + [ExtendedKeyUsageOID.CLIENT_AUTH] * client
        name = common_name if common_name is not None else hosts[0] if hosts else "nobody"
        authority = _x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _x509.CertificateBuilder()
            .subject_name(_name(name[:64]))
            .issuer_name(self._cert.subject)
            .public_key(secret.public_key())
            .serial_number(_x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + datetime.timedelta(days=days))
            .add_extension(_x509.BasicConstraints(False, None), critical=True)
            .add_extension(_usage(digital_signature=True, key_encipherment=key.startswith("rsa")), critical=True)
            .add_extension(_x509.SubjectKeyIdentifier.from_public_key(secret.public_key()), critical=False)
            .add_extension(authority, critical=False)
        )
        if usages:
            builder = builder.add_extension(_x509.ExtendedKeyUsage(usages), critical=False)
        if hosts:
            builder = builder.add_extension(_x509.SubjectAlternativeName(names), critical=False)
        return Issued(builder.sign(self._key, _hash(self._key)), secret, self._chain())

    def revoke(self, issued: Issued) -> None:
        """Put a certificate on the list that ``crl_pem`` gives."""
        serial = issued.cert.get_serialNumber().get()
        now = datetime.datetime.now(datetime.UTC)
        self._revoked.append(_x509.RevokedCertificateBuilder(serial, now).build())

    def crl_pem(self, *, days: float = 10) -> bytes:
        """The list of revoked certificates (RFC 5280, 5), valid for ``days`` from yesterday on."""
        begin = datetime.datetime.now(datetime.UTC) - _DAY
        builder = (
            _x509.CertificateRevocationListBuilder(self._cert.subject, begin, begin + _DAY * (days + 1))
            .add_extension(_x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(_x509.CRLNumber(len(self._revoked) + 1), critical=False)
        )
        for one in self._revoked:
            builder = builder.add_revoked_certificate(one)
        return bytes(builder.sign(self._key, _hash(self._key)).public_bytes(serialization.Encoding.PEM))

    def write(self, folder: str | os.PathLike[str], name: str = "ca") -> str:
        """Write the CA's certificate to ``NAME.pem`` in ``folder``; returns the path."""
        path = Path(folder) / f"{name}.pem"
        path.write_bytes(self.pem)
        return str(path)

    def __repr__(self) -> str:
        return f"<CA {self.cert.get_subject_name()}>"
