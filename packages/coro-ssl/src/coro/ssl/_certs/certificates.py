"""Certificates, requests for certificates, and PKCS #12 files: `x509`, `x509_req`, `pkcs12`.

A certificate of `cryptography` cannot be changed, one of OpenSSL can, and the classic names follow OpenSSL. So `x509`
holds the parts, and the signed certificate as long as no part was changed. `sign` makes a new one.

What is signed here passes strict checks (RFC 5280, 4.2; `VERIFY_X509_STRICT`, the default of Python 3.13): version 3,
key identifiers, basic constraints. Signatures with SHA-1 and MD5 are refused: certificates can be forged with them.
"""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Iterable
from typing import Any

from coro.ssl._certs.ciphers import hash_named
from coro.ssl._certs.errors import Error, installed, told
from coro.ssl._certs.keys import as_bytes, load_private, pkey
from coro.ssl._certs.views import asn1_integer, asn1_time, x509_name

with installed():
    from cryptography import x509 as _x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ed448, ed25519
    from cryptography.hazmat.primitives.serialization import pkcs12 as _pkcs12

__all__ = ["pkcs12", "read_pem_cert", "x509", "x509_req"]

#: Digests that are too weak to sign with.
_BROKEN = (hashes.MD5, hashes.SHA1)


def signing_hash(key: Any, digest: str) -> Any:
    """The hash for a signature with this key; None for keys that bring their own."""
    if isinstance(key, (ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey)):
        return None
    chosen = hash_named(digest)
    if isinstance(chosen, _BROKEN):
        raise Error(0, f"certificates must not be signed with {digest}, which can be forged; use SHA256")
    return chosen


def general_names(hosts: Iterable[str]) -> list[_x509.GeneralName]:
    """Host names and addresses as they stand in a certificate. ValueError for what is neither."""
    names: list[_x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(_x509.IPAddress(ipaddress.ip_address(host.strip("[]"))))
            continue
        except ValueError:
            pass
        if "@" in host:
            names.append(_x509.RFC822Name(host))
            continue
        try:
            ascii_name = host if host.isascii() else host.encode("idna").decode()
        except UnicodeError as e:
            raise ValueError(f"{host!r} is no host name: {e}") from e
        if not ascii_name or any(c.isspace() or c == "/" for c in ascii_name):
            raise ValueError(f"{host!r} is neither a host name nor an address")
        names.append(_x509.DNSName(ascii_name))
    return names


class x509:
    """A certificate: ``x509(pem)`` reads the first one in ``pem``; ``x509()`` or ``x509("")`` is an empty one, to be
    filled and signed. Raises Error if it cannot be read."""

    def __init__(self, pem: str | bytes | None = None) -> None:
        self._cert: _x509.Certificate | None = None
        self._serial = 0
        self._not_before: datetime.datetime | None = None
        self._not_after: datetime.datetime | None = None
        self._key: Any = None
        self._extensions: list[_x509.Extension[Any]] = []
        self._subject = x509_name(changed=self._changed)
        self._issuer = x509_name(changed=self._changed)
        if pem:
            with told("cannot read the certificate"):
                cert = _x509.load_pem_x509_certificate(as_bytes(pem, "a certificate in PEM"))
            self._load(cert)

    @classmethod
    def _of(cls, cert: _x509.Certificate) -> x509:
        self = cls()
        self._load(cert)
        return self

    @classmethod
    def from_der(cls, der: bytes) -> x509:
        """The certificate in ``der``. Raises Error if it cannot be read."""
        with told("cannot read the certificate"):
            return cls._of(_x509.load_der_x509_certificate(der))

    def _load(self, cert: _x509.Certificate) -> None:
        with told("cannot read the certificate"):
            self._serial = cert.serial_number
            self._not_before, self._not_after = cert.not_valid_before_utc, cert.not_valid_after_utc
            self._subject = x509_name(cert.subject, self._changed)
            self._issuer = x509_name(cert.issuer, self._changed)
            self._extensions = list(cert.extensions)
            try:
                self._key = cert.public_key()
            except Exception:
                self._key = None  # of a kind that is not known: the rest can still be looked at
        self._cert = cert

    def _changed(self) -> None:
        self._cert = None

    @property
    def _signed(self) -> _x509.Certificate:
        if self._cert is None:
            raise Error(0, "the certificate is empty or was changed; call sign(key) first")
        return self._cert

    # -- parts

    def get_subject_name(self) -> x509_name:
        """Whose certificate it is. The name can be changed."""
        return self._subject

    def get_issuer_name(self) -> x509_name:
        """Who has signed it. The name can be changed."""
        return self._issuer

    get_issuer = get_issuer_name
    get_subject = get_subject_name

    def get_version(self) -> int:
        """The version as it is encoded: 2 means version 3."""
        return self._cert.version.value if self._cert is not None else 2

    def set_version(self, version: int) -> None:
        """Only 2, which means version 3, can be set: older versions have no extensions. ValueError otherwise."""
        if version != 2:
            raise ValueError(f"certificates are of version 3, which is encoded as 2, not {version}")

    def get_serialNumber(self) -> asn1_integer:
        """The serial number; setting it changes the certificate."""
        return asn1_integer(self._serial, self.set_serialNumber)

    def set_serialNumber(self, n: int | None = None) -> None:
        """Set the serial number, at random with 64 bits if ``n`` is None. ValueError for a negative number, zero, or
        more than 20 bytes (RFC 5280, 4.1.2.2)."""
        if n is None:
            n = secrets.randbits(63) | 1 << 63
        if n <= 0 or n.bit_length() > 159:
            raise ValueError(f"a serial number is positive and of at most 159 bits, not {n}")
        self._serial = n
        self._changed()

    def get_notBefore(self) -> asn1_time:
        """From when on it is valid. Changing it changes the certificate. Of an empty certificate it is now."""

        def changed(when: datetime.datetime) -> None:
            self._not_before = when
            self._changed()

        if self._not_before is None:
            self._not_before = asn1_time().datetime
        return asn1_time(self._not_before, changed)

    def get_notAfter(self) -> asn1_time:
        """Until when it is valid. Changing it changes the certificate. Of an empty certificate it is now."""

        def changed(when: datetime.datetime) -> None:
            self._not_after = when
            self._changed()

        if self._not_after is None:
            self._not_after = asn1_time().datetime
        return asn1_time(self._not_after, changed)

    def set_pubkey(self, key: pkey) -> None:
        """Set the public key of the subject; ``key`` may be a private key, of which only the public half is taken."""
        self._key = key._shown
        self._changed()

    def get_pubkey(self) -> pkey:
        """The public key of the subject. Raises Error if there is none, or it is of an unknown kind."""
        if self._key is None:
            raise Error(0, "the certificate has no public key, or one of a kind that is not known")
        return pkey._of(self._key)

    def set_hosts(self, hosts: Iterable[str]) -> None:
        """The host names, IP addresses and mail addresses that the certificate is for (subjectAltName, RFC 5280,
        4.2.1.6). Clients look nowhere else. ValueError for what is none of these."""
        self._replace(_x509.SubjectAlternativeName(general_names(hosts)), critical=not self._subject.entry_count())

    def get_hosts(self) -> list[str]:
        """The host names, IP addresses and mail addresses that the certificate is for."""
        for extension in self._extensions:
            if isinstance(extension.value, _x509.SubjectAlternativeName):
                return [str(name.value) for name in extension.value]
        return []

    def _replace(self, value: Any, critical: bool) -> None:
        self._extensions = [e for e in self._extensions if e.oid != value.oid]
        self._extensions.append(_x509.Extension(value.oid, critical, value))
        self._changed()

    def _has(self, kind: type) -> bool:
        return any(isinstance(e.value, kind) for e in self._extensions)

    # -- signing

    def sign(self, key: pkey, digest: str = "SHA256", *, issuer: x509 | None = None, ca: bool = False) -> None:
        """Sign with the issuer's private key.

        ``issuer`` is the issuer's certificate: its subject becomes the issuer's name here. Without it the name is the
        one set by ``get_issuer_name()``, or the subject's if that is empty (self-signed). ``ca``: whether the owner may
        sign certificates; a certificate that was read and says it already need not be told again. Raises Error if a
        part is missing, the digest is too weak, or the key a public one.
        """
        secret = key._secret
        if self._key is None:
            raise Error(0, "the certificate has no public key; call set_pubkey(key) first")
        self.get_notBefore()  # now, if nothing else was said
        if self._not_before is None or self._not_after is None or self._not_after <= self._not_before:
            raise Error(0, "the certificate is never valid; set get_notAfter() first")
        if not self._serial:
            self.set_serialNumber()
        if issuer is not None:
            self._issuer = x509_name(issuer.get_subject_name()._name(), self._changed)
        elif not self._issuer.entry_count():
            self._issuer = x509_name(self._subject._name(), self._changed)
        if not self._has(_x509.BasicConstraints):
            self._replace(_x509.BasicConstraints(ca, None), critical=True)
        if ca and not self._has(_x509.KeyUsage):
            usage = _x509.KeyUsage(True, False, False, False, False, True, True, False, False)
            self._replace(usage, critical=True)
        self._replace(_x509.SubjectKeyIdentifier.from_public_key(self._key), critical=False)
        issuer_key = secret.public_key()
        if issuer is not None and issuer.get_pubkey().get_public() != pkey._of(issuer_key).get_public():
            raise Error(0, "the key is not that of the issuer's certificate")
        known = issuer._key_identifier() if issuer is not None else None
        identifier = _x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key)
        if known is not None:
            identifier = _x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)
        self._replace(identifier, critical=False)
        with told("cannot sign the certificate"):
            builder = _x509.CertificateBuilder(
                self._issuer._name(), self._subject._name(), self._key, self._serial, self._not_before, self._not_after
            )
            for extension in self._extensions:
                builder = builder.add_extension(extension.value, extension.critical)
            self._cert = builder.sign(secret, signing_hash(secret, digest))

    def _key_identifier(self) -> _x509.SubjectKeyIdentifier | None:
        for extension in self._extensions:
            if isinstance(extension.value, _x509.SubjectKeyIdentifier):
                return extension.value
        return None

    def is_signed_by(self, issuer: x509) -> bool:
        """Whether the signature is that of ``issuer``'s key, and the names fit. This is one link of a chain, not a
        check of the certificate."""
        try:
            self._signed.verify_directly_issued_by(issuer._signed)
        except Error:
            raise
        except Exception:
            return False
        return True

    def to_x509_req(self, digest: str = "SHA256", key: pkey | None = None) -> x509_req:
        """A request for a new certificate with the same subject, hosts and key. With ``key``, the private key, it is
        signed with ``digest``; without, ``sign`` has to be called."""
        request = x509_req()
        request._subject = x509_name(self._subject._name(), request._changed)
        if self._key is not None:
            request.set_pubkey(pkey._of(self._key))
        request._hosts = self.get_hosts()
        if key is not None:
            request.sign(key, digest)
        return request

    # -- forms

    def as_pem(self) -> bytes:
        """The certificate in PEM. Raises Error if it is not signed."""
        return bytes(self._signed.public_bytes(serialization.Encoding.PEM))

    def as_der(self) -> bytes:
        """The certificate in DER. Raises Error if it is not signed."""
        return bytes(self._signed.public_bytes(serialization.Encoding.DER))

    def fingerprint(self, digest: str = "SHA256") -> str:
        """The digest of the certificate, as hexadecimal digits with colons."""
        return str(self._signed.fingerprint(hash_named(digest)).hex(":").upper())

    def print_ex(self) -> str:
        """What it says, for people: several lines."""
        lines = [
            f"Subject: {self._subject}",
            f"Issuer: {self._issuer}",
            f"Serial number: {asn1_integer(self._serial).to_hex()}",
            f"Valid from: {self.get_notBefore()}",
            f"Valid until: {self.get_notAfter()}",
            f"Hosts: {', '.join(self.get_hosts()) or '-'}",
            f"Public key: {self.get_pubkey()!r}" if self._key is not None else "Public key: not known",
        ]
        if self._cert is not None:
            algorithm = self._cert.signature_algorithm_oid._name
            lines += [f"Signature: {algorithm}", f"SHA-256 fingerprint: {self.fingerprint()}"]
        return "\n".join(lines)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, x509):
            return NotImplemented
        if self._cert is None or other._cert is None:
            return self is other
        return bool(self._cert == other._cert)

    def __hash__(self) -> int:
        return hash((self._serial, self._issuer))

    def __repr__(self) -> str:
        state = "" if self._cert is not None else ", not signed"
        return f"<x509 {self._subject}{state}>"


class x509_req:
    """A request for a certificate (PKCS #10): ``x509_req(pem)`` reads one, ``x509_req()`` is an empty one. Raises Error
    if it cannot be read, or its signature is not that of its own key."""

    def __init__(self, pem: str | bytes | None = None) -> None:
        self._request: _x509.CertificateSigningRequest | None = None
        self._key: Any = None
        self._hosts: list[str] = []
        self._subject = x509_name(changed=self._changed)
        if not pem:
            return
        with told("cannot read the request"):
            request = _x509.load_pem_x509_csr(as_bytes(pem, "a request in PEM"))
            if not request.is_signature_valid:
                raise Error(0, "the request is not signed with its own key")
            self._key = request.public_key()
            self._subject = x509_name(request.subject, self._changed)
            for extension in request.extensions:
                if isinstance(extension.value, _x509.SubjectAlternativeName):
                    self._hosts = [str(name.value) for name in extension.value]
        self._request = request

    def _changed(self) -> None:
        self._request = None

    def get_subject_name(self) -> x509_name:
        """Who asks. The name can be changed."""
        return self._subject

    def get_hosts(self) -> list[str]:
        """The host names and addresses that it asks for."""
        return list(self._hosts)

    def set_hosts(self, hosts: Iterable[str]) -> None:
        """Set the host names and addresses that it asks for. ValueError for what is neither."""
        hosts = list(hosts)
        general_names(hosts)
        self._hosts = hosts
        self._changed()

    def set_pubkey(self, key: pkey) -> None:
        """Set the public key that the certificate is to be for."""
        self._key = key._shown
        self._changed()

    def get_pubkey(self) -> pkey:
        """The public key that the certificate is to be for. Raises Error if there is none."""
        if self._key is None:
            raise Error(0, "the request has no public key")
        return pkey._of(self._key)

    def sign(self, key: pkey, digest: str = "SHA256") -> None:
        """Sign with the private key of the public key that is set, or set that of ``key`` if none is. Raises Error if
        they do not belong together, or the digest is too weak."""
        secret = key._secret
        if self._key is None:
            self._key = key._shown
        if key.get_public() != pkey._of(self._key).get_public():
            raise Error(0, "a request is signed with its own key; this is another one")
        with told("cannot sign the request"):
            builder = _x509.CertificateSigningRequestBuilder(self._subject._name())
            if self._hosts:
                names = _x509.SubjectAlternativeName(general_names(self._hosts))
                builder = builder.add_extension(names, critical=False)
            self._request = builder.sign(secret, signing_hash(secret, digest))

    def as_pem(self) -> bytes:
        """The request in PEM. Raises Error if it is not signed."""
        if self._request is None:
            raise Error(0, "the request is empty or was changed; call sign(key) first")
        return bytes(self._request.public_bytes(serialization.Encoding.PEM))

    def __repr__(self) -> str:
        return f"<x509_req {self._subject}{'' if self._request is not None else ', not signed'}>"


class pkcs12:
    """A PKCS #12 file, a key and its certificates in one: ``pkcs12(data).parse(password)`` reads one, ``create`` makes
    one."""

    def __init__(self, data: bytes | None = None) -> None:
        self._data = bytes(data) if data else b""

    def parse(self, password: str | bytes) -> tuple[pkey | None, x509 | None, list[x509]]:
        """The private key, its certificate, and the other certificates. Raises Error if the password is wrong."""
        with told("cannot read the PKCS #12 file (is the password right?)"):
            key, cert, others = _pkcs12.load_key_and_certificates(
                self._data, as_bytes(password, "a password") if password else None
            )
            return (
                pkey._of(key) if key is not None else None,
                x509._of(cert) if cert is not None else None,
                [x509._of(other) for other in others],
            )

    def create(
        self,
        password: str | bytes,
        key: pkey,
        cert: x509,
        intermediates: Iterable[x509] = (),
        name: str | bytes | None = None,
    ) -> pkcs12:
        """Put a private key and its certificate into the file, encrypted with ``password``; returns it. ``name`` is
        shown by programs that list the file. ValueError without a password, Error if key and certificate do not belong
        together."""
        if not password:
            raise ValueError("a PKCS #12 file with a private key needs a password")
        if key.get_public() != cert.get_pubkey().get_public():
            raise Error(0, "the key is not that of the certificate")
        secret = as_bytes(password, "a password")
        with told("cannot make the PKCS #12 file"):
            self._data = _pkcs12.serialize_key_and_certificates(
                as_bytes(name, "a name") if name else None,
                key._secret,
                cert._signed,
                [other._signed for other in intermediates] or None,
                serialization.BestAvailableEncryption(secret),
            )
        return self

    def as_data(self) -> bytes:
        """The file. Raises Error if it is empty."""
        if not self._data:
            raise Error(0, "the PKCS #12 file is empty; call create() first")
        return self._data

    def __repr__(self) -> str:
        return f"<pkcs12 {len(self._data)} bytes>"


def read_pem_cert(pem: str | bytes) -> x509:
    """The first certificate in ``pem``. Raises Error if there is none."""
    if not pem:
        raise Error(0, "cannot read the certificate: there is nothing to read")
    return x509(pem)


def read_pem_certs(pem: str | bytes) -> list[x509]:
    """All certificates in ``pem``. Raises Error if there is none."""
    with told("cannot read the certificates"):
        return [x509._of(cert) for cert in _x509.load_pem_x509_certificates(as_bytes(pem, "certificates in PEM"))]


def check_pair(cert: x509, key: pkey) -> bool:
    """Whether the private key is that of the certificate."""
    return cert.get_pubkey().get_public() == key.get_public()


__all__ += ["check_pair", "load_private", "read_pem_certs"]
